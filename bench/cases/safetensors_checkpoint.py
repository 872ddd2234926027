"""Weights by safetensors, the optimiser's state by torch.save beside them."""

# needs: safetensors

import os

import torch
from case import FOLDER, answer, optimizer, step
from safetensors.torch import save_file

state = {"weights": torch.randn(6000000)}
for i in range(40):
    step(torch.randn(8, 64))
    if i % 10 == 9:
        save_file(state, os.path.join(FOLDER, "model.safetensors"))
        torch.save(optimizer.state_dict(), os.path.join(FOLDER, "optimizer.pt"))
answer("checkpoint-bound", None, ["CK1", "CK2", "CK4"])
