"""datasets in streaming mode: JSON lines, mapped on the fly, by a DataLoader without workers."""

# needs: datasets

import json
import os

import torch
from case import FOLDER, answer, burn, step, take
from datasets import load_dataset
from torch.utils.data import DataLoader

path = os.path.join(FOLDER, "rows.jsonl")
with open(path, "w") as f:
    for i in range(240):
        f.write(json.dumps({"text": "word " * 200, "label": i % 2}) + "\n")


def tokenised(row: dict) -> dict:
    burn(4)
    return {"x": [float(len(word)) for word in row["text"].split()[:64]]}


rows = load_dataset("json", data_files=path, split="train", streaming=True, cache_dir=FOLDER).map(
    tokenised, remove_columns=["text", "label"]
)
for batch in take(DataLoader(rows.with_format("torch"), batch_size=8)):
    step(torch.as_tensor(batch["x"], dtype=torch.float32), 10)
answer("input-bound", ["decode", "transform"], ["PF1", "TH2", "CPU1"])
