"""Text: gzipped lines of JSON, parsed and tokenised by an iterable data set in a worker."""

import gzip
import json
import os

import torch
from case import FOLDER, answer, step, take
from torch.utils.data import DataLoader, IterableDataset

path = os.path.join(FOLDER, "c4.json.gz")
with gzip.open(path, "wt") as out:
    for i in range(400):
        out.write(json.dumps({"text": " ".join(str(hash((i, k)) % 5000) for k in range(12000))}) + "\n")


class Text(IterableDataset):
    def __iter__(self) -> object:
        with gzip.open(path, "rt") as lines:
            for line in lines:
                ids = [int(word) % 997 for word in json.loads(line)["text"].split()]
                yield torch.tensor(ids[:64], dtype=torch.float32)


for batch in take(DataLoader(Text(), batch_size=8, num_workers=1)):
    step(batch, 5)
answer("input-bound", ["decode"], ["FM1", "TH2", "CPU1", "PF1"])
