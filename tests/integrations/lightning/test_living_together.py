"""Lightning's own MLflow logger writes to the same store, and neither disturbs the other."""

from __future__ import annotations

from pathlib import Path

import pytest
from integrations.lightning.worlds import THIRD_PARTY
from mlflow.tracking import MlflowClient

from stabexp import api
from stabexp.tracking import RunDirectory

pytestmark = [
    THIRD_PARTY,
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        "ignore:.*smaller than the logging interval.*",  # the data set is small
        "ignore:.*noload.*",  # MLflow's use of SQLAlchemy
        "ignore::ResourceWarning",  # and its connections
    ),
]

TRAINING = """
from integrations.lightning import worlds
from lightning.pytorch.loggers import MLFlowLogger

from stabexp.integrations.lightning import StabexpCallback


class Logs(worlds.Net):
    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.log("train_loss", loss)
        return loss


def train(run, uri):
    fit = worlds.trainer(
        StabexpCallback(run),
        logger=MLFlowLogger(experiment_name="theirs", tracking_uri=uri),
        log_every_n_steps=1,
    )
    fit.fit(Logs(), worlds.loader())
"""


def test_both_runs_are_in_one_store(tmp_path, monkeypatch):
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    # MLflow cannot make one new database from two processes at once.
    client = MlflowClient(uri)
    client.search_experiments()
    Path("train.py").write_text(TRAINING)
    root = tmp_path / "runs"
    result = api.run("train.py:train", root=root, args={"uri": uri}, drain_seconds=120)
    assert result.delivered
    theirs = _runs(client, "theirs")
    assert len(theirs) == 1
    assert theirs[0].info.status == "FINISHED"
    logged = client.get_metric_history(theirs[0].info.run_id, "train_loss")
    records = RunDirectory.open(result.directory).read_steps()
    assert [one.step for one in logged] == list(range(39))
    assert [one.value for one in logged] == [record.loss for record in records]
    ours = _runs(client, "stabexp")
    assert len(ours) == 1
    history = client.get_metric_history(ours[0].info.run_id, "loss")
    assert sorted((one.step, one.value) for one in history) == [
        (record.step, record.loss) for record in records
    ]
    # A replay does not.
    api.replay(result.directory.name, ["clip=0.5"], root=root, from_step=0, steps=20)
    assert len(_runs(client, "theirs")) == 1


def _runs(client: MlflowClient, experiment: str) -> list:
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    return client.search_runs([found.experiment_id])
