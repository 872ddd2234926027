"""Which rank of how many this process is: the one place that decides whether a loader reads a part of a data set,
or all of it. No framework is imported here.

In this order:

1. what initialised the program's ranks: a process group of torch.distributed, or a framework's own (`first`);
2. RANK and WORLD_SIZE, as torchrun sets them;
3. no ranks: everything is read.

The variables of other launchers (srun, mpirun) decide nothing by themselves, because any program that is started inside
of a batch job inherits them. They cause a warning, or count as ranks with `distributed=True`.
"""

import os
import sys
from typing import NamedTuple

from ._warn import warn

# (number of ranks, rank, launcher). srun sets the first for a step only, not for the batch script around it.
_LAUNCHERS = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "mpirun (Open MPI)"),
    ("PMI_SIZE", "PMI_RANK", "mpirun (MPICH)"),
    ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "mpirun (MVAPICH)"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun"),
    ("FLUX_JOB_SIZE", "FLUX_TASK_RANK", "flux run"),
    ("JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK", "jsrun"),
)
_warned: set[str] = set()


class Ranks(NamedTuple):
    """This process among those that read one data set together."""

    rank: int
    world: int
    source: str  # what it was taken from, for messages


ALONE = Ranks(0, 1, "")


def group() -> Ranks | None:
    """Of the process group of torch.distributed, where one is initialised."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    return Ranks(dist.get_rank(), dist.get_world_size(), "process group")


def _numbers(rank: str, world: str, source: str) -> Ranks | None:
    try:
        found = Ranks(int(os.environ[rank]), int(os.environ[world]), source)
    except (KeyError, ValueError):
        return None
    if not 0 <= found.rank < found.world:
        raise ValueError(f"the environment has {rank}={found.rank}, but {world}={found.world}")
    return found


def environment() -> Ranks | None:
    """Of RANK and WORLD_SIZE."""
    return _numbers("RANK", "WORLD_SIZE", "RANK and WORLD_SIZE")


def launcher() -> Ranks | None:
    """Of the variables of a launcher that started several processes."""
    for world, rank, name in _LAUNCHERS:
        found = _numbers(rank, world, f"{world} of {name}")
        if found is not None and found.world > 1:
            return found
    return None


def decide(distributed: bool | None, first: Ranks | None = None) -> Ranks:
    """What this process reads now. `distributed`: False: everything; True: a part, also by a launcher's variables, and
    ValueError where nothing says which. `first`: ranks of a framework that has its own."""
    if distributed is False:
        return ALONE
    known = first or group() or environment()
    if known is None and distributed:
        known = launcher()
        if known is None:
            raise ValueError(
                "distributed=True wants an initialised process group, or numbers in the environment's RANK and "
                "WORLD_SIZE, as torchrun sets them"
            )
    return known or ALONE


def warn_of_part(ranks: Ranks, loader: str, order: str, hint: str) -> None:
    """Once for each front end: only a part of the data is read."""
    if loader not in _warned:
        _warned.add(loader)
        warn(f"{loader}: rank {ranks.rank} of {ranks.world} ({ranks.source}) reads its part of the data{order}; {hint}")


def warn_of_launcher(loader: str, hint: str) -> None:
    """Once for each front end: a launcher started several processes, and each reads everything."""
    found = launcher()
    if found is not None and f"{loader} launcher" not in _warned:
        _warned.add(f"{loader} launcher")
        warn(
            f"{loader}: {found.world} processes were started together ({found.source}={found.world}), but nothing says "
            f"that they share the data: each reads all of it; {hint}"
        )
