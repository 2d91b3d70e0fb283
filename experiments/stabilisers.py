"""Small trainings that fail, each for another reason, with and without what stabilises them.

    python -m experiments.stabilisers            # two tables over twenty seeds, some minutes

Every training is a loop that knows nothing of stabilisers. It counts as saved when it neither
diverges nor stays above half of its first loss. A second table says what a healthy training loses
by each. Figures were chosen on seeds 0 to 20; the tables are of seeds from 101 on.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from stabexp.tasks.settings import OptimizerSettings, ScheduleSettings
from stabexp.tasks.weighted_mlp import WeightedMLP
from stabexp.training import Program, Run, RunSettings, execute
from stabexp.training.yaml_loop import yaml_loop

STEPS = 60
SAVED = 0.5
"""Share of the first loss that the last ones must be below."""


def clusters(seed: int, *, scale: float = 1.0) -> TensorDataset:
    """Return 320 points of five classes in eight dimensions."""
    own = torch.Generator().manual_seed(11 + seed)
    labels = torch.arange(320) % 5
    centres = 2 * torch.randn(5, 8, generator=own)
    return TensorDataset(scale * (centres[labels] + torch.randn(320, 8, generator=own)), labels)


def network(*between: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 32), *between, nn.ReLU(), nn.Linear(32, 5))


Loss = Callable[[Tensor, Tensor], Tensor]


def plain(
    run: Run,
    data: TensorDataset,
    model: nn.Module,
    *,
    loss_of: Loss = functional.cross_entropy,
    lr: float = 0.1,
    half: bool = False,
    shuffle: bool = True,
) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / STEPS)
    loader: DataLoader[Any] = DataLoader(data, 32, shuffle=shuffle)
    for x, y in run.steps(loader, model=model, optimizer=optimizer, scheduler=schedule, epochs=6):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16, enabled=half):
            loss = loss_of(model(x), y)
        run.log(loss)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()


def bursts(run: Run) -> None:
    """The demo's training: one sample in a hundred counts a hundred times, and nothing clips."""
    optimizer = OptimizerSettings(name="sgd", lr=0.05, momentum=0.9)
    schedule = ScheduleSettings(name="constant", warmup_steps=20)
    yaml_loop(WeightedMLP(heavy_share=0.01, heavy_weight=100), optimizer, schedule)(run)


def heavy_losses(run: Run) -> None:
    """A regression with one target that is ten thousand times too large."""
    data = clusters(run.settings.seed)
    targets = data.tensors[0][:, :1] * data.tensors[0][:, 1:2]
    targets[torch.randint(len(targets), ())] = 10_000.0
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    plain(run, TensorDataset(data.tensors[0], targets), model, loss_of=functional.mse_loss, lr=0.01)


def nan_sample(run: Run) -> None:
    """One sample is NaN, and BatchNorm keeps what it saw of it."""
    data = clusters(run.settings.seed)
    data.tensors[0][7] = math.nan
    plain(run, data, network(nn.BatchNorm1d(32)))


def written_out(run: Run) -> None:
    """Inputs are large, so probabilities round to zero, and the loss is written out."""

    def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
        probabilities = functional.softmax(logits, dim=-1)
        return -torch.log(probabilities[torch.arange(len(labels)), labels]).mean()

    plain(run, clusters(run.settings.seed, scale=100), network(), loss_of=loss_of, lr=1e-4)


def no_targets(run: Run) -> None:
    """Four batches in a row have no target at all, so their mean loss is 0 ÷ 0."""
    data = clusters(run.settings.seed)
    data.tensors[1][64:192] = -100
    plain(run, data, network(), shuffle=False)


