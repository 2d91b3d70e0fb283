"""Where a non-finite number was made, and which of several makers is to blame for the harm.

An infinity is often meant: attention masks are made of -inf, and half-precision gradients overflow
until loss scaling has found its level. So an origin is blamed only for what it led to, and a NaN
that an operation made out of infinities that were meant is that operation's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stabexp.instruments.locate_numbers import Bad
from stabexp.instruments.locate_operations import LITERALS, SOFTMAXES
from stabexp.instruments.locate_places import Place
from stabexp.instruments.reasons import Numbers

KEPT = 16
"""Origins remembered per piece of memory."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Origin:
    """One operation that made non-finite numbers, or one place they were read from."""

    order: int
    """Origins count up in the order in which they happened."""
    step: int
    phase: str
    kind: str
    """What sort of origin: "computed", or where a value was read that nobody watched being made:
    "input", "parameter", "state", "uninitialised", "constant", "number"."""
    made: Bad
    operation: str
    aten: str
    place: Place
    dtype: str
    inputs: tuple[Numbers, ...] = ()
    infinite_number: bool = False
    parents: tuple[Origin, ...] = ()
    """Origins of the infinities this one was made from."""
    rows: tuple[int, ...] | None = None
    ids: tuple[int, ...] = ()
    name: str = ""
    """Of the parameter concerned."""
    hidden: bool = False
    """Whether the same operation's forward result was not finite either."""
    mask_like: bool = False
    """Whether it is the logarithm of zeros and ones, as additive masks are made."""

    @property
    def meant(self) -> bool:
        """Whether the value looks like an infinity that the code wants."""
        if self.made.nan:
            return False
        written = self.kind == "computed" and self.operation in LITERALS
        return written or self.mask_like or self.kind == "constant"

    def line(self) -> str:
        """Return "mul made NaN at net.py:31", for a chain of events."""
        made = "NaN" if self.made.nan else "inf"
        verb = "made" if self.kind == "computed" else "read"
        where = f" at {self.place.source}" if self.place.source else ""
        return f"{self.operation or self.kind} {verb} {made}{where}"


def _excused(parent: Origin, child: Origin) -> bool:
    """Return whether an infinity is not to blame for the NaN that was made from it."""
    if parent.meant:
        return True
    mask = parent.made == Bad(negative=True)
    if mask and parent.kind in {"input", "parameter"} and child.operation in SOFTMAXES:
        return True
    overflowed = parent.phase in {"backward", "optimizer"}
    own = child.phase == "optimizer" and child.place.role == ""
    return overflowed and own and parent.dtype in {"float16", "bfloat16"}


def blamed(origin: Origin) -> Origin:
    """Return the origin to blame for what `origin` made: itself, or the maker of its infinities."""
    guilty = [blamed(p) for p in origin.parents if not _excused(p, origin)]
    return min(guilty, key=lambda item: item.order) if guilty else origin


def first_blamed(origins: Iterable[Origin]) -> Origin | None:
    """Return which of several origins is to blame: the earliest that was not meant."""
    found = [blamed(origin) for origin in origins]
    suspects = [origin for origin in found if not origin.meant] or found
    return min(suspects, key=lambda item: item.order, default=None)


def merged(*groups: Iterable[Origin]) -> tuple[Origin, ...]:
    """Return all origins of several groups once, earliest first."""
    unique = {origin.order: origin for group in groups for origin in group}
    return tuple(unique[order] for order in sorted(unique)[:KEPT])
