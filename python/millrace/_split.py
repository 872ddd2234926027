"""Pictures whose transforms are known only up to a point: reading, decoding, crop, resize and flip are native, and
what follows is called, sample by sample, in torch's worker processes.

Before each call the random numbers of torch, Python and numpy are seeded with (seed, epoch, sample), and put back
after a batch: what is drawn depends on neither workers nor ranks nor resuming."""

import ctypes
import hashlib
import os
import random
import struct
import sys
from typing import Any

import torch
from torch.utils.data import Dataset

from . import _core, _pictures
from ._called import Rows
from ._sources import Source

_CHUNK = 16  # pictures that are in memory at a time, in each process


def _seed_of(seed: int, epoch: int, sample: int) -> int:
    text = struct.pack("<QQQ", seed & (2**64 - 1), epoch & (2**64 - 1), sample)
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def _samples_of(ids: Any) -> list[int]:
    """The numbers of a batch's samples. PyTorch before 2.3 has no uint64, so it cannot take the array itself."""
    place = ids.__array_interface__
    return list((ctypes.c_uint64 * place["shape"][0]).from_address(place["data"][0]))


class _Numbers:
    """The random numbers that transforms draw, seeded by hand while this is entered."""

    def __enter__(self) -> "_Numbers":
        self._numpy = sys.modules.get("numpy")
        self._before = (
            torch.default_generator.get_state(),
            random.getstate(),
            self._numpy.random.get_state() if self._numpy else None,
        )
        return self

    def seed(self, seed: int) -> None:
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        if self._numpy:
            self._numpy.random.seed(seed & 0xFFFFFFFF)

    def __exit__(self, *_: Any) -> None:
        torch.default_generator.set_state(self._before[0])
        random.setstate(self._before[1])
        if self._numpy:
            self._numpy.random.set_state(self._before[2])


class Split(Dataset):
    """A sample is asked for by (epoch, index): (what the called transforms make of the picture, label)."""

    def __init__(self, source: Source, parts: "_pictures.Parts", seed: int, alone: bool, skip: bool) -> None:
        self._source, self._parts, self._seed = source, parts, seed
        flags = _core.DENSE | (_core.SKIP_BAD if skip else 0)
        self._options: dict[str, Any] = dict(seed=seed, flags=flags, preprocess=parts.parameters)
        self._options.update(dict(threads=0, lookahead=2) if alone else dict(threads=1, policy="naive"))
        self._whole = skip  # a batch at a time: of one that has any good sample, the others are left out
        self._reader: tuple[int, int, Any] | None = None  # (process, pictures at a time, native loader)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reader": None}

    def __len__(self) -> int:
        return self._source.n

    def _native(self, wanted: int) -> Any:
        size = wanted if self._whole else _CHUNK
        if (
            self._reader is None or self._reader[0] != os.getpid() or self._reader[1] < size
        ):  # a fork has no use for the one of its parent
            self._reader = os.getpid(), size, _core.Loader(self._source.manifest, size, **self._options)
        return self._reader[2]

    def _picture(self, row: torch.Tensor) -> Any:
        if self._parts.form == "pillow":
            from PIL import Image

            return Image.fromarray(row.numpy())
        if self._parts.form == "image":
            from torchvision import tv_tensors

            return tv_tensors.Image(row)
        return row

    def __getitems__(self, wanted: list[tuple[int, int]]) -> Rows:
        epoch, out = wanted[0][0], Rows()
        native = self._native(len(wanted))
        skipped = native.skipped()[0]
        native.start_list(epoch, self._source.take([index for _, index in wanted]))
        with _Numbers() as numbers:
            while (batch := native.next()) is not None:
                rows = (
                    torch.from_dlpack(batch.data).unbind()
                    if batch.data is not None
                    else [torch.from_dlpack(row) for row in batch.rows]
                )
                labels = torch.from_dlpack(batch.labels).tolist() if batch.labels is not None else None
                for i, sample in enumerate(_samples_of(batch.ids)):
                    numbers.seed(_seed_of(self._seed, epoch, sample))
                    made = self._picture(rows[i])
                    for transform in self._parts.rest:
                        made = transform(made)
                    out.append((made, labels[i]) if labels is not None else made)
        count, why = native.skipped()
        out.bad = [str(why)] * (count - skipped)
        return out

    def __getitem__(self, wanted: tuple[int, int]) -> Any:
        return self.__getitems__([wanted])[0]
