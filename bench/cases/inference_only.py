"""Inference: no optimiser, no loader; the loop reads and decodes each picture, a model in eval mode, results at the end."""

# needs: PIL

import io
import os

import numpy
import torch
from case import FOLDER, Waiting, answer, burn, slow_read
from PIL import Image

picture = io.BytesIO()
noise = numpy.random.default_rng(1).integers(0, 256, (60, 80, 3), dtype="uint8")
Image.fromarray(noise).resize((1200, 900)).save(picture, "JPEG")
for i in range(40):
    with open(os.path.join(FOLDER, "%03d.jpg" % i), "wb") as f:
        f.write(picture.getvalue())
net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64 * 64, 10)).eval()
results = []
with torch.inference_mode():
    for i in range(40):
        with Waiting():
            with Image.open(os.path.join(FOLDER, "%03d.jpg" % i)) as image:
                x = numpy.asarray(image.resize((64, 64)), dtype="float32")
            slow_read(10)
        results.append(net(torch.from_numpy(x)[None]).argmax().item())
        burn(10)
answer("input-bound", ["decode", "storage"], ["PF1", "TH1", "TH2", "CA1"])
