"""A small real tracking store to look at without running anything, kept in the repository.

A healthy run, six that diverged for different reasons and were bisected, and one training at six
learning rates, all made for real. Then everything that makes a store large or ties it to one
machine is taken out: checkpoints, dense curves, paths. It takes some minutes.

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
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from stabexp import api
from stabexp.tracking.portable_store import ARTIFACTS, DATABASE, copy_database, relocate
from stabexp.tracking.uploader import wait_for_upload
from stabexp.tracking.web_view import (
    artifact_link,
    comparison_view_tag,
    saved_view_url,
    view_url,
)

HERE = Path(__file__).parent
RUNS = (
    "healthy_cnn.yaml",
    "unclipped_bursts.yaml",
    "no_warmup_gpt.yaml",
    "rate_too_high_rnn.yaml",
    "outlier_sample_mlp.yaml",
    "cases/no_zero_grad.yaml",
    "edge_of_stability_mlp.yaml",
)
SWEPT = "rate_too_high_rnn.yaml"
RATES = (0.2, 0.4, 0.75, 1.5, 3.0, 6.0)
SWEEP = "rnn-at-rate"

CURVES = ("loss", "loss_log10", "grad_norm_log10", "lr")
"""What is kept of each step; figures without steps are kept whole."""

POINTS = 32
"""Points kept of each curve, the last ones included."""

LAST = 12
"""Points kept at the end of a curve, where it diverges."""

LIMIT = 4_000_000
"""Bytes the store may have."""

LEFT_OUT = ("optuna.db", "checkpoints", "steps.jsonl", "layers", "emergency.json", "loop.json")
"""Artifacts that stay behind: step logs, the search's database, pictures that the page has too."""


def main() -> int:
    """Make the store, or say why not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, nargs="?", default=HERE.parent / "mlruns_example")
    parser.add_argument(
        "--only", help="comma-separated parts of file names: make the runs of these, to try it out"
    )
    arguments = parser.parse_args()
    output: Path = arguments.output.absolute()
    wanted = arguments.only.split(",") if arguments.only else [""]
    os.chdir(HERE.parent)  # so that what is recorded names the files as a reader sees them
    with tempfile.TemporaryDirectory(
        prefix="stabexp-example-",
        ignore_cleanup_errors=True,  # after an error an uploader may still be writing
    ) as folder:
        root = Path(folder)
        for name in RUNS:
            if any(part in name for part in wanted):
                train(HERE.relative_to(HERE.parent) / name, root)
        for rate in RATES:
            swept = HERE.relative_to(HERE.parent) / SWEPT
            train(
                swept,
                root,
                overrides=(
                    f"optimizer.lr={rate}",
                    f"name={SWEEP}-{rate:g}",
                    f"description=One of six trainings that differ only in the rate, here {rate}",
                ),
                bisected=False,
            )
        if output.exists():
            shutil.rmtree(output)
        output.mkdir(parents=True)
        copy_database(root / DATABASE, output / DATABASE)
        relocate(output / DATABASE)
        copy_artifacts(root / ARTIFACTS, output / ARTIFACTS)
        with closing(sqlite3.connect(output / DATABASE)) as database:
            with database:
                add_comparison(database)
                describe(database)
                share_reports(database, output / ARTIFACTS)
                thin(database)
            # Most of MLflow's tables are empty here, and each takes a page.
            database.execute("pragma page_size = 1024")
            database.execute("vacuum")
        problems = [*tied_to(output, [folder, str(HERE.parent), sys.prefix, str(Path.home())])]
    size = sum(file.stat().st_size for file in output.rglob("*") if file.is_file())
    if size > LIMIT:
        problems.append(f"{size:,} bytes, more than {LIMIT:,}")
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    print(f"{output}: {size:,} bytes")
    return 1 if problems else 0


def train(path: Path, root: Path, *, overrides: Sequence[str] = (), bisected: bool = True) -> None:
    """Run an experiment, bisect it when it diverges, and wait until MLflow has everything."""
    result = api.run(path, overrides=overrides, root=root)
    print(f"{result.run_id}: {result.status}", flush=True)
    if result.divergence is not None and bisected:
        verdict = api.bisect(result.run_id, root=root)
        print(f"  {verdict.cause} ({verdict.trials} trials): {verdict.summary}", flush=True)
    if not wait_for_upload(result.directory, 300):
        raise SystemExit(f"error: not everything arrived; see {result.directory}/upload.log")


def add_comparison(database: sqlite3.Connection) -> None:
    """Save the view that compares the training at its rates."""
    key, value = comparison_view_tag(
        SWEEP,
        name="comparison: one training at six learning rates",
        only=f"attributes.run_name LIKE '{SWEEP}%'",
        params=("optimizer.lr",),
        metric="loss",
        time_ms=time.time_ns() // 1_000_000,
    )
    _set_tag(database, key, value)


def describe(database: sqlite3.Connection) -> None:
    """Make the experiment's description a way through the store."""
    rows = database.execute(
        "select r.run_uuid, r.experiment_id, i.value, c.value, f.value, b.value from runs r "
        "join tags i on i.run_uuid = r.run_uuid and i.key = 'stabexp.run_id' "
        "join tags c on c.run_uuid = r.run_uuid and c.key = 'stabexp.cause' "
        "join tags f on f.run_uuid = r.run_uuid and f.key = 'stabexp.finding' "
        "join tags k on k.run_uuid = r.run_uuid and k.key = 'stabexp.kind' and k.value = 'run' "
        "join tags p on p.value = r.run_uuid and p.key = 'mlflow.parentRunId' "
        "join tags b on b.run_uuid = p.run_uuid and b.key = 'stabexp.run_id' "
        "order by r.start_time"
    ).fetchall()
    parts = [
        "**Trainings that diverged, and why.**",
        "An example store: every run in it was really trained. A *run* is one training; below one "
        "that diverged is its *bisect*, and below that its *trials*: the same training from a "
        "checkpoint with one thing changed. Green trained through, red diverged, orange held out "
        "longer or survived without learning, blue is a bisect.",
        "\n".join(
            [
                "| run | cause | what was found | look at |",
                "|---|---|---|---|",
                *(
                    f"| {run_id} | **{cause}** | {finding.replace('|', '/')} | "
                    f"[report]({artifact_link(store_id, 'report/verdict.html')}), "
                    f"[trials]({saved_view_url('', str(experiment), bisect).lstrip('/')}), "
                    f"[charts]({saved_view_url('', str(experiment), bisect, charts=True)[1:]}) |"
                    for store_id, experiment, run_id, cause, finding, bisect in rows
                ),
            ]
        ),
        "Worth comparing: "
        f"[one training at six learning rates]({view_url('', '1', SWEEP, charts=True)[1:]}), "
        "from far too careful to far too high.",
    ]
    _set_tag(database, "mlflow.note.content", "\n\n".join(parts))


