"""multiprocessing.Pool.imap over the list of files."""

import multiprocessing

import torch
from case import answer, slow_read, step, take


def load(i: int) -> torch.Tensor:
    slow_read(60)
    return torch.randn(8, 64)


if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        for batch in take(pool.imap(load, range(60))):
            step(batch)
    answer("input-bound", ["storage"], ["TH1", "TH4", "PF1", "CA1"])
