"""Whatever a file holds, the answer is a clear word and an exit code, never a traceback."""

from __future__ import annotations

import json
import random
import struct
import sys
from contextlib import suppress

import pytest
from diagnosis.conftest import calm
from diagnosis.make_logs import plain, tensorboard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stabexp
from stabexp.errors import ConfigError, StabexpError

JUNK = random.Random(5).randbytes(5000)
ROWS = "".join(f"{i},{loss},{1 + i / 50}\n" for i, loss in enumerate(calm(30)))
STATE = json.dumps(
    {
        "global_step": 30,
        "log_history": [
            {"step": i + 1, "loss": loss, "grad_norm": 1.0} for i, loss in enumerate(calm(30))
        ],
    }
)
NOT_USABLE = [
    ("a.csv", "", "is empty"),
    ("a.csv", "  \n\n", "is empty"),
    ("a.csv", "step,loss\n", "has a header and no rows"),
    ("a.csv", "0,2.3\n1,2.2\n", "a.csv:1: no header"),
    ("a.csv", JUNK, "binary data"),
    ("a.csv", "just some words\nand more\n", "no training loss found; there are 'just some words'"),
    ("a.csv", "step,loss\n" + "x,y\n" * 20, "no training loss found"),
    ("a.csv", "step,loss\n" + "0,nothing\n" * 20, "no training loss found"),
    ("a.csv", "a," * 600_000, "a line of a million characters"),
    ("a.csv", 'step,loss\n0,"' + "9" * 200_000, "is no CSV log"),
    ("a.jsonl", '{"step": 0, "acc": 0.5}\n' * 9, "no training loss found; there are 'acc'"),
    ("a.jsonl", '{"step": 0, "los', "no JSON object in any line"),
    ("a.jsonl", '{"a": ' * 5000, "no JSON object in any line"),
    ("a.json", "[1, 2, 3]", "neither a list of objects"),
    ("a.json", "[" * 100_000, "neither a list of objects"),
    ("a.json", '{"steps": "none",\n "a": 3}', "neither a list of objects"),
    ("trainer_state.json", '{"log_history": []}', "0 entries and none with a training loss"),
    ("trainer_state.json", '{"log_history": 7}', "0 entries and none with a training loss"),
    ("trainer_state.json", '{\n"log_history": [{"loss"', "none with a training loss"),
    ("trainer_state.json", '{"log_history": [{"eval_loss": 1, "step": 5}]}', "none with a"),
    ("events.out.tfevents.1.host", b"", "is empty"),
    ("events.out.tfevents.1.host", JUNK, "no TensorBoard event file"),
    ("events.out.tfevents.1.host", struct.pack("<Q", 2**60) + b"x" * 99, "no TensorBoard event"),
    ("mlflow.db", b"SQLite format 3\0" + b"\0" * 99, "--tracking-uri sqlite:///"),
]


@pytest.mark.parametrize(("name", "content", "message"), NOT_USABLE)
def test_what_is_no_log_is_refused_with_a_clear_word(
    write, stabexp_command, name, content, message
):
    done = stabexp_command("diagnose", write(name, content))
    assert (done.code, done.out) == (2, "")
    assert message in done.errors
    assert name in done.errors


