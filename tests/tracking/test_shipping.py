"""Whatever happens on the way, the store ends up with exactly what was recorded."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stabexp.errors import TrackingError
from stabexp.records import StepRecord
from stabexp.tracking import RunDirectory, run_path
from stabexp.tracking.manifest import write_json
from stabexp.tracking.processes import identity, is_alive
from stabexp.tracking.run_directory import EXPERIMENT_ID, PARENT_ID, STORE_ID, TOP_ID
from stabexp.tracking.store import MemoryStore, UnreachableError
from stabexp.tracking.uploader import (
    follow,
    pending,
    ship,
    start_uploader,
    wait_for_upload,
)


def step(number: int, **fields) -> StepRecord:
    given = {"time": 1.7e9 + number, "loss": 2.0, "lr": 1e-3, "grad_norm": 1.0}
    return StepRecord(step=number, **(given | fields))


def make(path: Path, run_id: str, kind, parent: RunDirectory | None = None) -> RunDirectory:
    return RunDirectory.create(
        path,
        run_id=run_id,
        kind=kind,
        name=f"the {kind}",
        parent_path=parent.path if parent else None,
        experiment="gpt",
        tracking_uri="memory:",
        params={"lr": 3e-4},
        tags={"fault": "lr"},
    )


def record_everything(steps: int = 400) -> RunDirectory:
    """Return a run with a bisect and two trials, all finished."""
    run = make(run_path("r"), "r", "run")
    for n in range(steps):
        run.log_step(step(n, clip_coefficient=0.5 if n == 3 else 1.0))
    run.set_metrics({"crash_step": steps})
    run.finish("FAILED")
    bisect = make(run.path / "bisects/b", "b", "bisect", run)
    for name in ("t0", "t1"):
        trial = make(bisect.path / "trials" / name, name, "trial", bisect)
        for n in range(50, 90):
            trial.log_step(step(n, loss=math.nan if n > 80 else 1.0))
        trial.log_params({"bisect.variable": "learning_rate"})
        trial.set_tags({"outcome": "cured"})
        trial.finish("FINISHED")
    (bisect.directory("report") / "verdict.md").write_text("# Verdict")
    bisect.add_artifact("report")
    bisect.set_note(f"![tree](get-artifact?path=tree.png&run_uuid={STORE_ID})")
    bisect.log_dataset(name="digits", digest="ab", source="sklearn")
    bisect.save_view("bisect b")
    bisect.finish("FINISHED")
    return run


def content(store: MemoryStore) -> list[tuple]:
    """Return everything in a store but the ids it gave and the times of the recording."""
    found = []
    for run in store.runs.values():
        parent = run.parent and store.runs[run.parent].manifest.run_id
        points = sorted((row.key, row.step, row.value) for row in run.metrics)
        found.append((run.manifest.run_id, parent, points, run.params, run.status, run.artifacts))
    return sorted(found, key=lambda item: str(item[0]))


def test_a_run_arrives_with_its_bisects_and_trials_below_it():
    run = record_everything()
    store = MemoryStore()
    shipped = ship(run.path, store)
    assert shipped.complete
    assert not shipped.refused
    assert pending(run.path) == 0
    assert [(r.manifest.run_id, r.parent) for r in store.runs.values()] == [
        ("r", None),
        ("b", "m0"),
        ("t0", "m1"),
        ("t1", "m1"),
    ]
    source, bisect, trial, _ = store.runs.values()
    assert source.curve("loss") == dict.fromkeys(range(400), 2.0)
    assert set(source.curve("clip_coefficient")) == set(range(3, 400))
    assert source.curve("crash_step") == {0: 400}
    assert source.status == "FAILED"
    assert trial.curve("loss") == dict.fromkeys(range(50, 81), 1.0)
    assert trial.params == {"lr": "0.0003", "bisect.variable": "learning_rate"}
    assert trial.tags == {"fault": "lr", "outcome": "cured"}
    assert bisect.artifacts == {"report/verdict.md": b"# Verdict"}
    assert bisect.tags["mlflow.note.content"].endswith("run_uuid=m1)")
    assert bisect.datasets[0]["name"] == "digits"
    assert list(bisect.experiment_tags) == [
        "mlflow.sharedViewState.stabexp-b-trials",
        "mlflow.sharedViewState.stabexp-b-charts",
    ]


def test_the_first_metric_of_a_trial_is_the_one_that_the_compare_page_is_to_draw():
    run = record_everything()
    sent: list[str] = []

    class Watched(MemoryStore):
        def log_metrics(self, store_id, rows):
            if self.runs[store_id].manifest.kind == "trial":
                sent.extend(row.key for row in rows)
            super().log_metrics(store_id, rows)

    ship(run.path, Watched())
    assert sent[0] == "verdict/steps_survived"


def test_a_look_at_samples_one_by_one_makes_no_curve():
    run = make(run_path("r"), "r", "run")
    bisect = make(run.path / "bisects/b", "b", "bisect", run)
    scan = RunDirectory.create(
        bisect.path / "trials/s",
        run_id="s",
        kind="trial",
        name="scan",
        parent_path=bisect.path,
        experiment="gpt",
        tracking_uri="memory:",
        tags={"stabexp.role": "scan"},
    )
    scan.log_step(step(1))
    scan.set_metrics({"verdict/cured": 0.0})
    scan.finish("FAILED")
    store = MemoryStore()
    ship(run.path, store)
    assert {row.key for row in store.runs["m2"].metrics} == {"verdict/cured"}
    assert pending(run.path) == 0


def test_a_note_is_given_the_ids_that_only_the_store_knows():
    run = record_everything()
    trial = RunDirectory.open(run.path / "bisects/b/trials/t0")
    trial.set_note(f"{STORE_ID} {PARENT_ID} {TOP_ID} {EXPERIMENT_ID}")
    store = MemoryStore()
    ship(run.path, store)
    assert store.runs["m2"].tags["mlflow.note.content"] == "m2 m1 m0 gpt"


def test_an_experiment_that_somebody_described_keeps_its_description():
    run = record_everything()
    run.set_experiment_note("ours")
    run.set_experiment_note("ours, later")
    store = MemoryStore()
    ship(run.path, store)
    assert store.runs["m0"].experiment_tags["mlflow.note.content"] == "ours"


def test_a_run_that_is_to_stay_where_it_is_starts_no_process_and_waits_for_none():
    run = RunDirectory.create(
        run_path("r"),
        run_id="r",
        kind="run",
        name="r",
        experiment="gpt",
        tracking_uri="http://127.0.0.1:9",
        upload=False,
    )
    bisect = make(run.path / "bisects/b", "b", "bisect", run)
    assert start_uploader(run.path).poll() == 0
    assert start_uploader(bisect.path).poll() == 0
    assert not (run.path / "upload.log").exists()
    assert wait_for_upload(bisect.path, 60)


def test_a_second_pass_sends_nothing():
    run = record_everything()
    store = MemoryStore()
    ship(run.path, store)
    calls = len(store.calls)
    assert ship(run.path, store).metrics == 0
    assert len(store.calls) == calls


class LosesAnswers(MemoryStore):
    """A store that does what it is asked, and whose answer is lost when it is time to go down."""

    def _call(self, verb: str) -> None:
        self.calls.append(verb)

    def __getattribute__(self, name: str):
        value = super().__getattribute__(name)
        if name.startswith("_") or not callable(value):
            return value

        def ask(*args):
            answer = value(*args)
            if self.down_after is not None and len(self.calls) >= self.down_after:
                raise UnreachableError("the line was cut")
            return answer

        return ask


@pytest.mark.parametrize("kind", [MemoryStore, LosesAnswers])
def test_cut_off_at_any_call_and_resumed_it_arrives_complete_and_once(kind):
    run = record_everything()
    whole = MemoryStore()
    ship(run.path, whole)
    for down_after in range(1, len(whole.calls)):
        for file in run.path.rglob("upload.json"):
            file.unlink()
        store = kind()
        store.down_after = down_after
        with pytest.raises(UnreachableError):
            ship(run.path, store)
        store.down_after = None
        ship(run.path, store)
        assert content(store) == content(whole)


def test_shipping_while_it_is_recorded_gives_the_same_as_shipping_at_the_end():
    run = make(run_path("r"), "r", "run")
    live, late = MemoryStore("memory:live"), MemoryStore("memory:late")
    for n in range(6000):
        run.log_step(step(n, loss=math.nan if n in {4100, 4110} else 1.0))
        if n % 701 == 0:
            ship(run.path, live)
    run.finish("FINISHED")
    ship(run.path, live)
    ship(run.path, late)
    assert live.runs["m0"].curve("lr") == late.runs["m0"].curve("lr")
    steps = set(late.runs["m0"].curve("lr"))
    assert set(range(5900, 6000)) <= steps
    assert set(range(4010, 4149)) <= steps
    assert len(steps) < 3000
    assert set(late.runs["m0"].curve("nonfinite")) == {4100, 4110}


def test_a_limit_ends_the_pass_and_the_next_goes_on():
    run = record_everything()
    store = MemoryStore()
    first = ship(run.path, store, limit=1000)
    assert not first.complete
    assert 1000 <= first.metrics < 2000
    while not ship(run.path, store, limit=1000).complete:
        pass
    assert pending(run.path) == 0


def test_each_store_has_a_position_of_its_own():
    run = record_everything(10)
    ship(run.path, MemoryStore("memory:"))
    other = MemoryStore("memory:other")
    assert pending(run.path, other.uri) > 0
    ship(run.path, other)
    assert len(other.runs) == 4


def test_a_store_that_was_emptied_gets_everything_again():
    run = record_everything()
    ship(run.path, MemoryStore())
    empty, whole = MemoryStore(), MemoryStore("memory:whole")
    RunDirectory.open(run.path / "bisects/b/trials/t1").set_tags({"late": 1})
    ship(run.path, empty)
    ship(run.path, whole)
    assert content(empty) == content(whole)


def test_what_the_store_will_never_take_does_not_hold_up_the_rest(capsys):
    run = make(run_path("r"), "r", "run")
    (run.path / "gone.txt").write_text("x")
    run.add_artifact("gone.txt")
    (run.path / "gone.txt").unlink()
    run.log_params({"lr": "another"})
    run.finish("FINISHED")
    store = MemoryStore()
    assert ship(run.path, store).refused == 2
    assert store.runs["m0"].status == "FINISHED"
    assert "gone.txt: was deleted before it was uploaded" in capsys.readouterr().err


def test_damage_in_one_directory_is_reported_and_the_others_arrive():
    run = record_everything()
    log = run.path / "bisects/b/trials/t0/steps.jsonl"
    log.write_bytes(b"damage\n" + log.read_bytes())
    store = MemoryStore()
    with pytest.raises(TrackingError, match=r"t0/steps.jsonl:1: not a line of JSON"):
        ship(run.path, store)
    assert store.runs["m3"].status == "FINISHED"


def test_a_torn_last_line_is_sent_once_it_is_whole():
    run = make(run_path("r"), "r", "run")
    run.log_step(step(0))
    store = MemoryStore()
    with (run.path / "steps.jsonl").open("r+b") as file:
        whole = file.read()
        file.truncate(len(whole) - 5)
    ship(run.path, store)
    assert store.runs["m0"].curve("loss") == {}
    (run.path / "steps.jsonl").write_bytes(whole)
    ship(run.path, store)
    assert store.runs["m0"].curve("loss") == {0: 2.0}


def test_following_a_process_that_died_marks_its_runs_killed_and_keeps_their_last_steps():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        writer, pid = identity(process.pid), process.pid
        run = make(run_path("r"), "r", "run")
        bisect = make(run.path / "bisects/b", "b", "bisect", run)
        write_json(run.path / "run.json", run.read_json("run.json") | {"writer": writer})
        for n in range(2500):
            run.log_step(step(n))
        assert is_alive(writer)
        process.kill()
    store = MemoryStore()
    assert follow(run.path, lambda: store, pid=pid)
    assert not is_alive(writer)
    assert store.runs["m0"].status == "KILLED"
    assert set(range(2400, 2500)) <= set(store.runs["m0"].curve("loss"))
    assert RunDirectory.open(run.path).status() == "KILLED"
    # This process made the bisect, and still lives.
    assert store.runs["m1"].status == bisect.status() == "RUNNING"


def test_a_process_number_given_to_another_process_counts_as_dead():
    host, number, started = identity().rsplit(":", 2)
    assert is_alive(f"{host}:{number}:{started}")
    assert not is_alive(f"{host}:{number}:{int(started) - 1}")
    assert is_alive(f"another-machine:{number}:1")


def test_following_gives_up_on_a_store_that_never_answers():
    run = record_everything(3)

    def refuse():
        raise UnreachableError("connection refused")

    assert not follow(run.path, refuse, give_up=0.0)
    assert not wait_for_upload(run.path, 0.0)
    assert pending(run.path) > 0


def test_following_a_live_process_ends_when_every_run_has_finished():
    run = record_everything(3)
    assert follow(run.path, MemoryStore, pid=os.getpid())
    assert wait_for_upload(run.path, 0.0)
