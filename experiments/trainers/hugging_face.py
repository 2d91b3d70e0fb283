"""Trainings with Hugging Face's Trainer that diverge, each by one seeded fault.

A GPT-2 of 29,000 parameters learns the source of Python's standard library by characters; as it is,
with LoRA adapters (PEFT), or with TRL's SFTTrainer. Every passage has a weight, as a curated corpus
has. `fault` says what is wrong:

- lr: the learning rate is several times what the model bears, and nothing clips
- fp16: the loss is computed in float16, and with it a penalty on large logits, whose sum of squares
  outgrows 65,504
- bad_sample: one weight was written in another unit, ten thousand times too large
- clip: a few passages count hundreds of times, as after importance sampling, and nothing clips

Nothing is downloaded. Without a run, the same functions are ordinary trainings:

    python -m experiments.trainers.hugging_face trainer lr
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from stabexp.integrations.transformers import StabexpCallback
from stabexp.tasks.text import VOCABULARY, tokens
from stabexp.training import Run

CONTEXT = 16
"""Characters in a passage."""

PASSAGES = 1024

BROKEN = 437
"""The passage whose weight is wrong."""

VERDICTS = {
    "lr": "learning_rate",
    "fp16": "precision",
    "bad_sample": "data",
    "clip": "clip_norm",
}
"""What a bisect has to find, by fault."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a fault changes."""

    lr: float
    clip: float = 1.0
    """0 clips nothing."""
    heavy: float = 1.0
    """Weight of one passage in a hundred."""
    broken: float = 1.0
    """Weight of the passage `BROKEN`."""
    penalty: float = 0.0
    """Factor on the logits in a penalty on their squares; 0 for no penalty."""
    half: bool = False
    """Whether the loss is computed in float16 autocast."""


def recipe(
    fault: str | None, *, lr: float, too_high: float, heavy: float = 100.0, penalty: float = 1.5
) -> Recipe:
    """Return the settings of a training with one fault, of the size given, or with none."""
    if fault == "lr":
        return Recipe(lr=too_high, clip=0.0)
    if fault == "fp16":
        return Recipe(lr=lr, penalty=penalty, half=True)
    if fault == "bad_sample":
        return Recipe(lr=lr, clip=0.0, broken=1e4)
    if fault == "clip":
        return Recipe(lr=lr, clip=0.0, heavy=heavy)
    if fault is not None:
        raise ValueError(f"fault: {fault!r} is none of {', '.join(VERDICTS)}")
    return Recipe(lr=lr)


class Passages(Dataset[dict[str, Tensor]]):
    """Passages of real text and their weights."""

    def __init__(self, chosen: Recipe) -> None:
        self.passages = tokens()[: PASSAGES * CONTEXT].view(PASSAGES, CONTEXT).long()
        heavy = torch.rand(PASSAGES, generator=torch.Generator().manual_seed(7)) < 0.01
        self.weights = torch.where(heavy, chosen.heavy, 1.0)
        self.weights[BROKEN] = chosen.broken

    def __len__(self) -> int:
        return len(self.passages)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        passage = self.passages[index]
        return {"input_ids": passage, "labels": passage, "weights": self.weights[index]}


