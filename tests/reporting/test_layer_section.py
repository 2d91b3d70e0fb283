from __future__ import annotations

import math
from dataclasses import replace

from stabexp.records import StepRecord
from stabexp.reporting import verdict_page
from stabexp.reporting.layer_section import ROWS, layer_section


def test_the_layers_that_went_furthest_are_named_first(cases):
    section = layer_section(cases["setting"]())
    assert section.told == "1 layer of 6 had a gradient that is NaN or infinite at step 141: head."
    assert [row.layer for row in section.rows][:2] == ["head", "blocks.1.mlp"]
    assert section.rows[-1].layer == "embed"
    assert math.isnan(section.rows[0].last)


def test_growth_is_told_as_multiples_of_what_was_usual(cases):
    report = cases["setting"]()
    finite = [step for step in report.near if step.step < 140]
    section = layer_section(replace(report, near=finite))
    assert section.told.startswith("Gradient norms at step 139 compared with the median before")
    assert "times in “head”" in section.told


def test_flow_and_heatmap_are_drawn_for_wide_and_narrow_screens(cases):
    pictures = layer_section(cases["setting"]()).pictures
    assert [picture.title for picture in pictures] == [
        "Gradient flow over depth",
        "Gradient norm by layer, around the onset",
    ]
    for picture in pictures:
        assert 'width="1000"' in picture.wide
        assert 'width="380"' in picture.narrow
        assert "<style" not in picture.wide
        assert "exact replay" in pictures[1].caption


def test_the_runs_own_layers_serve_where_no_replay_measured_them(cases):
    report = cases["setting"]()
    section = layer_section(replace(report, near=(), steps=report.near))
    assert "Measured by the run itself" in section.pictures[1].caption


def test_without_layers_the_page_says_how_to_get_them(cases):
    report = cases["not_reproduced"]()
    assert layer_section(report).pictures == ()
    assert f"stabexp locate {report.verdict.run_id}" in verdict_page(report)


def test_a_very_deep_network_keeps_the_table_short(cases):
    report = cases["setting"]()
    deep = [
        StepRecord(
            step=step,
            time=0.0,
            loss=1.0,
            lr=0.1,
            grad_norm=1.0,
            layers={f"layer{at}": {"grad_norm": 1.0 + at * (step > 133)} for at in range(500)},
        )
        for step in range(120, 140)
    ]
    section = layer_section(replace(report, near=deep))
    assert (len(section.rows), section.left_out) == (ROWS, 500 - ROWS)
    assert section.rows[0].layer == "layer499"
    assert max(len(picture.wide) for picture in section.pictures) < 300_000
