"""Numbers an optimizer was built with, which a replay may ask for in place of the run's own."""

from __future__ import annotations

from collections.abc import Mapping

from stabexp.interventions.base import Intervention


class OptimizerOptions(Intervention):
    """Replaces options of every parameter group during the update."""

    def optimizer_options(self) -> Mapping[str, float | tuple[float, float]]:
        """Return option name, as in `param_groups`, → the value to use instead."""
        return {}
