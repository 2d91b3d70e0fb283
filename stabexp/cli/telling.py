"""`events`: what was told of a run, to whom, and whether it arrived; or try it beforehand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stabexp.cli.app import ROOT, AsJson, Overrides, Root, app, print_json, say, show

if TYPE_CHECKING:
    from stabexp.notifications import EventTarget
    from stabexp.notifications.ledger import Ledger


@app.command()
def events(
    what: Annotated[
        str, typer.Argument(metavar="RUN_ID|EXPERIMENT", help="A run; with --try an experiment.")
    ],
    override: Overrides = None,
    attempt: Annotated[
        bool, typer.Option("--try", help="Tell everybody under on_event now, of nothing real.")
    ] = False,
    root: Root = ROOT,
    as_json: AsJson = False,
) -> None:
    """Show what was told of a run and whether it arrived, or try the receivers of an experiment."""
    if attempt:
        raise typer.Exit(_try_out(what, override or [], as_json=as_json))
    from stabexp.errors import ConfigError
    from stabexp.notifications.ledger import Ledger, plain, read_targets
    from stabexp.records import to_json
    from stabexp.tracking import find_run

    if override:
        raise ConfigError("-o: is for --try; what a recorded run tells is in the run")
    directory = find_run(what, root)
    ledger, targets = Ledger.read(directory.path), read_targets(directory.path)
    if as_json:
        print_json(
            {
                "run_id": directory.run_id,
                "events": [to_json(event) for event in ledger.events.values()],
                "deliveries": [plain(d, ledger.events.get(d.id)) for d in ledger.deliveries],
                "waiting": sum(len(ledger.pending(target)) for target in targets),
            }
        )
        return
    if not targets:
        show(f"{directory.run_id}: nobody is told of it; add on_event: to its experiment")
    for line in _lines(ledger, targets):
        show(line)


def _lines(ledger: Ledger, targets: list[EventTarget]) -> list[str]:
    from datetime import datetime

    lines = []
    for target in targets:
        lines.append(target.shown)
        wanted = [event for event in ledger.events.values() if event.event in target.on]
        for event in wanted:
            tries = [d for d in ledger.deliveries if (d.id, d.target) == (event.id, target.key)]
            when = datetime.fromtimestamp(event.time).strftime("%Y-%m-%d %H:%M:%S")
            state = "waits"
            if tries:
                last = tries[-1]
                state = "arrived" if last.arrived else f"waits after {_count(len(tries), 'try')}"
                state += f": {last.answer}"
            lines.append(f"  {when}  {event.event}  {state}")
        if not wanted:
            lines.append(f"  nothing yet of: {', '.join(target.on)}")
    return lines


def _count(number: int, noun: str) -> str:
    return f"{number} {noun if number == 1 else noun.removesuffix('y') + 'ies'}"


def _try_out(what: str, overrides: list[str], *, as_json: bool) -> int:
    import os
    import time

    from stabexp import experiment as experiments
    from stabexp.notifications.sending import send
    from stabexp.notifications.trial import trial_payload

    given = experiments.given(what, overrides)
    targets = given.experiment.on_event
    answers: list[dict[str, Any]] = []
    for target in targets:
        begun = time.monotonic()
        data = trial_payload(target.on[0], given.experiment.name)
        answer = send(target, data, environment=dict(os.environ), folder=Path.cwd())
        seconds = time.monotonic() - begun
        answers.append(
            {
                "to": target.shown,
                "arrived": answer.arrived,
                "answer": answer.text,
                "seconds": round(seconds, 3),
            }
        )
        if not as_json:
            state = "arrived" if answer.arrived else "FAILED"
            show(f"{state}  {target.shown}  {answer.text}  ({seconds:.1f} s)")
    if as_json:
        print_json({"receivers": answers})
    elif not targets:
        say(f"{what}: has no on_event:, so nobody is told of anything")
    return 0 if answers and all(each["arrived"] for each in answers) else 1


def told_now(path: Path) -> dict[str, Any]:
    """Send what a run's receivers have not got, and return what came of it."""
    from stabexp.errors import StabexpError
    from stabexp.notifications.delivering import Delivered, deliver_now

    try:
        done = deliver_now(path)
    except StabexpError as error:
        done = Delivered(problem=str(error))
    return {
        "events_delivered": done.arrived,
        "events_waiting": done.left,
        "events_problem": done.problem,
    }


def told_words(told: dict[str, Any]) -> str:
    """Return what came of it in words, to stand after a sentence; empty where nothing was to do."""
    parts = []
    if told["events_delivered"]:
        parts.append(f"{_events(told['events_delivered'])} delivered")
    if told["events_waiting"]:
        parts.append(f"{_events(told['events_waiting'])} not delivered")
    if told["events_problem"]:
        parts.append(told["events_problem"])
    return "".join(f"; {part}" for part in parts)


def _events(number: int) -> str:
    return f"{number} event" if number == 1 else f"{number} events"
