"""`lr_find`: which learning rate a training could have, found without leaving a run behind."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stabexp import experiment as experiments
from stabexp.api.runs import refuse_while_loading
from stabexp.experiment.documents import command_for
from stabexp.tracking.muted import in_active_run, muted

if TYPE_CHECKING:
    from torch import Tensor

    from stabexp.advice import FoundRate


def lr_find(
    what: Path | str | Callable[..., Any],
    overrides: Sequence[str] = (),
    *,
    first: float = 1e-7,
    last: float = 10.0,
    ramp_steps: int = 200,
    probe_steps: int | None = None,
    on_phase: Callable[[str], None] = lambda text: None,
    **settings: Any,
) -> FoundRate:
    """Find the learning rate of an experiment or a training function; no run is recorded.

    The training function is called once for the ramp and once per trial. Whatever it trains, and
    every random stream of this process, is afterwards what it was, bit for bit.

    Args:
        what, overrides, settings: As for `stabexp.run`.
        first, last: The rates between which the ramp goes.
        ramp_steps: How many steps it takes.
        probe_steps: Steps of each trial from scratch, beside the warmup; 0 tries nothing, None
            takes 60.
        on_phase: Told what is being done.

    Raises:
        ConfigError: If the file, the function or a setting is wrong.
        StabexpError: If the ramp has too few points, or the loss does not fall in it.
        TrainingError: If the training code raised.
    """
    from stabexp.advice.lr_finder import PROBE_STEPS, find_rate
    from stabexp.preflight.tuning import kind_of_tuning

    refuse_while_loading("stabexp.lr_find")
    given = experiments.given(what, overrides, settings)
    with muted(active_run=in_active_run()):
        program = experiments.program(given.experiment, base=given.base)
    return find_rate(
        program,
        first=first,
        last=last,
        steps=ramp_steps,
        probe_steps=PROBE_STEPS if probe_steps is None else probe_steps,
        tuning_of=kind_of_tuning,
        on_phase=on_phase,
    )


def lr_find_in(
    model: Any,
    optimizer: Any,
    data: Any,
    loss: Callable[[Any, Any], Tensor],
    *,
    scheduler: Any = None,
    scaler: Any = None,
    batch_size: int = 32,
    first: float = 1e-7,
    last: float = 10.0,
    ramp_steps: int = 200,
    probe_steps: int = 0,
    seed: int = 0,
) -> FoundRate:
    """Find the learning rate of a live model, as in a notebook, and leave it as it was.

    Args:
        model, optimizer, scheduler, scaler: Put back bit for bit afterwards.
        data: A map-style dataset, a DataLoader, or anything that iterates from its beginning.
        loss: (model, batch) → 0-d tensor.
        batch_size: For a dataset.
        first, last, ramp_steps: The ramp.
        probe_steps: Steps of each trial from the present weights; 0 tries nothing.
        seed: Of the draws in the ramp.

    Raises:
        StabexpError: If the ramp has too few points, or the loss does not fall in it.
    """
    import torch

    from stabexp.advice.lr_finder import find_rate
    from stabexp.advice.trial_training import put_back
    from stabexp.preflight.tuning import kind_of_tuning
    from stabexp.state.snapshot import capture
    from stabexp.training import Program, Run, RunSettings

    def train(run: Run) -> None:
        steps = run.steps(
            data,
            model=model,
            optimizer=optimizer,
            scheduler=scheduler,
            scaler=scaler,
            batch_size=batch_size,
        )
        for batch in steps:
            optimizer.zero_grad()
            value = loss(model, batch)
            run.log(value)
            if scaler is None:
                value.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            else:
                scaler.scale(value).backward()
                scaler.step(optimizer)
                scaler.update()

    device = next(model.parameters()).device
    settings = RunSettings(
        name="lr-find",
        seed=seed,
        device=str(device),
        deterministic=torch.are_deterministic_algorithms_enabled(),
        batch_size=batch_size,
    )
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "scaler": scaler}
    drawn = {
        name: stream
        for name in ("generator", "sampler.generator")
        if isinstance(stream := _at(data, name), torch.Generator)
    }
    # Reading the first batch draws numbers, so the state is that of before anything was read.
    before = capture(parts | drawn)
    try:
        found = find_rate(
            Program(settings=settings, train=train),
            first=first,
            last=last,
            steps=ramp_steps,
            probe_steps=probe_steps,
            tuning_of=kind_of_tuning,
        )
    finally:
        digest = put_back(before, parts | drawn)
    return replace(found, state_hash=digest)


def _at(thing: Any, path: str) -> Any:
    for name in path.split("."):
        thing = getattr(thing, name, None)
    return thing


def usual_rate(found: FoundRate, *, steps: int | None) -> str:
    """Return what is usual for what was trained, in a sentence; "" from scratch."""
    from stabexp.preflight.rate_ranges import DECAY, TITLES, range_for, usual_warmup

    usual = range_for(found.tuning, found.optimizer)
    if usual is None:
        return ""
    rate = found.figure if found.rate is None else found.rate
    warmup = usual_warmup(steps)
    return (
        f"usual for {TITLES[usual.tuning]} with {found.optimizer}: {usual.low:g} to "
        f"{usual.high:g}, {warmup} steps of linear warmup, then {DECAY} decay; "
        f"{rate:.2g} lies {usual.side(rate)} that range"
    )


def command_with(
    found: FoundRate, what: str, overrides: Sequence[str], experiment: experiments.Experiment
) -> str:
    """Return what to type to train at the found rate; "" when there is none.

    Args:
        found: What the finder returned.
        what, overrides: What it was asked about.
        experiment: What they stand for.
    """
    rate = found.rate
    task = experiment.task is not None
    extra: tuple[str, ...] = ()
    if rate != found.figure and not found.warmup_steps:
        warm = [p for p in found.probes if p.rate == found.figure and p.warmup and p.held]
        if warm:  # a warmup makes the whole figure hold
            rate = found.figure
            name = "schedule.warmup_steps" if task else "interventions.warmup"
            extra = (f"{name}={warm[0].warmup}",)
    if rate is None or (not task and not found.configured > 0):
        return ""
    if not task:
        setting = f"interventions.learning_rate={rate / found.configured:.3g}"
    else:
        setting = f"optimizer.lr={rate:.2g}"
        if "learning_rate" in experiment.interventions:  # the trials left its factor out
            extra = (*extra, "interventions.learning_rate=1")
    return shlex.join(command_for(what, (*overrides, setting, *extra)))
