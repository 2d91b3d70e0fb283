"""Where the first NaN or Inf came from, and the reasons that are likely there.

The locator knows what an operation did; what it was for shows in the names around it. In a model of
images and text the usual suspects are few: a row of attention with every key masked, a temperature
that grew without bound, a patch of one colour, an embedding of length zero.
Source rows A4, A17, A20, B9.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stabexp.records import TrialRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A usual suspect: where it is at home, what the locator says of it, what to do."""

    places: str
    """Pattern over module, parameter, function and line."""
    reasons: frozenset[str]
    """Reasons of the locator that it can stand behind."""
    text: str


OVERFLOWS = frozenset({"overflow", "fp16_overflow", "exp_overflow", "scaler"})

SUSPECTS: Sequence[Suspect] = (
    Suspect(
        places=r"att(e)?n|mask|softmax|key_padding",
        reasons=frozenset({"masked_row", "inf_minus_inf", "zero_times_inf", "written_value"}),
        text="masked attention: a row whose keys are all masked has no softmax. An empty caption, "
        "or an image whose patches are all padding, does that: keep one token of every row "
        "visible, or mask with torch.finfo(dtype).min and drop the row's output",
    ),
    Suspect(
        places=r"att(e)?n|mask|softmax|\bq\b|\bk\b|query|key|qk",
        reasons=OVERFLOWS,
        text="attention logits grew out of range: normalise queries and keys (QK norm), scale by "
        "1/sqrt(d) before the product, and compute scores and softmax in float32",
    ),
    Suspect(
        places=r"logit_scale|temperature|\btemp\b|\btau\b|log_scale",
        reasons=OVERFLOWS | {"division_by_zero", "zero_over_zero", "inf_minus_inf"},
        text="the temperature is trained without a bound: clamp the scale after every update "
        "(CLIP keeps exp(logit_scale) at 100 or less), leave it out of weight decay, and compute "
        "the scaled logits in float32",
    ),
    Suspect(
        places=r"patch|pixel|image|visual|vision|img|\bstd\b|\bvar\b|mean|normali[sz]e|norm",
        reasons=frozenset(
            {
                "zero_variance",
                "std_of_one",
                "std_at_zero",
                "division_by_zero",
                "zero_over_zero",
                "sqrt_at_zero",
            }
        ),
        text="normalisation of a patch or image of one colour: its deviation is 0 (letterbox "
        "borders, blank pages, masked regions). Divide by (std + eps), and look for blank images",
    ),
    Suspect(
        places=r"norm|similarity|cosine|embed|feature|project",
        reasons=frozenset({"norm_at_zero", "zero_over_zero", "division_by_zero", "sqrt_at_zero"}),
        text="an embedding of length zero was normalised: use F.normalize, which has an eps, and "
        "look for blank images and empty captions",
    ),
    Suspect(
        places=r"contrast|clip|itc|info_?nce|logits|similarity|loss",
        reasons=frozenset({"label_masked", "log_of_zero", "exp_overflow", "loss_infinite"}),
        text="a contrastive loss on probabilities: use cross_entropy or logsumexp on the logits, "
        "and leave masked pairs out of the sum instead of giving them probability 0",
    ),
    Suspect(
        places=r"",
        reasons=frozenset({"nonfinite_input"}),
        text="preprocessing made it: a channel's deviation of 0, a division by 255 that was left "
        "out, an alpha channel, a file that does not decode",
    ),
)
"""In the order in which they are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """What a replay that watches every operation found."""

    run_id: str
    record: TrialRecord
    """The replay."""
    reused: bool
    """Whether it had been made before, by a bisect or an earlier call."""
    finding: Mapping[str, Any] | None
    """Operation, place, inputs, chain, as the locator tells them; None where nothing was found."""
    reasons: tuple[str, ...]
    """Likely ones, the locator's own first."""
    layers: tuple[str, ...]
    """Layers whose gradient left its range first, in a replay that measured every step."""
    layers_told: str
    """The same in a sentence, with figures."""
    next_command: str


def likely_reasons(finding: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the operation did, and what in a model of images and text does that there."""
    fields = ("module", "parameter", "function", "code", "operation", "reached_name")
    around = " ".join(str(finding.get(field) or "") for field in fields).lower()
    found = [str(finding["explanation"])]
    for suspect in SUSPECTS:
        if finding["reason"] in suspect.reasons and re.search(suspect.places, around):
            found.append(suspect.text)
    return tuple(found)