class WeightedGPT2(GPT2LMHeadModel):
    """GPT-2 with a weight on each passage's loss."""

    accepts_loss_kwargs = False

    def __init__(self, config: GPT2Config) -> None:
        super().__init__(config)
        self.penalty: nn.Module | None = None

    def forward(
        self,
        input_ids: Tensor | None = None,
        labels: Tensor | None = None,
        weights: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return {"loss", "logits"}: 0-d, (passages, length, VOCABULARY)."""
        found = super().forward(input_ids, **kwargs)
        if labels is None or weights is None:
            return {"logits": found.logits}
        loss = (losses(found.logits, labels).mean(1) * weights).mean()
        if self.penalty is not None:
            loss = loss + self.penalty(found.logits)
        return {"loss": loss, "logits": found.logits}


class LogitPenalty(nn.Module):
    """Keeps logits near a mean square of 1."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.energy = Energy()

    def forward(self, logits: Tensor) -> Tensor:
        energy: Tensor = self.energy(self.factor * logits.flatten())
        return 1e-5 * (energy / logits.numel() - 1).square()


class Energy(nn.Module):
    """Sums the squares of (n,) numbers, as a product that autocast takes to half precision."""

    def forward(self, values: Tensor) -> Tensor:
        return values @ values


def losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the loss of each next character: (passages, length - 1)."""
    return F.cross_entropy(logits[:, :-1].mT, labels[:, 1:], reduction="none")


class HalfTrainer(Trainer):
    """Computes the loss in float16 autocast, without scaling it."""

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast("cpu", torch.float16):
            return super().compute_loss(*args, **kwargs)


def gpt2(chosen: Recipe, kind: type[GPT2LMHeadModel] = WeightedGPT2, **sizes: Any) -> Any:
    """Return a model with random weights."""
    config = GPT2Config(
        vocab_size=VOCABULARY,
        bos_token_id=0,
        eos_token_id=0,
        **{"n_positions": CONTEXT, "n_embd": 32, "n_layer": 2, "n_head": 2} | sizes,
    )
    made: Any = kind(config)
    if chosen.penalty:
        made.penalty = LogitPenalty(chosen.penalty)
    return made


def arguments(folder: str, chosen: Recipe, **others: Any) -> dict[str, Any]:
    """Return the training arguments; SGD with momentum, whose updates do not hide a gradient."""
    return {
        "output_dir": folder,
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 2,
        "max_steps": 150,
        "learning_rate": chosen.lr,
        "optim": "sgd",
        "optim_args": "momentum=0.9",
        "lr_scheduler_type": "cosine",
        "warmup_steps": 10,
        "max_grad_norm": chosen.clip,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "logging_steps": 10,
        "disable_tqdm": True,
    } | others


def trainer(run: Run | None, *, fault: str | None = None, **others: Any) -> Trainer:
    """Train GPT-2 from random weights."""
    chosen = recipe(fault, lr=0.3, too_high=2.0)
    return _train(run, gpt2(chosen), chosen, **others)


def adapters(run: Run | None, *, fault: str | None = None, **others: Any) -> Trainer:
    """Train a head and LoRA adapters beside the frozen weights of GPT-2."""
    from peft import LoraConfig, get_peft_model

    chosen = recipe(fault, lr=0.05, too_high=4.0, heavy=400.0, penalty=2.0)
    model = gpt2(chosen, tie_word_embeddings=False)
    config = LoraConfig(
        r=4,
        lora_alpha=8,
        lora_dropout=0.1,
        target_modules=["c_attn", "c_proj", "c_fc"],
        modules_to_save=["lm_head"],
        fan_in_fan_out=True,
    )
    return _train(run, get_peft_model(model, config), chosen, **others)


def sft(run: Run | None, *, fault: str | None = None, **others: Any) -> Trainer:
    """Tune GPT-2 with TRL; its own loss has no weights or penalty, so one fault is possible."""
    from datasets import Dataset as Table
    from trl import SFTConfig, SFTTrainer

    if fault not in (None, "lr"):
        raise ValueError(f"fault: {fault!r} needs what SFTTrainer has not; it can be 'lr'")
    chosen = recipe(fault, lr=0.3, too_high=2.0)
    model = gpt2(chosen, GPT2LMHeadModel)
    table = Table.from_dict({"input_ids": Passages(chosen).passages.tolist()})
    with tempfile.TemporaryDirectory() as folder:
        made = SFTTrainer(
            model=model,
            args=SFTConfig(**arguments(folder, chosen, max_length=CONTEXT, **others)),
            train_dataset=table,
            processing_class=characters(),
            callbacks=[StabexpCallback(run)] if run is not None else [],
        )
        made.train()
    return made


def characters() -> Any:
    """Return a tokenizer with one token per character."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from stabexp.tasks.text import CHARACTERS

    known = {character: token for token, character in enumerate(CHARACTERS)} | {"<other>": 96}
    made = Tokenizer(models.WordLevel(known, unk_token="<other>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<other>", pad_token="<other>", eos_token="\n"
    )


def _train(run: Run | None, model: Any, chosen: Recipe, **others: Any) -> Trainer:
    callbacks = others.pop("callbacks", [])
    kind = HalfTrainer if chosen.half else Trainer
    with tempfile.TemporaryDirectory() as folder:
        made = kind(
            model=model,
            args=TrainingArguments(**arguments(folder, chosen, **others)),
            train_dataset=Passages(chosen),
            callbacks=[*callbacks, *([StabexpCallback(run)] if run is not None else [])],
        )
        made.train()
    return made


FUNCTIONS = {"trainer": trainer, "adapters": adapters, "sft": sft}


def main(arguments: Sequence[str]) -> None:
    """Train without stabexp, and print the losses that Trainer logs."""
    name, fault = [*arguments, "trainer", "none"][:2] if arguments else ("trainer", "none")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    made = FUNCTIONS[name](None, fault=None if fault == "none" else fault)
    print(*(f"{log['loss']:.3g}" for log in made.state.log_history if "loss" in log))


if __name__ == "__main__":
    main(sys.argv[1:])
