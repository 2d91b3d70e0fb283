"""What docs/advisers.md says can be made again."""

from __future__ import annotations

import random
from pathlib import Path

from experiments.lr_finder import BEGIN, END, MADE_ON, SCORED_ON, as_stated, of_task, read
from experiments.rate_prior import sentence
from stabexp.advice.rates import RateRamp
from stabexp.advice.trial_training import train_once

PAGE = Path(__file__).parents[2] / "docs" / "advisers.md"


def test_the_page_has_the_count_of_rates_that_only_cure():
    assert " ".join(sentence().split()) in " ".join(PAGE.read_text("utf-8").split())


def test_the_page_has_a_row_for_every_task():
    measured = PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0]
    assert all(f"\n| {task} | " in measured for task in (*MADE_ON, *SCORED_ON))


def test_read_literally_the_recipe_takes_noise_at_the_start_for_the_fall():
    draws = random.Random(0)
    ramp = RateRamp()
    rates = [ramp.rate(step) for step in range(200)]
    losses = [0.5 + 1.8 / (1 + (rate / 1e-2) ** 1.7) + draws.gauss(0, 0.02) for rate in rates]
    losses[0] += 0.5
    assert as_stated(rates, losses)[0] < 1e-6
    assert (read(rates, losses)["lr-find"] or 0.0) > 1e-3


def test_the_four_readings_of_a_real_ramp_are_all_there():
    ramp = RateRamp()
    records = train_once(of_task("two_tower", "adamw", 0), (ramp,), steps=200, judged=False).records
    figures = read([r.lr for r in records], [r.loss for r in records])
    assert all(rate is not None and 1e-7 < rate < 10 for rate in figures.values())
