"""A speech model trained with the CTC loss turns to NaN when one clipped recording comes by.

The recording has three frames and its transcript nine labels, which no alignment can produce: the
loss is infinite and its gradient NaN. `zero_infinity=True`, or leaving the recording out, cures.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "loss = F.ctc_loss("
TARGET = 0.5
FRAMES, SYMBOLS, LABELS, SAMPLES = 12, 6, 10, 4800


def recordings(count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return frames (count, FRAMES, SYMBOLS), labels (count, LABELS), and how many of each hold."""
    label_counts = torch.randint(2, 5, (count,))
    labels = torch.randint(1, SYMBOLS, (count, LABELS))
    for place in range(1, LABELS):  # no label twice in a row
        same = labels[:, place] == labels[:, place - 1]
        labels[same, place] = labels[same, place] % (SYMBOLS - 1) + 1
    spoken = labels[:, torch.arange(FRAMES) // 3]  # each label lasts three frames, then silence
    spoken = spoken.masked_fill(torch.arange(FRAMES)[None] >= 3 * label_counts[:, None], 0)
    frames = F.one_hot(spoken, SYMBOLS) + 0.3 * torch.randn(count, FRAMES, SYMBOLS)
    return frames, labels, torch.full((count,), FRAMES), label_counts


def clipped_recording(seed: int) -> int:
    """Return the id of the recording that is too short for its transcript."""
    return 16 * (90 + 37 * seed % 50)


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""

    def ctc(frames: Tensor, labels: Tensor, frame_counts: Tensor, label_counts: Tensor) -> Tensor:
        log_probabilities = model(frames).log_softmax(-1).transpose(0, 1)
        loss = F.ctc_loss(
            log_probabilities, labels, frame_counts, label_counts, zero_infinity=fixed
        )
        return loss

    data = TensorDataset(*recordings(SAMPLES))
    clipped = clipped_recording(run.settings.seed)
    data.tensors[2][clipped], data.tensors[3][clipped] = 3, 9
    model = nn.Sequential(nn.Linear(SYMBOLS, 48), nn.ReLU(), nn.Linear(48, SYMBOLS))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    for batch in run.steps(loader, model=model, optimizer=optimizer):
        loss = ctc(*batch)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float(ctc(*recordings(300)))
