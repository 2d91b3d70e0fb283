"""The tutorial, the causes, the tree and the how-to pages are whole and say what the code says."""

from __future__ import annotations

import re
import typing
import xml.etree.ElementTree as ET

import pytest

import stabexp
from experiments.causes import DOCS, ENDS
from experiments.how_to import MISTAKES, PAGES, SCRIPTS, broken, with_scripts
from experiments.pages import made_parts
from experiments.pages.cause_examples import EXAMPLES
from experiments.pages.markdown import blocks
from experiments.pages.tree_picture import tree_picture
from experiments.tutorial import CAUSE, PAGE, PLACE
from stabexp.bisection.decision_tree import SILENT_TREE, TREE
from stabexp.errors import StabexpError
from stabexp.records import BLAMELESS, Cause

CAUSES = typing.get_args(Cause)
PICTURES = DOCS / "images"


def test_every_cause_has_an_example():
    assert set(EXAMPLES) == set(CAUSES)


@pytest.mark.parametrize("cause", CAUSES)
def test_the_page_of_a_cause_shows_that_verdict_from_a_real_bisect(cause):
    text = (DOCS / "causes" / f"{cause}.md").read_text("utf-8")
    assert text.startswith(f"# `{cause}`: ")
    assert f"| verdict | **{cause}**" in text
    shown = next(block.text for block in blocks(text) if block.language == "console")
    assert re.search(rf"^ +└─ {cause}$", shown, re.MULTILINE)
    assert "/tmp" not in text
    assert "https://" in text.partition("## Sources")[2]


@pytest.mark.parametrize("cause", CAUSES)
def test_the_picture_of_a_cause_is_whole(cause):
    root = ET.parse(PICTURES / "causes" / f"{cause}.svg").getroot()
    curves = [node for node in root.iter() if node.get("class", "").startswith("curve ")]
    assert len(curves) == (2 if EXAMPLES[cause].fixed_name else 1)


def test_the_list_of_causes_names_each_once():
    text = (DOCS / "causes" / "index.md").read_text("utf-8")
    assert re.findall(r"^- \[`(\w+)`\]\(\1\.md\)", text, re.MULTILINE) == list(EXAMPLES)


def test_the_page_of_the_tree_has_every_question_in_order():
    text = (DOCS / "decision_tree.md").read_text("utf-8")
    asked = re.findall(r"^## \d+\. (.*)$", text, re.MULTILINE)
    assert asked == [node.question for node in TREE.values()]
    assert made_parts.names(text) == list(TREE)
    assert set(ENDS) == set(TREE)
    answered = re.findall(r"^> \*(.+?)\.\* ", text, re.MULTILINE)
    assert len(answered) == len(TREE)


@pytest.mark.parametrize(
    ("file", "tree", "title"),
    [
        ("decision_tree.svg", TREE, "A run diverged: stabexp bisect"),
        ("decision_tree_check.svg", SILENT_TREE, "A run did not diverge: stabexp check"),
    ],
)
def test_the_picture_of_the_tree_is_that_of_the_code(file, tree, title):
    drawn = tree_picture(tree, title=title, blameless=BLAMELESS)
    assert (PICTURES / file).read_text("utf-8") == drawn, "python -m experiments.causes --write"
    said = "".join(ET.fromstring(drawn).itertext())
    for node in tree.values():
        assert node.question in said


def test_the_tutorial_shows_the_verdict_that_it_explains():
    text = PAGE.read_text("utf-8")
    outputs = [block.text for block in blocks(text) if block.language == "console"]
    assert all(output.strip() for output in outputs)
    verdict = next(output for output in outputs if "How it was decided" in output)
    assert f"└─ {CAUSE}" in verdict
    assert PLACE in verdict
    assert "/tmp" not in text


HOW_TO = sorted(page.name for page in PAGES.glob("*.md"))


@pytest.mark.parametrize("name", HOW_TO)
def test_the_scripts_on_a_how_to_page_are_the_files_that_are_run(name):
    page = PAGES / name
    assert page.read_text("utf-8") == with_scripts(page), "python -m experiments.how_to --write"


def test_the_list_of_how_to_pages_has_all():
    text = (PAGES / "index.md").read_text("utf-8")
    assert sorted(re.findall(r"^- \[.*\]\((\w+\.md)\)$", text, re.MULTILINE)) == sorted(
        set(HOW_TO) - {"index.md"}
    )


@pytest.mark.usefixtures("nowhere", "no_uploader_left")
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("mistake", MISTAKES, ids=[one.what for one in MISTAKES])
def test_a_mistake_is_answered_as_the_page_says(mistake, tmp_path):
    name = mistake.script
    if name != "train.py":
        pytest.importorskip("lightning" if "lightning" in name else "transformers")
    (tmp_path / name).write_text(broken(mistake), "utf-8")
    with pytest.raises(StabexpError) as found:
        stabexp.run(
            f"{name}:train", ["threads=1", *mistake.options], root=tmp_path, drain_seconds=0
        )
    assert mistake.message in str(found.value)


LENGTHS = {"gan.py": 12, "stream.py": 12, "lightning_manual.py": None, "trl_lora.py": None}
"""Script → steps to make; None where the trainer knows."""


def test_every_script_is_run():
    assert set(LENGTHS) == {file.name for file in SCRIPTS.glob("*.py")}


@pytest.mark.usefixtures("nowhere", "no_uploader_left")
@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_a_script_trains_and_its_replay_is_the_run_bit_for_bit(name, tmp_path):
    if name == "trl_lora.py":
        pytest.importorskip("trl")
    file = tmp_path / name
    file.write_text((SCRIPTS / name).read_text("utf-8"), "utf-8")
    steps = LENGTHS[name]
    options = [
        "threads=1",
        "checkpoint.every=4",
        "checkpoint.keep=99",
        *([f"steps={steps}"] if steps else []),
    ]
    run = stabexp.run(f"{file}:train", options, root=tmp_path, drain_seconds=0)
    assert run.status == "finished"
    again, _ = stabexp.replay(run.run_id, root=tmp_path, from_step=4, steps=6)
    assert (again.steps, again.mismatch) == (6, None)


def test_no_page_holds_a_path_of_the_machine_that_made_it():
    for page in [PAGE, DOCS / "decision_tree.md", *PAGES.glob("*.md")]:
        assert not re.search(r"/(tmp|root|home)/\w", page.read_text("utf-8")), page
