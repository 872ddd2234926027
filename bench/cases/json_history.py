"""A history and a settings file, read and written in each step; the data are in memory."""

import json
import os

import torch
from case import FOLDER, answer, step

history, settings = os.path.join(FOLDER, "history.json"), os.path.join(FOLDER, "settings.json")
for path, value in ((history, []), (settings, {"lr": 1e-3})):
    with open(path, "w") as f:
        json.dump(value, f)
for i in range(60):
    step(torch.randn(8, 64))
    with open(settings) as f:
        json.load(f)
    with open(history) as f:
        rows = json.load(f)
    rows.append({"step": i, "pad": "x" * 20000})
    with open(history, "w") as f:
        json.dump(rows, f)
answer("logging-bound", None, ["LG1"])
