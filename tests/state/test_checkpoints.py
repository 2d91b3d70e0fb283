"""Checkpoints survive kills, full disks and damage, and never the wrong one is used."""

from __future__ import annotations

import dataclasses
import hashlib
import random
import shutil
import time

import pytest
import torch

from stabexp.errors import CheckpointError
from stabexp.state import CheckpointStore, Snapshot, capture, first_difference, state_hash
from stabexp.state.checkpoint_index import CheckpointIndex


def snapshot(value: float, size: int = 100) -> Snapshot:
    model = torch.nn.Linear(size, 1)
    torch.nn.init.constant_(model.weight, value)
    return capture({"model": model}, extra={"value": value})


def saved(directory, steps, **options):
    with CheckpointStore(directory, **options) as store:
        for step in steps:
            store.save(step, snapshot(step), finite=True)
    return store


def steps_of(store):
    return [info.step for info in store.infos()]


def files_of(directory):
    return sorted(path.name for path in directory.iterdir())


def test_what_was_saved_is_loaded(make_world, tmp_path):
    world = make_world("adamw", "one cycle")
    world.train(3)
    state = world.capture(step=3, position=12, nested={"ids": [1, 2], "none": None})
    with CheckpointStore(tmp_path / "a" / "b") as store:
        store.save(3, state, finite=state.finite)
    loaded = CheckpointStore.reader(tmp_path / "a" / "b").load(3)
    assert first_difference(state, loaded) is None
    (info,) = store.infos()
    assert info.state_hash == state_hash(state) == state_hash(loaded)
    assert info.bytes == (tmp_path / "a" / "b" / info.file).stat().st_size
    assert info.finite


def test_nothing_is_created_before_the_first_save(tmp_path):
    store = CheckpointStore(tmp_path / "none")
    assert store.infos() == []
    assert store.newest_usable() is None
    store.flush()
    store.close()
    with pytest.raises(CheckpointError, match=r"no checkpoint of step 3; there are .*: none"):
        store.load(3)
    assert not (tmp_path / "none").exists()


def test_step_0_the_last_ones_and_protected_ones_are_kept(tmp_path):
    store = CheckpointStore(tmp_path, keep=2)
    for step in range(6):
        store.save(step, snapshot(step), finite=True)
        if step == 2:
            store.protect(2)  # while it is being written
    store.flush()
    assert steps_of(store) == [0, 2, 4, 5]
    store.protect(4)  # in place of 2
    store.save(6, snapshot(6), finite=True)
    store.save(7, snapshot(7), finite=True)
    store.close()
    assert steps_of(store) == [0, 4, 6, 7]
    assert len(files_of(tmp_path)) == 5
    with pytest.raises(CheckpointError, match=r"no checkpoint of step 2; there are .*: 0, 4, 6, 7"):
        store.protect(2)
    again = CheckpointStore(tmp_path, keep=1)  # a new process remembers what is protected
    again.save(8, snapshot(8), finite=True)
    again.close()
    assert steps_of(again) == [0, 4, 8]


def test_the_newest_finite_one_outlives_newer_ones_that_are_not(tmp_path):
    with CheckpointStore(tmp_path, keep=2) as store:
        for step, finite in enumerate([True, True, True, False, False, False]):
            store.save(step, snapshot(step), finite=finite)
    assert steps_of(store) == [0, 2, 4, 5]
    newest = store.newest_usable()
    finite = store.newest_usable(finite_only=True)
    early = store.newest_usable(1)
    assert [info and info.step for info in (newest, finite, early)] == [5, 2, 0]


def test_a_step_saved_again_is_replaced(tmp_path):
    saved(tmp_path, [0, 5])
    with CheckpointStore(tmp_path) as store:
        store.save(5, snapshot(50), finite=True)
    assert steps_of(store) == [0, 5]
    assert store.load(5).extra["value"] == 50
    assert len(files_of(tmp_path)) == 3


