"""The fingerprint names what makes two runs incomparable."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from stabexp.state import differences, fingerprint, set_deterministic
from stabexp.state.fingerprint import environment


@pytest.fixture
def repository(tmp_path):
    def git(*arguments):
        settings = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(
            ["git", "-C", tmp_path, *settings, *arguments], check=True, capture_output=True
        )

    (tmp_path / "train.py").write_text("rate = 1\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    return tmp_path


def test_it_has_versions_hardware_and_threads_and_imports_nothing_heavy():
    facts = fingerprint(device="cpu")
    assert facts["torch"] == torch.__version__
    assert facts["threads"] == "1"
    assert facts["cpu"]
    assert all(isinstance(value, str) and value for value in facts.values())
    assert differences(facts, fingerprint(device="cpu")) == []


def test_it_never_imports_mlflow(python):
    program = (
        "import sys; from stabexp.state import fingerprint; f = fingerprint(device='cpu');"
        "print('mlflow' in sys.modules, 'mlflow' in f)"
    )
    output, errors = python("-c", program).communicate(timeout=60)
    assert output.split() == ["False", "True"], errors


def test_edits_and_commits_of_the_training_code_show(repository):
    clean = fingerprint(device="cpu", code_paths=[repository / "train.py"])
    assert len(clean["git_revision"]) == 40
    assert "git_diff" not in clean
    (repository / "train.py").write_text("rate = 2\n")
    edited = fingerprint(device="cpu", code_paths=[repository / "train.py"])
    assert differences(clean, edited) == [
        f"code differs: {clean['code']} and {edited['code']} (the training code differs)",
        f"git_diff differs: unknown and {edited['git_diff']} (the training code differs)",
    ]


@pytest.mark.parametrize("path", ["", "\0", "/no/such/place", "/dev/null"])
def test_it_never_fails_outside_a_repository(path, tmp_path):
    facts = fingerprint(device="cpu", code_paths=[path, tmp_path])
    assert "git_revision" not in facts


def test_it_works_without_git(repository, monkeypatch):
    monkeypatch.setenv("PATH", os.devnull)
    facts = fingerprint(device="cpu", code_paths=[repository])
    assert "git_revision" not in facts
    assert "code" in facts


def test_a_change_of_threads_is_explained():
    sentences = differences({"threads": "1"}, {"threads": "2"})
    assert sentences == [
        "threads differs: 1 and 2 (sums are split over the threads, and so rounded differently)"
    ]


@pytest.mark.parametrize("before", [None, ":16:8", "other"])
def test_deterministic_algorithms_are_switched_on_and_back(before, monkeypatch):
    name = "CUBLAS_WORKSPACE_CONFIG"
    monkeypatch.delenv(name, raising=False)
    if before is not None:
        monkeypatch.setenv(name, before)
    try:
        set_deterministic(True)
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.backends.cudnn.deterministic
        assert os.environ[name] == (":16:8" if before == ":16:8" else ":4096:8")
        set_deterministic(True)
    finally:
        set_deterministic(False)
    assert not torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cudnn.deterministic
    assert os.environ.get(name) == before
    set_deterministic(False)
    assert os.environ.get(name) == before
    assert "stabexp" in sys.modules


def test_the_environment_names_every_package_with_its_version():
    lines = environment().splitlines()
    assert f"torch=={torch.__version__}" in lines
    assert lines == sorted(set(lines), key=str.lower)
