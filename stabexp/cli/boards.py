"""`metrics`: the runs as Prometheus metrics, with a dashboard and alert rules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stabexp.cli.app import ROOT, Root, app, say


@app.command()
def metrics(
    host: Annotated[
        str, typer.Option(help="Where to listen; 0.0.0.0 lets other machines in.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 9464,
    runs: Annotated[
        str, typer.Option(help="active, all, or beginnings of run ids, comma-separated.")
    ] = "active",
    keep: Annotated[
        str, typer.Option(help="How long a run that ended stays active: 30m, 2h.")
    ] = "1h",
    layers: Annotated[
        int, typer.Option(min=0, max=10_000, help="Layers of a run with series of their own.")
    ] = 64,
    layer: Annotated[
        list[str] | None, typer.Option(help="Only layers like this: 'encoder.*' (repeatable).")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print the metrics and end.")] = False,
    dashboard: Annotated[
        Path | None, typer.Option(help="Write the Grafana dashboard into this file or folder.")
    ] = None,
    rules: Annotated[
        Path | None, typer.Option(help="Write the alert rules into this file or folder.")
    ] = None,
    root: Root = ROOT,
) -> None:
    """Serve the runs as Prometheus metrics; or write out the dashboard and the alert rules."""
    if dashboard is not None or rules is not None:
        from stabexp.boards.files import DASHBOARD, RULES, write_out

        for name, to in ((DASHBOARD, dashboard), (RULES, rules)):
            if to is not None:
                print(write_out(name, to))
        return
    from stabexp.boards.shown_runs import Wanted, spelled_runs, spelled_seconds

    wanted = Wanted(
        root=root,
        runs=spelled_runs(runs),
        keep_seconds=spelled_seconds(keep),
        layers=layers,
        patterns=tuple(layer or ()),
    )
    _need_client()
    if once:
        from stabexp.boards.collector import RunCollector, encoded
        from stabexp.boards.shown_runs import ShownRuns

        print(encoded(RunCollector(ShownRuns(wanted)), "")[0].decode(), end="")
        return
    from stabexp.boards.server import MetricsServer

    if not root.is_dir():
        say(f"note: {root} is not there yet; runs are served as soon as they are")
    with MetricsServer(wanted, host=host, port=port) as server:
        print(f"{server.url}/metrics", flush=True)
        if host not in {"127.0.0.1", "localhost", "::1"}:
            say("warning: other machines can read this; there is no password")
        server.serve_forever()


def _need_client() -> None:
    from importlib.util import find_spec

    from stabexp.errors import StabexpError

    if find_spec("prometheus_client") is None:
        raise StabexpError(
            "prometheus_client is not installed; install it: pip install 'stabexp[prometheus]'"
        )
