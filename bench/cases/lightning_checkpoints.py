"""Lightning's ModelCheckpoint every ten steps, data in memory."""

# needs: lightning

import os

import case
import lightning
import torch
from case import FOLDER, answer, clock_loaders
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, 1)
        self.table = torch.nn.Embedding(20000, 256)

    def training_step(self, batch: list, i: int) -> torch.Tensor:
        for _ in range(40):
            torch.randn(300, 300) @ torch.randn(300, 300)
        return self.linear(batch[0]).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.01)


if __name__ == "__main__":
    clock_loaders()
    case.clock_saves(lightning.Trainer, "save_checkpoint")
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False, default_root_dir=FOLDER,
        callbacks=[ModelCheckpoint(os.path.join(FOLDER, "ckpt"), every_n_train_steps=10, save_top_k=-1)],
    )  # fmt: skip
    trainer.fit(Module(), DataLoader(TensorDataset(torch.randn(480, 64)), batch_size=8))
    answer("checkpoint-bound", None, ["CK1", "CK2", "CK4"], saved_s=case.saved)
