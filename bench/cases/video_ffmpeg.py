"""Video: a clip per row, decoded by an ffmpeg of its own behind a pipe (imageio)."""

# needs: imageio imageio_ffmpeg

import os

import imageio
import numpy
import torch
from case import FOLDER, answer, step, take
from torch.utils.data import DataLoader, Dataset

clip = os.path.join(FOLDER, "clip.mp4")
with imageio.get_writer(clip, fps=25, macro_block_size=16) as out:
    for i in range(60):
        out.append_data(numpy.random.default_rng(i).integers(0, 256, (480, 640, 3), dtype="uint8"))


class Clips(Dataset):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, i: int) -> torch.Tensor:
        with imageio.get_reader(clip, "ffmpeg") as reader:
            frames = [reader.get_next_data()[0, :64, 0] for _ in range(12)]
        return torch.as_tensor(numpy.stack(frames).mean(0), dtype=torch.float32)


for batch in take(DataLoader(Clips(), batch_size=2)):
    step(batch, 20)
answer("input-bound", ["decode"], ["PF1", "TH2", "CPU1"])
