"""One real example for every verdict: what is trained, what is wrong, and what sets it right."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from experiments.benchmark.draws import all_draws
from experiments.benchmark.seeding import write

EXPERIMENTS = Path(__file__).parents[1]


@dataclass(frozen=True, kw_only=True)
class Example:
    """A training that ends with one verdict."""

    source: str
    """An experiment file below experiments/, or the name of a run of the benchmark."""
    fixed: tuple[str, ...] | Literal["verdict", "program"]
    """What sets it right: settings, the verdict's own fix, or the program without its fault."""
    fixed_name: str
    """What the picture calls the run in which it is right; empty when there is none."""
    silent: bool = False
    """Whether it trains to its end, so that a check is asked and not a bisect."""
    figure: str = "loss"
    """What the picture shows of every step."""

    @property
    def file(self) -> Path | None:
        """The experiment file, None for a run of the benchmark."""
        return EXPERIMENTS / self.source if self.source.endswith(".yaml") else None

    def experiment(self, folder: Path, *, right: bool = False) -> Path:
        """Return the experiment file, written into `folder` where there is none."""
        if self.file is not None:
            return self.file
        draw = next(draw for draw in all_draws() if draw.name == self.source)
        return write(draw, folder / ("right" if right else "wrong"), fixed=right)


EXAMPLES: dict[str, Example] = {
    "learning_rate": Example(
        source="rate_too_high_mlp.yaml", fixed="verdict", fixed_name="at the rate of the verdict"
    ),
    "warmup": Example(
        source="no_warmup_gpt.yaml", fixed="verdict", fixed_name="the same rate, ramped up"
    ),
    "clip_norm": Example(source="unclipped_bursts.yaml", fixed="verdict", fixed_name="clipped"),
    "batch_size": Example(
        source="tiny_batch_rnn.yaml", fixed="verdict", fixed_name="more samples per update"
    ),
    "schedule": Example(
        source="rate_jump-mlp-1", fixed="program", fixed_name="without the jump of the rate"
    ),
    "optimizer_state": Example(
        source="cases/resume_no_moments.yaml",
        fixed=("train.args.fixed=true",),
        fixed_name="with its moments kept",
    ),
    "precision": Example(
        source="fp16_overflow_two_tower.yaml", fixed="verdict", fixed_name="in the wider format"
    ),
    "loss_function": Example(
        source="pages/confidence_penalty.yaml",
        fixed=("train.args.fixed=true",),
        fixed_name="the same entropy, in log space",
    ),
    "implementation": Example(
        source="cases/no_zero_grad.yaml",
        fixed=("train.args.fixed=true",),
        fixed_name="gradients set to zero",
    ),
    "data": Example(
        source="outlier_sample_mlp.yaml",
        fixed=("task.args.factor=1",),
        fixed_name="the image as bright as the others",
    ),
    "initialisation": Example(
        source="layer_too_large-mlp-0", fixed="program", fixed_name="the layer as wide as usual"
    ),
    "weight_decay": Example(
        source="weight_decay-mlp-0", fixed="program", fixed_name="the usual weight decay"
    ),
    "not_learning": Example(
        source="shuffled_labels-mlp-0", fixed="program", fixed_name="with the labels in place"
    ),
    "overfitting": Example(
        source="pages/overfitting.yaml",
        fixed=("train.args.fixed=true",),
        fixed_name="all 1,397 images",
        silent=True,
        figure="held_out_loss",
    ),
    "joint": Example(
        source="data_and_schedule-mlp-0", fixed="program", fixed_name="without both faults"
    ),
    "not_reproduced": Example(
        source="bit_flip_mlp.yaml",
        fixed=("task.args.flip_probability=0",),
        fixed_name="on memory that keeps its bits",
    ),
    "marginal": Example(
        source="edge_of_stability_mlp.yaml",
        fixed=("optimizer.lr=0.25",),
        fixed_name="at half the rate",
    ),
    "inconclusive": Example(source="nothing_helps-mlp-0", fixed=(), fixed_name=""),
}
"""Cause → its example, in the order of the pages."""
