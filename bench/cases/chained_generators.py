"""Generators in generators: files, then lines, then shuffled, then batches; no loader, gzip'd text."""

import gzip
import os
import random
import typing

import torch
from case import FOLDER, Waiting, answer, burn, step

for part in range(3):
    with gzip.open(os.path.join(FOLDER, "part%d.txt.gz" % part), "wt") as f:
        for _ in range(160):
            f.write(" ".join("%.4f" % random.random() for _ in range(64)) + "\n")


def lines() -> typing.Iterator[str]:
    for part in range(3):
        with gzip.open(os.path.join(FOLDER, "part%d.txt.gz" % part), "rt") as f:
            yield from f


def rows() -> typing.Iterator[torch.Tensor]:
    for line in lines():
        burn(3)
        yield torch.tensor([float(x) for x in line.split()])


def batches(size: int) -> typing.Iterator[torch.Tensor]:
    kept: list = []
    for row in rows():
        kept.append(row)
        if len(kept) == size:
            yield torch.stack(kept)
            kept = []


source = batches(8)
while True:
    with Waiting():
        batch = next(source, None)
    if batch is None:
        break
    step(batch, 10)
answer("input-bound", ["decode", "transform"], ["PF1", "TH2", "CPU1"])
