"""Ranks of a PyTorch program that wait for each other, with their own clocks: ranks_torch.py WAY RANKS STEPS FOLDER

data: rank 1 waits for its data. compute: rank 1 computes longer. save: rank 0 saves a checkpoint in every fifth step. even: nobody is late. manual: as data,
without DistributedDataParallel. fsdp: as data, with fully_shard. buffers: as data, and the model has buffers, which rank 0 sends to the others. The program
starts its ranks itself: no launcher gives them numbers. Each rank prints a line of JSON: what it waited for data, for other ranks, saved, took in all; and a
sum over its weights."""
import json
import os
import socket
import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

WAY, RANKS, STEPS, FOLDER = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
LATE = ("data", "manual", "fsdp", "buffers")
COMPUTE = 0.06 if WAY == "even" else 0.02


class Rows(Dataset):
    def __init__(self, slow):
        self.slow = slow

    def __len__(self):
        return 4 * STEPS

    def __getitem__(self, i):
        time.sleep(self.slow)
        return torch.full((64,), float(i % 7) - 3)


def make_model():
    torch.manual_seed(0)
    parts = [torch.nn.Linear(64, 256), torch.nn.Linear(256, 10)]
    if WAY == "buffers":
        parts.insert(1, torch.nn.BatchNorm1d(256))
    model = torch.nn.Sequential(*parts)
    if WAY == "fsdp":
        from torch.distributed.fsdp import fully_shard

        return fully_shard(model)
    return model if WAY == "manual" else torch.nn.parallel.DistributedDataParallel(model)


def rank_main(rank, port):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:%d" % port, rank=rank, world_size=RANKS)
    torch.set_num_threads(1)
    model, state = make_model(), torch.zeros(12 << 20)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    loader = DataLoader(Rows(0.015 if WAY in LATE and rank == 1 else 0), batch_size=4, num_workers=1)
    waited = met = saved = 0.0
    begin = before = time.perf_counter()
    for step, rows in enumerate(loader):
        waited += time.perf_counter() - before
        time.sleep(3 * COMPUTE if WAY == "compute" and rank == 1 else COMPUTE)
        start = time.perf_counter()
        model(rows).square().sum().backward()
        if WAY == "manual":
            for p in model.parameters():
                dist.all_reduce(p.grad)
        met += time.perf_counter() - start
        optimizer.step()
        optimizer.zero_grad()
        if WAY == "save" and rank == 0 and step % 5 == 4:
            start = time.perf_counter()
            torch.save(state, os.path.join(FOLDER, "saved.pt"))
            saved += time.perf_counter() - start
        before = time.perf_counter()
    total = 0.0 if WAY == "fsdp" else sum(float(p.detach().double().sum()) for p in model.parameters())
    told = {"rank": rank, "waited_s": waited, "met_s": met, "saved_s": saved, "all_s": before - begin, "sum": total.hex()}
    os.write(1, (json.dumps(told) + "\n").encode())  # one call: lines of several ranks stay whole
    dist.destroy_process_group()


def main():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    torch.multiprocessing.spawn(rank_main, (port,), RANKS)


if __name__ == "__main__":
    main()
