"""Data in memory: nothing to be gained."""

import torch
from case import answer, step, take
from torch.utils.data import DataLoader, TensorDataset

for (batch,) in take(DataLoader(TensorDataset(torch.randn(320, 64)), batch_size=8)):
    step(batch, 20)
answer("healthy")
