"""Which samples a bisect shows to people: those that are blamed, or that stood out, and two others.

Every replay that looks at single samples leaves views of them in its directory while the data is
there. So a verdict costs no replay of its own, and one that is gone on with later has them too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from stabexp.bisection.data_case import deviations, flagged, scores_of
from stabexp.errors import TrackingError
from stabexp.records import SampleView, StepRecord, TrialSpec, Verdict, from_json, to_json
from stabexp.tracking.run_directory import RunDirectory

VIEWS = "samples.json"
"""In a trial's directory and in a bisect's: views of samples."""
AT_MOST = 12
"""Samples at fault that are shown."""
COMPARED = 16
"""Ordinary samples that they are compared with."""


@dataclass(frozen=True, kw_only=True)
class Looked:
    """The samples that a replay can show."""

    suspects: tuple[int, ...] = ()
    """What may be at fault, the most suspicious first."""
    ordinary: tuple[int, ...] = ()
    """What to compare it with."""


def looked_at(
    spec: TrialSpec, records: Sequence[StepRecord], findings: Mapping[str, Any]
) -> Looked:
    """Return which samples to keep views of after a replay; no suspects where it is about others.

    Args:
        spec: What the replay was.
        records: Its steps.
        findings: What its instruments found.
    """
    if spec.role == "scan":
        z = deviations(scores_of(records))
        suspects = flagged(z)
        usual = sorted((i for i in z if i not in suspects), key=lambda i: (abs(z[i]), i))
        return Looked(suspects=suspects[:AT_MOST], ordinary=tuple(usual[:COMPARED]))
    found: list[int] = []
    if spec.role == "control":
        found += _named(findings)
    elif spec.role != "placebo":
        found += [i for change in spec.changes for i in _left_out(change.variable, change.dose)]
    suspects = tuple(dict.fromkeys(found))
    seen = dict.fromkeys(i for record in records for i in record.sample_ids)
    usual = [i for i in seen if i not in set(suspects)]
    return Looked(suspects=suspects, ordinary=tuple(usual[:COMPARED]))


def _named(findings: Mapping[str, Any]) -> list[int]:
    """Return the samples that the rules and the locator name in an unchanged replay."""
    located = (findings.get("locate") or {}).get("sample_ids") or ()
    found = list(located) if len(located) <= AT_MOST else []
    for item in findings.get("rules") or ():
        found += list(item.get("samples") or ())[:AT_MOST]
    return found[: 3 * AT_MOST]


def _left_out(variable: str, dose: object) -> list[int]:
    """Return the samples that a change leaves out, where they are few."""
    if variable != "replace_samples" or not str(dose).replace(",", "").isdigit():
        return []
    ids = [int(part) for part in str(dose).split(",")]
    return ids if len(ids) <= AT_MOST else []


def write_views(directory: RunDirectory, views: Iterable[SampleView]) -> None:
    """Write views into the directory of a trial or of a bisect."""
    directory.write_json(VIEWS, {"samples": [to_json(view) for view in views]})


def read_views(directory: RunDirectory) -> tuple[SampleView, ...]:
    """Return the views in the directory of a trial or of a bisect; empty where there are none."""
    if not (directory.path / VIEWS).exists():
        return ()
    return tuple(from_json(SampleView, item) for item in directory.read_json(VIEWS)["samples"])


def views_of_trials(bisect: RunDirectory) -> tuple[SampleView, ...]:
    """Return what the trials of a bisect kept, in the order of the trials.

    A file that cannot be read is as good as none: nothing but a picture hangs on it.
    """
    found: list[SampleView] = []
    for trial in bisect.children():
        with suppress(TrackingError, ValueError, LookupError, TypeError):
            found += read_views(trial)
    return tuple(found)


def chosen(views: Sequence[SampleView], culprits: Collection[int]) -> tuple[SampleView, ...]:
    """Return the views to show: of the culprits, or else of what stood out, and two ordinary ones.

    A view with marks is taken before one without.
    """
    known: dict[int, SampleView] = {}
    ordinary: dict[int, SampleView] = {}
    for view in views:
        if not view.blamed:
            ordinary.setdefault(view.sample, view)
        elif view.sample not in known or _marks(view) > _marks(known[view.sample]):
            known[view.sample] = view
    beside = [view for i, view in ordinary.items() if i not in known and i not in culprits][:2]
    named = [known[i] for i in sorted(culprits) if i in known][:AT_MOST]
    blamed = [replace(view, stood_out=False) for view in named]
    if not blamed:
        apart = [view for view in known.values() if view.stood_out][:AT_MOST]
        blamed = [replace(view, blamed=False) for view in apart]
    return (*blamed, *beside) if blamed else ()


def _marks(view: SampleView) -> int:
    return sum(bool(part.unusual) for part in view.parts)


def culprits_of(verdict: Verdict) -> tuple[int, ...]:
    """Return the samples that a verdict blames, as many as are shown."""
    return verdict.culprit.samples[:AT_MOST] if verdict.culprit else ()
