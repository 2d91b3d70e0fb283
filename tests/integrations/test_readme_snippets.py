"""The four trainings that README.md shows run as printed, and diverge at a rate far too high."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import stabexp

TEXT = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
SNIPPETS = dict(re.findall(r"^```python\n# (\S+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))

LENGTHS = {
    "train.py": (("steps=200",), 200),
    "hugging_face.py": ((), 4 * 512 // 16),
    "accelerate_loop.py": ((), 6 * 1024 // 32),
    "lightning_module.py": ((), 4 * 1024 // 16),
}
"""File → settings, and how many updates it makes with them."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("nowhere", "no_uploader_left"),
    # Advice that the frameworks give on any machine without an accelerator.
    pytest.mark.filterwarnings("ignore:'pin_memory' argument"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    # Lightning 2.6 calls a part of torch 2.13 by its old name.
    pytest.mark.filterwarnings("ignore:`isinstance\\(treespec, LeafSpec\\)`:FutureWarning"),
]


@pytest.mark.parametrize("name", LENGTHS)
def test_a_snippet_trains_to_its_end_and_learns(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(SNIPPETS[name], "utf-8")
    settings, steps = LENGTHS[name]
    result = stabexp.run(f"{name}:train", [*settings, "threads=1"], root=tmp_path)
    assert result.status == "finished"
    assert result.steps == steps
    records = stabexp.load(result.run_id, root=tmp_path).records
    first, last = records[:5], records[-5:]
    assert sum(r.loss for r in last) < 0.8 * sum(r.loss for r in first)
    assert all(r.sample_ids for r in records)


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("train.py", 0.5),
        ("hugging_face.py", 3.0),
        ("accelerate_loop.py", 0.6),
        ("lightning_module.py", 0.6),
    ],
)
def test_at_a_rate_far_too_high_a_snippet_diverges(tmp_path, monkeypatch, name, rate):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(SNIPPETS[name], "utf-8")
    settings, _ = LENGTHS[name]
    given = [*settings, "threads=1", f"train.args.lr={rate}"]
    result = stabexp.run(f"{name}:train", given, root=tmp_path)
    assert result.status == "diverged"
