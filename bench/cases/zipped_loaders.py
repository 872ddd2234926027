"""Semi-supervised: a quick loader with labels beside a slow one without, cycled and zipped."""

import itertools

import torch
from case import Waiting, answer, slow_read, step
from torch.utils.data import DataLoader, Dataset, TensorDataset


class Unlabelled(Dataset):
    def __len__(self) -> int:
        return 160

    def __getitem__(self, i: int) -> torch.Tensor:
        slow_read(8)
        return torch.randn(64)


labelled = itertools.cycle(DataLoader(TensorDataset(torch.randn(64, 64)), batch_size=8))
pairs = zip(labelled, DataLoader(Unlabelled(), batch_size=4, num_workers=1))
while True:
    with Waiting():
        pair = next(pairs, None)
    if pair is None:
        break
    step(torch.cat([pair[0][0], pair[1]]), 12)
answer("input-bound", ["storage"], ["TH1", "CA1", "TH4"])
