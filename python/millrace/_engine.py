"""One native loader as millrace.torch uses it: the memory that it fills, and tensors over that memory."""

from typing import Any

import torch

from . import _core, _device
from ._fields import Selection, collect


class Engine:
    """One native loader and the memory it fills: its own, or pinned memory of torch's, which torch reuses only when
    copies to a device that read it are done."""

    def __init__(self, manifest: str, options: dict[str, Any], pins: bool, fields: Selection | None = None) -> None:
        self.core = _core.Loader(manifest, **options)
        self._fields = fields
        self.pinned: dict[int, torch.Tensor] = {}  # by address; not used without `pins`
        self._pins = pins
        if pins:
            for i in range(self.core.places):
                self.core.set_memory(i, self._fresh())

    def _fresh(self) -> int:
        memory = torch.empty(self.core.slab_bytes, dtype=torch.uint8, pin_memory=True)
        self.pinned[memory.data_ptr()] = memory
        return memory.data_ptr()

    def next(self, timeout_ns: int = -1) -> Any:
        """(data, labels, rows that are as stored or None), None at the end, False if it is not there in time."""
        if not self._pins:
            batch = self.core.next(0, timeout_ns)
        else:
            fresh = self._fresh()
            try:
                batch = self.core.next(fresh, timeout_ns)
            except BaseException:
                del self.pinned[fresh]
                raise
            if not batch:
                del self.pinned[fresh]
        if not batch:
            return batch
        if self._fields is not None:
            return collect(self._fields, batch.fields, torch.from_dlpack), None, None
        labels = torch.from_dlpack(batch.labels) if batch.labels is not None else None
        data = self._tensor(batch)
        return data, labels, self._stored(batch, data) if batch.stored else None

    @staticmethod
    def _stored(batch: Any, data: torch.Tensor) -> _device.Stored:
        bytes_, step = data.view(-1), data[0].numel()
        rows = [bytes_[row * step : row * step + n] for row, n, _ in batch.stored]
        return _device.Stored([s[0] for s in batch.stored], rows, [s[2] for s in batch.stored], batch.epoch)

    def _tensor(self, batch: Any) -> Any:
        if batch.data is None:
            rows = [torch.from_dlpack(row) for row in batch.rows]
            if len(rows) == 1:
                return rows[0].unsqueeze(0)
            alike = all(row.shape == rows[0].shape for row in rows)
            return torch.stack(rows) if alike else rows  # as torch does, where it can
        if not self._pins:
            return torch.from_dlpack(batch.data)
        memory = self.pinned.pop(batch.address)
        shape = batch.data.shape
        dtype = {"f4": torch.float32, "u1": torch.uint8}.get(batch.data.dtype)
        if dtype is None:
            dtype = torch.from_dlpack(batch.data).dtype
        n = 1
        for length in shape:
            n *= length
        return memory.view(dtype)[:n].view(shape)


def padded(data: Any) -> "tuple[torch.Tensor, torch.Tensor]":
    """Rows as one tensor, as large as the largest, with zeros behind the others; and the shapes of all."""
    if isinstance(data, torch.Tensor):
        return data, torch.tensor([tuple(data.shape[1:])] * len(data))
    shapes = torch.tensor([tuple(row.shape) for row in data])
    out = torch.zeros(len(data), *shapes.amax(0).tolist(), dtype=data[0].dtype)
    for to, row in zip(out, data):
        to[tuple(slice(n) for n in row.shape)] = row
    return out, shapes
