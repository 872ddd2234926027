"""next(iter(loader)) in each step: workers are started anew for every batch."""

import torch
from case import Waiting, answer, step
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(640, 64)), batch_size=8, num_workers=1, shuffle=True)
for _ in range(25):
    with Waiting():
        (batch,) = next(iter(loader))
    step(batch, 15)
answer("input-bound", None, None)
