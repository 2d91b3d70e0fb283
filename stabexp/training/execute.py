"""Run a program once: seed, call its training function, and see that every error has a place."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import torch

import stabexp
from stabexp.errors import StabexpError, TrainingError
from stabexp.state.fingerprint import fingerprint, set_deterministic
from stabexp.state.random_streams import seed_everything
from stabexp.training.run import Run
from stabexp.training.settings import Program, RunSettings


def execute(program: Program, run: Run, *, on_ready: Callable[[], object] = lambda: None) -> None:
    """Train; on return `run.divergence` says whether the run diverged.

    `on_ready` is called once threads, determinism and seeds are set, before the training function.

    Raises:
        TrainingError: If the training function raised, or returned without making a step.
    """
    settings = run.settings
    prepare(settings)
    on_ready()
    seed_everything(settings.seed)
    try:
        program.train(run)
    except StabexpError:
        raise
    except Exception as error:
        raise TrainingError(_where(error, run)) from error
    finally:
        run.close()  # an error's traceback would keep the loop, and with it the hooks, alive
    if run.last_record is None and not run.over:
        raise TrainingError(
            "the training function returned without making a step; "
            "does it loop over run.steps(...) and call optimizer.step()?"
        )


def prepare(settings: RunSettings) -> None:
    """Set threads and determinism for this process, as the settings ask."""
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    set_deterministic(settings.deterministic)


def fingerprint_of(program: Program) -> dict[str, str]:
    """Return what two runs of a program must share to be comparable bit for bit.

    Call it after `prepare`: threads and determinism are part of it.
    """
    own = Path(stabexp.__file__).parent
    facts = fingerprint(device=program.settings.device, code_paths=(own, *program.code))
    return facts | {"configuration": program.configuration}


def _where(error: Exception, run: Run) -> str:
    """Return "train.py:31: at step 4: ValueError: …" for the deepest line outside libraries."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "site-packages" not in f.filename and "<" not in f.filename]
    ours = str(Path(__file__).resolve().parent)
    theirs = [frame for frame in own if not frame.filename.startswith(ours)] or own or list(frames)
    place = f"{theirs[-1].filename}:{theirs[-1].lineno}: " if theirs else ""
    return f"{place}at step {run.step}: {type(error).__name__}: {error}"
