"""Keeps the best model: torch.save, then a copy of the file, after each short epoch."""

import os
import shutil

import torch
from case import FOLDER, answer, step, take
from torch.utils.data import DataLoader, TensorDataset

state, loader = {"weights": torch.randn(4000000)}, DataLoader(TensorDataset(torch.randn(80, 64)), batch_size=8)
for epoch in range(4):
    for (batch,) in take(loader):
        step(batch)
    torch.save(state, os.path.join(FOLDER, "last.pt"))
    shutil.copyfile(os.path.join(FOLDER, "last.pt"), os.path.join(FOLDER, "best.pt"))
answer("checkpoint-bound", None, ["CK1", "CK2", "CK4"])
