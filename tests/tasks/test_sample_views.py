"""Samples of real data are shown as what they are, and what is wrong with one is said."""

from __future__ import annotations

import argparse
import base64
import inspect
import io
import json
import textwrap
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits, load_sample_images
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from stabexp.records import SampleView, from_json, to_json
from stabexp.tasks import Task
from stabexp.tasks.mlp import MLP
from stabexp.tasks.sample_parts import measured_parts
from stabexp.tasks.sample_views import Showing, sample_views
from stabexp.tasks.text import TextTask

DIGITS = torch.from_numpy(load_digits().images).float() / 16
CJK = "損失関数が発散した。학습이 발산했다. 损失函数发散了。"
PROSE = [
    paragraph for paragraph in inspect.getsource(textwrap).split("\n\n") if len(paragraph) > 80
]
ORDINARY = range(16)


def parts(sample, **how):
    return [measured.part for measured in measured_parts(sample, **how)]


def opened(image: str) -> Image.Image:
    picture = Image.open(io.BytesIO(base64.b64decode(image)))
    picture.load()
    return picture


def views(samples, suspects, *, ordinary=ORDINARY, **how):
    return sample_views(samples.__getitem__, suspects, ordinary=ordinary, showing=Showing(**how))


def with_sample(samples, sample, *, at=20):
    """Return samples of which one is another."""
    changed = list(samples)
    changed[at] = sample
    return changed


def marks(samples, sample):
    """Return what is said about the parts of one sample among ordinary ones."""
    (view, *_) = views(with_sample(samples, sample), [20])
    return [part.unusual for part in view.parts]


def test_a_digit_is_a_picture_of_itself():
    (image, label) = parts((DIGITS[3][None], 3))
    picture = np.asarray(opened(image.image))
    assert (image.kind, image.shape, label.text) == ("image", (1, 8, 8), "3")
    assert picture.shape == (64, 64)  # each value a square, so that one sees something
    assert np.array_equal(picture[::8, ::8], np.round(DIGITS[3].numpy() * 255))


FLOWER = load_sample_images().images[1]


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(lambda image: image, id="array, channels last"),
        pytest.param(Image.fromarray, id="PIL"),
        pytest.param(lambda image: torch.tensor(image).movedim(-1, 0), id="bytes, channels first"),
        pytest.param(lambda image: torch.tensor(image).movedim(-1, 0) / 255, id="fractions"),
        pytest.param(
            lambda image: torch.tensor(image).movedim(-1, 0)[None].long(), id="frames of integers"
        ),
    ],
)
def test_a_photo_is_a_picture_whatever_holds_it(form):
    (part,) = parts(form(FLOWER))
    picture = opened(part.image)
    usual = Image.fromarray(FLOWER).resize(picture.size, Image.Resampling.BOX)
    assert (part.kind, max(picture.size)) == ("image", 256)
    assert np.abs(np.asarray(picture, float) - np.asarray(usual, float)).mean() < 2


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "CMYK", "I;16", "F"])
def test_every_kind_of_picture_is_shown(mode):
    grey = Image.fromarray(np.full((20, 30), 200, np.uint8))
    (part,) = parts(grey.convert("L").convert(mode) if mode != "I;16" else grey.convert("I;16"))
    assert part.kind == "image"
    assert opened(part.image).width >= 60


def test_a_picture_that_is_far_too_bright_still_shows_what_it_is():
    usual, bright = (parts(DIGITS[5] * factor)[0].image for factor in (1, 1000))
    assert np.array_equal(np.asarray(opened(usual)), np.asarray(opened(bright)))


def test_one_hot_pixel_does_not_leave_the_rest_black():
    image = DIGITS[5].clone()
    image[0, 0] = 1e6
    assert np.asarray(opened(parts(image)[0].image)).std() > 50


def test_values_that_are_not_finite_are_red():
    image = DIGITS[5].clone()
    image[2, 3] = float("nan")
    picture = np.asarray(opened(parts(image)[0].image))
    assert tuple(picture[2 * 8 + 4, 3 * 8 + 4]) == (220, 30, 30)
    assert tuple(picture[0, 0]) != (220, 30, 30)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(torch.randn(64), id="a vector"),
        pytest.param(torch.randn(3, 4), id="a small matrix"),
        pytest.param(torch.randn(4, 500), id="a strip"),
        pytest.param(torch.zeros(0), id="nothing"),
        pytest.param(torch.arange(784), id="784 token ids"),
        pytest.param(torch.tensor([1 + 2j]), id="complex"),
        pytest.param(torch.eye(4).to_sparse(), id="sparse"),
        pytest.param([1.5, 2.5], id="a list"),
        pytest.param([[1, 2], [3, 4]], id="rows"),
        pytest.param(np.float64(3), id="a NumPy number"),
        pytest.param(np.arange(4, dtype=">u2"), id="bytes in the other order"),
        pytest.param(True, id="a truth value"),
    ],
)
def test_what_is_no_picture_is_numbers(value):
    (part,) = parts(value)
    assert part.kind == "numbers"
    assert part.text


