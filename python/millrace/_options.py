"""The options of millrace.torch.DataLoader in one object, which the loader and its mode share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class Options:
    """What the program asked for; DataLoader's docstring says what each one means."""

    batch_size: int | None
    num_workers: int
    collate_fn: Callable[[list[Any]], Any] | None
    pin_memory: bool
    drop_last: bool
    timeout: float
    worker_init_fn: Callable[[int], None] | None
    multiprocessing_context: Any
    generator: torch.Generator | None
    prefetch_factor: int | None
    persistent_workers: bool
    pin_memory_device: str
    in_order: bool
    device: torch.device | None
    on_error: str
    uint8_transfer: bool
    channels_last: bool
    workers: str
    structure: str | None
    variable: str
    decode: str
    fast: bool
    snapshot_every_n_steps: int | None

    def __post_init__(self) -> None:
        for name, known in (
            ("on_error", ("raise", "skip")),
            ("workers", ("processes", "threads")),
            ("structure", (None, "tuple", "dict")),
            ("variable", ("list", "pad", "pack")),
            ("decode", ("cpu", "gpu", "hybrid")),
        ):
            value = getattr(self, name)
            if value not in known:
                names = ["None" if one is None else f"'{one}'" for one in known]
                raise ValueError(f"{name} is {', '.join(names[:-1])} or {names[-1]}, not '{value}'")
        if self.prefetch_factor == 0:
            raise ValueError("prefetch_factor must be at least 1")

    @property
    def snapshot_every(self) -> int:
        """Batches from one state that a worker process sends along to the next one."""
        return max(1, self.snapshot_every_n_steps or 1)

    @property
    def skips(self) -> bool:
        """Are samples that cannot be decoded left out?"""
        return self.on_error == "skip"

    @property
    def ahead(self) -> int:
        """Batches read ahead by the native loader and by threads."""
        return self.prefetch_factor or 3

    def where(self) -> str:
        """Where the Python code of a data set runs."""
        if self.workers == "threads":
            return _several(max(1, self.num_workers), "thread", "threads")
        if not self.num_workers:
            return "in the loop itself, num_workers=0"
        return _several(self.num_workers, "worker process", "worker processes")


def _several(n: int, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"
