"""PyTorch loops in other styles than a plain `for`, with their own clock: styles_torch.py STYLE WORK_S COMPUTE_S

ahead: one batch is fetched before the last one is used, as trainers do to know which is the last. persistent: next() over three epochs of persistent workers.
accumulate: the optimiser steps at every fourth batch. iterable: an IterableDataset that its workers share. thread: a thread of the program's own waits for the
loader and hands batches over. The last line is JSON: seconds waited, batches."""
import hashlib
import json
import queue
import sys
import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

BLOCK = bytes(256 * 1024)
STYLE, WORK, COMPUTE = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])


def row(i):
    end = time.thread_time() + WORK
    while time.thread_time() < end:
        hashlib.sha256(BLOCK).digest()  # without Python's lock, as decoders work: else the worker's thread that sends batches waits for it
    return torch.randn(16), i % 4


class Rows(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, i):
        return row(i)


class Shared(IterableDataset):
    def __iter__(self):
        me = get_worker_info()
        return (row(i) for i in range(me.id if me else 0, 96, me.num_workers if me else 1))


class Thread:
    def __init__(self, loader):
        self.queue = queue.Queue(2)
        threading.Thread(target=self.run, args=(loader,), daemon=True).start()

    def run(self, loader):
        for batch in loader:
            self.queue.put(batch)
        self.queue.put(None)

    def __iter__(self):
        return self

    def __next__(self):
        batch = self.queue.get()
        if batch is None:
            raise StopIteration
        return batch


class Clock:
    def __init__(self):
        self.waited, self.batches = 0.0, 0

    def over(self, iterator):
        while True:
            begin = time.perf_counter()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            finally:
                self.waited += time.perf_counter() - begin
            self.batches += 1
            yield batch


def one_ahead(batches):
    held = next(batches)
    for following in batches:
        yield held
        held = following
    yield held


def main():
    torch.set_num_threads(1)
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    more = {"persistent_workers": True} if STYLE == "persistent" else {}
    loader = DataLoader(Shared() if STYLE == "iterable" else Rows(), batch_size=4, num_workers=2 if STYLE == "iterable" else 1, **more)
    clock, done = Clock(), 0
    for _ in range(3 if STYLE == "persistent" else 1):
        batches = clock.over(Thread(loader) if STYLE == "thread" else iter(loader))
        for x, y in one_ahead(batches) if STYLE == "ahead" else batches:
            torch.nn.functional.cross_entropy(model(x), y).backward()
            time.sleep(COMPUTE)
            done += 1
            if STYLE != "accumulate" or done % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
    print(json.dumps({"waited_s": clock.waited, "steps": clock.batches}))


if __name__ == "__main__":
    main()
