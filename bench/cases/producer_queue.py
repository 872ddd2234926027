"""A producer thread reads ahead and hands over by queue.Queue."""

import queue
import threading

import torch
from case import Waiting, answer, slow_read, step

batches: "queue.Queue[torch.Tensor]" = queue.Queue(2)


def produce() -> None:
    for _ in range(30):
        slow_read(30)
        batches.put(torch.randn(8, 64))


threading.Thread(target=produce, daemon=True).start()
for _ in range(30):
    with Waiting():
        batch = batches.get()
    step(batch)
answer("input-bound", ["storage"])
