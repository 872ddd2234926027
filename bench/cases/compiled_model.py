"""torch.compile over a model, a loop that reads arrays by itself."""

# needs: torch._dynamo

import os

import numpy
import torch
from case import FOLDER, Waiting, answer, slow_read

for i in range(40):
    numpy.save(os.path.join(FOLDER, "%d.npy" % i), numpy.random.rand(8, 256).astype("float32"))
net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))
fast = torch.compile(net, backend="eager")
optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
for i in range(40):
    with Waiting():
        x = torch.from_numpy(numpy.load(os.path.join(FOLDER, "%d.npy" % i)))
        slow_read(20)
    for _ in range(8):
        loss = fast(x).square().mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
answer("input-bound", ["storage"], ["PF1", "TH1", "CA1"])
