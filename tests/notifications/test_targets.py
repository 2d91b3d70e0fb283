"""What may stand under `on_event`, and that no secret is written there or repeated anywhere."""

from __future__ import annotations

import pytest

from stabexp.config import parse_document, validate
from stabexp.errors import ConfigError
from stabexp.experiment import Experiment
from stabexp.notifications.secrets import Secrets
from stabexp.notifications.targets import EventTarget

HEAD = "name: x\ntask: mlp\noptimizer: {name: sgd, lr: 0.1}\n"


def targets(text):
    return validate(Experiment, parse_document(HEAD + text, name="exp.yaml")).on_event


@pytest.mark.parametrize(
    ("text", "on"),
    [
        pytest.param("on_event: [{command: x}]", ["divergence", "verdict"], id="the usual two"),
        pytest.param("on_event: [{on: end, command: x}]", ["end"], id="one by its name"),
        pytest.param("on_event: {on: [alarm, end], command: x}", ["alarm", "end"], id="one entry"),
    ],
)
def test_an_entry_says_what_is_told(text, on):
    assert [target.on for target in targets(text)] == [on]


@pytest.mark.parametrize("text", ["", "on_event: []", "on_event: null"])
def test_nobody_is_told_by(text):
    assert targets(text) == []


@pytest.mark.parametrize(
    "entry",
    [
        "webhook: '${HOOK}'",
        "webhook: 'https://chat.example.org/${PATH_OF_HOOK}'",
        "webhook: http://localhost:8080/hook",
        "webhook: 'http://[::1]:8080/hook'",
        "{webhook: '${H}', headers: {Authorization: 'Bearer ${TOKEN}', Priority: high}}",
        "command: [mail, -s, stabexp, someone@example.org]",
        "command: 'curl -d @- \"$HOOK\"'",
        "command: 'curl -H \"Authorization: Bearer $TOKEN\" https://example.org/api/v1/notify'",
        "command: python tell.py --room stability-of-training",
        "command: [sbatch, --export=ALL, /home/me/projects/gpt2-small-1024/next.sh]",
    ],
)
def test_no_secret_is_seen_in(entry):
    entry = entry if entry.startswith("{") else f"{{{entry}}}"
    assert len(targets(f"on_event: [{entry}]")) == 1


SECRETS = [
    "webhook: https://hooks.example.org/services/T0/B0/s3cr3tS3CR3Ts3cr3t",
    "webhook: https://ntfy.example.org/s3cr3t",
    "webhook: 'http://me:s3cr3t@localhost/x'",
    "webhook: 'http://localhost/s3cr3tS3CR3Ts3cr3t'",
    "webhook: 'https://x.example.org/s3cr3tS3CR3Ts3cr3t/${ROOM}'",
    "command: 'curl -u me https://me:s3cr3t@example.org'",
    "command: 'curl -H \"Authorization: Bearer s3cr3tS3CR3T\" https://example.org'",
    "command: [curl, 'https://hooks.example.org/services/T0/s3cr3tS3CR3Ts3cr3t']",
    "command: [tell, --token=s3cr3t]",
    "command: 'PASSWORD=s3cr3t tell'",
    "{webhook: '${H}', headers: {Authorization: s3cr3t}}",
    "{webhook: '${H}', headers: {X-Api-Key: s3cr3t}}",
]


@pytest.mark.parametrize("entry", SECRETS)
def test_a_secret_is_refused_and_not_repeated(entry):
    entry = entry if entry.startswith("{") else f"{{{entry}}}"
    with pytest.raises(ConfigError) as error:
        targets(f"on_event: [{entry}]")
    assert "s3cr3t" not in str(error.value).lower()
    assert "environment variable" in str(error.value)


@pytest.mark.parametrize("entry", SECRETS)
def test_a_secret_on_the_command_line_is_not_repeated_either(stabexp_command, tmp_path, entry):
    (tmp_path / "exp.yaml").write_text(HEAD)
    entry = entry if entry.startswith("{") else f"{{{entry}}}"
    done = stabexp_command("run", "exp.yaml", "-o", f"on_event=[{entry}]")
    assert done.code == 2
    assert "s3cr3t" not in (done.out + done.errors).lower()


@pytest.mark.parametrize(
    "value",
    [
        "https://s3cr3t",
        "[https://s3cr3t]",
        "[{webhook: [s3cr3t]}]",
        "[{command: {a: s3cr3t}}]",
        "{webhook: s3cr3t",
        "[[s3cr3t]]",
    ],
)
def test_a_value_of_the_wrong_kind_is_not_repeated(stabexp_command, tmp_path, value):
    (tmp_path / "exp.yaml").write_text(HEAD)
    done = stabexp_command("run", "exp.yaml", "-o", f"on_event={value}")
    assert done.code == 2
    assert "s3cr3t" not in (done.out + done.errors).lower()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{on: verdict}", "exp.yaml:5: on_event.0: give either command: or webhook:"),
        ("{command: x, webhook: '${H}'}", "exp.yaml:5: on_event.0: give either"),
        ("{command: x, headers: {A: b}}", "exp.yaml:5: on_event.0.headers: are for a webhook"),
        ("{on: verdicts, command: x}", "exp.yaml:5: on_event.0.on.0: expected 'divergence'"),
        ("{on: [], command: x}", "exp.yaml:5: on_event.0.on: expected"),
        ("{comand: x}", "exp.yaml:5: on_event.0.comand: unknown key; did you mean 'command'?"),
        ("{command: ' '}", "exp.yaml:5: on_event.0.command: is empty"),
        ("{command: []}", "exp.yaml:5: on_event.0.command: is empty"),
        ("{webhook: '${H'}", "exp.yaml:5: on_event.0.webhook: has a ${ without a name"),
        ("{webhook: $HOOK}", "exp.yaml:5: on_event.0.webhook: expected ${NAME}"),
        ("{command: x, timeout: 0}", "exp.yaml:5: on_event.0.timeout: expected"),
        ("{command: x, format: xml}", "exp.yaml:5: on_event.0.format: expected 'json'"),
        (
            "{webhook: '${H}', headers: {A: \"b\\nC: d\"}}",
            "exp.yaml:5: on_event.0.headers: a header",
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(entry, message):
    with pytest.raises(ConfigError) as error:
        targets(f"on_event:\n  - {entry}")
    assert str(error.value).startswith(message)


def test_a_receiver_is_the_same_wherever_it_stands_and_whatever_it_is_told():
    one = EventTarget(on=["end"], command="x", timeout=3)
    assert one.key == EventTarget(on=["verdict"], command="x").key
    assert one.key != EventTarget(on=["end"], command="y").key


@pytest.mark.parametrize(
    ("value", "told"),
    [
        pytest.param("https://h.example/a/tok123456", "at tok123456 and /a/tok123456", id="parts"),
        pytest.param("plain-secret", "is plain-secret!", id="whole"),
        pytest.param("https://h.example/x?key=abcdef", "key=abcdef", id="a query"),
    ],
)
def test_a_secret_is_taken_out_of_a_text(value, told):
    hidden = Secrets({"NAME": value}).hidden(told, ["NAME"])
    assert "${NAME}" in hidden
    for part in ("tok123456", "plain-secret", "abcdef"):
        assert part not in hidden


def test_what_is_told_does_not_change_the_course_of_a_training():
    plain = validate(Experiment, parse_document(HEAD))
    told = validate(Experiment, parse_document(HEAD + "on_event: [{command: x}]"))
    assert plain.digest() == told.digest()
