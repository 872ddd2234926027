"""The programs of bench/check_fixes: trainings as people write them, whose settings are arguments, so that a fix can be
applied to them. Each measures what it waits for with its own clock: next() of its loaders, its saves with their end, and
whatever it prepares first because of a fix.

    python program.py NAME KEY=VALUE...

The last line is JSON: the seconds waited."""

from __future__ import annotations

import concurrent.futures
import http.client
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch

waited = 0.0


class Waiting:
    """with Waiting(): what lies inside is a wait."""

    def __enter__(self) -> None:
        self.begin = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        global waited
        waited += time.perf_counter() - self.begin


def burn(seconds: float) -> None:
    """CPU time, as decoding takes it."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Net:
    """A model whose step takes as long as an accelerator would: the host sleeps."""

    def __init__(self, step_ms: float) -> None:
        self.model = torch.nn.Linear(16, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.step_s = step_ms / 1e3

    def train(self, batch: torch.Tensor) -> None:
        end = time.perf_counter() + self.step_s
        loss = self.model(batch[:, :16]).mean()
        self.optimizer.zero_grad()
        loss.backward()
        time.sleep(max(0, end - time.perf_counter()))
        self.optimizer.step()


class Files(torch.utils.data.Dataset):
    """A sample is a file, or a record of one, or an answer of a server."""

    def __init__(self, s: dict[str, Any]) -> None:
        self.s = s
        self.lock = multiprocessing.Lock()
        self.ready_in = 0
        self.connection: Any = None
        self.packed: Any = None

    def __len__(self) -> int:
        return int(self.s["files"])

    def read_file(self, i: int) -> bytes:
        with open(os.path.join(self.s["folder"], "%05d.bin" % i), "rb", buffering=0) as f:
            return f.read(int(self.s["size"]))

    def read_packed(self, i: int) -> bytes:
        """Samples in one file each after the other: what packing into shards makes of them."""
        if self.packed is None:
            self.packed = os.open(os.path.join(self.s["folder"], "all.pack"), os.O_RDONLY)
        return os.pread(self.packed, int(self.s["size"]), i * int(self.s["size"]))

    def read_pieces(self, i: int) -> bytes:
        if self.packed is None:
            self.packed = os.open(os.path.join(self.s["folder"], "all.pack"), os.O_RDONLY)
        size, piece = int(self.s["size"]), int(self.s["piece"])
        return b"".join(os.pread(self.packed, min(piece, size - at), i * size + at) for at in range(0, size, piece))

    def read_small(self, i: int) -> bytes:
        """As people read records: open(), seek, read."""
        if self.packed is None:
            self.packed = open(os.path.join(self.s["folder"], "all.pack"), "rb")
        size, piece = int(self.s["size"]), int(self.s["piece"])
        self.packed.seek(i * size)
        return b"".join(self.packed.read(min(piece, size - at)) for at in range(0, size, piece))

    def read_http(self, i: int) -> bytes:
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", int(self.s["port"]))
        self.connection.request("GET", "/%d" % i)
        return self.connection.getresponse().read()

    def read(self, i: int) -> bytes:
        kind = self.s["read"]
        if kind == "none":
            return b""
        return {
            "file": self.read_file, "packed": self.read_packed, "pieces": self.read_pieces, "small": self.read_small,
            "http": self.read_http,
        }[kind](i)  # fmt: skip

    def __getitem__(self, i: int) -> torch.Tensor:
        if self.s["init_ms"] and self.ready_in != os.getpid():  # an index, a model for the tokens, a connection
            time.sleep(float(self.s["init_ms"]) / 1e3)
            self.ready_in = os.getpid()
        if self.s["lock_ms"]:
            with self.lock:
                time.sleep(float(self.s["lock_ms"]) / 1e3)
        if self.s["sleep_ms"]:
            time.sleep(float(self.s["sleep_ms"]) / 1e3)
        data = self.read(i)
        if self.s["decode_ms"]:
            burn(float(self.s["decode_ms"]) / 1e3)
        out = torch.zeros(int(self.s["numbers"]))
        out[0] = len(data)
        return out


def loader_of(s: dict[str, Any], data: Files, prefix: str = "") -> torch.utils.data.DataLoader:
    """As the settings have it: those that are not set are PyTorch's own."""
    more: dict[str, Any] = {}
    workers = int(s[prefix + "num_workers"])
    if workers and s[prefix + "prefetch_factor"]:
        more["prefetch_factor"] = int(s[prefix + "prefetch_factor"])
    if workers and s[prefix + "persistent_workers"]:
        more["persistent_workers"] = True
    return torch.utils.data.DataLoader(data, batch_size=int(s["batch"]), shuffle=not prefix, num_workers=workers, **more)


def take(loader: Any) -> Iterator[torch.Tensor]:
    with Waiting():
        iterator = iter(loader)
    while True:
        with Waiting():
            batch = next(iterator, None)
        if batch is None:
            return
        yield batch


