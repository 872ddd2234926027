"""A lock over all workers around a client that takes one request at a time: nothing is read, nothing computed."""

import multiprocessing
import time

import torch
from case import answer, step, take
from torch.utils.data import DataLoader, Dataset

lock = multiprocessing.Lock()


class Rows(Dataset):
    def __len__(self) -> int:
        return 160

    def __getitem__(self, i: int) -> torch.Tensor:
        with lock:
            time.sleep(0.01)
        return torch.randn(64)


for batch in take(DataLoader(Rows(), batch_size=4, num_workers=2)):
    step(batch, 15)
answer("input-bound", ["worker"])