def test_saving_does_not_wait_for_the_disk(tmp_path):
    big = snapshot(1, size=4_000_000)
    with CheckpointStore(tmp_path) as store:
        start = time.perf_counter()
        store.save(0, big, finite=True)
        handed_over = time.perf_counter() - start
        store.flush()
        written = time.perf_counter() - start
    assert handed_over < written / 2


@pytest.mark.parametrize("keep", [0, -1])
def test_keeping_none_is_refused(keep, tmp_path):
    with pytest.raises(ValueError, match=f"keep: {keep} is too few"):
        CheckpointStore(tmp_path, keep=keep)


def test_every_truncation_and_flipped_bit_is_noticed_and_the_one_before_is_used(tmp_path):
    store = saved(tmp_path, [0, 5])
    path = tmp_path / store.infos()[1].file
    good = path.read_bytes()
    chance = random.Random(0)
    lengths = [0, 1, len(good) - 1, *(chance.randrange(len(good)) for _ in range(40))]
    for length in lengths:
        path.write_bytes(good[:length])
        with pytest.raises(CheckpointError, match=rf"{path.name}: torn: {length} bytes"):
            store.load(5)
    for _ in range(200):
        bad = bytearray(good)
        bad[chance.randrange(len(good))] ^= 1 << chance.randrange(8)
        path.write_bytes(bad)
        with pytest.raises(CheckpointError, match=rf"{path.name}: altered: .*earlier checkpoint"):
            store.load(5)
        info = store.newest_usable()
        assert info is not None
        assert info.step == 0
    path.unlink()
    with pytest.raises(CheckpointError, match="No such file"):
        store.load(5)
    path.write_bytes(good)
    assert store.load(5).extra["value"] == 5


def test_every_torn_or_altered_index_is_survived(tmp_path):
    saved(tmp_path / "good", [0, 5, 9])
    index = (tmp_path / "good" / "checkpoints.jsonl").read_bytes()
    lines = index.splitlines(keepends=True)
    chance = random.Random(0)
    for _ in range(60):
        directory = tmp_path / "copy"
        shutil.copytree(tmp_path / "good", directory)
        bad = bytearray(index)
        where = chance.randrange(len(bad) - 1)
        if chance.random() < 0.5:
            bad = bad[:where]
        else:
            bad[where] ^= 1 << chance.randrange(8)
        (directory / "checkpoints.jsonl").write_bytes(bad)
        untouched = [
            step for step, line in zip((0, 5, 9), lines, strict=True) if line in bytes(bad)
        ]
        store = CheckpointStore(directory)
        assert steps_of(store) == untouched
        store.save(10, snapshot(10), finite=True)
        store.close()
        for step in (*untouched, 10):
            assert store.load(step).extra["value"] == step
        assert steps_of(CheckpointStore(directory)) == [*untouched, 10][-4:]
        shutil.rmtree(directory)


def test_left_over_files_are_ignored_by_readers_and_removed_by_the_next_writer(tmp_path):
    saved(tmp_path, [0, 5])
    (tmp_path / "step-00000009.pt.tmp").write_bytes(b"half")
    (tmp_path / "step-00000008.pt").write_bytes(b"renamed, but not in the index")
    (tmp_path / "notes.txt").write_text("not ours")
    reader = CheckpointStore.reader(tmp_path)
    newest = reader.newest_usable()
    assert newest is not None
    assert newest.step == 5
    assert "step-00000009.pt.tmp" in files_of(tmp_path)
    saved(tmp_path, [9])
    assert files_of(tmp_path) == [
        "checkpoints.jsonl",
        "notes.txt",
        "step-00000000.pt",
        "step-00000005.pt",
        "step-00000009.pt",
    ]


def test_a_file_that_could_run_code_is_refused(tmp_path):
    store = saved(tmp_path, [0])
    (info,) = store.infos()
    path = tmp_path / info.file

    class Evil:
        def __reduce__(self):
            return (print, ("executed",))

    torch.save({"format": 1, "step": 0, "x": Evil()}, path)
    content = path.read_bytes()
    forged = dataclasses.replace(
        info, sha256=hashlib.sha256(content).hexdigest(), bytes=len(content)
    )
    CheckpointIndex(tmp_path).append(forged)
    with pytest.raises(CheckpointError, match="cannot be read with torch"):
        CheckpointStore(tmp_path).load(0)


