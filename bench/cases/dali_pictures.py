"""DALI on CPUs: pictures read and decoded by a pipeline of its own threads."""

# needs: nvidia.dali PIL

import os

import numpy
from case import FOLDER, Waiting, answer, step, take
from nvidia.dali import fn, pipeline_def
from nvidia.dali.plugin.pytorch import DALIGenericIterator
from PIL import Image

noise = numpy.random.default_rng(1).integers(0, 256, (75, 100, 3), dtype="uint8")
os.makedirs(os.path.join(FOLDER, "set/a"))
for i in range(160):
    Image.fromarray(noise).resize((1600, 1200)).save(os.path.join(FOLDER, "set/a/%03d.jpg" % i))


@pipeline_def(batch_size=8, num_threads=1, device_id=None)
def pictures() -> object:
    files, labels = fn.readers.file(file_root=os.path.join(FOLDER, "set"), random_shuffle=True, name="files")
    images = fn.decoders.image(files, device="cpu")
    return fn.resize(images, resize_x=16, resize_y=16)


pipeline = pictures()
pipeline.build()
with Waiting():  # for the first batch
    loader = DALIGenericIterator(pipeline, ["x"], reader_name="files")
for batch in take(loader):
    step(batch[0]["x"].float().reshape(len(batch[0]["x"]), -1)[:, :64], 15)
answer("input-bound", ["decode", "transform"], ["TH2", "PF1", "CPU1", "CPU2"])
