"""One file per batch, torch.load in the loop, deleted from the cache by direct reads before: no loader."""

import os

import torch
from case import FOLDER, Waiting, answer, burn, step

for i in range(30):
    torch.save({"x": torch.randn(8, 64), "pad": [float(k) for k in range(40000)]}, os.path.join(FOLDER, "%d.pt" % i))
for i in range(60):
    with Waiting():
        batch = torch.load(os.path.join(FOLDER, "%d.pt" % (i % 30)))["x"]
        burn(15)
    step(batch)
answer("input-bound", ["decode", "page_cache"], ["PF1", "TH2", "CPU1"])
