"""The mark of each outcome: a shape of its own, so that it can be told without colour."""

from __future__ import annotations

_SHAPES = {
    "cured": '<circle cx="8" cy="8" r="7" class="fill"/>'
    '<path d="M4.6 8.3l2.4 2.4 4.4-5" class="cut"/>',
    "diverged": '<path d="M3 3l10 10M13 3L3 13" class="stroke"/>',
    "delayed": '<path d="M1.5 8h5.5" class="stroke"/>'
    '<path d="M7.5 4l6.5 8M14 4l-6.5 8" class="stroke"/>',
    "stalled": '<rect x="1.5" y="1.5" width="13" height="13" rx="2" class="line"/>'
    '<path d="M4.5 8h7" class="stroke"/>',
}
_UNKNOWN = (
    '<circle cx="8" cy="8" r="6.5" class="line"/>'
    '<path d="M6 6.4a2 2 0 1 1 2.7 1.9q-.7.3-.7 1.3" class="thin"/>'
    '<circle cx="8" cy="11.8" r=".9" class="dot"/>'
)


def mark_shapes(outcome: str) -> str:
    """Return the SVG elements of an outcome's mark, in a square of 16 by 16."""
    return _SHAPES.get(outcome, _UNKNOWN)
