"""What to do about a crashed run: pure rules, from what was recorded to the remedies worth trying.

The documents' rules map a kind of error to a strategy. Here a rule is a suspicion with evidence,
and each remedy is tried in a short replay before a run is rolled back for it.
"""

from __future__ import annotations

from stabexp.recovery.best_rate import best_rate
from stabexp.recovery.incident import Incident, incident_of
from stabexp.recovery.picture import Picture
from stabexp.recovery.remedies import Remedy, learns_best, settings_of, with_samples
from stabexp.recovery.rules import remedies_for
from stabexp.recovery.splitting import split_batch
from stabexp.recovery.window import Window, window_after

__all__ = [
    "Incident",
    "Picture",
    "Remedy",
    "Window",
    "best_rate",
    "incident_of",
    "learns_best",
    "remedies_for",
    "settings_of",
    "split_batch",
    "window_after",
    "with_samples",
]
