"""Runs that others logged to MLflow: by hand, by the Trainer, by autolog, on a server."""

from __future__ import annotations

import math

import pytest
from diagnosis.conftest import calm
from diagnosis.make_logs import hugging_face, lightning, plain
from tracking.conftest import served, server  # noqa: F401

import stabexp
from stabexp.diagnosis.mlflow_run import settings_of
from stabexp.errors import ConfigError, RunNotFoundError, TrackingError
from stabexp.records import StepRecord
from stabexp.tracking import RunDirectory, run_path
from stabexp.tracking.uploader import start_uploader, wait_for_upload

pytestmark = [
    pytest.mark.slow,
    # MLflow's own: its use of a deprecated SQLAlchemy option, pydantic models, file stores.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> str:
    """A database of its own, made on first use."""
    return f"sqlite:///{tmp_path_factory.mktemp('store') / 'mlflow.db'}"


def client(uri):
    import mlflow

    return mlflow.MlflowClient(uri)


def logged(uri, rows, **params):
    """Log rows by hand; return the run's id."""
    ours = client(uri)
    run_id = ours.create_run("0").info.run_id
    for row in rows:
        for name in row.keys() - {"step"}:
            ours.log_metric(run_id, name, row[name], step=int(row["step"]))
    for name, value in params.items():
        ours.log_param(run_id, name, value)
    return run_id


def newest(uri):
    return client(uri).search_runs(["0"], order_by=["attributes.start_time DESC"])[0].info.run_id


def test_a_run_logged_by_hand_is_judged_with_what_its_parameters_say(store):
    run_id = logged(store, plain(turn=40), max_grad_norm="1.0", fp16="False", bf16="False")
    found = stabexp.diagnose(run_id, tracking_uri=store)
    assert (found.format, found.status) == ("MLflow run", "diverged")
    assert 40 <= found.divergence.onset <= 43
    assert found.settings == {"clip_norm": 1.0, "precision": "fp32"}


def test_what_the_trainers_callback_logged_is_judged_like_its_own_state(
    store, tmp_path, monkeypatch
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "Default")
    import mlflow

    try:
        hugging_face(tmp_path, turn=40, report_to=("mlflow",))
    finally:
        mlflow.end_run()
    found = stabexp.diagnose(newest(store))  # where MLFLOW_TRACKING_URI says
    state = stabexp.diagnose(tmp_path)
    assert found.divergence == state.divergence
    assert [curve.name for curve in found.used] == ["loss", "grad_norm", "learning_rate"]
    assert found.settings["batch_size"] == 16
    assert found.settings["clip_norm"] is None


def test_what_autolog_logged_of_a_lightning_training_is_judged(store, tmp_path, monkeypatch):
    import mlflow
    import mlflow.pytorch

    mlflow.set_tracking_uri(store)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    mlflow.pytorch.autolog(log_models=False, log_every_n_step=1)
    try:
        lightning(tmp_path, turn=40)
    finally:
        mlflow.pytorch.autolog(disable=True)
        mlflow.set_tracking_uri(None)
    found = stabexp.diagnose(newest(store), tracking_uri=store)
    assert found.used[0].name == "train_loss_step"
    assert found.divergence.pattern == "exponential_growth"


def test_nan_and_infinity_come_back_from_a_server_as_they_were_logged(server):  # noqa: F811
    losses = [*calm(30), math.inf, math.nan, math.nan, math.nan]
    run_id = logged(server, [{"step": i, "train/loss": loss} for i, loss in enumerate(losses)])
    found = stabexp.diagnose(run_id, tracking_uri=server)
    assert (found.divergence.detector, found.divergence.onset) == ("non_finite", 30)


def test_a_run_of_ours_that_is_only_in_mlflow_is_known_as_ours(store, tmp_path, no_uploader_left):
    run_id = "bad-123456"
    run = RunDirectory.create(
        run_path(run_id, tmp_path / "here"),
        run_id=run_id,
        kind="run",
        name="bad",
        experiment="ours",
        tracking_uri=store,
    )
    for step, loss in enumerate([*calm(30), math.nan, math.nan, math.nan]):
        run.log_step(StepRecord(step=step, time=1.7e9 + step, loss=loss, lr=0.1, grad_norm=1.0))
    run.finish("FINISHED")
    start_uploader(run.path)
    assert wait_for_upload(run.path, 60)
    experiment = client(store).get_experiment_by_name("ours").experiment_id
    (sent,) = client(store).search_runs([experiment])
    found = stabexp.diagnose(sent.info.run_id, root=tmp_path / "elsewhere", tracking_uri=store)
    assert (found.format, found.run_id, found.divergence.onset) == ("MLflow run", run_id, 30)
    assert found.next_command.startswith(f"stabexp bisect {run_id}")
    assert stabexp.diagnose(run_id, root=tmp_path / "here").divergence.onset == 30
    # where its directory is, its MLflow id means the run itself
    assert stabexp.diagnose(sent.info.run_id, root=tmp_path / "here").format == "stabexp run"


def test_a_run_or_a_store_that_is_not_there_is_said_to_be(store, tmp_path):
    logged(store, [])
    nobody = "0" * 32
    with pytest.raises(RunNotFoundError, match="name another store with --tracking-uri"):
        stabexp.diagnose(nobody, tracking_uri=store)
    with pytest.raises(RunNotFoundError, match="no MLflow store is known"):
        stabexp.diagnose(nobody)
    with pytest.raises(ConfigError, match="there is no such file"):
        stabexp.diagnose(nobody, tracking_uri=f"sqlite:///{tmp_path}/none.db")
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(RunNotFoundError, match="neither a file or folder"):
        stabexp.diagnose("mistyped.csv", tracking_uri=store)


def test_a_server_that_does_not_answer_is_an_error(monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    with pytest.raises(TrackingError, match=r"127\.0\.0\.1:9"):
        stabexp.diagnose("0" * 32, tracking_uri="http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("params", "settings"),
    [
        ({"learning_rate": "1e-3", "warmup_steps": "0"}, {"lr": 1e-3, "warmup_steps": 0}),
        ({"warmup_steps": "0", "warmup_ratio": "0.1"}, {"warmup_steps": 1}),
        ({"max_grad_norm": "0.0"}, {"clip_norm": None}),
        ({"gradient_clip_val": "None"}, {"clip_norm": None}),
        (
            {"per_device_train_batch_size": "4", "gradient_accumulation_steps": "8"},
            {"batch_size": 32},
        ),
        ({"fp16": "True", "bf16": "False"}, {"precision": "fp16"}),
        ({"precision": "16-mixed"}, {"precision": "fp16"}),
        (
            {"optimizer.lr": "0.1", "batch.size": "8", "clip": "1.0"},
            {"lr": 0.1, "batch_size": 8, "clip_norm": 1.0},
        ),
        ({"batch_size": "many", "lr": "nan"}, {}),
    ],
)
def test_parameters_say_how_it_was_configured(params, settings):
    assert settings_of(params) == settings
