"""Tuning a trained model: adapters that can learn, and frozen what is to stay.

An adapter is known by its parameters' names (`lora_A`, `lora_B`), a trained model by the place it
was loaded from. What the documents ask of LoRA, alpha / r ≤ 1, many good recipes break (alpha = 2 r
is common), so only a factor beyond 4 is told; a dropout of 0.1 is a habit, one beyond 0.3 is told
(source rows B8, B15, B16, B17).
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from stabexp.instruments.base import Watched
from stabexp.instruments.rule_base import Finding, Rule

FACTOR, DROPOUT = 4.0, 0.3
_ADAPTER = re.compile(r"(^|[._])lora_?(a|b|A|B|embedding|magnitude)", re.ASCII)
_ENCODERS = ("vae", "first_stage_model")
_DENOISERS = ("unet", "denoiser", "diffusion_model", "transformer", "dit")


def adapter_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters of low-rank adapters, by name."""
    return {name: p for name, p in model.named_parameters() if _ADAPTER.search(name)}


def loaded_from(model: nn.Module) -> str:
    """Return where a trained model was loaded from, empty for one with fresh weights."""
    for module in model.modules():
        place = getattr(getattr(module, "config", None), "_name_or_path", "")
        if isinstance(place, str) and place:
            return place
    return ""


def kind_of_tuning(model: nn.Module) -> str:
    """Return "lora", "full" for a trained model as a whole, or "" for training from scratch."""
    if adapter_parameters(model):
        return "lora"
    return "full" if loaded_from(model) else ""


class Adapters(Rule):
    """Low-rank adapters are scaled like adapters, start where they can learn, and learn alone."""

    slug: ClassVar[str] = "adapter_factor"

    def __init__(self) -> None:
        self._found: Finding | None = None

    def attach(self, watched: Watched) -> None:
        model = watched.model
        adapters = adapter_parameters(model)
        if adapters:
            held = {id(p) for group in watched.optimizer.param_groups for p in group["params"]}
            self._found = (
                self._stuck(adapters)
                or self._base(model, adapters, held)
                or self._factor(model)
                or self._dropout(model)
            )

    def _stuck(self, adapters: dict[str, nn.Parameter]) -> Finding | None:
        pairs: dict[str, list[str]] = {}
        for name in adapters:
            pairs.setdefault(re.sub(r"(lora_?)[aAbB]", r"\1*", name), []).append(name)
        for names in pairs.values():
            if len(names) == 2 and not any(bool(adapters[name].any()) for name in names):
                return self._make(
                    "adapter_cannot_learn",
                    names[0],
                    f"{names[0]} and {names[1]} are both zero, so the gradient of each, which the "
                    "other "
                    "multiplies, is zero for ever",
                    "start one of the two at random: lora_A with Kaiming's, lora_B at zero",
                    certain=True,
                )
        return None

    def _base(
        self, model: nn.Module, adapters: dict[str, nn.Parameter], held: set[int]
    ) -> Finding | None:
        base = {name: p for name, p in model.named_parameters() if name not in adapters}
        trained = [n for n, p in base.items() if p.requires_grad and id(p) in held]
        count = sum(base[name].numel() for name in trained)
        total = sum(p.numel() for p in base.values())
        if not total or count <= 0.5 * total:
            return None
        return self._make(
            "base_not_frozen",
            trained[0],
            f"{count / total:.0%} of the weights beside the adapters are trained too "
            f"({len(trained)} parameters, {trained[0]}, …)",
            "freeze them before the adapters are added: p.requires_grad_(False)",
        )

    def _factor(self, model: nn.Module) -> Finding | None:
        for name, module in model.named_modules():
            scaling = getattr(module, "scaling", None)
            for factor in _numbers(scaling) if _has_adapter(module) else ():
                if factor > FACTOR:
                    return self._make(
                        self.slug,
                        name,
                        f"the adapter is added {factor:.3g} times (alpha / r)",
                        "take alpha between r / 2 and 2 r, and tune the rate instead",
                    )
        return None

    def _dropout(self, model: nn.Module) -> Finding | None:
        for name, module in model.named_modules():
            if "lora_dropout" in name and isinstance(module, nn.Dropout) and module.p > DROPOUT:
                return self._make(
                    "adapter_dropout",
                    name,
                    f"{module.p:.0%} of what the adapter gets is dropped",
                    "use 0 to 0.1; adapters are small and seldom need more",
                )
        return None

    def _make(
        self, name: str, where: str, detail: str, remedy: str, *, certain: bool = False
    ) -> Finding:
        strength: Any = "certain" if certain else "suspicious"
        return Finding(
            rule=name, step=0, place=where, detail=detail, remedy=remedy, strength=strength
        )

    def finding(self) -> Finding | None:
        return self._found


def _has_adapter(module: nn.Module) -> bool:
    return any(_ADAPTER.search(name) for name in (*module._modules, *module._parameters))


def _numbers(scaling: Any) -> list[float]:
    values = list(scaling.values()) if isinstance(scaling, dict) else [scaling]
    return [float(value) for value in values if isinstance(value, (int, float))]


class FrozenEncoder(Rule):
    """An autoencoder that a denoiser works in is not trained with it."""

    slug: ClassVar[str] = "encoder_not_frozen"

    def __init__(self) -> None:
        self._found: Finding | None = None

    def attach(self, watched: Watched) -> None:
        held = {id(p) for group in watched.optimizer.param_groups for p in group["params"]}
        for _, parent in watched.model.named_modules():
            children = dict(parent.named_children())
            if not any(name.lower() in _DENOISERS for name in children):
                continue
            for name in _ENCODERS:
                parameters: list[Tensor] = (
                    list(children[name].parameters()) if name in children else []
                )
                trained = [p for p in parameters if p.requires_grad and id(p) in held]
                if trained and self._found is None:
                    self._found = Finding(
                        rule=self.slug,
                        step=0,
                        place=name,
                        detail=f"{len(trained)} of {len(parameters)} parameters of {name} are "
                        "trained with the "
                        "denoiser, so the space that it works in moves",
                        remedy=f"freeze it: {name}.requires_grad_(False), and encode under "
                        "torch.no_grad()",
                        strength="suspicious",
                    )

    def finding(self) -> Finding | None:
        return self._found


class HeadWidth(Rule):
    """The last classifier on a trained model starts small: with deviation 0.02."""

    slug: ClassVar[str] = "new_head_too_wide"

    def __init__(self) -> None:
        self._found: Finding | None = None

    def attach(self, watched: Watched) -> None:
        if not kind_of_tuning(watched.model):
            return
        heads = [
            (name, module)
            for name, module in watched.model.named_modules()
            if isinstance(module, nn.Linear)
            and re.search(r"(score|classifier|head|out_proj)$", name)
        ]
        for name, head in heads[-1:]:
            weight = head.weight.detach().float()
            deviation, usual = float(weight.std()), max(0.02, weight.shape[1] ** -0.5)
            if head.weight.requires_grad and torch.isfinite(weight).all() and deviation > 5 * usual:
                self._found = Finding(
                    rule=self.slug,
                    step=0,
                    place=f"{name}.weight",
                    detail=f"the last classifier starts with deviation {deviation:.3g}",
                    remedy="initialise it with nn.init.normal_(weight, std=0.02) and a bias of "
                    "zero",
                    strength="suspicious",
                )

    def finding(self) -> Finding | None:
        return self._found
