"""A producer thread, a deque and a threading.Condition in place of a queue."""

import collections
import threading

import torch
from case import Waiting, answer, slow_read, step

ready, batches = threading.Condition(), collections.deque()


def produce() -> None:
    for _ in range(40):
        slow_read(25)
        with ready:
            ready.wait_for(lambda: len(batches) < 2)
            batches.append(torch.randn(8, 64))
            ready.notify_all()


threading.Thread(target=produce, daemon=True).start()
for _ in range(40):
    with Waiting(), ready:
        ready.wait_for(lambda: batches)
        batch = batches.popleft()
        ready.notify_all()
    step(batch, 8)
answer("input-bound", ["storage"])
