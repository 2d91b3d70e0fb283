"""The step log keeps every number exactly and outlives its writer."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stabexp
from stabexp.errors import TrackingError
from stabexp.records import StepRecord
from stabexp.tracking.sample_ids import decode_ids, encode_ids
from stabexp.tracking.step_log import StepLog, decode_step, encode_step, read_steps

HOME = Path(stabexp.__file__).parent.parent


def step(number: int, **fields) -> StepRecord:
    given = {"time": 1.7e9 + number, "loss": 2.0 / (number + 1), "lr": 1e-3, "grad_norm": 1.5}
    return StepRecord(step=number, **(given | fields))


def same(a: StepRecord, b: StepRecord) -> bool:
    """Equal, with NaN equal to NaN and 0.0 unlike -0.0."""
    return repr(asdict(a)) == repr(asdict(b))


def write(path: Path, *records: StepRecord) -> None:
    log = StepLog(path)
    for record in records:
        log.append(record)
    log.close()


numbers = st.floats()
ids = st.one_of(
    st.lists(st.integers(0, 2**70), max_size=40),
    st.lists(st.integers(0, 300), max_size=40),
    st.builds(lambda a, n: list(range(a, a + n)), st.integers(0, 2**40), st.integers(0, 200)),
)
names = st.text(max_size=12)
records = st.builds(
    StepRecord,
    step=st.integers(0, 2**40),
    time=numbers,
    loss=numbers,
    lr=numbers,
    grad_norm=numbers,
    clip_coefficient=numbers,
    update_ratio=numbers,
    param_norm=numbers,
    loss_scale=st.none() | numbers,
    skipped=st.booleans(),
    nonfinite_grads=st.integers(0, 2**31),
    nonfinite_params=st.integers(0, 2**31),
    position=st.integers(0, 2**60),
    batch_size=st.integers(0, 2**20),
    sample_ids=ids.map(tuple),
    seconds=numbers,
    digest=st.text(alphabet="0123456789abcdef", max_size=16),
    layers=st.none() | st.dictionaries(names, st.dictionaries(names, numbers, max_size=3)),
    metrics=st.dictionaries(names, numbers, max_size=3),
)


@given(records)
@settings(max_examples=300, deadline=None)
def test_a_record_comes_back_exactly_from_one_line_of_valid_json(record):
    text = encode_step(record)
    assert "\n" not in text

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    assert same(decode_step(json.loads(text, parse_constant=refuse)), record)


@given(ids)
@settings(max_examples=300, deadline=None)
def test_sample_ids_come_back_exactly(values):
    assert decode_ids(json.loads(json.dumps(encode_ids(values)))) == tuple(values)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        pytest.param(range(32), "0-31", id="in order"),
        pytest.param([*range(8), *range(64, 72)], "0-7,64-71", id="two runs"),
        pytest.param([7], "7", id="one"),
        pytest.param([], "", id="none"),
        pytest.param([3, 1, 2, 0], "u1:AwECAA==", id="shuffled"),
        pytest.param([300, 1, 2, 0], "u2:LAEBAAIAAAA=", id="shuffled, two bytes each"),
        pytest.param([2**64, 1], [2**64, 1], id="too large to pack"),
    ],
)
def test_sample_ids_take_little_room(values, text):
    assert encode_ids(tuple(values)) == text


def test_a_plain_record_leaves_out_what_it_does_not_have():
    assert set(json.loads(encode_step(step(3)))) == {"step", "time", "loss", "lr", "grad_norm"}


def test_a_log_torn_at_any_byte_of_its_last_line_loses_only_that_line():
    path = Path("steps.jsonl")
    write(path, step(0), step(1, digest="ab" * 8), step(2, loss=math.nan, sample_ids=(5, 3, 9)))
    whole = path.read_bytes()
    last = whole[:-1].rindex(b"\n") + 1
    for cut in range(last, len(whole)):
        path.write_bytes(whole[:cut])
        assert [record.step for record in read_steps(path)] == [0, 1]
        write(path, step(2), step(3))
        assert [record.step for record in read_steps(path)] == [0, 1, 2, 3]
    path.write_bytes(whole)
    assert [record.step for record in read_steps(path)] == [0, 1, 2]


@pytest.mark.parametrize("garbage", [b"\x00" * 4096, b"\x00" * 70000 + b"\n", b"{\n"])
def test_what_a_power_cut_leaves_at_the_end_is_cut_off(garbage):
    path = Path("steps.jsonl")
    write(path, step(0), step(1))
    with path.open("ab") as file:
        file.write(garbage)
    assert [record.step for record in read_steps(path)] == [0, 1]
    write(path, step(2))
    assert [record.step for record in read_steps(path)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(b'{"step":1,"ti\n', "steps.jsonl:2: not a line of JSON", id="half a line"),
        pytest.param(b"[1]\n", "steps.jsonl:2: not a line of JSON", id="not an object"),
        pytest.param(b'{"step":1}\n', "steps.jsonl:2: not a step record", id="fields missing"),
        pytest.param(
            b'{"step":"x","time":0,"loss":0,"lr":0,"grad_norm":0}\n',
            "steps.jsonl:2: not a step record: step is 'x'",
            id="a step that is no number",
        ),
    ],
)
def test_damage_before_the_last_line_is_reported_with_its_place(damage, message):
    path = Path("steps.jsonl")
    lines = [(encode_step(step(n)) + "\n").encode() for n in range(3)]
    path.write_bytes(lines[0] + damage + lines[2])
    with pytest.raises(TrackingError, match=message):
        read_steps(path)


def test_a_missing_log_has_no_steps():
    assert read_steps(Path("steps.jsonl")) == []


def test_of_a_step_run_twice_the_last_record_counts():
    path = Path("steps.jsonl")
    write(path, step(0), step(1), step(2))
    write(path, step(1, loss=7.0), step(2, loss=8.0), step(3))
    assert [(r.step, r.loss) for r in read_steps(path)][1:3] == [(1, 7.0), (2, 8.0)]


def test_fields_of_a_later_version_are_ignored():
    values = json.loads(encode_step(step(4))) | {"phase_of_the_moon": 0.5}
    assert same(decode_step(values), step(4))


WRITER = """
from stabexp.records import StepRecord
from stabexp.tracking.step_log import StepLog
log = StepLog({path!r})
for n in range(10**9):
    ids = (n, 3, 1)
    log.append(StepRecord(step=n, time=1.0, loss=2.0, lr=0.1, grad_norm=1.0, sample_ids=ids))
    if n == 500:
        print("enough", flush=True)
