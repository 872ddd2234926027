"""A DataLoader whose iterator runs in a thread of its own (prefetch_generator's style); its worker reads."""

import queue
import threading

import torch
from case import answer, slow_read, step, take
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self) -> int:
        return 120

    def __getitem__(self, i: int) -> torch.Tensor:
        slow_read(12)
        return torch.randn(64)


class Ahead(threading.Thread):
    def __init__(self, inner: object) -> None:
        super().__init__(daemon=True)
        self.inner, self.queue = inner, queue.Queue(2)
        self.start()

    def run(self) -> None:
        for item in self.inner:
            self.queue.put(item)
        self.queue.put(None)

    def __iter__(self) -> "Ahead":
        return self

    def __next__(self) -> torch.Tensor:
        item = self.queue.get()
        if item is None:
            raise StopIteration
        return item


class AheadLoader(DataLoader):
    def __iter__(self) -> Ahead:
        return Ahead(super().__iter__())


for batch in take(AheadLoader(Rows(), batch_size=4, num_workers=1)):
    step(batch, 15)
answer("input-bound", ["storage"], ["TH1", "TH4", "PF1", "CA1"])
