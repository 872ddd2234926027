"""WebDataset: pictures from tar shards, decoded by one worker."""

# needs: webdataset PIL

import io
import os
import tarfile

import numpy
import torch
import webdataset
from case import FOLDER, answer, clock_loaders, step
from PIL import Image

picture = io.BytesIO()
small = Image.fromarray(numpy.random.default_rng(1).integers(0, 256, (75, 100, 3), dtype="uint8"))
small.resize((1600, 1200)).save(picture, "JPEG")
for shard in range(3):
    with tarfile.open(os.path.join(FOLDER, "%03d.tar" % shard), "w") as tar:
        for i in range(60):
            info = tarfile.TarInfo("%03d%03d.jpg" % (shard, i))
            info.size = len(picture.getvalue())
            tar.addfile(info, io.BytesIO(picture.getvalue()))


def shape(sample: dict) -> dict:
    return {"x": sample["jpg"][:64, 0, 0].astype("float32")}


clock_loaders()
shards = os.path.join(FOLDER, "{000..002}.tar")
rows = webdataset.WebDataset(shards, shardshuffle=False).shuffle(20).decode("rgb").map(shape).batched(6)
for batch in webdataset.WebLoader(rows, batch_size=None, num_workers=1):
    step(torch.as_tensor(numpy.asarray(batch["x"])), 20)
answer("input-bound", ["decode", "transform"], ["TH2", "CPU1", "PF1"])
