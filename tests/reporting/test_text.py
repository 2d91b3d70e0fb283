from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from stabexp.reporting import trial_line, verdict_renderable, verdict_text
from stabexp.reporting.columns import columns
from stabexp.reporting.text import trial_lines


def test_the_verdict_comes_first_and_the_next_command_last(bisect, experiment):
    lines = verdict_text(bisect.verdict, bisect.trials, experiment=experiment).splitlines()
    assert lines[0].startswith("The learning rate is too high")
    assert lines[-1].strip() == bisect.verdict.next_command
    assert "      lr: 0.0075  # was 3e-2" in lines


def test_the_tree_is_walked_question_by_question(bisect):
    text = verdict_text(bisect.verdict, bisect.trials)
    places = [text.index(node.question[:40]) for node in bisect.verdict.path]
    assert places == sorted(places)
    assert "→ yes. It diverged from step 133" in text
    assert "[trials 01, 02]" in text


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal(bisect, width):
    lines = verdict_text(bisect.verdict, bisect.trials, width=width).splitlines()
    assert max(columns(line) for line in lines) <= width


def test_chinese_text_takes_two_columns_a_character(bisect):
    verdict = replace(bisect.verdict, summary="学习率过高，" * 30)
    lines = verdict_text(verdict, bisect.trials, width=60).splitlines()
    assert max(columns(line) for line in lines[:8]) <= 60
    assert "".join(lines[:7]).startswith("学习率过高，" * 30)


def test_a_narrow_table_leaves_figures_out_and_says_what_changed(bisect):
    wide = verdict_text(bisect.verdict, bisect.trials, width=80)
    narrow = verdict_text(bisect.verdict, bisect.trials, width=60)
    assert "  #   role      change                from  steps  loss           outcome" in wide
    assert "  #   role      change                from  outcome" in narrow
    assert "  03  dose      learning_rate ×0.25    120  cured" in narrow


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (0, "  00  control: nothing               diverged   from step 133, bit for bit"),
        (3, "  03  learning_rate ×0.25            cured      to step 249, loss 2.214 → 1.936"),
        (4, "  04  learning_rate ×0.5             delayed    from step 196"),
        (6, "  06  learning_rate ×0.001           stalled    to step 249, loss 2.214 → 2.213"),
        (
            12,
            "  12  batch_size ×16                 inconclusive  CUDA out of memory: 64 GiB\n"
            "      asked for",
        ),
    ],
)
def test_in_a_list_a_trial_is_its_gist(bisect, place, line):
    assert "\n".join(trial_lines(bisect.trials[place], 80, indent="  ")) == line


def test_a_scan_was_looked_at_and_is_no_failure(bisect):
    scan = replace(
        bisect.trials[12],
        spec=replace(bisect.trials[12].spec, role="scan"),
        last_step=bisect.trials[12].spec.from_step + 511,
    )
    assert trial_lines(scan, 80) == [
        "12  scan: each sample alone        looked at  512 samples, without an update"
    ]
    table = verdict_text(bisect.verdict, [scan])
    assert "each sample alone" in table
    assert "inconclusive" not in table


def test_hostile_text_cannot_reach_the_terminal_as_a_control_code(hostile):
    text = verdict_text(hostile.verdict, hostile.trials)
    text += "".join(trial_line(record) for record in hostile.trials)
    assert not {"\x1b", "\x00", "\u202e"} & set(text)


def test_each_trial_is_one_line(bisect):
    lines = [trial_line(record) for record in bisect.trials]
    assert lines[3] == (
        "03  learning_rate ×0.25             cured         "
        "Stable to step 249 and still learning: loss 2.214 → 1.936."
    )
    assert not [line for line in lines if "\n" in line]


def test_colour_adds_nothing_to_the_words(bisect):
    rich_text = verdict_renderable(bisect.verdict, bisect.trials)
    assert rich_text.plain == verdict_text(bisect.verdict, bisect.trials)
    console = Console(width=120, force_terminal=True, color_system="standard", record=True)
    with console.capture() as shown:
        console.print(rich_text)
    assert "\x1b[32mcured" in shown.get()


def test_a_verdict_without_trials_path_or_fix_still_reads(bisect):
    verdict = replace(
        bisect.verdict, path=(), ruled_out=(), fix={}, telemetry="", next_command="", cures=()
    )
    assert "There is no fix to offer." in verdict_text(verdict, [])