class RMSNorm(nn.Module):
    """The root mean square as it is often written: its squares overflow in float16 at 256."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)


def half_squares(run: Run) -> None:
    """The squares of a norm overflow in float16, and what comes out of it is zero."""
    plain(run, clusters(run.settings.seed, scale=300), network(RMSNorm()), half=True)


def wrong_scale(run: Run) -> None:
    """The loop's own gradient scaler starts so high that it skips updates for ever."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**70)
    loader: DataLoader[Any] = DataLoader(clusters(run.settings.seed), 32, shuffle=True)
    for x, y in run.steps(loader, model=model, optimizer=optimizer, scaler=scaler, epochs=6):
        with torch.autocast("cpu", torch.float16):
            loss = functional.cross_entropy(model(x), y)
        run.log(loss)
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def pretrained(run: Run) -> tuple[TensorDataset, nn.Sequential]:
    """Return data and a network that was trained on them, with a new head that is too wide."""
    model = network(nn.ReLU(), nn.Linear(32, 32))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    data = clusters(run.settings.seed)
    for _ in range(60):
        optimizer.zero_grad()
        functional.cross_entropy(model(data.tensors[0]), data.tensors[1]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    nn.init.normal_(model[-1].weight, std=1.0)
    return data, model


def new_head(run: Run) -> None:
    """A body that was trained well gets a new, wide head, and both train at a high rate."""
    data, model = pretrained(run)
    plain(run, data, model, lr=0.25)


def sharp(run: Run) -> None:
    """Momentum at a rate just above what the loss's curvature bears."""
    model = network(nn.ReLU(), nn.Linear(32, 32))
    nn.init.normal_(model[-1].weight, std=0.5)
    plain(run, clusters(run.settings.seed), model, lr=0.3)


def healthy(run: Run) -> None:
    """Nothing is wrong; a fifth of the labels are random, so the loss has a floor."""
    data = clusters(run.settings.seed)
    data.tensors[1][::5] = torch.randint(5, (64,))
    plain(run, data, network(nn.ReLU(), nn.Linear(32, 32)), lr=0.05)


@dataclass(frozen=True)
class Case:
    """A training and what should save it."""

    train: Callable[[Run], None]
    stabiliser: str
    args: Mapping[str, Any] = field(default_factory=dict)

    def run(self, seed: int, *, stabilised: bool) -> tuple[bool, str]:
        """Return whether it was saved, and how it ended."""
        losses: list[float] = []
        settings = RunSettings(
            name="case",
            seed=seed,
            steps=STEPS,
            threads=1,
            stabilisers={self.stabiliser: dict(self.args)} if stabilised else {},
        )
        run = Run(settings, on_step=lambda record: losses.append(record.loss))
        execute(Program(settings=settings, train=self.train), run)
        if run.divergence is not None:
            return False, f"diverged at {run.divergence.detected}"
        first, *rest = [loss for loss in losses if math.isfinite(loss)]
        last = statistics.median(rest[-10:])
        return last < SAVED * first, f"{first:.3g} → {last:.3g}"

    def cost(self, seed: int) -> float:
        """Return the mean of the last losses of a healthy training, with ÷ without."""
        ends = []
        for given in ({}, {self.stabiliser: dict(self.args)}):
            losses: list[float] = []
            settings = RunSettings(
                name="healthy", seed=seed, steps=STEPS, threads=1, stabilisers=given
            )
            run = Run(settings, on_step=lambda record, losses=losses: losses.append(record.loss))  # type: ignore[misc]
            execute(Program(settings=settings, train=healthy), run)
            ends.append(math.inf if run.divergence else statistics.fmean(losses[-10:]))
        return ends[1] / ends[0]


CASES = [
    Case(bursts, "adaptive_clip"),
    Case(bursts, "adaptive_clip", {"kind": "quantile"}),
    Case(bursts, "adaptive_clip", {"kind": "z_score"}),
    Case(bursts, "layer_clip"),
    Case(heavy_losses, "loss_clamp"),
    Case(heavy_losses, "loss_clamp", {"form": "hard"}),
    Case(nan_sample, "skip_nonfinite"),
    Case(written_out, "safe_cross_entropy"),
    Case(no_targets, "safe_cross_entropy"),
    Case(half_squares, "keep_fp32"),
    Case(wrong_scale, "loss_scaling"),
    Case(new_head, "gradual_unfreezing"),
    Case(new_head, "gradual_unfreezing", {"hold": 0.5, "complete": 0.9}),
    Case(new_head, "freeze", {"modules": ["0", "2"]}),
    Case(sharp, "logit_temperature", {"temperature": 1.3}),
]


def table(seeds: range) -> str:
    """Return how many seeds fail without and how many of these are saved with, in Markdown."""
    lines = ["| training | stabiliser | fails without | of these saved |", "|---|---|---:|---:|"]
    for case in CASES:
        failing = [seed for seed in seeds if not case.run(seed, stabilised=False)[0]]
        saved = sum(case.run(seed, stabilised=True)[0] for seed in failing)
        given = ", ".join(f"{key}: {value}" for key, value in case.args.items())
        name = f"`{case.stabiliser}`" + (f" {{{given}}}" if given else "")
        lines.append(
            f"| {case.train.__name__} | {name} | {len(failing)} of {len(seeds)} | {saved} |"
        )
    return "\n".join(lines)


def costs(seeds: range) -> str:
    """Return what a healthy training loses, in Markdown."""
    lines = ["| stabiliser | last losses, with ÷ without: median | worst |", "|---|---:|---:|"]
    seen = []
    for case in CASES:
        given = ", ".join(f"{key}: {value}" for key, value in case.args.items())
        name = f"`{case.stabiliser}`" + (f" {{{given}}}" if given else "")
        if name in seen:
            continue
        seen.append(name)
        found = [case.cost(seed) for seed in seeds]
        lines.append(f"| {name} | {statistics.median(found):.3f} | {max(found):.3f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    chosen = range(101, 101 + parser.parse_args().seeds)
    print(table(chosen), costs(chosen), sep="\n\n")
