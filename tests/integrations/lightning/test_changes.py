"""A change in a replay is exactly that change, and one of dose zero is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from integrations.lightning import worlds
from integrations.lightning.worlds import THIRD_PARTY, loader, trainer
from recording import Recorded, record

from stabexp.bisection.replay import first_mismatch
from stabexp.integrations.lightning import StabexpCallback
from stabexp.interventions import build

pytestmark = THIRD_PARTY

MODULES = {"automatic": worlds.Net, "manual": worlds.Manual, "two optimizers": worlds.Gan}


def recorded_with(
    directory: Any, module: Any = worlds.Net, data: Any = None, **options: Any
) -> Recorded:
    return record(
        lambda run: trainer(StabexpCallback(run), **options).fit(module(), loader(data)), directory
    )


@pytest.fixture(scope="module", params=MODULES)
def recorded(request, tmp_path_factory) -> Recorded:
    """Two passes of one of the modules."""
    return recorded_with(tmp_path_factory.mktemp("run"), MODULES[request.param], max_epochs=2)


@pytest.mark.parametrize(
    "nothing",
    [
        {"learning_rate": 1.0},
        {"gradient_scale": 1.0},
        {"weight_decay": 1.0},
        {"batch_size": 1},
        {"shuffle": 0},
        {"clip_norm": 1e9},
        {"precision": "fp32"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_dose_of_nothing_changes_no_bit(recorded, nothing):
    replayed = recorded.replay(4, interventions=build(nothing))
    assert first_mismatch(recorded.records, replayed) == (None, "")


@pytest.mark.parametrize(
    ("change", "by_hand"),
    [
        pytest.param({"learning_rate": 0.5}, {"module": lambda: worlds.Net(lr=0.01)}, id="rate"),
        pytest.param({"clip_norm": 0.5}, {"gradient_clip_val": 0.5}, id="clipping"),
        pytest.param({"replace_samples": "7,30"}, {"data": "neighbours"}, id="samples"),
    ],
)
def test_is_what_one_would_write_by_hand(change, by_hand, tmp_path):
    options = dict(by_hand)
    if options.pop("data", None):
        table = worlds.table()
        for column in table.tensors:
            for sample in (7, 30):
                column[sample] = column[sample + 1]
        options["data"] = table
    wanted = recorded_with(tmp_path / "by hand", **options).records
    changed = recorded_with(tmp_path / "run").replay(0, interventions=build(change))
    assert [one.digest for one in changed] == [one.digest for one in wanted]
    plain = recorded_with(tmp_path / "plain").records
    assert [one.digest for one in changed] != [one.digest for one in plain]


def test_a_tighter_clip_replaces_lightnings(tmp_path):
    changed = recorded_with(tmp_path / "run", gradient_clip_val=0.5).replay(
        0, interventions=build({"clip_norm": 0.1})
    )
    wanted = recorded_with(tmp_path / "by hand", gradient_clip_val=0.1).records
    assert [one.digest for one in changed] == [one.digest for one in wanted]


def test_another_precision_replaces_lightnings(tmp_path):
    changed = recorded_with(tmp_path / "run", precision="bf16-mixed").replay(
        0, interventions=build({"precision": "fp32"})
    )
    wanted = recorded_with(tmp_path / "by hand").records
    assert [one.digest for one in changed] == [one.digest for one in wanted]


def test_a_larger_batch_joins_those_of_the_loader(tmp_path):
    recorded = recorded_with(tmp_path)
    changed = recorded.replay(3, interventions=build({"batch_size": 2}))
    ids = [i for one in recorded.records for i in one.sample_ids]
    position = recorded.records[3].position
    assert changed[0].sample_ids == tuple(ids[position : position + 16])
    assert changed[0].batch_size == 16


def test_the_rate_of_every_optimizer_is_halved(tmp_path):
    class Slower(worlds.Gan):
        def configure_optimizers(self) -> Any:
            found = super().configure_optimizers()
            for optimizer in found:
                optimizer.param_groups[0]["lr"] *= 0.5
            return found

    changed = recorded_with(tmp_path / "run", worlds.Gan).replay(
        0, interventions=build({"learning_rate": 0.5})
    )
    wanted = recorded_with(tmp_path / "by hand", Slower).records
    assert [one.digest for one in changed] == [one.digest for one in wanted]


def test_every_optimizer_is_a_torch_optimizer_still(tmp_path):
    seen: list[Any] = []

    class Looks(worlds.Manual):
        def on_train_start(self) -> None:
            seen.append(self.optimizers())

    recorded_with(tmp_path, Looks, max_epochs=1)
    assert isinstance(seen[0], torch.optim.AdamW)
