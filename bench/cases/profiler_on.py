"""torch.profiler runs beside a loop that decodes; its traces go to a folder."""

import os

import torch
from case import FOLDER, answer, burn, step, take
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self) -> int:
        return 160

    def __getitem__(self, i: int) -> torch.Tensor:
        burn(4)
        return torch.randn(64)


def keep(profile: object) -> None:
    profile.export_chrome_trace(os.path.join(FOLDER, "%d.json" % profile.step_num))


plan = torch.profiler.schedule(wait=4, warmup=2, active=4, repeat=2)
with torch.profiler.profile(schedule=plan, on_trace_ready=keep) as profile:
    for batch in take(DataLoader(Rows(), batch_size=4, num_workers=1)):
        step(batch, 8)
        profile.step()
answer("input-bound", ["decode", "transform", "cpu_wait"], ["TH2", "CPU1", "CPU2"])
