"""docs/notebook.md runs in a real kernel as printed, on a run that was really bisected."""

from __future__ import annotations

import base64
import re
import shutil
import warnings
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from stabexp import api
from stabexp.errors import StabexpError
from stabexp.tracking.store_reader import StoreReader

ROOT = Path(__file__).parents[1]
CELLS = re.findall(
    r"^```python\n(.*?)^```$", (ROOT / "docs" / "notebook.md").read_text("utf-8"), re.M | re.S
)


@pytest.fixture(scope="module")
def bisected(tmp_path_factory) -> Path:
    """A folder in which a run diverged and was bisected."""
    folder = tmp_path_factory.mktemp("notebook")
    file = ROOT / "experiments" / "rate_too_high_mlp.yaml"
    root = folder / "stabexp_runs"
    overrides = ["tracking.uri=http://127.0.0.1:9", "steps=120"]
    result = api.run(file, overrides, root=root, drain_seconds=0)
    api.bisect(result.run_id, root=root, workers=0, drain_seconds=0)
    return folder


@pytest.fixture(scope="module")
def executed(bisected) -> list[nbformat.NotebookNode]:
    """The cells of docs/notebook.md, with what a kernel made of them."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS])
    with warnings.catch_warnings(action="ignore"):  # of Jupyter's own packages
        NotebookClient(
            notebook,
            kernel_name="python3",
            timeout=120,
            resources={"metadata": {"path": str(bisected)}},
        ).execute()
    return notebook.cells


def shown(cells, code: str) -> dict[str, str]:
    """Return what the cell that ends with some code shows, by its kind."""
    (cell,) = [cell for cell in cells if cell.source.rstrip().endswith(code)]
    (output,) = [output for output in cell.outputs if output.output_type == "execute_result"]
    return dict(output.data)


def test_the_run_shows_itself_as_a_summary(executed):
    data = shown(executed, "run")
    for text in (data["text/html"], data["text/markdown"], data["text/plain"]):
        assert "rate-too-high-mlp-" in text
        assert "learning_rate" in text.replace("\\_", "_")
        assert "stabexp run" in text


@pytest.mark.parametrize(
    ("code", "holds"),
    [
        pytest.param('"skipped"]].tail()', "clip_coefficient", id="steps"),
        pytest.param("ascending=False).head()", "layer", id="layers"),
        pytest.param("run.divergence.onset].head()", "sample", id="samples"),
        pytest.param('"onset", "end_loss"]]', "<td>control</td>", id="trials"),
        pytest.param("ends.reset_index()", "<td>cured</td>", id="steps of trials"),
        pytest.param('"replayed_steps", "seconds"]]', "learning_rate", id="bisects"),
        pytest.param("run.events", "message", id="events"),
        pytest.param('.agg(["min", "last", "size"])', "rate-too-high", id="several runs"),
    ],
)
def test_a_table_is_shown(executed, code, holds):
    data = shown(executed, code)
    assert holds in data.get("text/html", data["text/plain"])


def test_a_figure_shows_itself_as_svg_and_as_an_image_whose_style_stays_inside(executed):
    data = shown(executed, 'run.figures["loss"]')
    assert data["image/svg+xml"].startswith("<svg")
    (image,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', data["text/html"])
    assert base64.b64decode(image).decode() == data["image/svg+xml"]
    assert "<style" not in data["text/html"]


def test_all_figures_are_shown_under_their_names(executed):
    html = shown(executed, "run.figures")["text/html"]
    for name in ("loss", "gradient_flow", "trials_loss", "dose_response_learning_rate"):
        assert f"figures[&#x27;{name}&#x27;]" in html
    assert html.count("<img") == html.count("<figure")


def test_a_figure_is_saved(executed, bisected):
    assert (bisected / "doses.svg").read_text("utf-8").startswith("<svg")


def test_the_report_is_shown_in_a_frame_of_its_own(executed):
    html = shown(executed, "run.report()")["text/html"]
    assert html.startswith("<iframe")
    assert "&lt;html" in html


@pytest.mark.parametrize("name", ["loss", "trials_loss", "dose_response", "deciding_trials"])
def test_every_colour_of_a_figure_has_a_value_in_it(bisected, name):
    run = api.load("rate-too-high", root=bisected / "stabexp_runs")
    svg = run.figures[name].svg
    used = set(re.findall(r"var\((--[a-z-]+)\)", svg))
    assert used - set(re.findall(r"(--[a-z-]+)\s*:", svg)) == set()
    assert ":root" not in svg


def test_a_wrong_name_of_a_figure_is_told_what_there_is(bisected):
    figures = api.load("rate-too-high", root=bisected / "stabexp_runs").figures
    with pytest.raises(KeyError, match="there is no figure 'los', only loss, gradient_norm"):
        figures["los"]
    with pytest.raises(AttributeError, match="there is no figure 'los'"):
        _ = figures.los
    assert figures.loss is figures["loss"]


@pytest.fixture
def store(tmp_path) -> Path:
    """A copy of the example store, which has no run directories."""
    return shutil.copytree(ROOT / "mlruns_example", tmp_path / "store")


def test_a_store_without_run_directories_gives_what_it_has(store):
    before = (store / "mlflow.db").read_bytes()
    run = api.load("no-warmup-gpt", root=store)
    assert run.verdict is not None
    assert run.verdict.cause == "warmup"
    assert run.divergence.detected == 4
    assert len(run.trials) == run.verdict.trials
    assert set(run.trial_steps["trial"]) <= set(run.trials["number"])
    assert run.steps["grad_norm"].notna().any()
    assert run.figures["dose_response"].svg.startswith("<svg")
    assert "from MLflow alone" in repr(run)
    assert "<html" in run.report().html
    assert run.experiment.name == "no-warmup-gpt"
    assert (store / "mlflow.db").read_bytes() == before


@pytest.mark.parametrize("what", ["events", "sample_ids", "bisects"])
def test_what_the_store_does_not_have_is_said(store, what):
    with pytest.raises(StabexpError, match=r"MLflow does not have .*; load it"):
        getattr(api.load("healthy-cnn", root=store), what)


def test_a_run_that_the_store_does_not_have_is_told_which_it_has(store):
    with pytest.raises(
        StabexpError, match=r"not found in .*; it has .*healthy-cnn-.*no-warmup-gpt-"
    ):
        api.load("nope", root=store)


def test_a_run_of_the_store_is_found_by_its_mlflow_id_too(store):
    reader = StoreReader(store)
    mlflow_id = reader.find("healthy-cnn")
    assert len(mlflow_id) == 32
    run = api.load(mlflow_id, root=store)
    assert run.run_id == reader.tags(mlflow_id)["stabexp.run_id"]
    assert run.run_id.startswith("healthy-cnn-")
