"""The style of small GPT trainers: batches from a memory map, a few of evaluation now and then."""

import os

import numpy
import torch
from case import FOLDER, Waiting, answer, model, step

tokens = os.path.join(FOLDER, "tokens.bin")
numpy.random.default_rng(1).random(2000000).astype("float32").tofile(tokens)


def get_batch() -> torch.Tensor:
    with Waiting():
        data = numpy.memmap(tokens, dtype="float32", mode="r")
        at = torch.randint(len(data) - 64, (2,))
        return torch.stack([torch.from_numpy(numpy.array(data[i : i + 64])) for i in at])


@torch.no_grad()
def evaluate() -> None:
    model.eval()
    for _ in range(6):
        model(get_batch())
    model.train()


for i in range(60):
    if i % 20 == 0:
        evaluate()
    step(get_batch(), 30)
answer("healthy")
