"""What the programs of bench/blind share: a model, reads that last, and their own clocks around waits and saves.

The last line of a program is JSON: the class, the causes of which one is right (null: any), the first findings of
which one is sensible (null: any; empty: none that promises anything), and the seconds waited for data by the program's
own clock. A program that somebody else wrote is run by other.py; its class follows from its clocks."""

import functools
import json
import mmap
import os
import sys
import time
import typing

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
waited = first = saved = ended = 0.0  # first: of waited, the first one, which every program has; ended: the last of all
begun = trained = 0.0  # when the first step began and the last one ended


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
    global begun, trained
    end = time.perf_counter() + ms / 1000
    begun = begun or end - ms / 1000
    loss = model(batch).mean()
    optimizer.zero_grad()
    loss.backward()
    while time.perf_counter() < end:
        pass
    optimizer.step()
    trained = time.perf_counter()


class Waiting:
    """with Waiting(): what lies inside is a wait for data, unless it raises (no batch came: the end of an epoch); a wait
    inside a wait is the outer one's."""

    inside = 0

    def __enter__(self) -> None:
        self.begin = time.perf_counter()
        Waiting.inside += 1

    def __exit__(self, raised: "type | None", *_: object) -> None:
        global waited, first, ended
        Waiting.inside -= 1
        if not Waiting.inside and raised is None:
            ended = time.perf_counter()
            took = ended - self.begin
            waited += took
            first = first or took


class _Clocked:
    def __init__(self, inner: object) -> None:
        self.inner = inner

    def __iter__(self) -> "_Clocked":
        return self

    def __next__(self) -> object:
        with Waiting():
            return next(self.inner)  # type: ignore[call-overload]

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


def clock_loaders(owner: "type | None" = None) -> None:
    """Puts a clock around the iterators of every DataLoader (or `owner`), for loops that are somebody else's."""
    owner = owner or torch.utils.data.DataLoader
    original = owner.__iter__

    def __iter__(self: object) -> _Clocked:
        with Waiting():
            return _Clocked(original(self))

    owner.__iter__ = __iter__


def clocked(function: "typing.Callable[..., object]") -> "typing.Callable[..., object]":
    """A function in which a loop gets its batches."""

    @functools.wraps(function)
    def waiting(*args: object, **kwargs: object) -> object:
        with Waiting():
            return function(*args, **kwargs)

    return waiting


def clock_saves(owner: object = torch, name: str = "save") -> None:
    original = getattr(owner, name)

    def save(*args: object, **kwargs: object) -> object:
        global saved, ended
        begin = time.perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            ended = time.perf_counter()
            saved += ended - begin

    setattr(owner, name, save)


def take(loader: object) -> object:
    """Goes through a loader with a clock around its __next__."""
    iterator = iter(loader)  # type: ignore[call-overload]
    while True:
        try:
            with Waiting():
                batch = next(iterator)
        except StopIteration:
            return
        yield batch


def answer(kind: str, causes: "list[str] | None" = None, first: "list[str] | None" = None, **more: object) -> None:
    """A program that should not wait does where others have the CPUs: its own clock says so."""
    loop = max(trained, ended) - begun
    if kind in ("healthy", "logging-bound") and begun and waited - globals()["first"] >= 0.05 * loop:
        kind, causes, first = "input-bound", ["cpu_wait", "worker", "decode", "queue"], None
    print(json.dumps(dict(more, **{"class": kind, "causes": causes, "first": first, "waited_s": waited})), flush=True)
