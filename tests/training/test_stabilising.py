"""Stabilisers act at the boundary, and a replay from any checkpoint goes on where they stood."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from stabexp import stabilisers
from stabexp.stabilisers import Stabiliser
from stabexp.state import CheckpointStore
from stabexp.training import Fork, Run, RunSettings

STEPS = 24


class Waning(Stabiliser):
    """Scales gradients by a number that falls with every step: a state of its own."""

    share: float = 0.5
    kept: list = []  # noqa: RUF012

    def attach(self, model, optimizers, *, step):
        self.kept.clear()

    def factors(self, parameters, gradient_norms):
        return torch.tensor(1.0 / (1 + self.share * len(self.kept)))

    def skips_update(self, parameters, gradient_norms):
        return len(self.kept) % 5 == 3

    def lr_scale(self, step):
        return 0.9 ** len(self.kept)

    def measured(self):
        return {"waning": torch.tensor(float(len(self.kept)))}

    def after_step(self, record, history):
        assert history[-1] is record
        self.kept.append(record.loss)

    def wants_snapshot(self):
        return len(self.kept) in (4, 9, 13)

    def drain_events(self):
        return [{"message": "skips next"}] if len(self.kept) % 5 == 3 else []

    def state_dict(self):
        return {"kept": list(self.kept)}

    def load_state_dict(self, state):
        self.kept[:] = state["kept"]


class Nothing(Stabiliser):
    """Is asked everything and changes nothing."""


@pytest.fixture(autouse=True)
def named(monkeypatch):
    monkeypatch.setitem(stabilisers.STABILISERS, "waning", Waning)
    monkeypatch.setitem(stabilisers.STABILISERS, "nothing", Nothing)


def train(run, *, own_clip=None, scaler=None):
    torch.manual_seed(0)
    x = torch.randn(64, 5)
    model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.2), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    data = torch.utils.data.TensorDataset(x, x[:, :1])
    for a, b in run.steps(data, model=model, optimizer=optimizer, scaler=scaler):
        loss = ((model(a) - b) ** 2).mean()
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        if own_clip:
            nn.utils.clip_grad_norm_(model.parameters(), own_clip)
        optimizer.step()
    return model


def settings(**asked):
    return RunSettings(name="t", steps=STEPS, batch_size=8, checkpoint_every=6, stabilisers=asked)


def recorded(given, store=None, fork=None, **how):
    records, events = [], []
    run = Run(
        given,
        fork=fork,
        keep_saving=fork is None,
        checkpoints=store,
        on_step=records.append,
        on_event=events.append,
    )
    train(run, **how)
    run.close()
    return records, events


@pytest.mark.parametrize("own_clip", [None, 0.05])
def test_a_stabiliser_that_does_nothing_changes_nothing(own_clip):
    plain, _ = recorded(settings(), own_clip=own_clip)
    watched, _ = recorded(settings(nothing={}), own_clip=own_clip)
    assert [r.digest for r in plain] == [r.digest for r in watched]
    assert [r.clip_coefficient for r in plain] == [r.clip_coefficient for r in watched]


def test_what_it_asks_for_happens_and_is_recorded():
    records, events = recorded(settings(waning={"share": 0.5}))
    assert [r.step for r in records if r.skipped] == [3, 8, 13, 18, 23]
    assert [r.update_ratio == 0 for r in records] == [r.skipped for r in records]
    assert records[4].lr == pytest.approx(0.05 * 0.9**4)
    assert records[4].clip_coefficient == pytest.approx(1 / 3)
    assert records[4].metrics["waning"] == 4
    assert events[0] == {"step": 2, "by": "waning", "message": "skips next"}


def test_where_the_loop_clips_by_less_already_nothing_more_is_done():
    clipped, _ = recorded(settings(), own_clip=1e-3)
    both, _ = recorded(settings(waning={"share": 0.01}), own_clip=1e-3)
    assert both[1].clip_coefficient == clipped[1].clip_coefficient < 0.5


@pytest.mark.parametrize("at", [0, 4, 6, 9, 18])
def test_a_replay_from_any_checkpoint_is_exact(tmp_path, at):
    given = settings(waning={})
    with CheckpointStore(tmp_path, keep=9) as store:
        records, _ = recorded(given, store)
    fork = Fork(checkpoints=tmp_path, step=at, records=records[:at])
    again, _ = recorded(given, fork=fork)
    assert [r.digest for r in again] == [r.digest for r in records[at:]]
    assert [r.lr for r in again] == [r.lr for r in records[at:]]


def test_states_that_were_asked_for_are_kept(tmp_path):
    with CheckpointStore(tmp_path, keep=1) as store:
        recorded(settings(waning={}), store)
        assert {9, 13} <= {info.step for info in store.infos()}
