"""LitData: optimised chunks, rows that take CPU time in a worker."""

# needs: litdata

import os

import torch
from case import FOLDER, answer, burn, clock_loaders, step
from litdata import StreamingDataLoader, StreamingDataset, optimize


def make(i: int) -> torch.Tensor:
    return torch.full((64,), float(i))


class Rows(StreamingDataset):
    def __getitem__(self, i: int) -> torch.Tensor:
        row = super().__getitem__(i)
        burn(8)
        return row


if __name__ == "__main__":
    to = os.path.join(FOLDER, "chunks")
    optimize(fn=make, inputs=list(range(240)), output_dir=to, chunk_bytes="16KB", num_workers=1)
    clock_loaders()
    for batch in StreamingDataLoader(Rows(to), batch_size=4, num_workers=1):
        step(batch, 15)
    answer("input-bound", ["decode", "transform"], ["TH2", "CPU1", "PF1"])
