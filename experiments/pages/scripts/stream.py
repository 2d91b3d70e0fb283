# stream.py
import inspect

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

LENGTH = 32


class Passages(IterableDataset):
    """The source of torch.nn, passage by passage, forever."""

    def __init__(self):
        text = inspect.getsource(nn.functional).encode()[:200_000]
        self.bytes = torch.tensor(list(text)).clamp(max=127)
        self.next = 0

    def __iter__(self):
        while True:
            at = self.next * LENGTH % (len(self.bytes) - LENGTH - 1)
            self.next += 1
            yield self.bytes[at : at + LENGTH + 1]

    def state_dict(self):  # without these two, getting back to a step means reading up to it
        return {"next": self.next}

    def load_state_dict(self, state):
        self.next = state["next"]


class Net(nn.Module):
    """Say which byte comes next."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(128, 32)
        self.read = nn.GRU(32, 64, batch_first=True)
        self.head = nn.Linear(64, 128)

    def forward(self, tokens):
        return self.head(self.read(self.embed(tokens))[0])


def train(run, lr=3e-3):
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    loader = DataLoader(Passages(), batch_size=16)
    for tokens in run.steps(loader, model=model, optimizer=optimizer):
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
