"""A replay inside Lightning is the recorded training, bit for bit, from wherever it begins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from integrations.lightning import worlds
from integrations.lightning.worlds import THIRD_PARTY, loader, trainer
from lightning.pytorch.callbacks import WeightAveraging
from lightning.pytorch.plugins import MixedPrecision
from recording import record

from stabexp.bisection.replay import first_mismatch
from stabexp.integrations.lightning import StabexpCallback

pytestmark = THIRD_PARTY


@dataclass(frozen=True, kw_only=True)
class Case:
    module: Any = worlds.Net
    steps: int = 39
    """Updates in three passes."""
    options: dict[str, Any] = field(default_factory=dict)
    data: Any = loader
    callbacks: Any = list
    plugins: Any = list

    def train(self, run: Any) -> None:
        fit = trainer(
            StabexpCallback(run), *self.callbacks(), plugins=self.plugins(), **self.options
        )
        fit.fit(self.module(), self.data())


def half() -> Any:
    return MixedPrecision("16-mixed", device="cpu", scaler=torch.amp.GradScaler("cpu", 2.0**24))


CASES = {
    "automatic": Case(),
    "gradients accumulated over two batches": Case(
        steps=21, options={"accumulate_grad_batches": 2}
    ),
    "clipped": Case(options={"gradient_clip_val": 0.5}),
    "clipped by value": Case(
        options={"gradient_clip_val": 0.1, "gradient_clip_algorithm": "value"}
    ),
    "bf16-mixed": Case(options={"precision": "bf16-mixed"}),
    "bf16-true": Case(options={"precision": "bf16-true"}),
    "64-true": Case(options={"precision": "64-true"}),
    "float16 whose scale overflows at first": Case(plugins=lambda: [half()]),
    "two workers": Case(data=lambda: loader(num_workers=2)),
    "two workers that stay": Case(data=lambda: loader(num_workers=2, persistent_workers=True)),
    "augmented when read": Case(data=lambda: loader(worlds.Augmented())),
    "augmented on the device": Case(module=worlds.NoisyTransfer),
    "a generator of the loader's own": Case(
        data=lambda: loader(generator=torch.Generator().manual_seed(4))
    ),
    "passes cut short": Case(steps=30, options={"limit_train_batches": 10}),
    "validated after every pass": Case(module=worlds.Validated),
    "validated within a pass": Case(module=worlds.Validated, options={"val_check_interval": 5}),
    "the rate follows held-out data": Case(module=worlds.Plateau),
    "one cycle of the rate": Case(module=worlds.OneCycle),
    "hooks that draw before the first batch": Case(module=worlds.DrawsFirst),
    "the rest of a pass left out": Case(module=worlds.LeavesEarly, steps=24),
    "batches that are none": Case(steps=36, data=lambda: loader(collate_fn=worlds.unless_broken)),
    "a state of the module's own": Case(module=worlds.Remembers),
    "weights averaged": Case(module=worlds.Validated, callbacks=lambda: [WeightAveraging()]),
    "a data module": Case(data=worlds.Data),
    "a transformer": Case(module=worlds.Copier, data=lambda: loader(worlds.tokens())),
    "manual, every second batch": Case(module=worlds.Manual, steps=18),
    "manual, bf16-mixed": Case(module=worlds.Manual, steps=18, options={"precision": "bf16-mixed"}),
    "manual, float16 whose scale overflows at first": Case(
        module=worlds.Manual, steps=18, plugins=lambda: [half()]
    ),
    "two optimizers": Case(module=worlds.Gan),
}


@pytest.mark.filterwarnings("ignore:train_dataloader yielded None.*")  # one case is about that
@pytest.mark.parametrize("name", CASES)
def test_goes_on_bit_for_bit(name, tmp_path):
    case = CASES[name]
    recorded = record(case.train, tmp_path)
    total = case.steps
    assert [one.step for one in recorded.records] == list(range(total))
    # At the start, within the first pass, at the start of the second and within the third.
    for step in (0, total // 6, total // 3, total - total // 6):
        replayed = recorded.replay(step)
        assert [one.step for one in replayed] == list(range(step, total))
        assert first_mismatch(recorded.records, replayed) == (None, ""), f"from step {step}"
        ids = [one.sample_ids for one in replayed]
        assert ids == [one.sample_ids for one in recorded.records[step:]]
