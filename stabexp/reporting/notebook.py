"""A run in a notebook: pictures that show themselves, the report in place, a summary.

A notebook puts SVG into its own page, where the style of a picture would reach everything else. So
a picture is shown as an image, and its SVG is there for whoever asks for it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from html import escape
from importlib.resources import files
from pathlib import Path

from stabexp.records import Divergence, TrialRecord
from stabexp.reporting import words
from stabexp.reporting.chart import Marker, line_chart
from stabexp.reporting.curve import Curve
from stabexp.reporting.dose_chart import HEIGHT, WIDTH, dose_chart
from stabexp.reporting.figures import figures
from stabexp.reporting.loss_picture import loss_picture
from stabexp.reporting.report import Report
from stabexp.reporting.svg_document import Picture, svg_document

CURVES = {
    "loss": ("Loss", "loss"),
    "grad_norm": ("Gradient norm", "L2 norm"),
    "lr": ("Learning rate", "learning rate"),
    "update_ratio": ("Update, relative to the parameters", "ratio"),
}
"""Field of a step → title, and name of its axis."""
NAMES = {"grad_norm": "gradient_norm", "lr": "learning_rate"}
"""Field → name of its figure, where they differ."""
_MARKS = (".mark ", ".cured ", ".diverged ", ".delayed ", ".stalled ", ".inconclusive ")
"""How rules of the marks of outcomes begin."""
MARGIN = 8
"""Room left and right of a chart, in px."""
TOP = 56
"""Height of title and subtitle, in px."""


@dataclass(frozen=True)
class Drawing:
    """One picture, which a notebook shows."""

    name: str
    svg: str
    """A whole SVG file."""

    def save(self, path: Path | str) -> Path:
        """Write the SVG file and return where it is; without a suffix it gets `.svg`."""
        file = Path(path)
        file = file if file.suffix else file.with_suffix(".svg")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.svg, "utf-8")
        return file

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.svg.encode()).decode()
        alt = escape(self.name.replace("_", " "), quote=True)
        return f'<img alt="{alt}" style="max-width:100%" src="data:image/svg+xml;base64,{data}">'

    def __repr__(self) -> str:
        return f"<figure {self.name}; show it in a notebook, or .save(path)>"


class Drawings(Mapping[str, Drawing]):
    """The figures of a run by name; each is drawn when it is asked for."""

    def __init__(self, makers: Mapping[str, Callable[[], str]], *, hint: str = "") -> None:
        """Take name → what returns an SVG file; `hint` says why some names are missing."""
        self._makers = dict(makers)
        self._made: dict[str, Drawing] = {}
        self._hint = hint

    def __getitem__(self, name: str) -> Drawing:
        if name not in self._makers:
            told = f"there is no figure {name!r}, only {', '.join(self._makers) or 'none'}"
            raise KeyError(f"{told}; {self._hint}" if self._hint else told)
        if name not in self._made:
            self._made[name] = Drawing(name, self._makers[name]())
        return self._made[name]

    def __getattr__(self, name: str) -> Drawing:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._makers]

    def __repr__(self) -> str:
        return f"<figures: {', '.join(self) or 'none'}>"

    def _repr_html_(self) -> str:
        parts = [
            f"<figure style='margin:0 0 1em'><figcaption><code>figures[{escape(repr(name))}]"
            f"</code></figcaption>{self[name]._repr_html_()}</figure>"
            for name in self
        ]
        return "".join(parts) or "<p>no figures</p>"


@dataclass(frozen=True)
class Shown:
    """A page that a notebook shows in place, in a frame of its own."""

    html: str
    """A whole page that needs no network."""
    height: int = 800
    """In px."""

    def save(self, path: Path | str) -> Path:
        """Write the page and return where it is."""
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.html, "utf-8")
        return file

    def _repr_html_(self) -> str:
        style = f"width:100%;height:{self.height}px;border:1px solid #8884;border-radius:6px"
        page = escape(self.html, quote=True)
        return f'<iframe title="report" style="{style}" srcdoc="{page}"></iframe>'

    def __repr__(self) -> str:
        return "<report; show it in a notebook, or .save(path)>"


def curve_figure(
    steps: Sequence[int],
    values: Sequence[float],
    *,
    field: str,
    name: str,
    divergence: Divergence | None,
) -> str:
    """Return one field of a run over its steps, as an SVG file.

    Args:
        steps, values: The curve; values may be NaN or ±Inf.
        field: Which field of a step it is: a key of `CURVES`.
        name: The run's, for the title.
        divergence: What its detectors found, to be marked.
    """
    title, unit = CURVES[field]
    markers = []
    if divergence is not None:
        markers.append(Marker(step=divergence.onset, label="onset", kind="onset"))
        if divergence.detected != divergence.onset:
            markers.append(Marker(step=divergence.detected, label="detected", kind="end"))
    points = list(zip(steps, values, strict=True))
    curve = Curve(key="run", label="", title=name, kind="control", points=points)
    chart = line_chart(
        [curve],
        name=field.replace("_", "-"),
        title=title,
        description=f"{title} per step of {name}.",
        y_label=unit,
        markers=markers,
        width=960,
        height=330,
    )
    subtitle = f"{name}, {words.count(len(points), 'step')}"
    return _alone(chart, title=title, subtitle=subtitle, width=960, height=330)


def report_figures(
    trials: Sequence[TrialRecord], report: Callable[[], Report]
) -> dict[str, Callable[[], str]]:
    """Return name → what draws it, for what a verdict rests on.

    Args:
        trials: The bisect's trials.
        report: Gathers the report, when the first of these figures is drawn.
    """

    def curves(place: int) -> str:
        told = report()
        found = figures(told.verdict, told.trials, steps=told.steps, trial_steps=told.trial_steps)
        name = words.one_line(told.verdict.run_id)
        return _alone(
            found[place].wide,
            title=found[place].title,
            subtitle=f"{name} and its trials",
            width=1040,
            height=400,
        )

    made: dict[str, Callable[[], str]] = {
        "deciding_trials": lambda: loss_picture(report()),
        "trials_loss": lambda: curves(0),
        "trials_gradient_norm": lambda: curves(1),
    }
    ladders = list(words.ladders(trials))
    if ladders:
        made["dose_response"] = lambda: _all_doses(report(), ladders)
    for variable in ladders:
        made[f"dose_response_{variable}"] = partial(_doses, report, variable)
    return made


def _dose_chart(report: Report, variable: str) -> str:
    records = words.ladders(report.trials)[variable]
    controls = [record for record in report.trials if record.spec.role == "control"]
    alike = [r for r in controls if r.spec.from_step == records[0].spec.from_step]
    cures = {cure.variable: cure for cure in report.verdict.cures}
    return dose_chart(
        variable,
        records,
        name=f"dose-{variable}",
        cure=cures.get(variable),
        control=next(iter(alike or controls), None),
    )


def _doses(report: Callable[[], Report], variable: str) -> str:
    told = report()
    return _alone(
        _dose_chart(told, variable),
        title=f"Dose and response: {variable.replace('_', ' ')}",
        subtitle=told.verdict.run_id,
        width=WIDTH,
        height=HEIGHT,
    )


def _all_doses(report: Report, variables: Sequence[str]) -> str:
    """Return the doses of every variable side by side, three in a row."""
    across = min(3, len(variables))
    down = -(-len(variables) // across)
    parts = []
    for place, variable in enumerate(variables):
        row, column = divmod(place, across)
        x, y = column * (WIDTH + 20), row * (HEIGHT + 40)
        told = escape(variable.replace("_", " "))
        parts.append(
            f'<g transform="translate({x} {y})"><text class="label" x="16" y="14">{told}</text>'
            f'<g transform="translate(0 20)">{_dose_chart(report, variable)}</g></g>'
        )
    return _alone(
        "".join(parts),
        title="Dose and response",
        subtitle=report.verdict.run_id,
        width=across * (WIDTH + 20),
        height=down * (HEIGHT + 40),
    )


def _alone(chart: str, *, title: str, subtitle: str, width: int, height: int) -> str:
    """Return a chart of the report's page as an SVG file, with the page's colours."""
    picture = Picture(
        parts=[
            f"<style>{_rules()}</style>",
            f'<g transform="translate({MARGIN} {TOP})">{chart}</g>',
        ],
        title=title,
        subtitle=words.one_line(subtitle),
        description=title,
        width=width + 2 * MARGIN,
        height=height + TOP + 8,
    )
    return svg_document(picture)


@cache
def _rules() -> str:
    """Return the colours and the rules of charts that the report's page has."""
    package = files("stabexp") / "reporting"
    page = (package / "page.css.j2").read_text("utf-8")
    colours = page.partition("* {")[0]
    marks = "\n".join(line for line in page.splitlines() if line.startswith(_MARKS))
    charts = (package / "page_charts.css.j2").read_text("utf-8")
    rules = "\n".join(line for line in charts.splitlines() if "{{" not in line)
    kept = rules.partition("@media (max-width")[0]
    scoped = colours.replace(":root", "svg").replace("color-scheme: light dark;", "")
    return escape(f"{scoped}{kept}{marks} .mark {{ stroke-dasharray: none; }}", quote=False)
