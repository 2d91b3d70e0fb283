"""All pages by name, and which of them differ from what is on the disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from experiments.reference import (
    alarms,
    causes,
    commands,
    decisions,
    environment,
    experiment_file,
    front_page,
    mlflow,
    plugins,
    python_api,
    rules,
    run_directory,
)

DOCS = Path(__file__).parents[2] / "docs"

_INDEX = """# Reference

Made from the code by `python -m experiments.reference --write`; a test compares, so
it is never behind.

"""


def pages() -> dict[str, str]:
    """Return every page's Markdown by its path below docs/."""
    made = {
        "experiment_file": experiment_file.page(),
        "commands": commands.page(),
        "python": python_api.page(),
        "detectors": plugins.page("detectors"),
        "monitors": plugins.page("monitors"),
        "interventions": plugins.page("interventions"),
        "stabilisers": plugins.page("stabilisers"),
        "tasks": plugins.page("tasks"),
        "rules": rules.page(),
        "alarms": alarms.page(),
        "causes": causes.page(),
        "run_directory": run_directory.page(),
        "mlflow": mlflow.page(),
        "environment": environment.page(),
    }
    titles = "\n".join(
        f"- [{_title(text)}]({name}.md): {_lead(text)}" for name, text in made.items()
    )
    texts = {f"reference/{name}.md": text for name, text in made.items()}
    texts["reference/index.md"] = f"{_INDEX}{titles}\n"
    texts["decisions/index.md"] = decisions.page(DOCS / "decisions")
    texts["index.md"] = front_page.page(DOCS)
    return texts


def outdated(made: Mapping[str, str], docs: Path = DOCS) -> list[str]:
    """Return the names of pages that are missing, differ, or are no longer made."""
    there = {f"reference/{path.name}" for path in (docs / "reference").glob("*.md")}
    behind = [
        name
        for name, text in made.items()
        if not (docs / name).exists() or (docs / name).read_text("utf-8") != text
    ]
    return [*behind, *sorted(there - set(made))]


def _title(text: str) -> str:
    return text.splitlines()[0].removeprefix("# ")


def _lead(text: str) -> str:
    """Return the first sentence below the title."""
    first = text.split("\n\n")[1].replace("\n", " ")
    return first.partition(". ")[0].rstrip(".")
