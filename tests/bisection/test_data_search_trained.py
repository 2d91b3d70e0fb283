"""Real trainings crash on broken samples, and the search names exactly these."""

from __future__ import annotations

import copy
import dataclasses
import math

import pytest
import torch
from torch import nn

from stabexp import detectors
from stabexp.bisection.data_case import DataTable, answer_of, deviations, flagged, scores_of
from stabexp.bisection.data_search import decision, next_question
from stabexp.bisection.judging import judge_trial
from stabexp.records import StepRecord, TrialRecord, TrialSpec
from stabexp.tasks.data import InMemory
from stabexp.tasks.digits import digits
from stabexp.tasks.mlp import MLP
from stabexp.training.data import SampleOrder

BATCH, PARTNERS = 32, 7


class Training:
    """A plain loop over digits, some of them far too bright or infinite, and wrongly labelled."""

    def __init__(self, broken, *, norm="none", lr=0.05, factor=1000.0, seed=0):
        self.task = MLP(width=32, depth=1, norm=norm)
        images, labels = (column.clone() for column in digits())
        images[list(broken)] *= factor
        labels[list(broken)] = (labels[list(broken)] + 5) % 10
        self.data = InMemory(images, labels)
        self.seed = seed
        torch.manual_seed(seed)
        self.model = self.task.model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr, momentum=0.9)
        self.saved = {}
        self.records = []

    def save(self, step):
        self.saved[step] = copy.deepcopy((self.model.state_dict(), self.optimizer.state_dict()))

    def restore(self, step):
        model, optimizer = copy.deepcopy(self.saved[step])
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)

    def step(self, index, ids, *, frozen=False):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.task.loss(self.model, self.data.batch(ids))
        loss.backward()
        norm = nn.utils.get_total_norm(
            [p.grad for p in self.model.parameters()], error_if_nonfinite=False
        )
        if not frozen:
            self.optimizer.step()
        return StepRecord(
            step=index,
            time=0.0,
            loss=loss.item(),
            lr=0.05,
            grad_norm=norm.item(),
            sample_ids=tuple(ids),
        )

    def run(self, first, steps, *, replaced=frozenset(), show=(), save_every=0, before=()):
        """Return the records and the finding of a training from a saved step, or from step 0."""
        order = SampleOrder(len(self.data), seed=self.seed, replaced=replaced)
        watching = detectors.build({"loss_spike": {}, "non_finite": {}})
        records = [r for r in before or self.records if r.step < first]
        for index in range(first, first + steps):
            if save_every and index % save_every == 0:
                self.save(index)
            ids = order.ids(BATCH * index, BATCH)
            if index - first < len(show):
                ids = list(show[index - first])
            records.append(self.step(index, ids))
            found = detectors.judge(watching, records)
            if found is not None:
                return records, found
        return records, None

    def answer(self, first, steps, **given):
        self.restore(first)
        records, found = self.run(first, steps, **given)
        own = [record for record in records if record.step >= first]
        before = given.get("before") or self.records
        spec = TrialSpec(role="data", from_step=first, until_step=first + steps)
        judged = judge_trial(
            spec,
            own,
            found,
            original=before,
            crash=self.crash,
            trivial_loss=math.log(10),
        )
        record = TrialRecord(
            spec=spec, outcome=judged.outcome, last_step=own[-1].step, divergence=found
        )
        if judged.outcome == "cured":
            self.save("cured")
            self.cured = records
        return answer_of(record, own)

    def scan(self, first, ids):
        """Return the scores of samples at a saved state, each in the company of the same few."""
        company = list(range(PARTNERS)) if self.task.norm == "batch" else []
        records = []
        for index, sample in enumerate(ids):
            self.restore(first)
            records.append(self.step(index, [sample, *company], frozen=True))
        return scores_of(records)


def search(training, *, steps=200):
    """Train until it crashes, then ask until it is known why; return all that was seen."""
    training.records, found = training.run(0, steps, save_every=10)
    training.crash = found
    assert found is not None, "the training did not crash"
    good = max(step for step in training.saved if step <= found.onset - 3)
    horizon = 4 * (found.detected - good) + 20
    control = training.answer(good, horizon)
    assert (control.onset, control.detected) == (found.onset, found.detected)
    order = SampleOrder(len(training.data), seed=training.seed)
    span = range(max(good, found.onset - 6), found.detected + 4)
    scan = training.scan(good, sorted({i for s in span for i in order.ids(BATCH * s, BATCH)}))
    table = DataTable(control=control, dataset_size=len(training.data), scan=scan)
    kinds = [("control", good, control.onset, control.detected)]
    while (question := next_question(table)) is not None:
        if question.show:  # at the end of the replay that trained through without them
            end = training.cured[-1].step + 1
            training.saved[end] = training.saved["cured"]
            given = {"show": question.show, "before": training.cured}
            answer = training.answer(end, horizon, replaced=question.replace, **given)
        else:
            answer = training.answer(good, horizon, replaced=question.replace)
        kinds.append((question.kind, len(question.replace), answer.outcome, answer.onset))
        table = dataclasses.replace(table, answers={**table.answers, question: answer})
    return decision(table), kinds, deviations(scan)


CASES = {
    "one, found by the scan": ((1234,), {}),
    "one, hardly seen by the scan": ((1234,), {"seed": 1}),
    "one, in an early crash": ((1234,), {"seed": 2}),
    "two in different steps": ((77, 1234), {"seed": 1}),
    "one not finite, with batch statistics": ((1234,), {"norm": "batch", "factor": math.inf}),
    "two not finite, with batch statistics": (
        (77, 1234),
        {"norm": "batch", "factor": math.inf, "seed": 1},
    ),
}


@pytest.mark.parametrize(("broken", "given"), CASES.values(), ids=CASES)
def test_the_search_names_the_broken_samples_of_a_real_training(broken, given):
    found, _, _ = search(Training(broken, **given))
    assert found.verdict == "bad_data", found
    assert found.samples == broken
    assert found.exact
    assert not found.joint
    assert found.replays <= 12


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_a_scan_tells_the_broken_sample_from_hard_ones(norm):
    training = Training((1234,), norm=norm, factor=math.inf if norm == "batch" else 1000.0)
    training.records, _ = training.run(0, 40, save_every=10)
    z = deviations(training.scan(20, [1234, *range(200, 400)]))
    assert flagged(z) == (1234,)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, (broken, given) in {**CASES, "chance": ((77, 1234), {"seed": 2})}.items():
        found, told, z = search(Training(broken, **given))
        top = sorted(z.items(), key=lambda item: -item[1])[:3]
        print(name, found, told, top, sep="\n  ")
