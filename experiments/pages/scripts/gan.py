# gan.py
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset


def net(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 64), nn.LeakyReLU(0.2), nn.Linear(64, outputs))


def train(run, lr=2e-4):
    images = torch.tensor(load_digits().data / 8 - 1, dtype=torch.float32)
    models = {"g": net(16, 64), "d": net(64, 1)}
    optimizers = {
        name: torch.optim.Adam(model.parameters(), lr=lr, betas=(0.5, 0.999))
        for name, model in models.items()
    }
    for (real,) in run.steps(TensorDataset(images), model=models, optimizer=optimizers):
        fake = models["g"](torch.randn(len(real), 16))
        for name in ("d", "g"):  # both are updated on one batch: that is one step
            if name == "d":
                judged = models["d"](real), models["d"](fake.detach())
                loss = F.softplus(-judged[0]).mean() + F.softplus(judged[1]).mean()
                run.log(loss)  # the loss that a detector watches; others are metrics
            else:
                loss = F.softplus(-models["d"](fake)).mean()
            optimizers[name].zero_grad()
            loss.backward()
            optimizers[name].step()
