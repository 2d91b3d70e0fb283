from __future__ import annotations

from dataclasses import replace

import pytest

from stabexp.bisection.decision_tree import SILENT_TREE, TREE
from stabexp.reporting.tree_chart import SHORT, tree_of


def taken(tree):
    return [(q.node, way.answer, way.cause) for q in tree.questions for way in q.exits if way.taken]


@pytest.mark.parametrize("nodes", [TREE, SILENT_TREE], ids=["diverged", "silent"])
def test_every_question_of_the_tree_has_a_short_form(nodes):
    for name in nodes:
        assert len(SHORT[name]) <= 40
        assert SHORT[name].endswith("?")


@pytest.mark.parametrize("nodes", [TREE, SILENT_TREE], ids=["diverged", "silent"])
def test_the_tree_is_a_trunk_with_ends_beside_it_as_it_is_drawn(nodes):
    names = list(nodes)
    for name, after in zip(names, [*names[1:], None], strict=True):
        onward = {nodes[name].yes, nodes[name].no} - {
            way for way in (nodes[name].yes, nodes[name].no) if way.startswith("= ")
        }
        assert onward == ({after} if after else set())


@pytest.mark.parametrize(
    ("kind", "ways", "tests"),
    [
        ("setting", [("learning_rate", "yes", "learning_rate")], ["reversal", "proof"]),
        ("data", [("data", "yes", "data")], []),
        ("implementation", [("operation", "yes", "implementation")], []),
        ("inconclusive", [("joint", "no", "inconclusive")], []),
        ("contradicted", [("learning_rate", "yes", "learning_rate")], ["reversal", "proof"]),
        ("not_reproduced", [("control", "no", "not_reproduced")], []),
        ("silent", [("overfitting", "no", "inconclusive")], []),
    ],
)
def test_the_way_taken_leads_to(cases, kind, ways, tests):
    tree = tree_of(cases[kind]().verdict)
    assert taken(tree) == ways
    assert [question.node for question in tree.tests] == tests


def test_every_question_is_drawn_whether_it_was_asked_or_not(cases):
    tree = tree_of(cases["implementation"]().verdict)
    assert [question.node for question in tree.questions] == list(TREE)
    assert [question.number for question in tree.questions][:5] == [1, 2, 3, 4, 0]
    assert tree.asked == 4
    assert not tree.questions[4].answer
    assert [way.cause for way in tree.questions[-1].exits] == ["joint", "inconclusive"]


def test_a_question_that_stays_open_ends_the_walk(cases):
    verdict = cases["data"]().verdict
    last = replace(verdict.path[-1], answer="not known")
    open_ = replace(verdict, cause="inconclusive", path=(*verdict.path[:-1], last))
    assert taken(tree_of(open_)) == [("data", "not known", "inconclusive")]


def test_a_question_can_end_at_the_cause_that_its_answer_named(cases):
    verdict = replace(cases["implementation"]().verdict, cause="loss_function")
    assert taken(tree_of(verdict)) == [("operation", "yes", "loss_function")]


def test_a_question_that_the_tree_no_longer_asks_is_drawn_where_it_was_asked(cases):
    verdict = cases["implementation"]().verdict
    asked = replace(verdict.path[1], node="humidity", question="Was it too humid?")
    old = replace(verdict, path=(verdict.path[0], asked, *verdict.path[2:]))
    nodes = [question.node for question in tree_of(old).questions]
    assert nodes[:4] == ["control", "humidity", "overfitting", "rules"]
    assert tree_of(old).questions[1].text == "Was it too humid?"


def test_without_a_path_there_is_still_a_tree(cases):
    tree = tree_of(replace(cases["setting"]().verdict, path=()))
    assert (tree.asked, len(tree.questions), tree.tests) == (0, len(TREE), ())
