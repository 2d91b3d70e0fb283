"""Puts the scripts, real messages and real outputs into the how-to pages.

    python -m experiments.how_to --write

A script on a page is a file of `experiments/pages/scripts/` or a snippet of the README, whole, so
that no third copy drifts from them. What mistakes are answered with is asked in a test.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from experiments.pages import made_parts
from experiments.pages.following import Follower, WentWrong, clean_environment
from experiments.pages.markdown import blocks
from experiments.pages.transcripts import filled

REPOSITORY = Path(__file__).parents[1]
PAGES = REPOSITORY / "docs" / "how_to"
SCRIPTS = Path(__file__).parent / "pages" / "scripts"
FOLLOWED = ("diagnose", "ci")
"""Pages whose commands are typed, and their output shown."""


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """Something that is easily done wrong, and what is said then."""

    page: str
    script: str
    what: str
    edits: tuple[tuple[str, str], ...] = ()
    """Texts of the script, and what the mistake makes of them."""
    options: tuple[str, ...] = ()
    message: str
    """How the error begins."""


MISTAKES: tuple[Mistake, ...] = (
    Mistake(
        page="plain_loop",
        script="train.py",
        what="`run.log(loss)` is forgotten",
        edits=(("        run.log(loss)\n", ""),),
        options=("steps=20",),
        message="step 0: run.log(loss) was not called, so the step cannot be judged",
    ),
    Mistake(
        page="plain_loop",
        script="train.py",
        what="the optimizer that steps is not the one given to `run.steps`",
        edits=(("optimizer=optimizer", "optimizer=torch.optim.SGD(model.parameters(), lr=lr)"),),
        options=("steps=20",),
        message="step 0: 1024 batches came without an update; does the loop call step() on the "
        "optimizer given to run.steps?",
    ),
    Mistake(
        page="plain_loop",
        script="train.py",
        what="nothing says when it ends",
        message="run.steps: when does the training end? set steps: in the experiment, or pass "
        "epochs= to run.steps",
    ),
    Mistake(
        page="plain_loop",
        script="train.py",
        what="the loss has one number per sample",
        edits=(("(model(inputs), targets)", "(model(inputs), targets, reduction='none')"),),
        options=("steps=20",),
        message="run.log: the loss has 32 elements, expected one",
    ),
    Mistake(
        page="plain_loop",
        script="train.py",
        what="a setting is misspelled",
        options=("step=20",),
        message="-o step=20: step: unknown key; did you mean 'steps'?",
    ),
    Mistake(
        page="plain_loop",
        script="train.py",
        what="an argument is not the function's",
        options=("steps=20", "train.args.rate=1"),
        message="train.args: got an unexpected keyword argument 'rate'; it is train(run, lr=0.05)",
    ),
    Mistake(
        page="hugging_face",
        script="hugging_face.py",
        what="`callbacks=[StabexpCallback(run)]` is forgotten",
        edits=(
            ("        callbacks=[StabexpCallback(run)],\n", ""),
            ("num_train_epochs=4", "max_steps=1"),
        ),
        message="the training function returned without making a step",
    ),
    Mistake(
        page="hugging_face",
        script="hugging_face.py",
        what="`auto_find_batch_size=True`",
        edits=(("num_train_epochs=4", "auto_find_batch_size=True"),),
        message="TrainingArguments.auto_find_batch_size: starts the training again with smaller "
        "batches when memory runs out; set it to False and per_device_train_batch_size to what it "
        "found",
    ),
    Mistake(
        page="hugging_face",
        script="hugging_face.py",
        what="`trainer.train(resume_from_checkpoint=…)`",
        edits=(("trainer.train()", 'trainer.train(resume_from_checkpoint="out")'),),
        message="Trainer.train: resume_from_checkpoint='out': Trainer's own resuming is not exact "
        "in the middle of an epoch, and a replay would start there again. Let stabexp go on with "
        "the run (`stabexp run --resume RUN_ID`), or load the weights before the Trainer is made",
    ),
    Mistake(
        page="lightning",
        script="lightning_module.py",
        what="loaders that are made anew in every epoch",
        edits=(("max_epochs=4", "max_epochs=4, reload_dataloaders_every_n_epochs=1"),),
        message="Trainer(reload_dataloaders_every_n_epochs): a loader that is made anew has no "
        "position to go back to; leave it at 0, and let the sampler change with the epoch",
    ),
    Mistake(
        page="lightning",
        script="lightning_module.py",
        what="`callbacks=[StabexpCallback(run)]` is forgotten",
        edits=(("callbacks=[StabexpCallback(run)]", "max_steps=1"), ("max_epochs=4, ", "")),
        message="the training function returned without making a step",
    ),
)


def script(name: str) -> str:
    """Return a script by its file's name, its first line a comment with that name.

    Raises:
        ValueError: If neither the folder of scripts nor the README has it.
    """
    file = SCRIPTS / name
    if file.exists():
        return file.read_text("utf-8")
    for block in blocks((REPOSITORY / "README.md").read_text("utf-8")):
        if block.file == name:
            return block.text
    raise ValueError(f"{name}: no such script in {SCRIPTS}, and none on README.md")


def broken(mistake: Mistake) -> str:
    """Return the script with a mistake in it."""
    text = script(mistake.script)
    for old, new in mistake.edits:
        assert old in text, f"{mistake.script} has no {old!r} any more"
        text = text.replace(old, new)
    return text


def with_scripts(page: Path) -> str:
    """Return a page with its scripts and mistakes made anew."""
    text = page.read_text("utf-8")
    parts = {}
    for name in made_parts.names(text):
        kind, _, what = name.partition(" ")
        if kind == "script":
            parts[name] = f"```python\n{script(what)}```"
        elif kind == "mistakes":
            parts[name] = _table(page.stem)
    return made_parts.filled(text, parts)


def _table(page: str) -> str:
    lines = ["| mistake | what is said |", "| --- | --- |"]
    lines += [f"| {one.what} | `{one.message}` |" for one in MISTAKES if one.page == page]
    return "\n".join(lines)


def with_output(text: str) -> str:
    """Return a page with the output of its commands made anew.

    Raises:
        WentWrong: Where a command does not do what the page says.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        follower = Follower(Path(folder), environment=clean_environment(path))
        return filled(text, follower, leave_out=("pip install",))[0]


def main() -> int:
    """Run from the command line; exit code 1 when a page does not hold."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.how_to",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--write", action="store_true", help="write the pages")
    given = parser.parse_args()
    made = {}
    for page in sorted(PAGES.glob("*.md")):
        text = with_scripts(page)
        try:
            made[page] = with_output(text) if page.stem in FOLLOWED else text
        except WentWrong as error:
            print(f"{page}:{error}", file=sys.stderr)
            return 1
    for page, text in made.items() if given.write else ():
        page.write_text(text, "utf-8")
    print(f"{len(made)} pages hold")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
