"""accelerate's save_state every eighth step."""

# needs: accelerate

import os

import case
import torch
from accelerate import Accelerator
from case import FOLDER, answer, clock_loaders
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    clock_loaders()
    case.clock_saves(Accelerator, "save_state")
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Sequential(torch.nn.Linear(64, 60000), torch.nn.Linear(60000, 1))
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.Adam(model.parameters()), DataLoader(TensorDataset(torch.randn(320, 64)), batch_size=8)
    )
    for i, (batch,) in enumerate(loader):
        accelerator.backward(model(batch).mean())
        optimizer.step()
        optimizer.zero_grad()
        if i % 8 == 7:
            accelerator.save_state(os.path.join(FOLDER, "state"))
    answer("checkpoint-bound", None, ["CK1", "CK2", "CK4"], saved_s=case.saved)
