"""A reader process fills tensors in shared memory and passes their numbers through a queue of multiprocessing."""

import multiprocessing

import torch
from case import Waiting, answer, slow_read, step


def fill(ring: torch.Tensor, free: object, full: object, count: int) -> None:
    for _ in range(count):
        slot = free.get()
        slow_read(30)
        ring[slot] = torch.randn(8, 64)
        full.put(slot)


if __name__ == "__main__":
    ring = torch.zeros(4, 8, 64).share_memory_()
    free, full = multiprocessing.Queue(), multiprocessing.Queue()
    for slot in range(4):
        free.put(slot)
    reader = multiprocessing.Process(target=fill, args=(ring, free, full, 40))
    reader.start()
    for _ in range(40):
        with Waiting():
            slot = full.get()
        batch = ring[slot].clone()
        free.put(slot)
        step(batch)
    reader.join()
    answer("input-bound", ["storage"], ["TH1", "TH4", "PF1", "CA1"])
