"""Metrics in each step take longer than the step: no data."""

import numpy
import torch
from case import answer, step, take
from torch.utils.data import DataLoader, TensorDataset

scores = []
for (batch,) in take(DataLoader(TensorDataset(torch.randn(480, 64)), batch_size=8)):
    step(batch, 15)
    scores.append(batch.mean(1).numpy())
    for _ in range(12):
        numpy.sort(numpy.random.rand(30000))
answer("healthy", first=[])
