"""Mosaic's streaming data set: shards copied from a remote folder, decompressed, pictures decoded by a worker."""

# needs: streaming PIL

import os

import numpy
import torch
from case import FOLDER, answer, clock_loaders, step
from PIL import Image
from streaming import MDSWriter, StreamingDataset
from torch.utils.data import DataLoader

if __name__ == "__main__":
    small = numpy.random.default_rng(1).integers(0, 256, (75, 100, 3), dtype="uint8")
    picture = Image.fromarray(small).resize((1600, 1200))
    with MDSWriter(out=os.path.join(FOLDER, "remote"), columns={"x": "jpeg"}, size_limit=1 << 22) as out:
        for _ in range(160):
            out.write({"x": picture})
    clock_loaders()

    class Rows(StreamingDataset):
        def __getitem__(self, i: int) -> torch.Tensor:
            return torch.as_tensor(numpy.asarray(super().__getitem__(i)["x"])[:64, 0, 0].astype("float32"))

    rows = Rows(
        remote=os.path.join(FOLDER, "remote"), local=os.path.join(FOLDER, "local"), shuffle=True, batch_size=4,
    )  # fmt: skip
    for batch in DataLoader(rows, batch_size=4, num_workers=1):
        step(batch, 20)
    answer("input-bound", ["decode", "transform"], ["TH2", "CPU1", "PF1"])
