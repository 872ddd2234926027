"""Checkpoints through fsspec's file objects."""

# needs: fsspec

import os

import fsspec
import torch
from case import FOLDER, answer, step, take
from torch.utils.data import DataLoader, TensorDataset

state = {"weights": torch.randn(6000000)}
for i, (batch,) in enumerate(take(DataLoader(TensorDataset(torch.randn(320, 64)), batch_size=8))):
    step(batch)
    if i % 10 == 9:
        with fsspec.open("file://" + os.path.join(FOLDER, "%d.pt" % i), "wb") as f:
            torch.save(state, f)
answer("checkpoint-bound", None, ["CK1", "CK2", "CK4"])
