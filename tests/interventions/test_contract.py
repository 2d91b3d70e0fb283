"""What every intervention promises: one file, one class, one name, and "as it is" by default."""

from __future__ import annotations

import pytest

from stabexp.config import Document
from stabexp.errors import ConfigError
from stabexp.interventions import INTERVENTIONS, Intervention, OptimizerOptions, build
from stabexp.plugins import component
from stabexp.records import VARIABLES, Change

DOSES = {
    "learning_rate": 0.5,
    "warmup": 25,
    "clip_norm": 1.0,
    "precision": "fp32",
    "batch_size": 4,
    "shuffle": 1,
    "replace_samples": "3,17",
    "show_samples": "3+5,17",
    "frozen_scan": "3+5,17+5",
    "hold_rate": "on",
    "layer_rate": "encoder=0.1,head=0",
    "weight_decay": 0.5,
    "gradient_scale": 0.25,
    "adam_eps": 1e-6,
    "betas": "0.9,0.95",
    "optimizer_state": "kept",
    "init_scale": 0.5,
    "usual_init": "on",
    "exact_modules": "blocks.1.fc,head",
    "safe_operation": "log@train.py:31,div",
    "eager": "on",
    "standardise_inputs": "on",
    "skip_updates": "1-4,7",
    "loss_clamp": 5.0,
}
QUESTIONS = {
    "learning_rate": "lr_scale",
    "warmup": "lr_scale",
    "clip_norm": "clip_norm",
    "precision": "precision",
    "batch_size": "batch_multiple",
    "shuffle": "shuffle_salt",
    "replace_samples": "replaced_samples",
    "show_samples": "batches",
    "frozen_scan": "freezes batches",
    "hold_rate": "holds_rate",
    "layer_rate": "layer_rates",
    "weight_decay": "weight_decay_scale",
    "gradient_scale": "gradient_scale",
    "adam_eps": "optimizer_options",
    "betas": "optimizer_options",
    "optimizer_state": "keeps_optimizer_state",
    "init_scale": "initial_scale",
    "usual_init": "narrows_weights",
    "exact_modules": "exact_modules",
    "safe_operation": "safe_operations",
    "eager": "eager",
    "standardise_inputs": "standardises_inputs",
    "skip_updates": "skips_update",
    "loss_clamp": "loss_limit",
}


def answers(item):
    return {
        "lr_scale": item.lr_scale(3, warmup_steps=0),
        "clip_norm": item.clip_norm(None),
        "batch_multiple": item.batch_multiple(),
        "precision": item.precision("bf16"),
        "shuffle_salt": item.shuffle_salt(),
        "replaced_samples": item.replaced_samples(),
        "holds_rate": item.holds_rate(),
        "layer_rates": item.layer_rates(),
        "weight_decay_scale": item.weight_decay_scale(),
        "gradient_scale": item.gradient_scale(),
        "optimizer_options": item.optimizer_options() if isinstance(item, OptimizerOptions) else {},
        "keeps_optimizer_state": item.keeps_optimizer_state(),
        "initial_scale": item.initial_scale(),
        "narrows_weights": item.narrows_weights(),
        "exact_modules": item.exact_modules(),
        "safe_operations": item.safe_operations(),
        "eager": item.eager(),
        "standardises_inputs": item.standardises_inputs(),
        "skips_update": [step for step in range(9) if item.skips_update(step)],
        "loss_limit": item.loss_limit(),
        "freezes": item.freezes(),
        "batches": item.batches(),
    }


def test_every_variable_a_bisect_changes_has_an_intervention():
    assert set(VARIABLES) < set(INTERVENTIONS)
    assert set(INTERVENTIONS) == set(DOSES)


@pytest.mark.parametrize("name", INTERVENTIONS)
def test_name_file_and_class_agree_and_the_dose_is_documented(name):
    kind = INTERVENTIONS[name]
    assert kind.variable == name
    assert kind.__module__ == f"stabexp.interventions.{name}"
    assert kind.__name__ == "".join(part.title() for part in name.split("_"))
    assert list(kind.model_fields) == ["dose"]
    assert kind.model_fields["dose"].description
    assert kind.__doc__


@pytest.mark.parametrize("name", INTERVENTIONS)
def test_text_from_a_file_gives_the_same_intervention(name):
    typed = component(INTERVENTIONS, "interventions", name, {"dose": DOSES[name]})
    text = component(INTERVENTIONS, "interventions", name, {"dose": str(DOSES[name])})
    assert typed == text
    assert (
        build([Change(variable=name, dose=DOSES[name])]) == build({name: DOSES[name]}) == (typed,)
    )


@pytest.mark.parametrize("name", INTERVENTIONS)
def test_an_intervention_answers_its_own_question_differently_and_no_other(name):
    plain = answers(Intervention())
    changed = answers(build({name: DOSES[name]})[0])
    assert [key for key in plain if plain[key] != changed[key]] == QUESTIONS[name].split()


@pytest.mark.parametrize(
    ("name", "dose", "message"),
    [
        ("learning_rate", -1, "expected greater than or equal to 0, found -1"),
        ("learning_rate", "much", "expected a valid number, found 'much'"),
        ("warmup", 2.5, "expected a valid integer"),
        ("clip_norm", 0, "expected greater than 0, found 0"),
        ("precision", "fp8", "expected 'fp32', 'bf16'"),
        ("batch_size", 0, "expected greater than or equal to 1, found 0"),
        ("shuffle", -1, "expected greater than or equal to 0"),
        ("replace_samples", "3-5", "expected sample ids, for example 12,55"),
        ("hold_rate", "off", "expected 'on', found 'off'"),
        ("layer_rate", "encoder", "expected each module once with a factor of at least 0"),
        ("layer_rate", "encoder=-1", "for example encoder=0.1,head=0; found 'encoder=-1'"),
        ("layer_rate", "a=1,a=2", "expected each module once"),
        ("weight_decay", -0.1, "expected greater than or equal to 0"),
        ("gradient_scale", "inf", "expected a finite number"),
        ("adam_eps", -1e-8, "expected greater than or equal to 0"),
        ("betas", "0.9", "expected two numbers in [0, 1), for example 0.9,0.95; found '0.9'"),
        ("betas", "0.9,1", "expected two numbers in [0, 1)"),
        ("optimizer_state", "reset", "expected 'kept' or 'fresh', found 'reset'"),
        ("init_scale", 0, "expected greater than 0"),
        ("usual_init", 0.5, "expected 'on', found 0.5"),
        ("exact_modules", "head,", "expected module names, for example blocks.1.fc,head"),
        ("safe_operation", "log@31", "expected operations, for example log or log@train.py:31"),
        ("skip_updates", "20-", "expected steps, for example 20-22,40; found '20-'"),
        ("skip_updates", "9-3", "expected steps"),
        ("skip_updates", "", "expected steps"),
        ("loss_clamp", "inf", "expected a finite number"),
        ("loss_clamp", "high", "expected a valid number, found 'high'"),
        ("lerning_rate", 1, "unknown intervention; did you mean 'learning_rate'?"),
    ],
)
def test_a_wrong_dose_is_refused_with_its_place(name, dose, message):
    with pytest.raises(ConfigError) as caught:
        build({name: dose})
    assert str(caught.value).startswith(f"interventions.{name}")
    assert message in str(caught.value)
    document = Document("exp.yaml", {}, {("interventions", name): 7})
    with pytest.raises(ConfigError, match=rf"^exp\.yaml:7: interventions\.{name}"):
        component(INTERVENTIONS, "interventions", name, {"dose": dose}, document=document)
