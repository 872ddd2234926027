"""What `millrace try` changes in a program that it runs again, and where that run ends. MILLRACE_TRY names the plan, a
JSON file (doc/internals/loop.md); without it this module is not imported.

A DataLoader is changed when it is iterated for the first time, not when it is made, because frameworks make loaders out
of loaders. What must stay true: a run whose plan changes nothing (A) runs the same code as one whose plan does (B).
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
import tempfile
import threading
import time
from typing import Any

DONE = "_millrace_tried"
OWN = "_millrace_own"  # of a loader: ours, which takes its place
LAUNCHERS = (  # variables: number of a rank on this machine, and how many there are
    ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
_here = threading.local()
SOCKET_FOLDER = 75  # bytes: names of sockets have 107, of which 33 are multiprocessing's
TOGETHER_NS = 2000000  # between the waits of one step for several loaders, as in src/explain/explain_steps.c


class _Plan:
    """The plan of this process, and how far it has come."""

    def __init__(self, path: str) -> None:
        with open(path) as f:
            plan = json.load(f)
        self.end: int = plan.get("end", 0)
        self.marks: str = plan.get("marks", "")
        self.report: str = plan.get("report", "")
        self.loaders: list[dict[str, Any]] = plan.get("loaders", [])
        self.saves: dict[str, Any] = plan.get("saves", {})
        self.stage: dict[str, Any] = plan.get("stage", {})
        self.steps = 0
        self.seen: set[Any] = set()  # loaders that gave a batch of the current step
        self.last_ns = 0
        self.opens = True  # the batch that is waited for begins a step

    def tell(self, **what: Any) -> None:
        """Appends a line to the report."""
        with open(self.report, "a") as f:
            f.write(json.dumps(dict(what, pid=os.getpid())) + "\n")

    def begin_batch(self, loader: Any) -> None:
        """Before the wait for a batch: ends the window."""
        self.opens = loader in self.seen or time.monotonic_ns() - self.last_ns > TOGETHER_NS
        if self.end and self.opens and self.steps > self.end:
            self.park()

    def took_batch(self, loader: Any) -> None:
        """A batch came, and not the end of an epoch: counts steps as the report does."""
        if self.opens:
            self.steps += 1
            self.seen.clear()
        self.seen.add(loader)

    def park(self) -> None:
        """The window is complete. The keeper ends all ranks together, when the last of them is here."""
        rank, world = _rank()
        open(os.path.join(self.marks, "window-%d-%d-%d" % (rank, world, os.getpid())), "w").close()
        while True:
            time.sleep(60)


def _rank() -> tuple[int, int]:
    """Number of this rank, and how many of them this machine has."""
    for rank, world in LAUNCHERS:
        if rank in os.environ and world in os.environ:
            return int(os.environ[rank]), int(os.environ[world])
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


# ---- loaders ----


def _place(loader: Any) -> tuple[str, int]:
    """File and line where a loader was made (places.py)."""
    place = getattr(loader, "_millrace_place", None)
    return (place[0], place[1]) if place else ("", 0)


def _trains() -> bool:
    torch = sys.modules.get("torch")
    return torch is None or bool(torch.is_grad_enabled())


def _concerns(row: dict[str, Any], loader: Any) -> bool:
    """Whether a row of the plan is about this loader."""
    if row.get("file") and _place(loader) != (row["file"], row["line"]):
        return False
    return bool(row.get("file") and not row.get("mixed")) or (row["role"] == "training") == _trains()


def _divides_itself(data: Any) -> bool:
    """Whether the source of an iterable data set mentions its workers: of its class in a script, of the whole module
    of a library, which may do it in a function."""
    for owner in type(data).__mro__:
        if owner.__module__.partition(".")[0] in ("torch", "builtins", "typing"):
            continue
        try:
            if "worker_info" in inspect.getsource(
                owner if owner.__module__ == "__main__" else sys.modules[owner.__module__]
            ):
                return True
        except (KeyError, OSError, TypeError):
            continue
    return False


def _why_not(plan: _Plan, loader: Any, new: dict[str, Any]) -> str:
    """Why workers cannot be given to this loader; empty where they can."""
    module = sys.modules.get("torch.utils.data")
    data = getattr(loader, "dataset", None)
    more = new.get("num_workers", 0) > max(1, loader.num_workers)
    if more and module is not None and isinstance(data, module.IterableDataset) and not _divides_itself(data):
        return (
            "'%s' is an iterable data set that does not divide itself among workers (get_worker_info): %d workers "
            "would deliver every sample %d times" % (type(data).__name__, new["num_workers"], new["num_workers"])
        )
    return ""


def _own_of(plan: _Plan, loader: Any) -> Any:
    """Our loader with the arguments of this one; None where it takes them not."""
    from millrace import torch as own

    given: dict[str, Any] = {
        "num_workers": loader.num_workers,
        "pin_memory": loader.pin_memory,
        "timeout": loader.timeout,
        "worker_init_fn": loader.worker_init_fn,
        "generator": loader.generator,
    }
    if loader.collate_fn is not sys.modules["torch.utils.data"].default_collate:
        given["collate_fn"] = loader.collate_fn
    if loader.batch_size is None:
        given.update(batch_size=None, batch_sampler=loader.batch_sampler)
    else:
        given.update(batch_size=loader.batch_size, sampler=loader.sampler, drop_last=loader.drop_last)
    try:
        made: Any = own.DataLoader(loader.dataset, **given)
    except Exception as error:
        plan.tell(refused="millrace.torch.DataLoader does not take this loader: %s" % error)
        return None
    file, line = _place(loader)
    plan.tell(set={"loader": "millrace.torch.DataLoader"}, was={}, file=file, line=line)
    return made


def _set(plan: _Plan, loader: Any, new: dict[str, Any]) -> None:
    """Puts arguments in place as DataLoader's constructor does it: it refuses some of them later."""
    new = dict(new)
    if new.pop("loader", None):
        object.__setattr__(loader, OWN, _own_of(plan, loader))
        return
    why = _why_not(plan, loader, new)
    if why:
        plan.tell(refused=why)
        return
    workers = new.get("num_workers", loader.num_workers)
    if not workers:  # as the constructor has it
        new.pop("prefetch_factor", None)
        new.pop("persistent_workers", None)
    elif not new.get("prefetch_factor", getattr(loader, "prefetch_factor", None)):
        new["prefetch_factor"] = 2
    was = {key: getattr(loader, key, None) for key in new}
    for key, value in new.items():
        object.__setattr__(loader, key, value)
    file, line = _place(loader)
    plan.tell(set=new, was=was, file=file, line=line)


