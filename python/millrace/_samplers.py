"""The samplers of a millrace.torch.DataLoader: those that torch.utils.data.DataLoader would make, and a
DistributedSampler for a rank of torchrun."""

import os
from typing import Any, NamedTuple

import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from ._warn import warn

_has_warned = False


class Samplers(NamedTuple):
    """What decides about the order, and the size of batches that goes with it."""

    sampler: Any
    batch_sampler: Any
    batch_size: int | None
    drop_last: bool


def make(
    dataset: Any,
    batch_size: int | None,
    shuffle: bool | None,
    sampler: Any,
    batch_sampler: Any,
    drop_last: bool,
    generator: torch.Generator | None,
) -> Samplers:
    """As torch.utils.data.DataLoader does."""
    if batch_sampler is not None:
        if batch_size not in (None, 1) or shuffle or sampler is not None or drop_last:
            raise ValueError("batch_sampler excludes batch_size, shuffle, sampler and drop_last")
        return Samplers(
            getattr(batch_sampler, "sampler", batch_sampler),
            batch_sampler,
            getattr(batch_sampler, "batch_size", None),
            getattr(batch_sampler, "drop_last", False),
        )
    if sampler is not None and shuffle:
        raise ValueError("sampler excludes shuffle")
    if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
        raise ValueError(f"batch_size must be a whole number of at least 1, not {batch_size!r}")
    if sampler is None:
        sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
    batches = BatchSampler(sampler, batch_size, drop_last) if batch_size is not None else None
    return Samplers(sampler, batches, batch_size, drop_last)


def _ranks() -> tuple[int, int] | None:
    """(rank, world) of the environment, as torchrun sets it."""
    try:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return None


def by_environment(
    dataset: Any, shuffle: bool | None, seed: int | None, wanted: bool | None, tiers: bool
) -> DistributedSampler | None:
    """The sampler that a program which torchrun started would pass; with tiers one for a single process, too, because
    they
    need its order. None: it would pass none."""
    ranks = _ranks()
    if ranks is None and wanted:
        raise ValueError(
            "distributed=True wants numbers in the environment's RANK and WORLD_SIZE, as torchrun sets them"
        )
    if ranks is None and tiers:
        return DistributedSampler(dataset, 1, 0, shuffle=bool(shuffle), seed=seed or 0)
    if ranks is None or wanted is False or ranks[1] < 2:
        return None
    rank, world = ranks
    global _has_warned
    if wanted is None and not _has_warned:
        _has_warned = True
        warn(
            f"millrace.torch: rank {rank} of {world} (RANK and WORLD_SIZE) reads its part of the data, in "
            "DistributedSampler's order; distributed=False reads all of it, distributed=True silences this warning"
        )
    return DistributedSampler(dataset, world, rank, shuffle=bool(shuffle), seed=seed or 0)
