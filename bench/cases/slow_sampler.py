"""A batch sampler that sorts by length for each batch, in the main process; rows are in memory."""

import torch
from case import answer, burn, step, take
from torch.utils.data import DataLoader, TensorDataset


class Buckets:
    def __len__(self) -> int:
        return 40

    def __iter__(self) -> object:
        for i in range(40):
            burn(15)
            yield list(range(8 * i, 8 * i + 8))


for (batch,) in take(DataLoader(TensorDataset(torch.randn(320, 64)), batch_sampler=Buckets())):
    step(batch)
answer("input-bound", ["decode", "queue"])
