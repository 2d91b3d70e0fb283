"""The program families that nobody looks at while rules are made: their score stands apart.

Rules fit the programs they were tried on. These are run only to be scored: never bisect one of them
to find out why a verdict was wrong, or it has to leave this list.
"""

from __future__ import annotations

HELD_OUT: frozenset[str] = frozenset({"recommender", "vae", "vit"})
"""Names of families in `programs.FAMILIES`."""
