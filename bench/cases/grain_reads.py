"""Grain: a MapDataset with threads that read."""

# needs: grain

import grain
import numpy
import torch
from case import answer, slow_read, step, take


def load(i: int) -> numpy.ndarray:
    slow_read(15)
    return numpy.random.rand(64).astype("float32")


rows = grain.MapDataset.range(120).map(load).to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=4))
for batch in take(rows.batch(4)):
    step(torch.as_tensor(batch), 15)
answer("input-bound", ["storage"], ["TH1", "TH4", "PF1", "CA1"])
