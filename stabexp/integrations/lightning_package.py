"""Lightning under the name that the training uses: `lightning.pytorch`, or `pytorch_lightning`.

The two are the same code as two packages, and a trainer of one refuses callbacks of the other. So
what is imported already decides.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

NAMES = ("lightning.pytorch", "pytorch_lightning")

if TYPE_CHECKING:
    import lightning.pytorch as pl
else:
    chosen = [name for name in NAMES if name in sys.modules] or list(NAMES)
    try:
        pl = import_module(chosen[0])
    except ModuleNotFoundError:
        pl = import_module(chosen[-1])

__all__ = ["pl"]
