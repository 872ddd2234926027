"""Mixtures and token corpora in millrace.torch: tensors of what _corpus.py reads as arrays, and the sampler of a
mixture."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, default_collate
from torch.utils.data.distributed import DistributedSampler

from . import mixtures
from ._corpus import Rows, collate

_CORPUS = "tokens"  # a field that samples of corpora have


def tensors(batch: Any) -> Any:
    """The arrays of a batch as tensors over the same memory."""
    if isinstance(batch, dict):
        return {name: tensors(value) for name, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        return type(batch)(tensors(value) for value in batch)
    return torch.from_numpy(batch) if isinstance(batch, np.ndarray) else batch


def collate_tokens(samples: Sequence[Any]) -> Any:
    """A batch of samples of corpora, or of anything else as torch would make it."""
    if isinstance(samples, Rows):
        return tensors(samples.batch)
    if any(isinstance(s, dict) and _CORPUS in s for s in samples):
        return tensors(collate(samples))
    return default_collate(list(samples))


class Mixture(mixtures.Mixture, Dataset):
    """A mixture as a data set for millrace.torch.DataLoader; see millrace.mixtures. Sample k is item k of the stream;
    an epoch has `samples` of them, and the next one goes on where it ends."""

    def collate(self, samples: Sequence[Any]) -> Any:
        """A batch as tensors."""
        return collate_tokens(samples)

    millrace_collate = collate


class MixtureSampler(DistributedSampler):
    """The items of an epoch of a mixture that are this rank's: epoch * n + rank, + world, ..."""

    def __init__(self, mixture: "mixtures.Mixture", world: int, rank: int) -> None:
        super().__init__(mixture, world, rank, shuffle=False)

    def __iter__(self) -> Iterator[int]:
        first = self.epoch * len(self.dataset)
        return (first + i for i in super().__iter__())


def position(state: dict[str, Any], n: int) -> int:
    """The next item of a mixture, in all ranks together, of a loader's state."""
    first = int(state["epoch"]) * n
    if not state["in_epoch"]:
        return first
    return first + min(n, state["start"] + state["batch"] * (state["batch_size"] or 1) * state["world"])
