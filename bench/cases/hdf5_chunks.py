"""Compressed chunks of one HDF5 file, in random order."""

# needs: h5py

import os

import h5py
import numpy
import torch
from case import FOLDER, answer, step, take
from torch.utils.data import DataLoader, Dataset

path = os.path.join(FOLDER, "t.h5")
with h5py.File(path, "w") as f:
    data = numpy.random.default_rng(1).integers(0, 16, (160, 512, 512)).astype("float32")
    f.create_dataset("x", data=data, chunks=(1, 512, 512), compression="gzip")


class Rows(Dataset):
    file = None

    def __len__(self) -> int:
        return 160

    def __getitem__(self, i: int) -> torch.Tensor:
        self.file = self.file or h5py.File(path, "r")
        return torch.from_numpy(self.file["x"][i][0, :64])


for batch in take(DataLoader(Rows(), batch_size=4, shuffle=True)):
    step(batch, 15)
answer("input-bound", ["decode"], ["PF1", "TH2", "CPU1", "FM2"])
