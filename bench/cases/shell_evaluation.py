"""Every few steps another program evaluates a checkpoint, and the loop waits for its end: no data."""

import os
import subprocess
import sys

import torch
from case import FOLDER, answer, clock_saves, model, step, take
from torch.utils.data import DataLoader, TensorDataset

clock_saves()
for i, (batch,) in enumerate(take(DataLoader(TensorDataset(torch.randn(320, 64)), batch_size=8))):
    step(batch, 20)
    if i % 10 == 9:
        torch.save(model.state_dict(), os.path.join(FOLDER, "last.pt"))
        code = "import time; t = time.time() + 0.15\nwhile time.time() < t: pass"
        subprocess.run([sys.executable, "-S", "-c", code], check=True)
answer("healthy", first=[])