CUT = [
    pytest.param("a.csv", f"step,loss,grad_norm\n{ROWS}30,1.", "ends in the middle", id="CSV"),
    pytest.param(
        "a.csv",
        f"step,loss,grad_norm\n{ROWS}x,1,1\n\n",
        "1 row(s) have no usable step",
        id="a step",
    ),
    pytest.param(
        "a.csv",
        f"step,loss,grad_norm\n{ROWS}30,1 . 5,1\n",
        "1 cell(s) hold no number and were skipped: line 32: loss is '1 . 5'",
        id="a cell",
    ),
    pytest.param(
        "a.csv",
        "loss\n" + "".join(f"{loss}\n" for loss in calm(30)),
        "its rows were counted from 0",
        id="no steps",
    ),
    pytest.param(
        "a.csv", f"step,loss,grad_norm\n{ROWS}step,loss,grad_norm\n", "", id="the header again"
    ),
    pytest.param(
        "a.jsonl",
        "".join(f'{{"step": {i}, "loss": {v}}}\n' for i, v in enumerate(calm(30))) + '{"step": 3',
        "the last line ends in the middle",
        id="JSON lines",
    ),
    pytest.param(
        "a.jsonl",
        '{"step": 0, "loss": 2}\nWARNING: slow\n'
        + "".join(f'{{"step": {i}, "loss": "{v}"}}\n' for i, v in enumerate(calm(30))),
        "1 line(s) are no JSON object and were skipped, the first is line 2: 'WARNING: slow'",
        id="a line of another program",
    ),
    pytest.param("trainer_state.json", STATE[:-40], "ends in the middle", id="trainer state"),
    pytest.param(
        "a.csv", f"step,loss,grad_norm\n{ROWS}".encode("utf-16"), "", id="saved by a spreadsheet"
    ),
    pytest.param("a.csv", f"step;loss;n\n{ROWS.replace(',', ';')}", "", id="semicolons"),
]


@pytest.mark.parametrize(("name", "content", "said"), CUT)
def test_what_is_left_of_a_damaged_log_is_used_and_said(
    write, stabexp_command, name, content, said
):
    done = stabexp_command("diagnose", write(name, content), "--json")
    assert done.code == 0, done.errors
    found = json.loads(done.out)
    assert found["used"][0]["points"] >= 28
    assert said in " ".join(found["warnings"])
    assert bool(said) == bool(found["warnings"])


def test_an_event_file_that_was_cut_gives_what_is_whole(tmp_path):
    tensorboard(tmp_path, plain())
    (file,) = tmp_path.glob("*tfevents*")
    file.write_bytes(file.read_bytes()[:-400])
    found = stabexp.diagnose(tmp_path)
    assert 50 < found.used[0].points < 60
    assert "ends in the middle" in found.warnings[0]


def test_without_tensorboard_the_message_names_what_to_install(tmp_path, monkeypatch):
    file = tensorboard(tmp_path, plain()) / next(tmp_path.iterdir()).name
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    with pytest.raises(ConfigError, match=r"pip install 'stabexp\[tensorboard\]'"):
        stabexp.diagnose(file)


@pytest.mark.parametrize("source", ["x" * 300, "a\0b", "", " "])
def test_what_cannot_be_a_file_is_not_found(source):
    with pytest.raises(StabexpError):
        stabexp.diagnose(source)


def test_a_folder_without_a_log_says_what_was_looked_for(tmp_path):
    (tmp_path / "src").mkdir()
    with pytest.raises(ConfigError, match=r"no log in it; looked for trainer_state\.json"):
        stabexp.diagnose(tmp_path)


def test_a_folder_with_several_logs_lists_them(write, tmp_path):
    for version in range(3):
        write(f"logs/version_{version}/metrics.csv", f"step,loss,n\n{ROWS}")
    with pytest.raises(ConfigError, match=r"holds 3 logs.*version_0/metrics\.csv, "):
        stabexp.diagnose(tmp_path / "logs")
    assert stabexp.diagnose(tmp_path / "logs" / "version_1").status == "healthy"


NAMES = st.sampled_from(
    ["a.csv", "a.jsonl", "a.json", "trainer_state.json", "events.out.tfevents.1.h"]
)
PIECES = st.sampled_from(
    [
        *("step,loss\n", '{"step":', '"loss":', '{"log_history": [', '{"loss": 1}\n', "epoch"),
        *("nan", "NaN", "null", "1e999", "-1", "0.5", "9" * 400),
        *(",", ";", "\t", "\n", "\0", "{", "}", "[", "]", '"'),
    ]
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=NAMES, text=st.text() | st.lists(PIECES, max_size=40).map("".join))
def test_no_text_makes_a_reader_raise_anything_but_our_errors(write, name, text):
    file = write(name, text.encode("utf-8", "surrogatepass"))
    with suppress(StabexpError):
        assert stabexp.diagnose(file).used[0].points > 0


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=NAMES, content=st.binary(max_size=300))
def test_no_bytes_make_a_reader_raise_anything_but_our_errors(write, name, content):
    with suppress(StabexpError):
        stabexp.diagnose(write(name, content))
