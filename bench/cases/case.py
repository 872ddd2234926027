"""What the programs of bench/blind share: a model, reads that last, and their own clock around the wait.

The last line of a program is JSON: the class, the causes of which one is right (null: any), the first findings of
which one is sensible (null: any), and the seconds waited for data by the program's own clock."""

import json
import mmap
import os
import sys
import time

import torch

torch.set_num_threads(1)
FOLDER = sys.argv[1]
DATA = os.path.join(FOLDER, "data.bin")
BLOCK = 4 << 20
if not os.path.exists(DATA):
    with open(DATA, "wb") as f:
        f.write(os.urandom(BLOCK) * 8)
model = torch.nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
waited = 0.0


def slow_read(ms: float) -> None:
    """Reads past the page cache for so long: as long on a fast disk as on a slow one."""
    fd = os.open(DATA, os.O_RDONLY | os.O_DIRECT)
    page = mmap.mmap(-1, BLOCK)
    end, at = time.perf_counter() + ms / 1000, 0
    while time.perf_counter() < end:
        os.preadv(fd, [page], at)
        at = (at + BLOCK) % (7 * BLOCK)
    os.close(fd)


def burn(ms: float) -> None:
    """CPU time, as decoding takes it."""
    end = time.thread_time() + ms / 1000
    while time.thread_time() < end:
        pass


def step(batch: torch.Tensor, ms: float = 10) -> None:
    """One training step of about so long."""
    end = time.perf_counter() + ms / 1000
    loss = model(batch).mean()
    optimizer.zero_grad()
    loss.backward()
    while time.perf_counter() < end:
        pass
    optimizer.step()


class Waiting:
    """with Waiting(): what lies inside is a wait for data."""

    def __enter__(self) -> None:
        self.begin = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        global waited
        waited += time.perf_counter() - self.begin


def take(loader: object) -> object:
    """Goes through a loader with a clock around its __next__."""
    iterator = iter(loader)  # type: ignore[call-overload]
    while True:
        with Waiting():
            batch = next(iterator, None)
        if batch is None:
            return
        yield batch


def answer(kind: str, causes: "list[str] | None" = None, first: "list[str] | None" = None) -> None:
    print(json.dumps({"class": kind, "causes": causes, "first": first, "waited_s": waited}))
