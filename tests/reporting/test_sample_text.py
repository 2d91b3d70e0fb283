"""Samples in a terminal: shades for pictures, a bar beside texts, a mark for what is odd."""

from __future__ import annotations

import base64
import io
import json

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from stabexp.records import SamplePart, SampleView, to_json
from stabexp.reporting.columns import columns
from stabexp.reporting.sample_text import sample_lines, shaded
from stabexp.tasks.sample_views import sample_views

DIGITS = load_digits().images / 16
DATA = [
    {"image": DIGITS[i], "text": "日本語のテキスト" * (200 if i == 5 else 2)} for i in range(20)
]
VIEWS = sample_views(DATA.__getitem__, [5], ordinary=range(4), first_steps={5: 12})


def test_a_picture_is_drawn_in_shades():
    rows = shaded(VIEWS[0].parts[0].image, cells=8)
    assert len(rows) == 8
    assert {len(row) for row in rows} == {16}
    dark = np.array([[row[2 * i] == " " for i in range(8)] for row in rows])
    assert np.array_equal(dark, DIGITS[5] < 0.2)


def test_a_photo_is_drawn_small_enough_and_in_proportion():
    image = np.tile(np.linspace(0, 255, 300).astype(np.uint8), (100, 1))
    (view,) = sample_views([np.stack([image] * 3, axis=-1)].__getitem__, [0])
    rows = shaded(view.parts[0].image)
    assert (len(rows), len(rows[0])) == (7, 48)
    assert rows[0][0] == " "
    assert rows[0][-1] == "█"


def test_a_png_of_another_maker_is_not_drawn_and_no_error():
    file = io.BytesIO()
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).resize((99, 99)).save(file, "PNG")
    assert shaded(base64.b64encode(file.getvalue()).decode()) == []
    assert shaded("no base64 at all") == []


@pytest.mark.parametrize("width", [40, 80, 100])
def test_everything_fits_the_width(width):
    lines = sample_lines(VIEWS, width=width)
    assert max(map(columns, lines)) <= width


def test_each_sample_says_what_it_is():
    heads = [line for line in sample_lines(VIEWS) if line.startswith("sample")]
    assert heads == [
        "sample 5, at fault, first used at step 12",
        "sample 0, an ordinary one",
        "sample 1, an ordinary one",
    ]
    apart = SampleView(sample=3, blamed=False, stood_out=True, parts=())
    assert sample_lines([apart]) == ["sample 3, stood out"]
    assert sample_lines(VIEWS[1:2], asked=(0,))[0] == "sample 0"


def test_what_is_odd_stands_out():
    assert "    ! 1,600 characters, usually 16" in sample_lines(VIEWS)


def test_long_rows_of_numbers_are_cut():
    part = SamplePart(
        name="x", kind="numbers", text="600 values, 0 to 1", values=(0.5,) * 512, dtype="float32"
    )
    (_, line, *_) = sample_lines([SampleView(sample=1, blamed=True, parts=(part,))], width=100)
    assert line == "  x  600 values, 0 to 1, float32: 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, …"


def test_the_command_shows_what_a_bisect_kept_and_writes_the_pictures(
    tmp_path, stabexp_command, diverged_run
):
    folder = diverged_run.directory("bisects") / "bisect-1"
    folder.mkdir()
    manifest = json.loads((diverged_run.path / "run.json").read_text("utf-8"))
    manifest |= {"run_id": f"{diverged_run.run_id}.bisect-1", "kind": "bisect", "parent": "../.."}
    (folder / "run.json").write_text(json.dumps(manifest), "utf-8")
    kept = {"samples": [to_json(view) for view in VIEWS]}
    (folder / "samples.json").write_text(json.dumps(kept), "utf-8")
    root = ("--root", tmp_path / "root")
    done = stabexp_command("samples", diverged_run.run_id, "--out", tmp_path / "pictures", *root)
    assert done.code == 0
    assert done.out.startswith(f"samples of {diverged_run.run_id}: the verdict blames them")
    written = sorted(path.name for path in (tmp_path / "pictures").iterdir())
    assert written == ["sample-0-image.png", "sample-1-image.png", "sample-5-image.png"]
    as_json = json.loads(stabexp_command("samples", diverged_run.run_id, "--json", *root).out)
    assert [sample["sample"] for sample in as_json["samples"]] == [5, 0, 1]


@pytest.fixture
def diverged_run(tmp_path):
    from stabexp.tracking import RunDirectory

    return RunDirectory.create(
        tmp_path / "root" / "runs" / "late-1a2b3c",
        run_id="late-1a2b3c",
        kind="run",
        name="late",
        experiment="stabexp",
        tracking_uri="http://127.0.0.1:9",
    )
