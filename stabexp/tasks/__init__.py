"""What an experiment file can train: small real models on input that every machine already has."""

from __future__ import annotations

from stabexp.tasks.base import (
    TASKS,
    Dataset,
    Task,
    dataset_digest,
    in_model_dtype,
    load_function,
    load_task,
    read_batch,
    task_class,
    task_name,
)

__all__ = [
    "TASKS",
    "Dataset",
    "Task",
    "dataset_digest",
    "in_model_dtype",
    "load_function",
    "load_task",
    "read_batch",
    "task_class",
    "task_name",
]
