"""Lightning with files read past the page cache, two workers."""

# needs: lightning

import os

import lightning
import torch
from case import FOLDER, answer, clock_loaders, slow_read
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self) -> int:
        return 160

    def __getitem__(self, i: int) -> torch.Tensor:
        slow_read(20)
        return torch.randn(64)


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, 1)

    def training_step(self, batch: torch.Tensor, i: int) -> torch.Tensor:
        return self.linear(batch).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.01)


if __name__ == "__main__":
    clock_loaders()
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        default_root_dir=os.path.join(FOLDER, "root"),
    )  # fmt: skip
    trainer.fit(Module(), DataLoader(Rows(), batch_size=4, num_workers=2))
    answer("input-bound", ["storage"], ["TH1", "TH4", "PF1", "CA1", "CA2"])
