"""Real text that is always there: the source code of Python's standard library, by characters.

The vocabulary is fixed (newline, the 95 printable ASCII characters, one token for the rest), so a
model has the same shape under every Python; the text itself differs between Python versions, which
the dataset's digest shows.
"""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from stabexp.errors import ConfigError
from stabexp.tasks.base import Dataset, Task

CHARACTERS = "\n" + "".join(chr(code) for code in range(32, 127))
"""Token i stands for CHARACTERS[i]; the token after the last stands for any other character."""

VOCABULARY = len(CHARACTERS) + 1
"""Number of tokens: 97."""

FILES = (
    "argparse.py",
    "difflib.py",
    "doctest.py",
    "fractions.py",
    "inspect.py",
    "random.py",
    "statistics.py",
    "tarfile.py",
    "textwrap.py",
    "typing.py",
)
"""The files read, in this order."""


class Windows:
    """Overlapping or adjoining windows of one text; sample i starts at character i × stride."""

    def __init__(self, tokens: Tensor, *, context: int, stride: int) -> None:
        """Cut `tokens` (length,) uint8 into windows of `context` inputs and one more target."""
        self._tokens = tokens
        self._windows = tokens.unfold(0, context + 1, stride)

    def __len__(self) -> int:
        return len(self._windows)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Return (inputs, targets): (context,) int64 each, the targets one character further."""
        window = self._windows[index].long()
        return window[:-1].clone(), window[1:].clone()

    def batch(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return (inputs, targets): (len(indices), context) int64 each."""
        window = self._windows[torch.as_tensor(indices, dtype=torch.long)].long()
        return window[:, :-1].contiguous(), window[:, 1:].contiguous()

    def digest(self) -> str:
        """Return a sha256 over the text and how it is cut."""
        digest = hashlib.sha256(f"{tuple(self._windows.shape)}{self._windows.stride()}".encode())
        digest.update(self._tokens.numpy().tobytes())
        return digest.hexdigest()


class TextTask(Task):
    """Predict the next character of Python's standard library."""

    context: int = Field(32, ge=1, le=4096)
    """Characters the model sees at once."""

    stride: int | None = Field(None, ge=1)
    """Characters between the starts of two samples; the default is `context`: no overlap."""

    def dataset(self) -> Dataset:
        return Windows(tokens(), context=self.context, stride=self.stride or self.context)

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        inputs, targets = batch
        logits = model(inputs)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def class_count(self) -> int:
        return VOCABULARY

    def show(self, sample: Any) -> Any:
        inputs, targets = sample
        return {"text": characters(inputs), "next": characters(targets[-1:])}


def characters(ids: Tensor) -> str:
    """Return the text of tokens; a replacement character for what stands for no character."""
    text = f"{CHARACTERS}\N{REPLACEMENT CHARACTER}"
    return "".join(text[i] if 0 <= i < VOCABULARY else text[-1] for i in ids.flatten().tolist())


@cache
def tokens() -> Tensor:
    """Return the whole text as tokens: (length,) uint8. Shared by all callers, so do not write.

    Raises:
        ConfigError: If the standard library is here without its source files.
    """
    folder = Path(sysconfig.get_paths()["stdlib"])
    try:
        text = "".join((folder / file).read_text(encoding="utf-8") for file in FILES)
    except OSError as error:
        raise ConfigError(
            f"task text: {error.filename} cannot be read ({error.strerror}); "
            "use a Python that ships the standard library's source, or a task on digits"
        ) from None
    table = {ord(character): token for token, character in enumerate(CHARACTERS)}
    other = len(CHARACTERS)
    return torch.tensor(bytearray(table.get(ord(char), other) for char in text), dtype=torch.uint8)
