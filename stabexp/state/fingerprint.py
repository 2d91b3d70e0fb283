"""Two runs can be compared bit for bit only on the same software, hardware and threads.

Even one thread more changes the order in which numbers are added, and so the last bits, within a
few steps. The fingerprint names what matters, so that a replay that differs can say why.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

import torch

_PACKAGES = ("torch", "numpy", "stabexp", "mlflow")

_WHY = {
    "device": "kernels differ between devices",
    "device_model": "kernels differ between devices",
    "cpu": "kernels are chosen by what the processor offers",
    "cpu_capability": "kernels are chosen by what the processor offers",
    "threads": "sums are split over the threads, and so rounded differently",
    "interop_threads": "sums are split over the threads, and so rounded differently",
    "git_revision": "the training code may differ",
    "git_diff": "the training code differs",
    "code": "the training code differs",
    "configuration": "the experiment has other settings",
}
_OTHER = "results may differ in their last bits"


def fingerprint(
    *, device: str | torch.device, code_paths: Sequence[str | Path] = ()
) -> dict[str, str]:
    """Return what decides whether two runs can be equal bit for bit, as text by name.

    Args:
        device: The device that is trained on.
        code_paths: Files and directories with the training code; the working directory's
            repository stands for them when there are none. Outside a repository, or without git,
            the revision is left out.
    """
    device = torch.device(device)
    facts = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": device.type,
        "cpu": _cpu_model(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
        "interop_threads": str(torch.get_num_interop_threads()),
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
        "cudnn_deterministic": str(torch.backends.cudnn.deterministic),
        "cudnn_benchmark": str(torch.backends.cudnn.benchmark),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "default_dtype": str(torch.get_default_dtype()),
    }
    facts |= {name: version for name in _PACKAGES if (version := _version(name))}
    if device.type == "cuda" and torch.cuda.is_available():
        facts |= {
            "device_model": torch.cuda.get_device_name(device),
            "device_count": str(torch.cuda.device_count()),
            "cuda": str(torch.version.cuda),
            "cudnn": str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
            "cublas_workspace": os.environ.get(_CUBLAS, ""),
            "cudnn_tf32": str(torch.backends.cudnn.allow_tf32),
        }
    return facts | _code([Path(path) for path in code_paths])


def environment() -> str:
    """Return every installed package with its version, a "name==version" line each."""
    found = {f"{d.metadata['Name']}=={d.version}" for d in metadata.distributions()}
    return "".join(f"{line}\n" for line in sorted(found, key=str.lower))


def differences(a: Mapping[str, str], b: Mapping[str, str]) -> list[str]:
    """Return, as sentences, what makes two runs not comparable bit for bit; empty when nothing."""
    return [
        f"{name} differs: {a.get(name, 'unknown')} and {b.get(name, 'unknown')}"
        f" ({_WHY.get(name, _OTHER)})"
        for name in sorted(a.keys() | b.keys())
        if a.get(name) != b.get(name)
    ]


_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
_before: dict[str, str | None] = {}


def set_deterministic(enabled: bool, /) -> None:
    """Let torch use deterministic algorithms only, raising where there is none; False goes back.

    Call it before the first operation on a GPU: cuBLAS reads its setting once.
    """
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    if enabled != torch.are_deterministic_algorithms_enabled() or warns:
        # Only when it changes something: the call loads torch's compiler, which takes seconds.
        torch.use_deterministic_algorithms(enabled, warn_only=False)
    torch.backends.cudnn.deterministic = enabled
    torch.backends.cudnn.benchmark = False  # also torch's default: tuning times kernels, and varies
    if enabled:
        _before.setdefault(_CUBLAS, os.environ.get(_CUBLAS))
        if os.environ.get(_CUBLAS) not in {":4096:8", ":16:8"}:
            os.environ[_CUBLAS] = ":4096:8"
    elif _CUBLAS in _before:
        original = _before.pop(_CUBLAS)
        if original is None:
            os.environ.pop(_CUBLAS, None)
        else:
            os.environ[_CUBLAS] = original


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)  # without importing it: mlflow takes seconds
    except metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    try:
        for line in (
            Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        ):
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _code(paths: Sequence[Path]) -> dict[str, str]:
    facts = {}
    files = sorted(set(_files(paths)))
    if files:
        facts["code"] = _hash_files(files)
    places = [path if path.is_dir() else path.parent for path in paths] or [Path.cwd()]
    roots = sorted(
        {root for place in places if (root := _git(place, "rev-parse", "--show-toplevel"))}
    )
    revisions = [_git(Path(root), "rev-parse", "HEAD") for root in roots]
    diffs = [_git(Path(root), "diff", "HEAD", "--no-ext-diff", "--binary") for root in roots]
    if any(revisions):
        facts["git_revision"] = " ".join(revision or "none" for revision in revisions)
    if any(diffs):  # absent when everything is committed
        facts["git_diff"] = hashlib.sha256("\0".join(d or "" for d in diffs).encode()).hexdigest()
    return facts


def _files(paths: Iterable[Path]) -> Iterable[Path]:
    for path in paths:
        if path.is_dir():
            yield from (file for file in path.rglob("*.py") if file.is_file())
        elif path.is_file():
            yield path


def _hash_files(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        try:
            content = hashlib.sha256(file.read_bytes()).digest()
        except OSError:
            content = b"unreadable"
        digest.update(file.name.encode(errors="replace") + b"\0" + content)
    return digest.hexdigest()


def _git(place: Path, *arguments: str) -> str | None:
    """Return what git prints, None when it fails, is not there, or takes over ten seconds."""
    try:
        done = subprocess.run(
            ["git", "-C", str(place), *arguments],
            capture_output=True,
            timeout=10,
            check=True,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace").strip() or None
