"""TensorBoard: histograms and pictures in every step."""

# needs: tensorboard

import os

import torch
from case import FOLDER, answer, step, take
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

writer = SummaryWriter(os.path.join(FOLDER, "runs"))
for i, (batch,) in enumerate(take(DataLoader(TensorDataset(torch.randn(400, 64)), batch_size=8))):
    step(batch, 20)
    writer.add_scalar("loss", float(batch.mean()), i)
    if i % 10 == 0:
        writer.add_histogram("batch", batch, i)
writer.close()
answer("healthy", first=[])