"""


def python(code: str, **options) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(HOME)}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_kill_9_of_the_writer_loses_nothing_that_was_recorded(tmp_path):
    path = tmp_path / "steps.jsonl"
    with python(WRITER.format(path=str(path))) as writer:
        assert writer.stdout.readline() == "enough\n"
        writer.send_signal(signal.SIGKILL)
    found = read_steps(path)
    assert len(found) > 500
    assert [record.step for record in found] == list(range(len(found)))


FULL = """
import resource
from pathlib import Path
from stabexp.errors import TrackingError
from stabexp.records import StepRecord
from stabexp.tracking.step_log import StepLog, read_steps
path = Path({path!r})
log = StepLog(path)
for number in range(1000):
    record = StepRecord(step=number, time=1.0, loss=2.0, lr=0.1, grad_norm=1.0)
    try:
        log.append(record)
    except TrackingError as error:
        print(number)
        print(error)
        break
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.append(record)
log.close()
print(len(read_steps(path)))
"""


def test_on_a_full_disk_the_log_says_so_and_stays_readable(tmp_path):
    path = tmp_path / "steps.jsonl"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))

    code = FULL.format(path=str(path))
    with python(code, preexec_fn=limit) as writer:
        out, err = writer.communicate(timeout=60)
    assert err == ""
    failed, message, read = out.splitlines()
    assert message.startswith(f"{path}: cannot be written: File too large")
    assert "Free space" in message
    assert int(read) == int(failed) + 1
