"""In the calling process: what is told to MLflow inside goes nowhere, and outside all is as before.

With a real database, because everything MLflow remembers about its stores is in this process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

mlflow = pytest.importorskip("mlflow")

from mlflow.tracking import fluent  # noqa: E402

from stabexp.tracking.muted import in_active_run, muted  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    # MLflow's own use of SQLAlchemy.
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy"),
]


@pytest.fixture
def user_run(database, tmp_path):
    """A user's run, open in a database of its own."""
    shutil.copy(database, tmp_path / "theirs.db")
    before = dict(os.environ)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/theirs.db")
    mlflow.set_experiment("theirs")
    with mlflow.start_run() as run:
        mlflow.log_text("first", "first.txt")  # MLflow remembers where this run's files go
        yield run
    for name in [name for name in os.environ if name.startswith("MLFLOW_")]:
        del os.environ[name]
    os.environ.update(before)
    mlflow.set_tracking_uri(None)
    fluent._active_experiment_id = None


def remembered() -> list[object]:
    """Return what MLflow's globals say."""
    names = [name for name in os.environ if name.startswith("MLFLOW_")]
    return [
        mlflow.active_run().info.run_id,
        mlflow.last_active_run().info.run_id,
        mlflow.get_tracking_uri(),
        mlflow.get_registry_uri(),
        fluent._active_experiment_id,
        {name: os.environ[name] for name in names},
    ]


def stored(run) -> tuple:
    """Return everything the user's store has."""
    client = mlflow.MlflowClient()
    return (
        [each.name for each in client.search_experiments()],
        [each.info.run_id for each in client.search_runs([run.info.experiment_id, "0"])],
        client.get_run(run.info.run_id).to_dictionary(),
        [file.path for file in client.list_artifacts(run.info.run_id)],
        [model.name for model in client.search_registered_models()],
    )


def fluently(run_id: str) -> None:
    mlflow.log_metric("loss", 1.0)
    mlflow.log_param("a", 1)
    mlflow.set_tag("a", "b")
    mlflow.log_dict({"a": 1}, "a.json")


def naming_another_store(run_id: str) -> None:
    mlflow.set_tracking_uri("http://127.0.0.1:9")
    mlflow.set_registry_uri("http://127.0.0.1:9")
    mlflow.set_experiment("another")
    with mlflow.start_run(run_name="of the replay"):
        mlflow.log_metric("loss", 1.0)


def by_id(run_id: str) -> None:
    client = mlflow.MlflowClient(mlflow.get_tracking_uri())
    client.log_metric(run_id, "loss", 1.0)
    client.log_text(run_id, "second", "second.txt")
    client.set_terminated(run_id, "FAILED")
    mlflow.log_metric("loss", 2.0, run_id=run_id)
    client.create_registered_model("a model")
    mlflow.set_experiment(experiment_id="77")
    client.create_run("88")


def leaving_a_run_open(run_id: str) -> None:
    mlflow.start_run()
    mlflow.start_run(nested=True)


def raising(run_id: str) -> None:
    mlflow.start_run()
    raise ZeroDivisionError


def in_a_thread_of_its_own(run_id: str) -> None:
    thread = threading.Thread(target=by_id, args=(run_id,))
    thread.start()
    thread.join()


@pytest.mark.parametrize(
    "action",
    [fluently, naming_another_store, by_id, leaving_a_run_open, raising, in_a_thread_of_its_own],
)
def test_the_users_run_and_what_mlflow_remembers_are_untouched(user_run, action):
    run_id = user_run.info.run_id
    before, had = remembered(), stored(user_run)
    folder = ""
    try:
        with muted():
            folder = os.environ["MLFLOW_TRACKING_URI"].removeprefix("file://")
            assert mlflow.active_run() is None
            action(run_id)
    except ZeroDivisionError:
        assert action is raising
    assert remembered() == before
    assert stored(user_run) == had
    assert not Path(folder).exists()
    mlflow.log_metric("after", 1.0)
    assert stored(user_run)[2]["data"]["metrics"] == {"after": 1.0}


def test_a_thread_that_was_there_before_goes_on_logging_for_the_user(user_run):
    begin, done = threading.Event(), threading.Event()

    def machine() -> None:
        client = mlflow.MlflowClient()
        begin.wait(30)
        client.log_metric(user_run.info.run_id, "system/cpu", 5.0)
        done.set()

    thread = threading.Thread(target=machine)
    thread.start()
    with muted():
        mlflow.log_metric("loss", 1.0)
        begin.set()
        assert done.wait(30)
    thread.join()
    assert stored(user_run)[2]["data"]["metrics"] == {"system/cpu": 5.0}


def test_an_active_run_is_there_when_there_was_one(user_run):
    assert in_active_run()
    with muted(active_run=True):
        inside = mlflow.active_run()
        assert inside.info.run_id != user_run.info.run_id
        with pytest.raises(Exception, match="already active"):
            mlflow.start_run()
        with muted():
            assert mlflow.active_run() is None
        assert mlflow.active_run().info.run_id == inside.info.run_id
        mlflow.log_metric("loss", 1.0)
    assert mlflow.active_run().info.run_id == user_run.info.run_id
    assert stored(user_run)[2]["data"]["metrics"] == {}


def test_mlflow_is_not_loaded_and_the_first_to_import_it_is_muted_all_the_same(tmp_path):
    code = f"""\
import os, sys
from stabexp.tracking.muted import in_active_run, muted
with muted():
    assert "mlflow" not in sys.modules
assert not in_active_run()
before = dict(os.environ)
with muted():
    import mlflow
    mlflow.set_tracking_uri("sqlite:///{tmp_path}/theirs.db")
    mlflow.log_metric("loss", 1.0)
assert dict(os.environ) == before
assert mlflow.active_run() is None
assert not os.path.exists("{tmp_path}/theirs.db")
assert not any("muted" in repr(finder) for finder in sys.meta_path)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