def copy(source: str, to: str) -> None:
    """At once, as cp does it with files of this size."""
    with open(source, "rb", buffering=0) as f, open(to, "wb") as out:
        out.write(f.read())


def stage_answers(s: dict[str, Any], to: str) -> None:
    """The answers of the server as files, by as many connections as the loader has workers."""
    parts = max(1, int(s["num_workers"]))

    def part(first: int) -> None:
        files = Files(s)
        for i in range(first, int(s["files"]), parts):
            with open(os.path.join(to, "%05d.bin" % i), "wb") as out:
                out.write(files.read_http(i))

    with concurrent.futures.ThreadPoolExecutor(parts) as pool:
        list(pool.map(part, range(parts)))
    s["read"], s["folder"] = "file", to


def stage(s: dict[str, Any]) -> None:
    """Into memory, before training, by as many as read: a wait as well."""
    with Waiting():
        source, to = s["folder"], s["stage"]
        os.makedirs(to, exist_ok=True)
        if s["read"] == "http":
            stage_answers(s, to)
            return
        names = [name for name in os.listdir(source) if (s["read"] != "file") == name.endswith(".pack")]
        with concurrent.futures.ThreadPoolExecutor(max(1, int(s["num_workers"]))) as pool:
            list(pool.map(lambda name: copy(os.path.join(source, name), os.path.join(to, name)), names))
        s["folder"] = to


def log(s: dict[str, Any], history: list[float], step: int) -> None:
    """All of a history, written again in every step, or in every so many: a wait as well."""
    if not s["history"]:
        return
    history.extend([float(step)] * 400)
    if step % int(s["history"]):
        return
    with Waiting():
        with open(os.path.join(s["work"], "history.json"), "w") as f:
            json.dump(history, f)


def saver_of(s: dict[str, Any]) -> Any:
    if s["saver"] != "millrace.checkpoint.Saver":
        return None
    from millrace import checkpoint

    return checkpoint.Saver(os.path.join(s["work"], "saver"))


def save(s: dict[str, Any], saver: Any, state: dict[str, torch.Tensor], step: int) -> None:
    with Waiting():
        if saver:
            saver.save(step, state)
        else:
            torch.save(state, os.path.join(s["work"], "checkpoint-%d.pt" % step))


def main_loader(s: dict[str, Any]) -> None:
    if s["stage"]:
        stage(s)
    net, data = Net(float(s["step_ms"])), Files(s)
    loader, history, step = loader_of(s, data), [0.0], 0
    held_out = loader_of(s, Files(dict(s, files=s["eval_files"])), "eval_") if s["eval_files"] else None
    state = {"weights": torch.zeros(int(float(s["state_mb"]) * 1e6 / 4))} if s["save_every"] else {}
    saver = saver_of(s)
    for _ in range(int(s["epochs"])):
        net.model.train()
        for batch in take(loader):
            net.train(batch)
            log(s, history, step)
            step += 1
            if s["save_every"] and step % int(s["save_every"]) == 0:
                save(s, saver, state, step)
        if held_out is not None:
            net.model.eval()
            with torch.no_grad():
                for batch in take(held_out):
                    net.model(batch[:, :16])
                    time.sleep(net.step_s / 4)
    if saver:
        with Waiting():
            saver.close()


def main_hand(s: dict[str, Any]) -> None:
    """No loader: the loop reads by itself, until a fix gives it one."""
    if s["num_workers"]:
        main_loader(s)
        return
    net, data, batch = Net(float(s["step_ms"])), Files(s), int(s["batch"])
    for _ in range(int(s["epochs"])):
        for k in range(int(s["files"]) // batch):
            with Waiting():
                rows = torch.stack([data[k * batch + i] for i in range(batch)])
            net.train(rows)


SETTINGS: dict[str, Any] = {
    "files": 96, "size": 100000, "batch": 4, "epochs": 2, "numbers": 64, "folder": "", "work": "", "port": 0,
    "read": "none", "piece": 4096, "sleep_ms": 0, "lock_ms": 0, "decode_ms": 0, "init_ms": 0, "step_ms": 25,
    "num_workers": 0, "prefetch_factor": 0, "persistent_workers": 0, "stage": "", "history": 0,
    "eval_files": 0, "eval_num_workers": 0, "eval_prefetch_factor": 0, "eval_persistent_workers": 0,
    "save_every": 0, "state_mb": 0, "saver": "",
}  # fmt: skip


def run(name: str, given: dict[str, Any]) -> float:
    """Runs a program; the seconds that it waited."""
    global waited
    waited = 0.0
    torch.set_num_threads(1)
    settings = dict(SETTINGS, **given)
    {"loader": main_loader, "hand": main_hand}[name](settings)
    return waited


def parse(words: list[str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for word in words:
        key, _, value = word.partition("=")
        given[key] = float(value) if value.replace(".", "", 1).isdigit() else value
    return given


if __name__ == "__main__":
    print(json.dumps({"waited_s": run(sys.argv[1], parse(sys.argv[2:]))}))