Point = namedtuple("Point", "x y")


@dataclass
class Pair:
    question: str
    answer: str


@pytest.mark.parametrize(
    ("sample", "names"),
    [
        pytest.param(DIGITS[0], [""], id="one tensor"),
        pytest.param((DIGITS[0], 1), ["0", "1"], id="tuple"),
        pytest.param({"a": DIGITS[0], "b": {"c": "x", "d": None}}, ["a", "b.c"], id="nested dict"),
        pytest.param(Point(1, 2), ["x", "y"], id="named tuple"),
        pytest.param(Pair("why?", "so"), ["question", "answer"], id="dataclass"),
        pytest.param({"choices": ["yes", "no"]}, ["choices.0", "choices.1"], id="list of texts"),
    ],
)
def test_parts_are_named_by_their_place(sample, names):
    assert [part.name for part in parts(sample)] == names


@pytest.mark.parametrize("text", [CJK, PROSE[0], "emoji 🙂 e\u0301", ""])
def test_text_is_shown_as_it_is_in_any_script(text):
    (part,) = parts({"text": text})
    assert (part.kind, part.text) == ("text", text)


def test_bytes_are_text_where_they_are_text():
    assert parts(CJK.encode())[0].text == CJK
    assert parts(b"\xff\xfe\x00\x01")[0].text == "4 bytes, beginning with ff fe 00 01"


def test_what_is_long_is_cut():
    (text, numbers) = parts((CJK * 500, torch.randn(9000)))
    assert text.text.endswith(f"… ({len(CJK) * 500:,} characters in all)")
    assert len(text.text) < 2100
    assert len(numbers.values) == 512
    assert len(parts({str(i): i for i in range(1000)})) == 25


class Locked:
    def __array__(self, *args, **kwargs):
        raise RuntimeError("the file is locked\nby somebody")


def test_what_cannot_be_shown_says_why_and_the_rest_is_shown():
    odd, locked, label = parts((object(), Locked(), 7))
    assert odd.text == "a value of type object, which cannot be shown"
    assert locked.text == "cannot be shown: RuntimeError: the file is locked"
    assert label.text == "7"


def bpe(texts) -> Tokenizer:
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel()
    from tokenizers.decoders import ByteLevel as Decoder

    tokenizer.decoder = Decoder()
    tokenizer.train_from_iterator(texts, BpeTrainer(vocab_size=400, show_progress=False))
    return tokenizer


def test_token_ids_are_shown_as_their_text_and_ignored_labels_left_out():
    tokenizer = bpe([*PROSE, CJK])
    ids = tokenizer.encode(PROSE[1]).ids
    sample = {
        "input_ids": torch.tensor(ids),
        "labels": torch.tensor([-100, -100, *ids[2:]]),
        "attention_mask": [1] * len(ids),
    }
    tokens, labels, mask = parts(sample, decode=tokenizer.decode)
    assert tokens.text.strip() == PROSE[1].strip()
    assert tokens.values[:3] == tuple(map(float, ids[:3]))
    assert PROSE[1].strip().endswith(labels.text.strip())
    assert mask.kind == "numbers"


def test_token_ids_without_a_tokenizer_or_beyond_it_are_numbers():
    def refuse(ids):
        raise OverflowError(ids)

    sample = {"input_ids": [5, 6, 7]}
    assert parts(sample)[0].kind == parts(sample, decode=refuse)[0].kind == "numbers"


IMAGES = [
    (image[None], int(label)) for image, label in zip(DIGITS, load_digits().target, strict=True)
]
TEXTS = [{"text": (PROSE * 4)[i % len(PROSE)], "label": i % 2} for i in range(40)]
NAN = DIGITS[20][None].clone()
NAN[0, 0, :3] = float("nan")
BOTH = NAN.clone()
BOTH[0, 1, 0] = float("inf")
LABELLED = [
    (torch.randn(8, generator=torch.Generator().manual_seed(i)), torch.arange(i, i + 6))
    for i in range(40)
]


