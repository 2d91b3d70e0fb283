"""The tables of docs/boards.md, from the metrics and the rules themselves.

python -m experiments.boards_page --write
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from stabexp.boards import METRICS, RULES, packaged

PAGE = Path(__file__).parents[1] / "docs" / "boards.md"


def metric_lines() -> Iterator[str]:
    yield "| metric | labels | meaning |"
    yield "| --- | --- | --- |"
    for metric in METRICS.values():
        labels = ", ".join(metric.labels)
        yield f"| `{metric.series}` | {labels} | {_cell(metric.help)} |"


def alert_lines() -> Iterator[str]:
    yield "| alert | severity | fires when | meaning | what to do |"
    yield "| --- | --- | --- | --- | --- |"
    for group in yaml.safe_load(packaged(RULES))["groups"]:
        for rule in group["rules"]:
            told = rule["annotations"]
            held = f", for {rule['for']}" if "for" in rule else ""
            expr = " ".join(rule["expr"].split())
            action = re.sub(r"\{\{ \$labels\.run \}\}", "RUN_ID", told["action"])
            meaning = re.sub(r"\s*Fix: \{\{.*", "", " ".join(told["description"].split()))
            yield (
                f"| {rule['alert']} | {rule['labels']['severity']} | `{_cell(expr)}`{held} "
                f"| {_cell(meaning)} | {_cell(action)} |"
            )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def page(text: str) -> str:
    """Return the page with its tables made anew."""
    for name, lines in (("metrics", metric_lines()), ("alerts", alert_lines())):
        table = "\n".join(lines)
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}{table}\n{end}{after}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.boards_page")
    parser.add_argument("--write", action="store_true", help="write docs/boards.md")
    made = page(PAGE.read_text("utf-8"))
    if parser.parse_args().write:
        PAGE.write_text(made, "utf-8")
    else:
        print(made, end="")


if __name__ == "__main__":
    main()
