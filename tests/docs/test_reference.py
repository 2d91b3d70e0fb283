"""The reference is what the code says."""

from __future__ import annotations

import pytest
from docs.snippets import ROOT

from experiments.reference import constants
from experiments.reference.experiment_file import example
from experiments.reference.pages import outdated, pages
from stabexp.config import parse_document
from stabexp.experiment import Experiment, from_document
from stabexp.schema import KINDS, components


@pytest.fixture(scope="module")
def made():
    return pages()


def test_no_page_is_behind_the_code(made):
    assert outdated(made, ROOT / "docs") == [], "python -m experiments.reference --write"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "runs"])
def test_every_plug_in_and_setting_has_its_place(made, kind):
    text = made[f"reference/{kind}.md"]
    for name, component in components(kind).items():
        section = text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert section, name
        assert all(f"| `{field}` |" in section for field in component.model_fields), name


def test_every_key_of_the_file_has_its_place(made):
    text = made["reference/experiment_file.md"]
    assert [key for key in Experiment.model_fields if f"| `{key}` |" not in text] == []


def test_the_file_with_every_key_is_an_experiment():
    experiment = from_document(parse_document(example()))
    assert experiment.steps == 200
    assert set(parse_document(example()).values) == set(Experiment.model_fields) - {"train"}


def test_a_bisect_tells_its_exit_codes(made):
    section = (
        made["reference/commands.md"].partition("## stabexp bisect\n")[2].partition("\n## ")[0]
    )
    codes = section.rpartition("Further exit codes: ")[2]
    assert [f"{code} (" in codes for code in (3, 4, 5, 6, 130)] == [False, True, True, False, True]


def test_a_new_page_and_a_changed_one_and_a_left_one_are_noticed(made, tmp_path):
    (tmp_path / "reference").mkdir()
    for name in ("reference/causes.md", "reference/gone.md"):
        (tmp_path / name).write_text("old", "utf-8")
    behind = outdated({"reference/causes.md": "new", "reference/tasks.md": "t"}, tmp_path)
    assert behind == ["reference/causes.md", "reference/tasks.md", "reference/gone.md"]


def test_a_name_without_a_meaning_is_refused():
    with pytest.raises(SystemExit, match=r"files without a meaning: new\.json; add it in here"):
        constants.explained("files", {"new.json"}, {}, place="here")


def test_a_meaning_of_what_is_gone_is_refused():
    with pytest.raises(SystemExit, match=r"files no longer in the code: old\.json"):
        constants.explained("files", set(), {"old.json": "x"}, place="here")
