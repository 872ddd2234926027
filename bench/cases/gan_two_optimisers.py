"""A GAN: two optimisers, three backward passes for a batch; pictures as PNG."""

# needs: PIL

import io

import numpy
import torch
from case import answer, take
import case
from PIL import Image
from torch.utils.data import DataLoader, Dataset

picture = io.BytesIO()
noise = numpy.random.default_rng(1).integers(0, 256, (60, 80, 3), dtype="uint8")
Image.fromarray(noise).resize((400, 300)).save(picture, "PNG")


class Pictures(Dataset):
    def __len__(self) -> int:
        return 160

    def __getitem__(self, i: int) -> torch.Tensor:
        image = Image.open(io.BytesIO(picture.getvalue())).resize((16, 16))
        return torch.from_numpy(numpy.asarray(image, dtype="float32") / 255).flatten()


make = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 768))
judge = torch.nn.Sequential(torch.nn.Linear(768, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
of_make, of_judge = (torch.optim.Adam(m.parameters(), 1e-4) for m in (make, judge))
loss = torch.nn.BCEWithLogitsLoss()
for real in take(DataLoader(Pictures(), batch_size=8, shuffle=True)):
    fake = make(torch.randn(len(real), 16))
    of_judge.zero_grad()
    loss(judge(real), torch.ones(len(real), 1)).backward()
    loss(judge(fake.detach()), torch.zeros(len(real), 1)).backward()
    of_judge.step()
    of_make.zero_grad()
    loss(judge(fake), torch.ones(len(real), 1)).backward()
    of_make.step()
answer("input-bound", ["decode", "transform"], ["PF1", "TH2", "CPU1"], saved=case.saved)
