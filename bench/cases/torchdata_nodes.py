"""torchdata's nodes: a ParallelMapper of two threads that read."""

# needs: torchdata.nodes

import torch
from case import answer, slow_read, step, take
from torchdata.nodes import Batcher, IterableWrapper, Loader, ParallelMapper, Prefetcher


def load(i: int) -> torch.Tensor:
    slow_read(25)
    return torch.randn(64)


node = Prefetcher(Batcher(ParallelMapper(IterableWrapper(range(160)), load, num_workers=2, method="thread"), 4), 2)
for batch in take(Loader(node)):
    step(torch.stack(batch), 15)
answer("input-bound", ["storage"], ["TH1", "TH4", "PF1", "CA1"])
