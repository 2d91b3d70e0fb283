# lightning_manual.py
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from stabexp.integrations.lightning import StabexpCallback


class Product(L.LightningModule):
    automatic_optimization = False

    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))

    def training_step(self, batch, index):
        optimizer = self.optimizers()
        inputs, targets = batch
        loss = nn.functional.mse_loss(self.net(inputs), targets)
        optimizer.zero_grad()
        self.manual_backward(loss)
        self.clip_gradients(optimizer, gradient_clip_val=1.0)
        optimizer.step()
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)


def train(run, lr=0.05):
    x = torch.randn(1024, 16)
    loader = DataLoader(TensorDataset(x, x[:, :1] * x[:, 1:2]), batch_size=16, shuffle=True)
    trainer = L.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, callbacks=[StabexpCallback(run)]
    )
    trainer.fit(Product(lr), loader)
