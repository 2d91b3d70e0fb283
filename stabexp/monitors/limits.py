"""From which figure on something measured is worth an alarm, as data.

The figures are those of the documents the monitors come from. What is normal differs by orders of
magnitude between models, so where a limit says `times` or `plus`, the run's own first measurements
decide as soon as there are enough of them, and the figure only until then.
"""

from __future__ import annotations

from dataclasses import dataclass

WINDOW = 20
"""Finite measurements of a figure that make a run's healthy window."""

FEW = 5
"""As many have to do where the run ends before."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """One figure, and when it is alarming."""

    name: str
    """What it means when it is exceeded."""
    figure: str
    """As in the step log: a field of the record, a metric, or "layers/" and a kind."""
    words: str
    """What the figure is, in a sentence."""
    above: float | None = None
    """Alarming when greater."""
    below: float | None = None
    """Alarming when smaller, but not zero: a frozen layer's gradient is."""
    times: float | None = None
    """With a healthy window: alarming above its median times this, if it varies little."""
    plus: float | None = None
    """With a healthy window: alarming above its largest plus this, or `above` if that is more."""
    patience: int = 1
    """Measurements in a row that have to be alarming."""
    rows: str = ""
    """Where the figure comes from."""


LIMITS: tuple[Limit, ...] = (
    Limit(
        name="gradient explodes",
        figure="layers/grad_norm",
        words="gradient norm",
        above=100.0,
        times=50.0,
        rows="A6",
    ),
    Limit(
        name="gradient explodes",
        figure="grad_norm",
        words="total gradient norm before clipping",
        above=1000.0,
        times=50.0,
        rows="A3, B2",
    ),
    Limit(
        name="gradient vanishes",
        figure="layers/grad_norm",
        words="gradient norm",
        below=1e-8,
        patience=2,
        rows="A6",
    ),
    Limit(
        name="gradient vanishes",
        figure="grad_norm",
        words="total gradient norm",
        below=1e-7,
        patience=10,
        rows="C4",
    ),
    Limit(
        name="weights degenerate",
        figure="layers/weight_norm",
        words="weight norm",
        below=1e-6,
        patience=20,
        rows="C4",
    ),
    Limit(
        name="weights too large",
        figure="layers/weight_max",
        words="largest weight",
        above=1e6,
        rows="B1",
    ),
    Limit(
        name="constant input to a normalisation",
        figure="layers/norm_constant",
        words="share of rows without variance",
        above=0.5,
        plus=0.25,
        rows="A4",
    ),
    Limit(
        name="empty attention rows",
        figure="layers/attention_empty",
        words="share of rows that attend to nothing, or are NaN",
        above=0.5,
        plus=0.1,
        rows="A4",
    ),
    Limit(
        name="batches cut short",
        figure="batch/truncated",
        words="steps with fewer samples than expected, not only at an epoch's end",
        above=0.0,
        rows="B11",
    ),
    Limit(
        name="processes out of step",
        figure="ranks/gradients_differ",
        words="processes whose gradients differ from the first one's",
        above=0.0,
        rows="B10",
    ),
    Limit(
        name="processes out of step",
        figure="ranks/weights_differ",
        words="processes whose weights differ from the first one's",
        above=0.0,
        rows="B10",
    ),
    Limit(
        name="no room for the loss scale",
        figure="loss_scale",
        words="loss scale",
        below=1.0,
        rows="A9",
    ),
)
