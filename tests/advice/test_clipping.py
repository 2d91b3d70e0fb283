"""The clip norm is read off a run's own norms or a foreign log's, and candidates are tried."""

from __future__ import annotations

import json
import random

import pytest

from stabexp.advice.adaptive import adaptive_limiters
from stabexp.advice.clipping import advise_clip
from stabexp.errors import ConfigError


def norms(count=400, *, bursts=0.03, seed=0, grows=1.0):
    """Return norms of 0.5 to 2.0 with rare ones of 10 to 20, the documents' own example."""
    draws = random.Random(seed)
    found = []
    for step in range(count):
        burst = draws.random() < bursts
        norm = draws.uniform(10, 20) if burst else draws.uniform(0.5, 2.0)
        found.append((step, norm * grows ** (step / count)))
    return found


def of(advice, name):
    return next(effect for effect in advice.effects if effect.name == name)


@pytest.mark.parametrize("seed", range(2))
def test_norms_of_half_to_two_with_rare_tens_are_clipped_just_above_two(seed):
    advice = advise_clip(norms(seed=seed), "example", adaptive=adaptive_limiters())
    bursts = sum(norm >= 10 for _, norm in norms(seed=seed))
    assert 2.0 < advice.limit < 3.0
    assert advice.bursts == bursts
    chosen = of(advice, f"{advice.limit:g}")
    assert (chosen.usual_clipped_share, chosen.bursts_caught) == (0.0, bursts)
    assert chosen.largest_after == pytest.approx(advice.limit)
    assert of(advice, "1").clipped_share > 0.5  # most steps
    assert of(advice, "1").word == "acts in most steps, bursts or not"
    assert of(advice, "100").word == "never acts"
    adapted = of(advice, "adaptive_clip, mean_deviation")
    assert adapted.bursts_caught > 0.7 * bursts
    assert adapted.usual_clipped_share < 0.05


def test_norms_without_bursts_need_no_clipping():
    advice = advise_clip(norms(bursts=0.0), "calm")
    assert advice.bursts == 0
    assert "nothing needs clipping" in advice.reason
    assert of(advice, f"{advice.limit:g}").clipped_share == 0.0


def test_norms_that_grow_fit_no_fixed_limit():
    advice = advise_clip(norms(bursts=0.0, grows=20.0), "growing")
    assert advice.trend > 4
    assert "no fixed limit fits" in advice.reason
    assert advice.limit > 20


def test_a_share_is_what_a_plain_count_gives():
    advice = advise_clip(norms(), "example")
    plain = [norm for _, norm in norms()]
    effect = of(advice, "1")
    assert effect.clipped_share == sum(norm > 1 for norm in plain) / len(plain)
    reduced = sum(max(0.0, 1 - 1 / norm) for norm in plain) / len(plain)
    assert effect.mean_reduction == pytest.approx(reduced)


def test_too_few_norms_say_nothing():
    with pytest.raises(ConfigError, match=r"9 finite gradient norm.* at least 10"):
        advise_clip([*norms(9), (9, float("nan"))], "short")


def rows(count=120, turn=None):
    draws = random.Random(3)
    for step, norm in norms(count):
        bad = turn is not None and step >= turn
        loss = 9.0 + step if bad else 2.0 * 0.99**step + draws.gauss(0, 0.01)
        yield step, loss, 60.0 * norm if bad else norm


def test_a_foreign_log_is_read_up_to_its_divergence(stabexp_command, tmp_path):
    log = tmp_path / "metrics.csv"
    lines = [f"{step},{loss},{norm}" for step, loss, norm in rows(turn=100)]
    log.write_text("\n".join(["step,train_loss,grad_norm", *lines]), "utf-8")
    done = stabexp_command("clip-advice", log, "--json")
    assert done.code == 0, done.errors
    advice = json.loads(done.out)
    assert advice["steps"][1] < 100
    assert advice["largest"] < 20
    assert 2.0 < advice["limit"] < 3.0


@pytest.mark.parametrize(
    ("column", "norm_of", "message"),
    [
        pytest.param("other", lambda norm: norm, "no gradient norm", id="none"),
        pytest.param("grad_norm", lambda norm: min(norm, 1.0), "after clipping", id="clipped"),
    ],
)
def test_a_log_without_norms_from_before_clipping_is_refused(
    stabexp_command, tmp_path, column, norm_of, message
):
    log = tmp_path / "metrics.csv"
    lines = [f"{step},{loss},{norm_of(norm)}" for step, loss, norm in rows()]
    log.write_text("\n".join([f"step,train_loss,{column}", *lines]), "utf-8")
    done = stabexp_command("clip-advice", log)
    assert done.code == 2
    assert message in done.errors
