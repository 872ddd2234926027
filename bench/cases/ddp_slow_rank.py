"""Two ranks of DistributedDataParallel; the second one's rows take CPU time, the first waits for it in backward."""

import os

import case
import torch
import torch.distributed
import torch.multiprocessing
from case import FOLDER, answer, burn, take
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __len__(self) -> int:
        return 120

    def __getitem__(self, i: int) -> torch.Tensor:
        burn(6 if self.rank else 0.2)
        return torch.randn(64)


def train(rank: int, out: object) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517", RANK=str(rank), WORLD_SIZE="2")
    torch.distributed.init_process_group("gloo", init_method="file://" + FOLDER + "/meet", rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in take(DataLoader(Rows(rank), batch_size=4)):
        loss = model(batch).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.distributed.destroy_process_group()
    out.put(case.waited)


if __name__ == "__main__":
    out = torch.multiprocessing.get_context("spawn").SimpleQueue()
    torch.multiprocessing.spawn(train, args=(out,), nprocs=2)
    case.waited = (out.get() + out.get()) / 2  # the report's seconds are a rank's, on the average
    answer("input-bound", ["decode"], ["PF1", "TH2", "TL2", "CPU1"])
