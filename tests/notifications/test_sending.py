"""One try to tell a receiver: what arrives, what counts as arrived, and what is never told."""

from __future__ import annotations

import json
import os
import time

import pytest

from stabexp.notifications.sending import send
from stabexp.notifications.targets import EventTarget
from stabexp.notifications.trial import trial_payload

DATA = {
    **trial_payload("divergence", "run-1"),
    "step": 7,
    "message": "the loss <left> & stayed",
    "fix": {"optimizer.lr": 0.01},
    "next_command": "stabexp bisect run-1",
    "confidence": None,
}


def sent(tmp_path, data=DATA, environment=None, **settings):
    target = EventTarget(**settings)
    known = {**os.environ, **(environment or {})}
    return send(target, data, environment=known, folder=tmp_path)


def hooked(tmp_path, receiver, **settings):
    environment = {"HOOK": receiver.url, **settings.pop("environment", {})}
    return sent(tmp_path, webhook="${HOOK}", environment=environment, **settings)


def test_a_webhook_gets_the_whole_event_as_json(tmp_path, receiver):
    assert hooked(tmp_path, receiver).arrived
    (request,) = receiver.received
    assert request.json == DATA
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["Idempotency-Key"] == DATA["id"]
    assert request.headers["X-Stabexp-Event"] == "divergence"


def test_slack_gets_one_text_in_which_nothing_is_a_link_or_a_mention(tmp_path, receiver):
    hooked(tmp_path, receiver, format="slack")
    assert receiver.received[0].json == {
        "text": "*run-1: DIVERGED at step 7*\nthe loss &lt;left&gt; &amp; stayed\n"
        "fix: `optimizer.lr: 0.01`\nnext: `stabexp bisect run-1`"
    }


def test_text_is_a_few_plain_lines(tmp_path, receiver):
    hooked(tmp_path, receiver, format="text")
    assert receiver.received[0].body.decode().splitlines() == [
        "run-1: DIVERGED at step 7",
        "the loss <left> & stayed",
        "fix: optimizer.lr: 0.01",
        "next: stabexp bisect run-1",
    ]


@pytest.mark.parametrize(
    ("name", "known", "title"),
    [
        (
            "verdict",
            {"cause": "data", "confidence": 0.913},
            "run-1: the cause is data (confidence 0.91)",
        ),
        ("warning", {}, "run-1: warning of a crash to come, at step 7"),
        ("alarm", {}, "run-1: alarm at step 7"),
        ("recovery", {"status": "gave_up"}, "run-1: recovery gave up"),
        ("end", {"status": "killed"}, "run-1: killed"),
    ],
)
def test_the_first_line_says_it_all(tmp_path, receiver, name, known, title):
    hooked(tmp_path, receiver, format="text", data={**DATA, "event": name, **known})
    assert receiver.received[0].body.decode().splitlines()[0] == title


def test_headers_are_taken_from_the_environment(tmp_path, receiver):
    hooked(
        tmp_path,
        receiver,
        headers={"Authorization": "Bearer ${TOKEN}", "Priority": "high"},
        environment={"TOKEN": "t0ps3cret"},
    )
    headers = receiver.received[0].headers
    assert (headers["Authorization"], headers["Priority"]) == ("Bearer t0ps3cret", "high")


@pytest.mark.parametrize(
    ("status", "arrived", "again"),
    [
        (200, True, True),
        (204, True, True),
        (400, False, False),
        (404, False, False),
        (408, False, True),
        (429, False, True),
        (500, False, True),
        (503, False, True),
    ],
)
def test_an_answer_means(tmp_path, receiver, status, arrived, again):
    receiver.answers = [(status, {})]
    answer = hooked(tmp_path, receiver)
    assert (answer.arrived, answer.again) == (arrived, again)
    assert answer.text.startswith(str(status))


def test_a_receiver_that_asks_to_wait_is_heard(tmp_path, receiver):
    receiver.answers = [(429, {"Retry-After": "17"})]
    assert hooked(tmp_path, receiver).after == 17


def test_a_redirect_on_the_same_host_is_followed_with_the_event(tmp_path, receiver):
    receiver.answers = [(308, {"Location": "/moved"})]
    assert hooked(tmp_path, receiver).arrived
    assert [request.path for request in receiver.received] == ["/hook/s3cr3t-path", "/moved"]
    assert receiver.received[1].json == DATA


@pytest.mark.parametrize(
    "place", ["http://localhost:{port}/x", "http://127.0.0.1:1/x", "file:///x"]
)
def test_a_redirect_to_another_host_is_not_followed(tmp_path, receiver, place):
    receiver.answers = [(307, {"Location": place.format(port=receiver.port)})]
    answer = hooked(tmp_path, receiver)
    assert (answer.arrived, answer.again) == (False, False)
    assert len(receiver.received) == 1


