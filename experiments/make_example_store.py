"""A small real tracking store to look at without running anything, kept in the repository.

One healthy run, and two that diverged and were bisected, are trained for real. Then everything that
makes a store large or ties it to one machine is taken out: checkpoints, dense curves, paths.

    python experiments/make_example_store.py
    stabexp ui --root mlruns_example
"""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from stabexp import api
from stabexp.tracking.portable_store import ARTIFACTS, DATABASE, copy_database, relocate
from stabexp.tracking.uploader import wait_for_upload

HERE = Path(__file__).parent
RUNS = ("healthy_cnn.yaml", "no_warmup_gpt.yaml", "rate_too_high_rnn.yaml")

CURVES = ("loss", "loss_log10", "grad_norm_log10", "lr")
"""What is kept of each step; figures without steps are kept whole."""

POINTS = 40
"""Points kept of each curve, the last ones included."""

LAST = 15
"""Points kept at the end of a curve, where it diverges."""

LIMIT = 3_000_000
"""Bytes the store may have."""


def main() -> int:
    """Make the store, or say why not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, nargs="?", default=HERE.parent / "mlruns_example")
    output: Path = parser.parse_args().output.absolute()
    os.chdir(HERE.parent)  # so that what is recorded names the files as a reader sees them
    with tempfile.TemporaryDirectory(prefix="stabexp-example-") as folder:
        root = Path(folder)
        for name in RUNS:
            train(HERE.relative_to(HERE.parent) / name, root)
        if output.exists():
            shutil.rmtree(output)
        output.mkdir(parents=True)
        copy_database(root / DATABASE, output / DATABASE)
        relocate(output / DATABASE)
        thin(output / DATABASE)
        copy_artifacts(root / ARTIFACTS, output / ARTIFACTS)
        problems = [*tied_to(output, [folder, str(HERE.parent), sys.prefix, str(Path.home())])]
    size = sum(file.stat().st_size for file in output.rglob("*") if file.is_file())
    if size > LIMIT:
        problems.append(f"{size:,} bytes, more than {LIMIT:,}")
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    print(f"{output}: {size:,} bytes")
    return 1 if problems else 0


def train(path: Path, root: Path) -> None:
    """Run an experiment, bisect it when it diverges, and wait until MLflow has everything."""
    result = api.run(path, root=root)
    print(f"{result.run_id}: {result.status}", flush=True)
    if result.divergence is not None:
        verdict = api.bisect(result.run_id, root=root)
        print(f"  {verdict.cause}, {verdict.trials} trials: {verdict.summary}", flush=True)
    if not wait_for_upload(result.directory, 120):
        raise SystemExit(f"error: not everything arrived; see {result.directory}/upload.log")


def thin(file: Path) -> None:
    """Keep what the pages show: few points per curve, and nothing that names this machine."""
    with closing(sqlite3.connect(file)) as database:
        with database:
            kept = ", ".join("?" for _ in CURVES)
            for table in ("metrics", "latest_metrics"):
                database.execute(
                    f"delete from {table} where key not in ({kept}) and key not like 'verdict/%'",
                    CURVES,
                )
            curves = database.execute(
                "select run_uuid, key, count(*) from metrics group by run_uuid, key "
                "having count(*) > ?",
                (POINTS,),
            ).fetchall()
            for run, key, count in curves:
                every = -(-(count - LAST) // (POINTS - LAST))
                database.execute(
                    "delete from metrics where rowid in (select id from (select rowid as id, "
                    "row_number() over (order by step) - 1 as place from metrics "
                    "where run_uuid = ? and key = ?) where place % ? and place < ?)",
                    (run, key, every, count - LAST),
                )
            database.execute("delete from tags where key = 'stabexp.checkpoints'")
            database.execute("delete from tags where key like 'mlflow.source.git.%'")
            database.execute("update tags set value = 'stabexp' where key = 'mlflow.source.name'")
            database.execute("update tags set value = 'example' where key = 'mlflow.user'")
            database.execute("update runs set user_id = 'example', source_name = 'stabexp'")
        # Most of MLflow's tables are empty here, and each takes a page.
        database.execute("pragma page_size = 1024")
        database.execute("vacuum")


def copy_artifacts(source: Path, target: Path) -> None:
    """Copy what people open; the step logs of trials and the search's database stay behind."""
    ignore = shutil.ignore_patterns("optuna.db", "checkpoints", "steps.jsonl")
    shutil.copytree(source, target, ignore=ignore)


def tied_to(output: Path, places: list[str]) -> Iterator[str]:
    """Yield which file of the store holds which of these paths."""
    for file in sorted(output.rglob("*")):
        if file.is_file():
            content = file.read_bytes()
            for place in places:
                if place.encode() in content:
                    yield f"{file.relative_to(output)}: holds the path {place}"


if __name__ == "__main__":
    sys.exit(main())
