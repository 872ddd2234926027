"""The Saver of millrace.checkpoint: copies states into its ring, lets the native saver write them behind, and waits
for both."""

import json
import operator
import os
import signal
import sys
import threading
import time
import uuid
import weakref
from typing import Any

from . import _core
from ._tree import Flat

_hook: Any = None  # of PyTorch, before every optimizer's step: one for all savers


def is_url(path: "str | os.PathLike[str]") -> bool:
    """Whether it is an address of object storage."""
    return os.fspath(path).startswith("s3://")


def place_key(folder: "str | os.PathLike[str]") -> str:
    """The one name of a folder: its absolute path, or its address."""
    path = os.fspath(folder)
    return path.rstrip("/") if is_url(path) else os.path.abspath(path)


def tier_rows(tiers: Any) -> list[Any]:
    """(folder, capacity, keep_last) of each."""
    rows = [t if isinstance(t, dict) else {"folder": t} for t in tiers or ()]
    strange = [k for t in rows for k in t if k not in ("folder", "capacity", "keep_last")]
    if strange:
        raise TypeError(f"a tier has folder, capacity and keep_last, no {strange[0]!r}")
    return [(os.fspath(t["folder"]), t.get("capacity", 0), t.get("keep_last", 0)) for t in rows]


open_savers: "weakref.WeakSet[Saver]" = weakref.WeakSet()


def _loader_tree(state: Any) -> Any:
    """A loader's state: plain values, and small tensors (the state of a generator) with their content."""
    return Flat(state).inlined()


def _fence_all(*_: Any) -> None:
    for s in list(open_savers):
        if s._behind:
            s.fence()


_jobs: dict[str, Any] = {}  # how many names were made for a folder and purpose: the same on all ranks


def _common_job(rank: int, purpose: str) -> str | None:
    """A name that no other job has, by the process group's store: nothing collective. None: there is no process
    group."""
    torch = sys.modules.get("torch")
    dist = getattr(torch, "distributed", None)
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    try:
        store = dist.distributed_c10d._get_default_store()
    except (AttributeError, RuntimeError, ValueError):
        return None
    _jobs[purpose] = _jobs.get(purpose, 0) + 1
    key = f"millrace/{purpose}/{_jobs[purpose]}"
    if rank == 0:
        store.set(key, uuid.uuid4().hex)
    return store.get(key).decode()


def who(rank: int | None, world: int | None, job: str | None, purpose: str) -> tuple[Any, ...]:
    """Rank, world and job, by torchrun's variables where they are not given. A run's id and port are those of the run
    before, where nobody chose them: a process group knows better."""
    env = os.environ
    if rank is None and world is None and "RANK" in env and "WORLD_SIZE" in env:
        rank, world = int(env["RANK"]), int(env["WORLD_SIZE"])
        job = (
            job
            or (_common_job(rank, purpose) if world > 1 else None)
            or ":".join(
                (
                    env.get("TORCHELASTIC_RUN_ID", ""),
                    env.get("MASTER_ADDR", ""),
                    env.get("MASTER_PORT", ""),
                    env.get("TORCHELASTIC_RESTART_COUNT", "0"),
                )
            )
        )
    return rank or 0, world or 1, job


def report_failure(saver: "Saver", error: Exception) -> None:
    """Writes an error that no caller is left to catch."""
    sys.stderr.write(f"millrace: a checkpoint in '{saver.folder}' could not be written: {error}\n")


