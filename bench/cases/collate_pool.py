"""A worker reads the rows of a batch in an executor of its own, in collate_fn."""

from concurrent.futures import ThreadPoolExecutor

import torch
from case import answer, slow_read, step, take
from torch.utils.data import DataLoader

pool = None


def one(_: int) -> torch.Tensor:
    slow_read(20)
    return torch.randn(64)


def collate(rows: list) -> torch.Tensor:
    global pool
    pool = pool or ThreadPoolExecutor(2)
    return torch.stack(list(pool.map(one, rows)))


for batch in take(DataLoader(range(120), batch_size=4, num_workers=1, collate_fn=collate)):
    step(batch)
answer("input-bound", ["storage"])
