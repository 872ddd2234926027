"""A CSV log, flushed and synced in each step: durable, slow, and no checkpoint."""

import os

import torch
from case import FOLDER, answer, step, take
from torch.utils.data import DataLoader, TensorDataset

with open(os.path.join(FOLDER, "log.csv"), "w") as log:
    for (batch,) in take(DataLoader(TensorDataset(torch.randn(800, 64)), batch_size=8)):
        step(batch, 5)
        log.write("%f,%s\n" % (float(batch.mean()), "x" * 200))
        log.flush()
        os.fsync(log.fileno())
answer("logging-bound", None, ["LG1"])
