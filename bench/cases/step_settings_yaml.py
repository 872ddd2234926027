"""A learning rate schedule in YAML, read in each step, and a line of JSON behind each step: both are no data."""

import json
import os

import torch
from case import FOLDER, answer, step, take
from torch.utils.data import DataLoader, TensorDataset

schedule = os.path.join(FOLDER, "schedule.yaml")
with open(schedule, "w") as f:
    f.write("\n".join("%d: %f" % (i, 0.1 / (i + 1)) for i in range(2000)))
with open(os.path.join(FOLDER, "log.jsonl"), "w") as log:
    for i, (batch,) in enumerate(take(DataLoader(TensorDataset(torch.randn(640, 64)), batch_size=8))):
        with open(schedule) as f:
            rates = dict(line.split(": ") for line in f)
        step(batch, 4)
        log.write(json.dumps({"step": i, "rate": rates[str(i)], "weights": [float(x) for x in range(40000)]}) + "\n")
        log.flush()
answer("logging-bound", None, ["LG1"])