@pytest.mark.parametrize(
    ("samples", "sample", "said"),
    [
        pytest.param(IMAGES, IMAGES[30], ["", ""], id="ordinary"),
        pytest.param(IMAGES, (NAN, 1), ["3 of 64 values are NaN", ""], id="NaN"),
        pytest.param(
            IMAGES, (BOTH, 1), ["of 64 values 3 are NaN and 1 is infinite", ""], id="both"
        ),
        pytest.param(IMAGES, (NAN * float("nan"), 1), ["all 64 values are NaN", ""], id="all NaN"),
        pytest.param(
            IMAGES,
            (DIGITS[20][None] * 1000, 1),
            ["values up to 1000, 1,000 × the usual 1", ""],
            id="too bright",
        ),
        pytest.param(
            IMAGES,
            (DIGITS[20][None] / 1e4, 1),
            ["values only up to 0.0001, usually 0.9375 and more", ""],
            id="too dark",
        ),
        pytest.param(IMAGES, (NAN[:] * 0 + 1, 1), None, id="NaN and constant"),
        pytest.param(
            IMAGES, (torch.zeros(1, 8, 8), 1), ["every value is 0", ""], id="constant picture"
        ),
        pytest.param(
            IMAGES, (DIGITS[20][None], -1), ["", "-1, where others are 0 and more"], id="label"
        ),
        pytest.param(TEXTS, {"text": "", "label": 0}, ["empty", ""], id="empty text"),
        pytest.param(TEXTS, {"text": " \n ", "label": 0}, ["nothing but spaces", ""], id="spaces"),
        pytest.param(
            TEXTS,
            {"text": "\0\1\2" * 200, "label": 0},
            ["600 of 600 characters are no text", ""],
            id="binary",
        ),
        pytest.param(
            TEXTS,
            {"text": "-" * 300, "label": 0},
            ["every character is '-'", ""],
            id="one character",
        ),
        pytest.param(
            LABELLED,
            (LABELLED[0][0], torch.full((6,), -100)),
            ["", "all 6 labels are ignored (-100)"],
            id="ignored labels",
        ),
        pytest.param(
            LABELLED,
            (torch.randn(100), torch.arange(6)),
            ["100 values, usually 8", ""],
            id="far too long",
        ),
    ],
)
def test_a_sample_is_marked_for(samples, sample, said):
    found = marks(samples, sample)
    assert found == said if said is not None else found[0].startswith("3 of 64 values are NaN")


def test_a_text_that_is_far_too_long_is_marked():
    said, _ = marks(TEXTS, {"text": CJK * 1000, "label": 0})
    usual = sorted(len(TEXTS[i]["text"]) for i in ORDINARY)
    assert said == f"{len(CJK) * 1000:,} characters, usually {usual[0]} to {usual[-1]}"


def test_no_ordinary_sample_of_real_data_is_marked():
    for samples in (IMAGES, TEXTS, LABELLED):
        found = views(samples, range(16, 40))
        assert {part.unusual for view in found for part in view.parts} == {""}


def test_two_ordinary_samples_stand_beside_those_at_fault():
    found = sample_views(
        IMAGES.__getitem__, [20, 3, 20], ordinary=range(8), first_steps={20: 7, 0: 1}
    )
    assert [(view.sample, view.blamed, view.step) for view in found] == [
        (20, True, 7),
        (3, True, None),
        (0, False, 1),
        (1, False, None),
    ]


def test_a_sample_that_cannot_be_read_says_why():
    (view, *_) = views(IMAGES, [10**6])
    assert view.parts[0].text == "cannot be shown: IndexError: list index out of range"


@pytest.mark.parametrize(
    ("show", "kinds"),
    [
        pytest.param(lambda sample: f"a {sample[1]}", [("", "text")], id="text"),
        pytest.param(lambda sample: sample[0][0], [("", "image")], id="picture"),
        pytest.param(
            lambda sample: {"digit": Image.fromarray(np.zeros((9, 9), np.uint8)), "is": "3"},
            [("digit", "image"), ("is", "text")],
            id="both by name",
        ),
        pytest.param(
            lambda sample: None, [("0", "image"), ("1", "numbers")], id="nothing: guessed"
        ),
        pytest.param(
            lambda sample: 1 / 0,
            [("show", "unknown"), ("0", "image"), ("1", "numbers")],
            id="an error: told, and guessed",
        ),
    ],
)
def test_the_users_own_way_to_show_comes_first(show, kinds):
    (view, *_) = views(IMAGES, [20], show=show)
    assert [(part.name, part.kind) for part in view.parts] == kinds


def test_looking_leaves_the_random_streams_alone():
    class Noisy:
        def __getitem__(self, index):
            return torch.randn(4), np.random.rand()

    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    views(Noisy(), [1, 2])
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])


def test_views_survive_a_file():
    found = views(with_sample(IMAGES, (NAN, float("inf"))), [20])
    again = [
        from_json(SampleView, json.loads(json.dumps(to_json(view), allow_nan=False)))
        for view in found
    ]
    assert [view.parts[0].image for view in again] == [view.parts[0].image for view in found]
    assert again[0].parts[1].values == (float("inf"),)


def test_tasks_of_ours_show_pictures_and_text():
    class Small(TextTask):
        def model(self):
            return torch.nn.Identity()

    task = Small(context=40)
    (view, *_) = views(task.dataset(), [0], show=task.show)
    text, after = (part.text for part in view.parts)
    assert inspect.getsource(argparse).startswith(text + after)
    mlp = MLP()
    assert mlp.show(mlp.dataset()[0]) is Task.show(mlp, None) is None
    assert views(mlp.dataset(), [0], show=mlp.show)[0].parts[0].kind == "image"