class Saver:
    """Saves states into one folder.

    folder: where checkpoints are kept, one folder `step-N` each: a path, or s3://BUCKET/PREFIX.
    rank, world, job: of this process, how many there are, and a name that all of them share and no other job has. Left
        out: torchrun's RANK, WORLD_SIZE and run id, else one process.
    keep_last: older checkpoints are removed after a successful save; 0 keeps all.
    fsync: a checkpoint is durable before it has its name. direct: past the page cache.
    ring_bytes: memory for what is not written yet; 0: as much as the first state needs, at most half of what is free.
    copy_threads, write_threads: 0 chooses. bytes_per_s: write no faster; 0: no limit.
    tiers: faster places before the folder, nearest first (a folder of /dev/shm, a disk of the node): paths, or dicts
        with folder, capacity (bytes of this rank) and keep_last. A save is written to the first one and drained to the
        folder behind; `load(tiers=...)` reads from the nearest that has it.
        drain_bytes_per_s: drain no faster.
    """

    def __init__(
        self,
        folder: "str | os.PathLike[str]",
        *,
        rank: int | None = None,
        world: int | None = None,
        job: str | None = None,
        keep_last: int = 0,
        fsync: bool = True,
        direct: bool = True,
        ring_bytes: int = 0,
        copy_threads: int = 0,
        write_threads: int = 0,
        bytes_per_s: int = 0,
        commit_timeout_s: int = 0,
        tiers: "list[Any] | tuple[Any, ...] | None" = (),
        drain_bytes_per_s: int = 0,
    ):
        rank, world, job = who(rank, world, job, f"save/{place_key(folder)}")
        self.folder = os.fspath(folder)
        self._core = _core.Saver(
            self.folder,
            job,
            rank,
            world,
            fsync,
            direct,
            copy_threads,
            write_threads,
            ring_bytes,
            keep_last,
            bytes_per_s,
            commit_timeout_s,
            tier_rows(tiers),
            drain_bytes_per_s,
        )
        self._end_at: float | None = None  # SIGTERM came: the time by which everything has to end
        self._sigterm_s = 0.0
        self._closed = False
        self._behind: Flat | None = None
        self._hooked = False
        self._next = 0  # the step of millrace.checkpoint.save without one
        self._lock = threading.RLock()  # of what saves: one thread at a time
        self._idle = threading.Condition()
        self._waits = 0  # threads inside wait(), which may last beside saves; under _idle
        open_savers.add(self)

    def save(self, step: int, state: Any, *, loader: Any = None, overlapped: bool = False) -> dict[str, Any]:
        """Saves `state` as the checkpoint of `step`. loader: the data loader, or its state_dict(), kept beside it.
        Returns what it cost: bytes,
        blocked_s, copy_s, room_s (overlapped: blocked_s; the others come from fence()). An error of an earlier save is
            raised here, once; this one is made all the same."""
        step = operator.index(step)
        if step < 0:
            raise ValueError(f"a step is a number from 0 on, not {step}")
        with self._lock:
            if self._behind:
                self.fence()
            try:
                flat = Flat(state, overlapped)
                if loader is not None:
                    loader = _loader_tree(loader.state_dict() if hasattr(loader, "state_dict") else loader)
            except Exception as error:
                self._core.fail(step, str(error))  # the other ranks need not wait for it
                raise
            return self._start(step, flat, loader, overlapped)

    def fail(self, step: int, why: str) -> None:
        """Instead of a save that this rank cannot make: the others learn why at once."""
        self._core.fail(step, why)

    def _start(self, step: int, flat: "Flat", loader: Any = None, overlapped: bool = False) -> dict[str, Any]:
        text = json.dumps(flat.tree, allow_nan=False)
        aside = None if loader is None else json.dumps(loader, allow_nan=False)
        stream = self._cuda(flat)
        if not overlapped:
            return self._core.save(step, flat.tensors, text, aside, stream)
        self._hook()
        start = time.perf_counter()
        self._core.begin(step, flat.tensors, text, aside, stream)
        self._behind = flat
        return {"blocked_s": time.perf_counter() - start}

    def _cuda(self, flat: Flat) -> int:
        if not flat.devices:
            return 0
        torch = sys.modules["torch"]
        first = flat.tensors[next(i for i, t in enumerate(flat.tensors) if t[5])][5] - 1
        for device in flat.devices - {first}:
            torch.cuda.synchronize(device)
        return torch.cuda.current_stream(first).cuda_stream

    def _hook(self) -> None:
        """Before any optimizer's step the copy must be complete."""
        torch = sys.modules.get("torch")
        if self._hooked or torch is None:
            return
        try:
            from torch.optim.optimizer import register_optimizer_step_pre_hook
        except ImportError:
            raise NotImplementedError(
                "overlapped saves need PyTorch 2.0 or later, or NumPy/JAX states and your own call of fence()"
            ) from None
        global _hook
        if _hook is None:
            _hook = register_optimizer_step_pre_hook(_fence_all)
        self._hooked = True

    def fence(self) -> dict[str, Any]:
        """Waits until the copy of an overlapped save is complete: the tensors may change again."""
        with self._lock:
            try:
                return self._core.fence()
            finally:
                self._behind = None

    def wait(self, step: int | None = None) -> None:
        """Waits until the checkpoint of that step, or all, are on storage. Raises what failed."""
        if self._behind:
            self.fence()
        with self._idle:
            self._waits += 1
        try:
            self._core.wait() if step is None else self._core.wait(step)
        finally:
            with self._idle:
                self._waits -= 1
                self._idle.notify_all()

    def done(self) -> bool:
        """Whether everything that was saved is on storage."""
        return not self._behind and self._core.pending() == 0

    def last(self) -> dict[str, Any] | None:
        """The last save that is over: step, bytes, durable_s (seconds from the call until it was durable), code (0, or
        an error)."""
        return self._core.last()

    def on_sigterm(self, within: float) -> None:
        """From now on SIGTERM (a job's preemption) ends the training at its next step: `step()` saves and returns
        True. within: seconds from the signal until everything must be over; what is not complete by then is given up.
            Called by the main thread."""
        before = signal.getsignal(signal.SIGTERM)
        self._sigterm_s = within

        def handler(number: int, frame: Any) -> None:
            if self._end_at is None:
                self._end_at = time.monotonic() + within
            if callable(before):
                before(number, frame)

        signal.signal(signal.SIGTERM, handler)

    def step(self, number: int | None = None, state: Any = None, *, loader: Any = None) -> bool:
        """A step of the training has ended. Call it after every step: the drain then throttles itself before it slows
        training. After a SIGTERM (see on_sigterm) it saves the result of `state()` as the checkpoint of `number`,
        closes the saver in the time that is left, and returns True: leave the loop."""
        if self._end_at is None:
            self._core.step()
            return False
        self._core.end_within(max(self._end_at - time.monotonic(), 0.001))
        try:
            if state is not None:
                if number is None:
                    raise TypeError("step() needs the number of the step to save its state")
                self.save(number, state(), loader=loader)
        finally:
            self.close()
        return True

    def reserve(self, nbytes: int) -> None:
        """Gets the memory for a state of that size now, instead of in the first save."""
        with self._lock:
            self._core.reserve(nbytes)

    def close(self) -> None:
        """Waits for everything; raises failures that were not raised before."""
        open_savers.discard(self)
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                if self._behind:
                    self.fence()
            finally:
                with self._idle:
                    self._idle.wait_for(lambda: self._waits == 0)
                self._core.close()

    def __del__(self) -> None:
        try:
            if hasattr(self, "_waits"):
                self.close()
        except Exception as error:
            report_failure(self, error)

    def __enter__(self) -> "Saver":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
