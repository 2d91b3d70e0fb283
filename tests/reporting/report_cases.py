"""Reports of every kind of verdict, made of records alone, for the tests of their forms."""

from __future__ import annotations

import base64
import math
import random
import runpy
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from stabexp.records import (
    Change,
    Culprit,
    Evidence,
    Hypothesis,
    SamplePart,
    SampleView,
    StepRecord,
    TrialRecord,
    TrialSpec,
)
from stabexp.reporting import Report

_EXAMPLE = runpy.run_path(str(Path(__file__).with_name("bisect_example.py")))
bisect: Callable[[], Any] = _EXAMPLE["bisect"]
EXPERIMENT: str = _EXAMPLE["EXPERIMENT"]
LAYERS = ("embed", "blocks.0.attn", "blocks.0.mlp", "blocks.1.attn", "blocks.1.mlp", "head")


def png(pixels: list[list[int]]) -> str:
    """Return rows of grey values, 0 to 255, as a base64 PNG."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", len(pixels[0]), len(pixels), 8, 0, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + bytes(row) for row in pixels), 9)
    data = (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    )
    return base64.b64encode(data).decode()


def near(first: int = 100, onset: int = 133, last: int = 141) -> list[StepRecord]:
    """Return steps around the onset with every layer measured; the head loses it first."""
    noise = random.Random(4)
    found = []
    for step in range(first, last + 1):
        layers = {}
        for depth, name in enumerate(LAYERS):
            norm = 0.4 * 0.8**depth * math.exp(noise.gauss(0, 0.2))
            if step >= onset:
                norm *= math.exp((step - onset + 1) * (0.4 + 0.25 * depth))
            if name == "head" and step >= last - 1:
                norm = math.nan
            layers[name] = {"grad_norm": norm, "weight_norm": 3.0}
        found.append(
            StepRecord(step=step, time=0.0, loss=2.0, lr=0.03, grad_norm=1.0, layers=layers)
        )
    return found


def setting() -> Report:
    """Return the report on a rate that was too high, with layers, links and fingerprint."""
    made = bisect()
    return made.report(
        near=near(),
        experiment=EXPERIMENT,
        links={record.spec.key: "http://localhost:9/run" for record in made.trials},
        fingerprint={"torch": "2.9", "device": "cpu"},
    )


def _walked(*, last: str, detail: str, trials: tuple[str, ...] = (), answer: str = "yes") -> Any:
    """Return the path of the tree down to a node."""
    from stabexp.bisection.decision_tree import TREE

    path = []
    for name, node in TREE.items():
        ended = name == last
        usual = "yes" if name == "control" else "no"
        path.append(
            Evidence(
                node=name,
                question=node.question,
                answer=answer if ended else usual,
                detail=detail if ended else "nothing speaks for it",
                trials=trials if ended else (),
                decisive=ended,
            )
        )
        if ended:
            return tuple(path)
    raise AssertionError(last)


def _told(made: Any, **changes: Any) -> Report:
    plain = {"cures": (), "ruled_out": (), "fix": {}, "fix_proved": False}
    more = {key: changes.pop(key) for key in list(changes) if key in {"samples", "near"}}
    return replace(
        made.report(experiment=EXPERIMENT, **more),
        verdict=replace(made.verdict, **plain, **changes),
    )


def _digit(seed: int) -> str:
    noise = random.Random(seed)
    return png([[noise.randrange(256) for _ in range(8)] for _ in range(8)])


def data(count: int = 3) -> Report:
    """Return the report on bad samples: pictures with a label, and numbers that are NaN."""
    made = bisect()

    def sample(number: int, blamed: bool) -> SampleView:
        values = tuple(float(at % 7) for at in range(20))
        return SampleView(
            sample=number,
            blamed=blamed,
            step=130 if blamed else 4,
            parts=(
                SamplePart(
                    name="image",
                    kind="image",
                    image=_digit(number),
                    shape=(8, 8),
                    dtype="float32",
                    unusual="largest value 4,096, 256 times the usual" if blamed else "",
                ),
                SamplePart(
                    name="features",
                    kind="numbers",
                    text="20 numbers, 0 to 6",
                    values=(*values[:5], math.nan, math.inf, 4e9) if blamed else values,
                    shape=(20,),
                    dtype="float32",
                    unusual="2 of 20 values are not finite" if blamed else "",
                ),
                SamplePart(name="label", kind="numbers", text="3", values=(3.0,), dtype="int64"),
            ),
        )

    culprits = tuple(range(40, 40 + count))
    return _told(
        made,
        cause="data",
        summary=f"The data is at fault, not a setting: without {count} samples it trains through.",
        path=_walked(last="data", detail="without them it trains through", trials=(_key(made, 0),)),
        culprit=Culprit(
            kind="samples",
            place=f"samples {', '.join(map(str, culprits))}",
            detail="far too bright",
            remedy="Repair or drop them",
            samples=culprits,
        ),
        samples=[
            *(sample(number, True) for number in culprits),
            *(sample(number, False) for number in (7, 8)),
        ],
    )


def texts() -> Report:
    """Return the report on bad samples that are texts in several scripts."""
    written = [
        ("学习率过高，损失发散。" * 3, "all labels are ignored"),
        ("هذا نص عربي مع رقم 42 في الوسط", ""),
        ("שלום עולם", "12 times as long as usual"),
        ("loss 🔥🔥 went 📈 nan", "4 of 20 characters are no text"),
        ("   \t ", "nothing but spaces"),
        ("ทดสอบข้อความภาษาไทย ", ""),
        ("wordwithoutanyspace" * 200, "very long"),
    ]
    made = bisect()
    return _told(
        made,
        cause="data",
        run_id="训练-خسارة-🔥",
        summary="数据有问题，而不是设置：没有样本 3 和 5，训练就会继续下去。",
        telemetry="data: 损失在第 133 步突然上升",
        path=_walked(last="data", detail="بدون هذه العينات يستمر التدريب"),
        culprit=Culprit(kind="samples", place="samples 3, 5", detail="空的标签", samples=(3, 5)),
        next_command="stabexp run 实验/训练.yaml",
        samples=[
            SampleView(
                sample=at,
                blamed=at < 5,
                parts=(
                    SamplePart(name="文本", kind="text", text=text, unusual=unusual),
                    SamplePart(name="pixel_values", kind="unknown", text="a PIL mode nobody knows"),
                ),
            )
            for at, (text, unusual) in enumerate(written)
        ],
    )


def implementation() -> Report:
    """Return the report on an operation that made the first NaN, with its line of code."""
    return _told(
        bisect(),
        cause="implementation",
        summary="The fault is in the training code: log of 0 is -inf, in head at train.py:31.",
        path=_walked(last="operation", detail="log of 0 is -inf, in head at train.py:31"),
        culprit=Culprit(
            kind="log_of_zero",
            place="log at train.py:31, in head, forward",
            detail="the log of 3 of 512 numbers that are 0",
            remedy="clamp before the log",
            code="    loss = -(p.log() * targets).sum()",
        ),
        near=near(),
    )


def inconclusive() -> Report:
    """Return a report that names no cause: the tree was asked to its end."""
    return _told(
        bisect(),
        cause="inconclusive",
        confidence=0.0,
        summary="No cause could be proved: no dose of any variable cures robustly.",
        path=_walked(last="joint", detail="no pair cures", answer="no"),
        hypotheses=(
            Hypothesis(cause="learning_rate", why="×0.5 delays the crash", weight=0.4),
            Hypothesis(cause="data", why="one batch stood out", weight=0.3),
        ),
    )


def contradicted() -> Report:
    """Return a report whose answer did not stand: the crash did not come back."""
    made = bisect()
    path = tuple(
        replace(node, answer="no", detail="it stayed stable", decisive=True)
        if node.node == "reversal"
        else replace(node, decisive=False)
        for node in made.verdict.path
    )
    return _told(made, cause="inconclusive", confidence=0.0, path=path)


def not_reproduced() -> Report:
    """Return the report on a run whose unchanged replay goes another way; nothing was measured."""
    made = bisect()
    control = replace(
        made.trials[0], mismatch=124, mismatch_field="loss", mismatch_tensor="head.weight"
    )
    early = made._replace(
        trials=[control], trial_steps={control.spec.key: made.trial_steps[control.spec.key]}
    )
    return _told(
        early,
        cause="not_reproduced",
        summary="The crash is not reproducible, so no setting can be blamed.",
        path=_walked(last="control", detail="it differs from step 124", answer="no"),
    )


def silent() -> Report:
    """Return the report on a run that did not diverge, and whose step keeps its rules."""
    from stabexp.bisection.decision_tree import SILENT_TREE

    made = bisect()
    early = made._replace(trials=[], trial_steps={})
    return _told(
        early,
        cause="inconclusive",
        confidence=0.0,
        summary="Nothing was found that is wrong with the training step of this run.",
        divergence=replace(made.verdict.divergence, detector="none"),
        path=tuple(
            Evidence(
                node=name,
                question=node.question,
                answer="yes" if name == "control" else "no",
                detail="none is broken",
                decisive=name == "overfitting",
            )
            for name, node in SILENT_TREE.items()
        ),
    )


def large(trials: int = 200, steps: int = 800) -> Report:
    """Return the report on a bisect of very many trials of a wide network."""
    made = bisect()
    noise = random.Random(3)
    more, more_steps = [], {}
    for number in range(len(made.trials), trials):
        dose = 0.9 - 0.8 * number / trials
        spec = TrialSpec(
            role="dose",
            changes=(Change(variable="learning_rate", dose=dose),),
            from_step=120,
            until_step=120 + steps,
            reason="does it cure?",
        )
        more.append(
            TrialRecord(
                spec=spec,
                outcome="cured",
                last_step=119 + steps,
                start_loss=2.2,
                end_loss=1.5 + dose,
                number=number,
            )
        )
        more_steps[spec.key] = [
            StepRecord(
                step=120 + at,
                time=0.0,
                loss=2.0 + noise.gauss(0, 0.1),
                lr=0.03,
                grad_norm=math.exp(noise.gauss(0, 0.3)),
            )
            for at in range(steps)
        ]
    return replace(
        made.report(near=near(), experiment=EXPERIMENT),
        trials=[*made.trials, *more],
        trial_steps={**made.trial_steps, **more_steps},
    )


def _key(made: Any, at: int) -> str:
    key: str = made.trials[at].spec.key
    return key


CASES: dict[str, Callable[[], Report]] = {
    "setting": setting,
    "data": data,
    "texts": texts,
    "implementation": implementation,
    "inconclusive": inconclusive,
    "contradicted": contradicted,
    "not_reproduced": not_reproduced,
    "silent": silent,
    "large": large,
}