def share_reports(database: sqlite3.Connection, artifacts: Path) -> None:
    """Keep each page once, with its run; the bisect's note links to that one."""
    pairs = database.execute(
        "select p.run_uuid, p.value from tags p join tags k on k.run_uuid = p.run_uuid "
        "where p.key = 'mlflow.parentRunId' and k.key = 'stabexp.kind' and k.value = 'bisect'"
    ).fetchall()
    for bisect, run in pairs:
        for folder in artifacts.glob(f"*/{bisect}/artifacts/report"):
            shutil.rmtree(folder)
        database.execute(
            "update tags set value = replace(replace(value, ?, ?), ?, ?) "
            "where run_uuid = ? and key = 'mlflow.note.content'",
            (
                f"runs/{bisect}/artifacts",
                f"runs/{run}/artifacts",
                f"run_uuid={bisect}",
                f"run_uuid={run}",
                bisect,
            ),
        )
        database.execute(
            "delete from tags where run_uuid = ? and key = 'mlflow.loggedArtifacts'", (bisect,)
        )


def _set_tag(database: sqlite3.Connection, key: str, value: str) -> None:
    database.execute("delete from experiment_tags where experiment_id = 1 and key = ?", (key,))
    database.execute(
        "insert into experiment_tags (experiment_id, key, value) values (1, ?, ?)", (key, value)
    )


def thin(database: sqlite3.Connection) -> None:
    """Keep what the pages show: few points per curve, and nothing that names this machine."""
    kept = ", ".join("?" for _ in CURVES)
    for table in ("metrics", "latest_metrics"):
        database.execute(
            f"delete from {table} where key not in ({kept}) and key not like 'verdict/%'", CURVES
        )
    curves = database.execute(
        "select run_uuid, key, count(*) from metrics group by run_uuid, key having count(*) > ?",
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


def copy_artifacts(source: Path, target: Path) -> None:
    """Copy what people open."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(*LEFT_OUT))


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
