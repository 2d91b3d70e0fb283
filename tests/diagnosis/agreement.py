"""Count how often a diagnosis of an exported log finds what the live run found.

python tests/diagnosis/agreement.py ROOT_OF_RUNS [ROOT_OF_RUNS …]

Every recorded run below the roots is exported as a log of other people's would be, and diagnosed:
all its numbers (our own run), loss, gradient norm and rate (CSV, TensorBoard), the loss alone
(CSV). Printed for each: how many are found diverged, with the same onset, step of detection and
pattern; how many healthy runs are called diverged; and how often the opinion names the cause, or
the family, of the verdict, where there is one.
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from stabexp import diagnose
from stabexp.errors import StabexpError
from stabexp.records import FAMILIES, Divergence, StepRecord
from stabexp.tracking import RunDirectory

Export = Callable[[list[StepRecord], Path], Path]


def as_csv(records: list[StepRecord], folder: Path, *names: str) -> Path:
    """Write the named fields of every step, NaN as "nan"."""
    names = names or ("loss", "grad_norm", "lr")
    with (folder / "log.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["step", *names])
        for record in records:
            writer.writerow([record.step, *(getattr(record, name) for name in names)])
    return folder / "log.csv"


def as_events(records: list[StepRecord], folder: Path) -> Path:
    """Write float32 scalars with torch's own writer."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        for record in records:
            writer.add_scalar("train/loss", record.loss, record.step)
            writer.add_scalar("train/grad_norm", record.grad_norm, record.step)
            writer.add_scalar("train/lr", record.lr, record.step)
    return folder


EXPORTS: dict[str, Export | None] = {
    "our own run": None,
    "CSV: loss, norm, rate": as_csv,
    "TensorBoard: loss, norm, rate": as_events,
    "CSV: loss": lambda records, folder: as_csv(records, folder, "loss"),
}


def verdict_of(directory: RunDirectory) -> str | None:
    """Return the cause that a bisect named, None without one."""
    files = sorted(directory.path.glob("bisects/*/verdict.json"))
    cause = json.loads(files[-1].read_text())["cause"] if files else None
    return None if cause in {"inconclusive", "marginal", "not_reproduced", "joint"} else cause


def compare(root: Path, counts: dict[str, Counter[str]]) -> None:
    """Diagnose every run below a root in every form, and count."""
    for file in sorted(root.glob("runs/*/run.json")):
        try:
            directory = RunDirectory.open(file.parent)
            records, live = directory.read_steps(), directory.divergence()
            ended = directory.status() == "FINISHED"
        except StabexpError:
            continue
        if len(records) < 2 or not (live or ended):
            continue
        for name, export in EXPORTS.items():
            with tempfile.TemporaryDirectory() as folder:
                source = export(records, Path(folder)) if export else directory.path
                count(counts[name], source, live, verdict_of(directory), directory.run_id)


def count(
    counts: Counter[str], source: Path, live: Divergence | None, verdict: str | None, run_id: str
) -> None:
    """Diagnose one log and enter how it compares."""
    kind = "diverged" if live else "healthy"
    counts[kind] += 1
    try:
        diagnosis = diagnose(source)
    except StabexpError as error:
        counts[f"{kind}: refused"] += 1
        print(f"{run_id} {source.name}: {error}", file=sys.stderr)
        return
    found = diagnosis.divergence
    if found is not None:
        counts[f"{kind}: found diverged"] += 1
    if found is not None and live is not None:
        counts["same onset"] += found.onset == live.onset
        counts["same step of detection"] += found.detected == live.detected
        counts["same pattern"] += found.pattern == live.pattern
        counts["same of all three"] += (found.onset, found.detected, found.pattern) == (
            live.onset,
            live.detected,
            live.pattern,
        )
        between = diagnosis.onset_between
        counts["live onset within"] += between is not None and (
            between[0] <= live.onset <= between[1]
        )
        if verdict is not None and diagnosis.opinion is not None:
            counts["with a verdict"] += 1
            counts["opinion = verdict"] += diagnosis.opinion.cause == verdict
            counts["opinion of the same family"] += (
                FAMILIES[diagnosis.opinion.cause] == FAMILIES[verdict]
            )
            counts["opinion: none"] += diagnosis.opinion.cause == "inconclusive"


if __name__ == "__main__":
    tables: dict[str, Counter[str]] = {name: Counter() for name in EXPORTS}
    for given in sys.argv[1:]:
        compare(Path(given), tables)
    for name, table in tables.items():
        print(f"\n{name}")
        for what, times in table.items():
            print(f"  {what}: {times}")
