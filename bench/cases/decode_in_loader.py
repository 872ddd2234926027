"""Rows that take CPU time, no workers."""

import torch
from case import answer, burn, step, take
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self) -> int:
        return 120

    def __getitem__(self, i: int) -> torch.Tensor:
        burn(5)
        return torch.randn(64)


for batch in take(DataLoader(Rows(), batch_size=4)):
    step(batch)
answer("input-bound", ["decode", "cpu_wait"], ["PF1", "TH2", "CPU1", "CPU2"])
