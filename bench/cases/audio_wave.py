"""Speech: wave files, windows and spectra by torch in one worker."""

import os
import wave

import numpy
import torch
from case import FOLDER, answer, step, take
from torch.utils.data import DataLoader, Dataset

for i in range(60):
    with wave.open(os.path.join(FOLDER, "%02d.wav" % i), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(22050)
        out.writeframes(numpy.random.default_rng(i).integers(-9999, 9999, 22050 * 8, dtype="int16").tobytes())


class Speech(Dataset):
    def __len__(self) -> int:
        return 240

    def __getitem__(self, i: int) -> torch.Tensor:
        with wave.open(os.path.join(FOLDER, "%02d.wav" % (i % 60))) as file:
            sound = numpy.frombuffer(file.readframes(file.getnframes()), "int16").astype("float32")
        window = torch.hann_window(1024)
        for _ in range(3):
            spectrum = torch.stft(torch.from_numpy(sound), 1024, 64, window=window, return_complex=True).abs()
        return spectrum[:64, 0]


for batch in take(DataLoader(Speech(), batch_size=4, num_workers=1)):
    step(batch, 20)
answer("input-bound", ["decode", "transform"], ["TH2", "CPU1", "PF1"])
