"""Follows a page to the letter in an empty folder, and fails where it does not work.

    .ci/newcomer docs/tutorial.md --folder EMPTY --env VENV [--clone DIR]
    .ci/newcomer README.md --from 'A loop of your own.' --to 'or, with the settings' --next …

A file is written as the page shows it, a command typed as it stands there; its exit code must be
the one that the page says. Where the page shows a verdict, the same cause must be named. In the end
a `stabexp run` must have trained to its last step. `pip install` is typed in the clone, as the
README says; without --clone it is left out.

Exit code 0: it ended in a fixed run. 1: it did not, and the place is named.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from experiments.pages.following import Done, Follower, WentWrong, clean_environment
from experiments.pages.markdown import Block, Command, blocks, commands, part

_LOSS = re.compile(r"\bloss (?P<loss>-?(?:[\d.]+(?:e[+-]?\d+)?|nan|inf))", re.IGNORECASE)
_CAUSE = re.compile(r"^\s*└─ (?P<cause>\w+)", re.MULTILINE)
_NEXT = re.compile(r"^Next\n+\s+(?P<command>stabexp run .*)$", re.MULTILINE)


def follow(page: str, follower: Follower, *, clone: Path | None, next_too: bool) -> Iterator[str]:
    """Do all that a page says, and yield what was done, a line each.

    Raises:
        WentWrong: At the first place that does not hold.
        ValueError: If a block has no end.
    """
    typed: list[Done] = []
    shown: list[Done] = []
    """What the commands of the last block did."""
    for block in blocks(page):
        if block.file:
            follower.write(block)
            yield f"{block.line}: wrote {block.file}"
        elif block.language == "sh":
            shown = []
            for command in commands(block):
                where = _place(command, clone)
                if where is None:
                    yield f"{command.line}: left out: {command.text}"
                    continue
                yield f"{command.line}: $ {command.text}"
                shown.append(follower.type(where))
            typed += shown
        elif block.language == "console" and shown:
            _same_cause(block, shown)
    if next_too:
        command = _next_command(typed)
        yield f"and as the verdict says: $ {command.text}"
        typed.append(follower.type(command))
    yield _fixed(typed)


def _place(command: Command, clone: Path | None) -> Command | None:
    """Return a command to be typed where the page means it; None when it is left out."""
    if not re.match(r"(python\S* -m )?pip install\b", command.text):
        return command
    if clone is None:
        return None
    return Command(command.line, f'(cd "{clone}" && {command.text})', command.code)


def _same_cause(block: Block, shown: Sequence[Done]) -> None:
    said = _CAUSE.findall(block.text)
    found = _CAUSE.findall("".join(done.out for done in shown))
    if said and said != found:
        named = ", ".join(found) or "no cause"
        raise WentWrong(f"{block.line}: the page shows {', '.join(said)}; {named} was named here")


def _next_command(typed: Sequence[Done]) -> Command:
    for done in reversed(typed):
        if found := _NEXT.search(done.out):
            return Command(done.command.line, found["command"])
    raise WentWrong("no verdict said which run comes next")


def _fixed(typed: Sequence[Done]) -> str:
    """Return what became of the last training, which must have come to its end."""
    runs = [done for done in typed if done.command.text.startswith("stabexp run ")]
    if not runs:
        raise WentWrong("the page has no stabexp run")
    last = runs[-1]
    place = f"{last.command.line}: {last.command.text}"
    if last.code != 0:
        raise WentWrong(f"{place}: the last run ends with exit code {last.code}, it is not fixed")
    found = _LOSS.search(last.out)
    if found is None or not math.isfinite(float(found["loss"])):
        raise WentWrong(f"{place}: printed no finite loss, so it cannot be told that it trained")
    return f"{place}: trained to its end, loss {found['loss']}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        prog=".ci/newcomer",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("page", type=Path)
    parser.add_argument("--folder", type=Path, required=True, help="an empty one")
    parser.add_argument("--env", type=Path, help="a virtual environment; default: PATH as it is")
    parser.add_argument("--clone", type=Path, help="where `pip install` is typed")
    parser.add_argument("--from", dest="first", default="", help="text in the line to begin with")
    parser.add_argument("--to", dest="last", default="", help="text in the line to end before")
    parser.add_argument("--next", action="store_true", help="type what the last verdict says, too")
    given = parser.parse_args(arguments)
    if given.folder.exists() and any(given.folder.iterdir()):
        parser.error(f"--folder {given.folder}: is not empty")
    given.folder.mkdir(parents=True, exist_ok=True)
    path = os.environ.get("PATH", os.defpath)
    environment = clean_environment(
        path if given.env is None else f"{given.env.absolute() / 'bin'}{os.pathsep}{path}"
    )
    # It lets this module be found; the commands have to find what the environment holds.
    environment.pop("PYTHONPATH", None)
    if given.env is not None:
        environment["VIRTUAL_ENV"] = str(given.env.absolute())

    def heard(text: str) -> None:
        print(f"    {text}", end="" if text.endswith("\n") else "\n", flush=True)

    follower = Follower(given.folder.absolute(), environment=environment, heard=heard)
    clone = given.clone.absolute() if given.clone else None
    try:
        page = part(given.page.read_text("utf-8"), given.first, given.last)
        for line in follow(page, follower, clone=clone, next_too=given.next):
            print(f"{given.page}:{line}", flush=True)
    except (WentWrong, ValueError, OSError) as error:
        print(f"{given.page}:{error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