def test_redirects_in_a_circle_end(tmp_path, receiver):
    receiver.answers = [(307, {"Location": "/round"})] * 9
    assert "redirects" in hooked(tmp_path, receiver).text
    assert len(receiver.received) == 4


def test_a_receiver_that_hangs_is_left_at_the_time_limit(tmp_path, receiver):
    receiver.wait = 30
    begun = time.monotonic()
    answer = hooked(tmp_path, receiver, timeout=0.3)
    assert time.monotonic() - begun < 20
    assert (answer.arrived, answer.again) == (False, True)


def test_a_receiver_that_is_down_is_tried_again(tmp_path, down):
    answer = hooked(tmp_path, down)
    assert (answer.arrived, answer.again) == (False, True)
    assert "not reached" in answer.text


def test_a_variable_that_is_not_set_is_named(tmp_path):
    answer = sent(tmp_path, webhook="${NOT_SET_ANYWHERE}")
    assert (answer.text, answer.again) == ("NOT_SET_ANYWHERE is not set", False)


@pytest.mark.parametrize("status", [200, 404, 307])
def test_what_was_secret_is_in_no_answer(tmp_path, receiver, status):
    receiver.answers = [(status, {"Location": receiver.url})]
    answer = hooked(tmp_path, receiver)  # the receiver repeats the secret path
    assert "s3cr3t" not in answer.text
    assert "${HOOK}" in answer.text or status == 307


def test_a_secret_that_is_no_address_is_told_by_its_name(tmp_path):
    answer = sent(tmp_path, webhook="${HOOK}", environment={"HOOK": "s3cr3t nonsense"})
    assert not answer.arrived
    assert "s3cr3t" not in answer.text


def test_a_command_gets_the_event_as_variables(tmp_path):
    line = 'printf "%s|%s|%s|%s|%s" "$STABEXP_EVENT" "$STABEXP_RUN_ID" "$STABEXP_STEP" '
    line += '"$STABEXP_FIX" "$STABEXP_CONFIDENCE" > out; test -n "$STABEXP_EVENT_ID"'
    assert sent(tmp_path, command=line).arrived
    assert (tmp_path / "out").read_text() == 'divergence|run-1|7|{"optimizer.lr": 0.01}|'


def test_a_command_gets_the_event_on_its_standard_input(tmp_path):
    assert sent(tmp_path, command=["sh", "-c", "cat > out"]).arrived
    assert json.loads((tmp_path / "out").read_text()) == DATA


def test_what_is_in_an_event_is_never_run_by_the_shell(tmp_path):
    data = {**DATA, "message": "$(touch pwned); `touch pwned`"}
    assert sent(tmp_path, data=data, command='echo "$STABEXP_MESSAGE" > out').arrived
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_a_program_is_given_its_arguments_as_they_are(tmp_path):
    command = ["sh", "-c", 'printf "%s" "$1" > out', "x", "a b;${WORD}$HOME"]
    assert sent(tmp_path, command=command, environment={"WORD": "*"}).arrived
    assert (tmp_path / "out").read_text() == "a b;*$HOME"


def test_a_command_that_fails_says_how(tmp_path):
    answer = sent(tmp_path, command="echo no such room >&2; exit 3")
    assert (answer.arrived, answer.text) == (False, "exit code 3 no such room")


def test_a_command_that_is_not_there_is_not_tried_again(tmp_path):
    answer = sent(tmp_path, command=["no-such-program-anywhere"])
    assert (answer.arrived, answer.again) == (False, False)
    assert answer.text.startswith("cannot be started")


def test_a_command_that_hangs_is_ended_with_what_it_started(tmp_path):
    line = "trap '' TERM; sleep 300 & echo $! > child; sleep 300"
    answer = sent(tmp_path, command=line, timeout=0.3)
    assert not answer.arrived
    assert answer.text.startswith("ended after 0.3 s")
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 20
    while os.path.exists(f"/proc/{child}") and not _is_zombie(child):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _is_zombie(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_secret_that_a_command_prints_is_not_kept(tmp_path):
    answer = sent(tmp_path, command='echo "my key is ${KEY}"', environment={"KEY": "abc-def-ghi"})
    assert answer.text == "exit code 0 my key is ${KEY}"


def test_a_command_that_reads_nothing_is_fine(tmp_path):
    assert sent(tmp_path, data={**DATA, "message": "x" * 10**6}, command="exec <&-").arrived