def _change(plan: _Plan, loader: Any) -> None:
    if getattr(loader, DONE, False) or getattr(_here, "own", False):
        return
    object.__setattr__(loader, DONE, True)
    for row in plan.loaders:
        if _concerns(row, loader):
            _set(plan, loader, row["set"])


def _in_worker() -> bool:
    module = sys.modules.get("torch.utils.data")
    return module is not None and module.get_worker_info() is not None


def _of_iter(plan: _Plan, original: Any) -> Any:
    @functools.wraps(original)
    def __iter__(self: Any) -> Any:
        if not _in_worker():
            _change(plan, self)
        own = getattr(self, OWN, None)
        if own is None:
            return original(self)
        _here.own = True  # ours may make a loader of torch's
        try:
            return iter(own)
        finally:
            _here.own = False

    return __iter__


def _of_next(plan: _Plan, original: Any) -> Any:
    @functools.wraps(original)
    def __next__(self: Any) -> Any:
        if getattr(_here, "inside", False) or _in_worker():  # a class whose __next__ calls its parent's waits once
            return original(self)
        _here.inside = True
        try:
            loader = getattr(self, "_millrace", {}).get("loader", id(self))
            plan.begin_batch(loader)
            batch = original(self)
            plan.took_batch(loader)
            return batch
        finally:
            plan.last_ns = time.monotonic_ns()
            _here.inside = False

    return __next__


def _torch_loader(plan: _Plan, module: Any, put: Any) -> None:
    for name in ("_BaseDataLoaderIter", "_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter"):
        owner = getattr(module, name, None)
        if owner is not None and "__next__" in owner.__dict__:
            put(owner, "__next__", _of_next(plan, owner.__dict__["__next__"]))
    loader = module.DataLoader
    put(loader, "__iter__", _of_iter(plan, loader.__dict__["__iter__"]))


def _own_loader(plan: _Plan, module: Any, put: Any) -> None:
    iterator = getattr(module, "_Iterator", None)
    if iterator is not None:
        put(iterator, "__next__", _of_next(plan, iterator.__dict__["__next__"]))


def _sockets(plan: _Plan, module: Any, put: Any) -> None:
    """Workers keep sockets in a folder that their parent's process removes when it ends by itself: a run that is ended
    in its window would leave them in /tmp. Here they are the trial's."""
    folder = os.path.dirname(plan.report)
    config = module.process.current_process()._config
    if config.get("tempdir") is None and len(folder) < SOCKET_FOLDER:
        config["tempdir"] = tempfile.mkdtemp(prefix="pymp-", dir=folder)


def _of(state: Any, change: Any) -> Any:
    return lambda plan, module, put: change(state, module, put)


def add_to(patches: dict[str, Any], put: Any) -> None:
    """Adds what the plan says to the table of instrument.py: behind the tracing of the same modules, so that changes
    are outside of the spans."""
    plan = _Plan(os.environ["MILLRACE_TRY"])

    def behind(name: str, change: Any) -> None:
        first = patches.get(name)

        def both(module: Any) -> None:
            if first is not None:
                first(module)
            change(plan, module, put)

        patches[name] = both

    behind("torch.utils.data.dataloader", _torch_loader)
    behind("millrace.torch", _own_loader)
    behind("multiprocessing.util", _sockets)
    if plan.stage:
        from . import _inject_stage

        stage = _inject_stage.Stage(plan.stage, plan.tell)
        for name, stages in _inject_stage.CHANGES.items():
            behind(name, _of(stage, stages))
    if plan.saves:
        from . import _inject_saves

        saves = _inject_saves.Saves(plan.saves, plan.tell)
        for name, moves in _inject_saves.CHANGES.items():
            behind(name, _of(saves, moves))
