"""Evaluation of a trained model over a DataLoader: no optimiser in the program."""

import torch
from case import answer, burn, model, take
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self) -> int:
        return 240

    def __getitem__(self, i: int) -> torch.Tensor:
        burn(4)
        return torch.randn(64)


model.eval()
right = 0
with torch.no_grad():
    for batch in take(DataLoader(Rows(), batch_size=8, num_workers=1)):
        right += int((model(batch) > 0).sum())
        burn(8)
answer("input-bound", ["decode", "transform", "cpu_wait"], ["TH2", "CPU1", "CPU2"])
