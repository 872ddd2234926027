"""A frozen teacher is called in each step: that is no evaluation."""

import torch
from case import Waiting, answer, slow_read, step

teacher = torch.nn.Linear(64, 1).eval()
for _ in range(30):
    with Waiting():
        slow_read(15)
        batch = torch.randn(8, 64)
    with torch.no_grad():
        teacher(batch)
    step(batch, 15)
answer("input-bound", ["storage"])
