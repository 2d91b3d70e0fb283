"""`stabexp locate`: operation, line and likely reasons, in models of images and text."""

from __future__ import annotations

import json

import pytest
from diagnosis.layer_faults import FAULTS, experiment

import stabexp
from stabexp import api
from stabexp.errors import NotDivergedError


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A root with one diverged run of every fault, and a healthy one."""
    folder = tmp_path_factory.mktemp("faults")
    for name, (text, arguments, _, _) in FAULTS.items():
        (folder / f"{name}.py").write_text(text)
        file = folder / f"{name}.yaml"
        file.write_text(experiment(name, **arguments))
        assert api.run(file, root=folder / "root", drain_seconds=0).divergence is not None
    (folder / "well.py").write_text(FAULTS["masked_attention"][0])
    (folder / "well.yaml").write_text(experiment("well"))
    assert api.run(folder / "well.yaml", root=folder / "root", drain_seconds=0).divergence is None
    return folder / "root"


@pytest.mark.parametrize("fault", FAULTS)
def test_the_operation_its_line_and_the_likely_reason_are_told(
    root, no_uploader_left, stabexp_command, fault
):
    text, _, operation, reason = FAULTS[fault]
    done = stabexp_command("locate", fault, "--root", root)
    assert done.code == 0, done.out + done.errors
    assert f"{operation} made the first" in done.out
    assert f"{fault}.py:" in done.out
    assert reason in " ".join(done.out.split())
    assert "bit for bit as the run" in " ".join(done.out.split())
    found = json.loads(stabexp_command("locate", fault, "--root", root, "--json").out)
    assert found["reused"]
    if fault != "temperature":
        assert found["finding"]["sample_ids"] == [70]
    assert found["finding"]["code"] in text
    assert found["layers"]


def test_after_it_the_diagnosis_names_the_layer_that_went_first(root, no_uploader_left):
    stabexp.locate("masked", root=root)
    found = stabexp.diagnose("masked", root=root)
    assert any("gradients of" in text for text in found.told)  # what the monitors said
    (lost, *_) = found.findings
    assert lost.layers[0] in {"attention", "attention.qkv", "words", "model", "patch_embed"}
    assert any(text.startswith("layers: first seen at step") for text in lost.evidence)
    assert lost.checks[0].command.startswith("stabexp locate masked")


def test_its_state_after_the_crash_has_every_lost_parameter_named(root, no_uploader_left):
    found = stabexp.health("masked", root=root)
    lost = {ailment.name for ailment in found.ailments if ailment.kind == "non_finite"}
    assert {"attention.qkv.weight", "words.weight"} <= lost
    assert {tensor.name for tensor in found.tensors if tensor.part == "gradient"} <= lost
    assert stabexp.health("masked", root=root, step=0).healthy


def test_figures_are_drawn_at_the_end_and_anew_with_the_onset(
    root, no_uploader_left, stabexp_command, tmp_path
):
    stabexp.locate("masked", root=root)
    run = stabexp.load("masked", root=root).directory
    outbox = (run / "outbox.jsonl").read_text()
    assert '"file":"layers/gradient_flow.svg"' in outbox.replace(" ", "")
    done = stabexp_command("figures", "masked", "--root", root, "--out", tmp_path / "pictures")
    names = {file.name for file in (tmp_path / "pictures").iterdir()}
    assert names == {
        "gradient_flow.svg",
        "gradient_heatmap.svg",
        "weight_heatmap.svg",
        "onset_heatmap.svg",
    }
    assert done.code == 0
    healthy = stabexp.load("well", root=root).directory / "layers"
    assert {file.name for file in healthy.iterdir()} == names - {"onset_heatmap.svg"}


@pytest.mark.slow
def test_the_pictures_of_a_healthy_run_arrive_in_mlflow(tmp_path):
    (tmp_path / "well.py").write_text(FAULTS["masked_attention"][0])
    text = experiment("well").rpartition("tracking:")[0]
    (tmp_path / "well.yaml").write_text(text)
    result = api.run(tmp_path / "well.yaml", root=tmp_path / "root", drain_seconds=120)
    assert result.delivered
    arrived = (tmp_path / "root" / "artifacts").rglob("layers/*.svg")
    assert {file.name for file in arrived} == {
        "gradient_flow.svg",
        "gradient_heatmap.svg",
        "weight_heatmap.svg",
    }


def test_a_run_that_did_not_diverge_is_sent_to_its_state(root, no_uploader_left):
    with pytest.raises(NotDivergedError, match="stabexp health well-"):
        stabexp.locate("well", root=root)


@pytest.mark.parametrize(
    "change",
    ["learning_rate=0.1", "warmup=100", "batch_size=4", "clip_norm=4.8", "weight_decay=10"],
)
def test_the_check_that_a_finding_asks_for_runs(root, no_uploader_left, stabexp_command, change):
    done = stabexp_command("replay", "well", "--root", root, "--from", "0", "--set", change,
                           "--steps", "5")  # fmt: skip
    assert done.code == 0, done.errors
