"""torch.save into a BytesIO, written behind it."""

import io
import os

import torch
from case import FOLDER, answer, step

state = {"weights": torch.randn(4000000)}
for i in range(40):
    step(torch.randn(8, 64))
    if i % 10 == 9:
        buffer = io.BytesIO()
        torch.save(state, buffer)
        with open(os.path.join(FOLDER, "%d.ckpt" % i), "wb") as f:
            f.write(buffer.getvalue())
answer("checkpoint-bound", None, ["CK1", "CK2", "CK4"])