KILLED = """
import os, random, signal, sys, time, torch
from pathlib import Path
from stabexp.state import CheckpointStore, capture

torch.set_num_threads(1)
directory = Path(sys.argv[1])
model = torch.nn.Linear(60_000, 1)


def save_without_end(first, pipe):
    store = CheckpointStore(directory, keep=2)
    for step in range(first, 1_000_000):
        torch.nn.init.constant_(model.weight, step)
        store.save(step, capture({"model": model}), finite=True)
        os.write(pipe, b".")  # one dot for each save that was handed over


# What a first save loads is loaded here, or the children would load it again and again.
with CheckpointStore(directory.with_name("before")) as store:
    store.save(0, capture({"model": model}), finite=True)
chance = random.Random(1)
newest = -1
for _ in range(20):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        save_without_end(newest + 1, write)
    os.close(write)
    time.sleep(0.005 + chance.random() * 0.1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    handed_over = 0
    while dots := os.read(read, 65536):
        handed_over += len(dots)
    os.close(read)
    store = CheckpointStore.reader(directory)
    info = store.newest_usable()
    # Only the write in progress may be missing, and nothing that was there before is lost.
    now = -1 if info is None else info.step
    assert now >= newest + max(0, handed_over - 1), (now, newest, handed_over)
    newest = now
    for each in store.infos():
        weight = store.load(each.step).objects["model"]["value"]["state"]["weight"]
        assert torch.all(weight == each.step)
print(newest)
"""


def test_a_kill_at_any_moment_leaves_usable_checkpoints(tmp_path, python):
    process = python("-c", KILLED, tmp_path)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    newest = int(output)
    assert newest > 5  # how many of the 20 rounds got to save depends on the machine
    store = saved(tmp_path, [newest + 1], keep=2)  # the next writer tidies up what was left
    assert steps_of(store) == [0, newest, newest + 1]
    assert len(files_of(tmp_path)) == 4


FULL = """
import resource, sys, torch
from pathlib import Path
from stabexp.errors import CheckpointError
from stabexp.state import CheckpointStore, capture
small, big = (capture({"m": torch.nn.Linear(size, 1)}) for size in (10, 100_000))
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
told = []
store = CheckpointStore(Path(sys.argv[1]), on_error=told.append)
store.save(0, small, finite=True)
store.save(1, big, finite=True)
store.flush()
assert len(told) == 1 and store.failure is told[0], told
store.save(2, small, finite=True)
store.close()
assert len(told) == 1
print(told[0])
print([info.step for info in store.infos()], sorted(p.name for p in Path(sys.argv[1]).iterdir()))
store = CheckpointStore(Path(sys.argv[1]))
store.save(3, big, finite=True)
try:
    store.save(4, small, finite=True)
except CheckpointError as error:
    print("raised by the next save")
store.close()
store.save(5, big, finite=True)
try:
    store.flush()
except CheckpointError as error:
    print("raised by flush", store.newest_usable().step)
store.close()
"""


def test_a_full_disk_is_told_and_training_goes_on(tmp_path, python):
    output, errors = python("-c", FULL, tmp_path / "full").communicate(timeout=60)
    message, listing, *rest = output.splitlines() or [errors]
    assert "the checkpoint of step 1 could not be written: File too large; make room" in message
    assert listing == ("[0, 2] ['checkpoints.jsonl', 'step-00000000.pt', 'step-00000002.pt']"), (
        errors
    )
    assert rest == ["raised by the next save", "raised by flush 4"]
    assert errors == ""


def test_a_directory_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    store = CheckpointStore(tmp_path / "file" / "checkpoints")
    store.save(0, snapshot(0), finite=True)
    with pytest.raises(CheckpointError, match="step 0 could not be written: Not a directory"):
        store.flush()
    assert store.failure is not None
    store.close()
