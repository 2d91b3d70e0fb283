"""A model seen from the bottom to the top: its blocks, what lies below them and above them.

The repeated parts of a network stand in a list: they are its blocks. What comes before the first
one (embeddings, a stem) is the bottom, what comes after the last one (a norm, the output layer) is
the top. A model without a list has its own children as parts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import Tensor, nn

from stabexp.config import suggest
from stabexp.errors import ConfigError
from stabexp.state.module_state import uncompiled

LISTS = (nn.ModuleList, nn.Sequential)


def stages(model: nn.Module) -> list[list[str]]:
    """Return the names of modules in stages, bottom first; each stage has parameters.

    Names within one stage belong together: all that is below the blocks, one block, all above.
    """
    parts = _parts(uncompiled(model), "")
    if not any(block for _, block in parts):
        return [[name] for name, _ in parts]
    found: list[list[str]] = []
    before = True
    for name, block in parts:
        if block or before or not found:
            found.append([name])
        else:
            found[-1].append(name)
        before = block
    return found


def _parts(module: nn.Module, path: str) -> list[tuple[str, bool]]:
    """Return (name, whether it is an item of a list) of what is not taken apart any further."""
    found: list[tuple[str, bool]] = []
    for key, child in module.named_children():
        name = f"{path}.{key}" if path else key
        if next(child.parameters(), None) is None:
            continue
        if isinstance(module, LISTS):
            found.append((name, True))
        elif any(isinstance(inner, LISTS) for inner in child.modules()):
            found += _parts(child, name)
        else:
            found.append((name, False))
    return found


def blocks(model: nn.Module) -> list[str]:
    """Return the names of the blocks that have modules inside them, bottom first."""
    model = uncompiled(model)
    return [
        name
        for name, block in _parts(model, "")
        if block and next(model.get_submodule(name).children(), None) is not None
    ]


def matches(name: str, pattern: str) -> bool:
    """Return whether a pattern names this module or parameter, or something it lies in.

    A pattern is a dotted name or has wildcards: "vae", "blocks.0", "unet.*conv*", "*" for all.
    """
    parts = name.split(".")
    return any(fnmatchcase(".".join(parts[:end]), pattern) for end in range(1, len(parts) + 1))


def parameters_of(model: nn.Module, patterns: Sequence[str], *, section: str) -> dict[str, Tensor]:
    """Return the parameters that patterns name, by name; a tied one under its first name.

    Raises:
        ConfigError: If a pattern names nothing; `section` is where it stands.
    """
    model = uncompiled(model)
    every = list(model.named_parameters(remove_duplicate=False))
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for pattern in patterns:
        chosen = [(name, p) for name, p in every if matches(name, pattern)]
        if not chosen:
            known = [name for name, _ in model.named_modules() if name]
            hint = suggest(pattern, known if len(known) <= 12 else _outermost(known))
            raise ConfigError(f"{section}: no parameter of the model is in '{pattern}'; {hint}")
        for name, parameter in chosen:
            if id(parameter) not in seen:
                seen.add(id(parameter))
                found[name] = parameter
    return found


def _outermost(names: Sequence[str]) -> list[str]:
    return [name for name in names if "." not in name]


_ATTENTION = re.compile(r"attention|attn", re.IGNORECASE)
_POSITION = re.compile(r"(^|[._])(pos|position\w*|rotary\w*|rope)([._]|$)|position|rotary", re.I)


def is_attention(path: Sequence[tuple[str, nn.Module]]) -> bool:
    """Return whether a module is, or lies in, an attention layer, by its names and classes.

    `path` is the module and all it lies in, each with its own name, outermost first. A norm is
    none, whatever it is called.
    """
    if path and is_norm(path[-1][1]):
        return False
    return any(
        isinstance(module, nn.MultiheadAttention)
        or _ATTENTION.search(type(module).__name__)
        or _ATTENTION.search(name)
        for name, module in path
    )


def is_convolution(module: nn.Module) -> bool:
    """Return whether a module is a convolution, transposed or not."""
    return isinstance(module, nn.modules.conv._ConvNd)


def is_norm(module: nn.Module) -> bool:
    """Return whether a module normalises, by its class."""
    return bool(re.search(r"Norm(\dd)?$", type(module).__name__))


def is_position(name: str, module: nn.Module) -> bool:
    """Return whether a module encodes positions, by its name or class."""
    own = name.rpartition(".")[2]
    return bool(_POSITION.search(own) or re.search(r"Position|Rotary", type(module).__name__))
