"""A task says what is trained: the data, the model and the loss, all in one small class.

A task is its own configuration, so the class is the schema of the experiment file. It owns no loop,
no optimizer and no random state: the model is drawn from torch's current random state, the dataset
is the same on every call, and the loss may be NaN or Inf, which is a result like any other.
"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from stabexp.config import Component, Document, suggest, validate
from stabexp.errors import ConfigError
from stabexp.loading import load_object, source_file

if TYPE_CHECKING:
    from torch import Tensor, nn

TASKS: dict[str, str] = {
    "gpt": "stabexp.tasks.gpt:GPT",
    "lstm": "stabexp.tasks.lstm:LSTM",
    "rnn": "stabexp.tasks.rnn:RNN",
    "mlp": "stabexp.tasks.mlp:MLP",
    "cnn": "stabexp.tasks.cnn:CNN",
    "two_tower": "stabexp.tasks.two_tower:TwoTower",
    "weighted_mlp": "stabexp.tasks.weighted_mlp:WeightedMLP",
}
"""YAML name → "package.module:Class", so that listing the names imports no torch."""


class Dataset(Protocol):
    """Samples by index, which is their id; reading one changes no random state.

    A dataset may also have `batch(indices) -> tuple[Tensor, ...]`, which is faster than one sample
    at a time, and `digest() -> str`, which is faster than hashing the samples.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> tuple[Tensor, ...]: ...


class Task(Component):
    """What is trained. Subclass it in your own file and name it `path/to/file.py:Class`."""

    @abstractmethod
    def dataset(self) -> Dataset:
        """Return the training samples: equal on every call and in every process."""

    @abstractmethod
    def model(self) -> nn.Module:
        """Return a new model, randomly initialised from torch's current random state."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """Return the mean loss over the samples of `batch`: 0-d, possibly NaN or ±Inf."""

    def class_count(self) -> int | None:
        """Return how many classes the loss chooses between, None when it is not such a loss."""
        return None

    def show(self, sample: Any) -> Any:
        """Return what to show of a sample in a report, None to show what can be guessed.

        Args:
            sample: What the dataset returns for an index.

        Returns:
            A text, a picture (height × width, 3 × height × width, or a PIL image), or a mapping of
            names to these.
        """
        return None

    def describe(self) -> dict[str, Any]:
        """Return the facts a report needs about the task.

        Returns:
            name, args, class_count, expected_initial_loss (ln of the class count in nats, what a
            model that knows nothing scores; None without classes), dataset_size, dataset_digest.
        """
        classes, dataset = self.class_count(), self.dataset()
        return {
            "name": task_name(type(self)),
            "args": self.model_dump(mode="json"),
            "class_count": classes,
            "expected_initial_loss": math.log(classes) if classes else None,
            "dataset_size": len(dataset),
            "dataset_digest": dataset_digest(dataset),
        }

    def __reduce_ex__(self, protocol: Any) -> Any:
        # Another process does not know the module of a class from a file, only the file.
        if source_file(type(self)) is None:
            return super().__reduce_ex__(protocol)
        return load_task, (task_name(type(self)), self.model_dump())


def task_name(kind: type[Task]) -> str:
    """Return the name `load_task` knows a task class by, paths absolute."""
    if (file := source_file(kind)) is not None:
        return f"{file}:{kind.__qualname__}"
    reference = f"{kind.__module__}:{kind.__qualname__}"
    return next((name for name, known in TASKS.items() if known == reference), reference)


def load_task(
    name: str, args: Mapping[str, Any] | None = None, *, base: Path | None = None
) -> Task:
    """Return the task called `name`, built from its arguments.

    Args:
        name: A built-in name, `path/to/file.py:Class` or `package.module:Class`.
        args: The task's fields, typed or as text from YAML.
        base: Folder that relative paths start from: the experiment file's. None: the current one.

    Raises:
        ConfigError: If there is no such task or an argument is wrong.
    """
    return validate(task_class(name, base=base), Document(f"task {name}", dict(args or {})))


def task_class(name: str, *, base: Path | None = None) -> type[Task]:
    """Return the class behind a task's name; see `load_task`."""
    if ":" not in name and name not in TASKS:
        hint = "your own is 'path/to/file.py:Class'"
        raise ConfigError(f"task {name}: unknown task; {suggest(name, list(TASKS))}; {hint}")
    kind = load_object(TASKS.get(name, name), what="task", base=base, like=_is_task)
    if not _is_task(kind):
        raise ConfigError(f"task {name}: is not a task; derive it from stabexp.tasks.base.Task")
    if missing := sorted(kind.__abstractmethods__):
        raise ConfigError(f"task {name}: does not define {', '.join(missing)}; add it to the class")
    return cast("type[Task]", kind)


def _is_task(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Task) and value is not Task


def load_function(reference: str, *, base: Path | None = None) -> Callable[..., Any]:
    """Return the function called `path/to/file.py:function` or `package.module:function`.

    Raises:
        ConfigError: If the file, the module or the function is missing, or cannot be called.
    """
    function = load_object(reference, what="function", base=base, like=callable)
    if not callable(function):
        kind = type(function).__name__
        raise ConfigError(f"function {reference}: is a value of type {kind}, not a function")
    return cast("Callable[..., Any]", function)


def read_batch(dataset: Dataset, indices: Sequence[int]) -> tuple[Tensor, ...]:
    """Return the samples at `indices`, in that order, stacked along a new first dimension."""
    batch = getattr(dataset, "batch", None)
    if batch is not None:
        return cast("tuple[Tensor, ...]", tuple(batch(list(indices))))
    import torch

    columns = zip(*(dataset[index] for index in indices), strict=True)
    return tuple(torch.stack(column) for column in columns)


def dataset_digest(dataset: Dataset, *, at_most: int = 4096) -> str:
    """Return a sha256 over the number of samples and the bits of up to `at_most` of them.

    Samples are taken evenly over the dataset, the first one included. A dataset with a `digest`
    method answers for itself.
    """
    own = getattr(dataset, "digest", None)
    if own is not None:
        return str(own())
    import torch

    size = len(dataset)
    digest = hashlib.sha256(str(size).encode())
    for index in range(0, size, max(1, -(-size // at_most))):
        for tensor in dataset[index]:
            value = tensor.detach().cpu().contiguous()
            digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
            digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def in_model_dtype(model: nn.Module, tensor: Tensor) -> Tensor:
    """Return a floating-point input in the dtype of the model's parameters; others unchanged."""
    if not tensor.is_floating_point():
        return tensor
    return tensor.to(next(model.parameters()).dtype)
