"""The dose search finds hidden boundaries within its bound, and always ends."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stabexp.bisection.ladder import Ladder, NoLadder, ladder_for
from stabexp.bisection.search import Decision, LadderAnswer, decide, next_questions
from stabexp.errors import ConfigError
from stabexp.records import VARIABLES, Outcome

RUN = {
    "lr": 3e-3,
    "healthy_norm": 0.8123,
    "clip_norm": None,
    "precision": "fp16_unscaled",
    "batch_size": 16,
    "dataset_size": 100,
    "warmup_steps": 0,
    "total_steps": 300,
}
WORDS: tuple[Outcome, ...] = ("cured", "stalled", "diverged", "delayed", "inconclusive")
tables = st.lists(st.sampled_from(WORDS), min_size=1, max_size=9)


def search(table: list[Outcome], *, workers: int = 1) -> tuple[Decision, list[int], int]:
    """Ask a hidden table until decided: the decision, the questions in order, the rounds."""
    outcomes: dict[int, Outcome] = {}
    asked: list[int] = []
    rounds = 0
    while (decision := decide(outcomes, count=len(table))) is None:
        questions = next_questions(outcomes, count=len(table), limit=workers)
        assert questions, "undecided, but nothing to ask"
        asked += questions
        outcomes |= {q: table[q] for q in questions}
        rounds += 1
    return decision, asked, rounds


def orderly(diverged: int, cured: int, stalled: int) -> list[Outcome]:
    return ["diverged"] * diverged + ["cured"] * cured + ["stalled"] * stalled


@pytest.mark.parametrize("count", [*range(1, 18), 33])
def test_every_orderly_ladder_is_decided_right_within_the_bound(count):
    for diverged, cured in itertools.product(range(count + 1), repeat=2):
        if diverged + cured > count:
            continue
        table = orderly(diverged, cured, count - diverged - cured)
        decision, asked, _ = search(table)
        assert decision.index == (diverged if cured else None), table
        assert decision.robust == (cured > 0), table
        if cured or diverged == count:
            assert len(asked) <= 2 + math.ceil(math.log2(count)), (table, asked)


def test_where_no_dose_learns_the_bound_is_that_of_two_searches():
    # Too mild and too strong look the same there, so both sides are searched.
    for count in (*range(2, 18), 33):
        for diverged in range(count):
            table = orderly(diverged, 0, count - diverged)
            _, asked, _ = search(table)
            assert len(asked) <= 2 + 2 * math.ceil(math.log2(count)), (table, asked)


@given(tables)
def test_every_other_ladder_ends_and_the_answer_is_true_in_the_table(table):
    decision, asked, _ = search(table)
    assert len(asked) == len(set(asked)) <= len(table)
    if decision.index is None:
        assert all(table[q] != "cured" for q in asked)
        return
    assert table[decision.index] == "cured"
    judged = [i for i in range(decision.index + 1, len(table)) if table[i] != "inconclusive"]
    if decision.robust:
        assert not judged or table[judged[0]] in {"cured", "stalled"}
        assert judged or decision.index == len(table) - 1
    if decision.robust and decision.milder is not None:
        assert table[decision.milder] not in {"cured", "inconclusive"}


@given(tables, st.integers(2, 6))
def test_with_several_workers_it_ends_and_the_answer_is_true_too(table, workers):
    decision, asked, _ = search(table, workers=workers)
    assert len(asked) == len(set(asked))
    if decision.index is not None:
        assert table[decision.index] == "cured"
    if decision.robust and decision.stronger is not None:
        assert table[decision.stronger] in {"cured", "stalled"}


@given(st.integers(1, 9), st.integers(2, 6), st.data())
def test_several_workers_agree_with_one_on_orderly_ladders_and_are_no_slower(count, workers, data):
    diverged = data.draw(st.integers(0, count))
    cured = data.draw(st.integers(0, count - diverged))
    table = orderly(diverged, cured, count - diverged - cured)
    alone, _, rounds_alone = search(table)
    together, _, rounds = search(table, workers=workers)
    assert together == alone
    assert rounds <= rounds_alone


@pytest.mark.parametrize(
    ("table", "index", "robust"),
    [
        pytest.param("D D D D C D C C", 6, True, id="a lucky cure, real ones further on"),
        pytest.param("D D D D D C D D", None, False, id="an isolated cure that is never met"),
        pytest.param("D D C S S S S S", 2, True, id="a band of one dose"),
        pytest.param("D D D S S S S S", None, False, id="no band between diverging and stalling"),
        pytest.param("D D D S S S S C", 7, True, id="too mild by far to learn"),
        pytest.param("D S C D D D D D", None, False, id="a cure that is never met"),
        pytest.param("C C C C C C C C", 0, True, id="the mildest cures"),
        pytest.param("D D D D D D D C", 7, True, id="the strongest needs no stronger one"),
        pytest.param("D D D D D D C ?", 6, False, id="the strongest could not be judged"),
        pytest.param("D D C ? C S S S", 2, True, id="a dose that could not be judged is no rung"),
        pytest.param("? ? ? ? ? ? ? ?", None, False, id="nothing could be judged"),
    ],
)
def test_answers(table, index, robust):
    words: dict[str, Outcome] = {
        "D": "diverged",
        "C": "cured",
        "S": "stalled",
        "?": "inconclusive",
    }
    decision, _, _ = search([words[letter] for letter in table.split()])
    assert (decision.index, decision.robust) == (index, robust)


def test_the_first_question_is_middle_strong():
    assert [next_questions({}, count=n)[0] for n in (1, 2, 3, 4, 6, 8)] == [0, 1, 1, 2, 3, 4]


def test_a_second_worker_gets_the_question_after_a_cure_and_a_third_that_after_a_divergence():
    first, second, third = next_questions({}, count=8, limit=3)
    assert second == next_questions({first: "cured"}, count=8)[0]
    assert third == next_questions({first: "diverged"}, count=8)[0]
    assert next_questions({}, count=8, running={first})[0] == second


def test_nothing_is_asked_when_all_useful_questions_run():
    assert next_questions({1: "cured", 0: "diverged"}, count=3, running={2}) == ()


@pytest.mark.parametrize(
    ("variable", "change", "doses", "original"),
    [
        ("learning_rate", {}, (0.7, 0.5, 0.35, 0.25, 0.1, 0.03, 0.01, 0.001), 1.0),
        ("clip_norm", {}, (3.25, 1.62, 0.812, 0.406, 0.203, 0.0812), None),
        ("clip_norm", {"clip_norm": 1.0}, (0.812, 0.406, 0.203, 0.0812), 1.0),
        ("batch_size", {}, (2, 4), 1),
        ("batch_size", {"dataset_size": None}, (2, 4, 16), 1),
        ("precision", {}, ("fp16", "bf16", "fp32"), "fp16_unscaled"),
        ("precision", {"precision": "pure_bf16"}, ("bf16", "fp32"), "pure_bf16"),
        ("precision", {"precision": "fp32"}, ("fp64",), "fp32"),
        ("warmup", {}, (10, 25, 50, 100), 0),
        ("warmup", {"warmup_steps": 25, "total_steps": 101}, (50,), 25),
    ],
)
def test_ladders(variable, change, doses, original):
    ladder = ladder_for(variable, **{**RUN, **change})
    assert ladder == Ladder(variable=variable, doses=doses, original=original)


@pytest.mark.parametrize(
    ("variable", "change", "reason"),
    [
        ("learning_rate", {"lr": 0.0}, "nothing to lower"),
        ("clip_norm", {"healthy_norm": float("nan")}, "nothing to measure"),
        ("clip_norm", {"clip_norm": 0.01}, "already below"),
        ("batch_size", {"dataset_size": 31}, "less than two batches"),
        ("precision", {"precision": "fp64"}, "most exact"),
        ("warmup", {"total_steps": 20}, "half of the run's 20"),
    ],
)
def test_a_variable_with_nothing_to_try_says_why(variable, change, reason):
    ladder = ladder_for(variable, **{**RUN, **change})
    assert isinstance(ladder, NoLadder)
    assert reason in ladder.reason


@pytest.mark.parametrize("variable", VARIABLES)
def test_every_variable_of_a_bisect_has_a_ladder(variable):
    assert isinstance(ladder_for(variable, **RUN), Ladder)


def test_unknown_names_are_refused_with_a_remedy():
    with pytest.raises(ConfigError, match="did you mean 'clip_norm'"):
        ladder_for("clip_nrom", **RUN)
    with pytest.raises(ConfigError, match="did you mean 'fp16'"):
        ladder_for("precision", **{**RUN, "precision": "fp17"})


def test_labels_are_what_people_read():
    doses = {"learning_rate": 0.5, "batch_size": 4, "warmup": 25, "precision": "bf16"}
    labels = [Ladder(variable=v, doses=(d,), original=None).label(0) for v, d in doses.items()]
    assert labels == ["learning_rate ×0.5", "batch_size ×4", "warmup 25", "precision bf16"]


def test_an_answer_speaks_in_doses():
    ladder = Ladder(variable="learning_rate", doses=(0.7, 0.5, 0.35), original=1.0)
    outcomes: dict[int, Outcome] = {0: "diverged", 1: "cured", 2: "cured"}
    decision = decide(outcomes, count=3)
    assert decision is not None
    answer = LadderAnswer(ladder=ladder, decision=decision, outcomes=outcomes)
    assert (answer.milder_dose, answer.dose, answer.stronger_dose) == (0.7, 0.5, 0.35)


def test_searching_imports_neither_torch_nor_optuna_nor_mlflow():
    code = (
        "import sys, stabexp.bisection.search as s;"
        "sys.exit(' '.join({'torch', 'optuna', 'mlflow'} & set(sys.modules)) or 0)"
    )
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=root, check=False, capture_output=True, text=True
    )
    assert (result.returncode, result.stderr) == (0, "")
