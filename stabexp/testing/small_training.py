"""A training of a second to try plug-ins in: recorded with every state, and replayed from any."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from stabexp.interventions import Intervention
from stabexp.records import StepRecord
from stabexp.state import CheckpointStore
from stabexp.training import Fork, Program, Run, RunSettings, execute

STEPS = 8
Train = Callable[[Run], None]


class Net(nn.Module):
    """A transformer layer and a head: attention, normalisation, dropout, linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits of sequences; shapes (n, 4, 8) → (n, 3)."""
        out: Tensor = self.head(self.encoder(inputs).mean(1))
        return out


def classify(run: Run) -> None:
    """Train the network on random classes with AdamW."""
    data = TensorDataset(torch.randn(96, 4, 8), torch.randint(3, (96,)))
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for inputs, targets in run.steps(data, model=model, optimizer=optimizer):
        loss = functional.cross_entropy(model(inputs), targets)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    hooked = [name for name, module in model.named_modules() if _hooks(module)]
    assert not hooked, f"hooks are left in {', '.join(hooked)}; take them back in detach()"


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a training showed, and where its states are."""

    records: Sequence[StepRecord]
    events: Sequence[Mapping[str, Any]]
    program: Program
    checkpoints: Path


def trained(
    folder: Path, *, train: Train = classify, steps: int = STEPS, **settings: Any
) -> Trained:
    """Train with a new run, and keep the state before every step in `folder`."""
    given = RunSettings(
        name="promises",
        steps=steps,
        batch_size=8,
        checkpoint_every=1,
        checkpoint_keep=steps,
        detectors={"non_finite": {}},
        **settings,
    )
    program = Program(settings=given, train=train)
    with CheckpointStore(folder, keep=steps) as store:
        records, events = _executed(program, checkpoints=store, keep_saving=True)
    return Trained(records=records, events=events, program=program, checkpoints=folder)


def replayed(
    original: Trained, step: int, interventions: Sequence[Intervention] = ()
) -> list[StepRecord]:
    """Return the records of a replay from the state before `step` to the end."""
    fork = Fork(checkpoints=original.checkpoints, step=step, records=original.records[:step])
    return _executed(original.program, fork=fork, interventions=interventions)[0]


def facts(records: Sequence[StepRecord]) -> list[str]:
    """Return of each record what an exact replay repeats, as text: NaN is NaN there."""
    return [
        repr((r.step, r.loss, r.lr, r.grad_norm, r.clip_coefficient, r.skipped, r.digest))
        for r in records
    ]


def _executed(program: Program, **options: Any) -> tuple[list[StepRecord], list[Mapping[str, Any]]]:
    records: list[StepRecord] = []
    events: list[Mapping[str, Any]] = []
    run = Run(program.settings, on_step=records.append, on_event=events.append, **options)
    execute(program, run)
    return records, events


def _hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)
