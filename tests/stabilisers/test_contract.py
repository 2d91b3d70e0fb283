"""What every stabiliser promises."""

from __future__ import annotations

import pytest
from interventions.foreign_loops import LOOPS, same
from stabilisers.stabilised import STEPS, Fork, facts, foreign, state_of
from training.test_foreign_changes import assert_clean

from stabexp.errors import ConfigError
from stabexp.stabilisers import STABILISERS, Stabiliser, build
from stabexp.state import CheckpointStore

ARGUMENTS = {
    "adaptive_clip": {"warmup": 2, "deviations": 0.1},
    "activation_checkpointing": {"modules": ["encoder"]},
    "danger_window": {"first": 2, "last": 5, "rate": 0.5},
    "freeze": {"modules": ["encoder.0"]},
    "gradual_unfreezing": {"hold": 0.2, "complete": 0.9},
    "layer_clip": {"limits": {"head": 0.1}},
    "loss_clamp": {"limit": 1.0},
    "loss_scaling": {"initial": 2.0**20, "growth_window": 2},
}
"""What makes each of them act in a short training of a small network."""


@pytest.mark.parametrize("name", STABILISERS)
def test_name_file_and_class_agree_and_fields_are_documented(name):
    kind = STABILISERS[name]
    assert issubclass(kind, Stabiliser)
    assert kind.__module__ == f"stabexp.stabilisers.{name}"
    assert kind.__name__ == "".join(part.title() for part in name.split("_"))
    assert all(field.description for field in kind.model_fields.values())
    assert isinstance(build({name: ARGUMENTS.get(name)})[name], kind)


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("name", STABILISERS)
def test_a_replay_from_the_middle_is_exact_and_nothing_is_left_behind(tmp_path, name, loop):
    given = {name: ARGUMENTS.get(name, {})}
    with CheckpointStore(tmp_path) as store:
        records, run, _ = foreign(loop, given, store=store)
    assert len(records) == STEPS
    assert_clean(run.trained)
    assert all(p.requires_grad for p in run.trained.model.parameters())
    for step in (3, 6):
        fork = Fork(checkpoints=tmp_path, step=step, records=records[:step])
        again, replayed, _ = foreign(loop, given, fork=fork)
        assert facts(again) == facts(records[step:])
        assert same(state_of(replayed.trained), state_of(run.trained)) == ""


@pytest.mark.parametrize(
    ("stabilisers", "message"),
    [
        ({"adaptive_clipping": {}}, "unknown stabiliser; did you mean 'adaptive_clip'?"),
        ({"adaptive_clip": {"kind": "mean"}}, "adaptive_clip.kind: expected 'mean_deviation', "),
        ({"loss_scaling": {"factor": 1}}, "factor: expected greater than 1, found 1"),
        ({"gradual_unfreezing": {"hold": 0.6}}, "complete 0.5 comes before hold 0.6"),
    ],
)
def test_a_wrong_name_or_argument_is_refused(stabilisers, message):
    with pytest.raises(ConfigError) as caught:
        build(stabilisers)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("stabilisers", "message"),
    [
        ({"freeze": {"modules": ["vae"]}}, "freeze.modules: no parameter of the model is in 'vae'"),
        ({"freeze": {"modules": ["*"]}}, "every parameter is frozen, so nothing would train"),
        ({"layer_clip": {"limits": {"atention": 1}}}, "limits.atention: no parameter of the model"),
        ({"layer_clip": {"limits": {"head": -1}}}, "limits.head: expected a number above 0"),
        ({"logit_temperature": {"module": "heat"}}, "no module 'heat'; did you mean 'head'?"),
        ({"keep_fp32": {"modules": ["heat"]}}, "no module 'heat'; did you mean 'head'?"),
        ({"activation_checkpointing": {}}, "no list of blocks; name modules, such as encoder, "),
    ],
)
def test_what_does_not_fit_the_model_is_refused(stabilisers, message):
    with pytest.raises(ConfigError) as caught:
        foreign("own order", stabilisers)
    assert message in str(caught.value)
