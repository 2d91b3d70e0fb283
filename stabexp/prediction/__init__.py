"""What is about to go wrong, told from how a run's quantities grow: pure rules over step records.

Trends have causes that take their time: a rate that climbs, weights that grow by a factor per step,
activations on their way to the largest half-precision number. Blows do not announce themselves, and
no rule here claims so. Source row A18.
"""

from __future__ import annotations

from stabexp.prediction.base import Forecast, Kind
from stabexp.prediction.crossing import crossing
from stabexp.prediction.forecasting import Forecaster, warnings_in
from stabexp.prediction.outlook import Outlook, outlook_of, outlook_text

__all__ = [
    "Forecast",
    "Forecaster",
    "Kind",
    "Outlook",
    "crossing",
    "outlook_of",
    "outlook_text",
    "warnings_in",
]
