"""What becomes of a batch between the native loader and the program: it goes to the device, gets its layout, its
normalised values and its structure. Where a device decodes, rows that are still files are decoded there
(`Decoding`)."""

import copy
from array import array
from collections.abc import Callable, Mapping, MutableMapping
from time import perf_counter
from typing import Any

import torch

from . import _core, _device, _pictures, _torch_fields
from ._engine import Engine, padded
from ._options import Options
from ._sources import Source

Item = tuple[dict[str, Any], Any]  # parts of a batch by their names, and the event behind which they are there, or None


def mover(options: Options) -> Callable[[Any], Any] | None:
    """What puts the tensors of a batch of the data set's own code where they are wanted; None: they stay, and the batch
    is the very object that the program's collate function made."""
    pins = options.pin_memory and options.workers == "threads" and torch.cuda.is_available()
    device = options.device
    if device is None and not pins:
        return None

    def move(item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            item = item.pin_memory() if pins else item
            return item if device is None else item.to(device, non_blocking=True)
        if isinstance(item, Mapping):
            return _like(item, {name: move(value) for name, value in item.items()})
        if isinstance(item, tuple) and hasattr(item, "_fields"):
            return type(item)(*(move(value) for value in item))
        return type(item)(move(value) for value in item) if isinstance(item, (list, tuple)) else item

    return move


def _like(old: "Mapping[Any, Any]", values: dict[Any, Any]) -> Any:
    """A mapping of the same class with other values, as torch's pin_memory makes it."""
    if type(old) is dict:
        return values
    if isinstance(old, MutableMapping):
        new = copy.copy(old)
        new.update(values)
        return new
    return type(old)(values)  # type: ignore[call-arg]


class Decoding:
    """Rows of batches that a device decodes; those that it cannot the CPU does, or they are an error."""

    def __init__(self, options: Options, parameters: dict[str, Any] | None) -> None:
        why = _device.why_not(options.device)
        p = parameters or {}
        if why is None and (parameters is None or not _pictures.has_fixed_size(parameters)):
            why = "it needs pictures and a transform that makes them equally large"
        elif why is None and any(p.get("fill", [0])):
            why = "it pads with 0 only"
        elif why is None and p.get("filter", 0) not in _device.FILTERS:
            why = "it resizes bilinear and bicubic only"
        if why is not None or parameters is None or options.device is None or options.batch_size is None:
            raise NotImplementedError(f"decode='{options.decode}' is not possible here: {why}")
        self._options = options
        self.bad: list[str] = []  # why samples were left out
        self.open_one: Callable[[], Any] = lambda: None  # a native loader of single samples
        self.share = _device.Share(options.batch_size, options.ahead, options.decode == "hybrid")
        height = parameters.get("last_height") or parameters["height"]
        width = parameters.get("last_width") or parameters["width"]
        self.decoder = _device.Decoder(options.device, (height, width), bool(parameters["planar"]))

    def fill(self, data: torch.Tensor, labels: Any, stored: _device.Stored, engine: Engine) -> tuple[Any, Any]:
        """Data and labels of the batch with its stored rows decoded."""

        def plans(stored: _device.Stored, sizes: list[int]) -> torch.Tensor:
            ids, pairs = array("Q", stored.samples).tobytes(), array("I", sizes).tobytes()
            made = engine.core.plans(stored.epoch, ids, pairs)
            return torch.frombuffer(bytearray(made), dtype=torch.int32).view(-1, _device.PLAN)

        try:
            self.decoder.fill(data, stored, plans)
            return data, labels
        except RuntimeError:  # of the decoder, which does not name the row
            return self._fill_one_by_one(data, labels, stored)

    def _fill_one_by_one(self, data: torch.Tensor, labels: Any, stored: _device.Stored) -> tuple[Any, Any]:
        core, bad = self.open_one(), set()
        for row, sample in zip(stored.rows, stored.samples):
            try:
                core.start_list(stored.epoch, array("Q", [sample]).tobytes())
                data[row].copy_(torch.from_dlpack(core.next().data)[0])
            except _core.DataError as why:
                bad.add(row)
                if not self._options.skips or len(bad) == len(data):
                    raise
                self.bad.append(str(why))
        core.close()
        if not bad:
            return data, labels
        keep = [i for i in range(len(data)) if i not in bad]
        return data[keep], labels[keep] if labels is not None else None

    def stats(self) -> dict[str, Any]:
        """How the work was shared."""
        share, why = self.share, self.decoder.why_no_kernel
        return {
            "device_resize": f"operators: {why}" if why else "kernel",
            "device_rows": share.rows,
            "device_waited_s": share.waited,
            "device_worked_s": share.worked,
            "device_blocked_s": share.blocked,
        }


class Delivery:
    """Makes what the program gets of what the native loader has read."""

    def __init__(self, options: Options, source: Source, parameters: dict[str, Any] | None) -> None:
        self._options, self._unpack, self._fields = options, source.unpack, source.fields
        device = options.device
        cuda = device is not None and device.type == "cuda"
        if cuda and not torch.cuda.is_available():
            raise RuntimeError(
                f"device='{device}', but PyTorch sees no CUDA device here (torch.cuda.is_available() is False): "
                "leave `device` out, or look at the driver"
            )
        # A high priority: short work that a training waits for.
        self.stream: Any = torch.cuda.Stream(device, priority=-1) if cuda else None
        self.pins = torch.cuda.is_available() and (options.pin_memory or cuda)  # batches lie in pinned memory
        self.pins = self.pins and source.fields is None
        self._normalise: tuple[torch.Tensor, torch.Tensor] | None = None
        self._channels_last = options.channels_last and parameters is not None and source.fields is None
        self.parameters = self._prepare(parameters) if parameters is not None else None  # of the native loader
        self.decoding = Decoding(options, self.parameters) if options.decode != "cpu" else None

    def _prepare(self, parameters: dict[str, Any]) -> dict[str, Any]:
        options = self._options
        p = dict(parameters, fast=int(options.fast))
        if self._fields is not None:
            return p  # the device does nothing to samples of several fields
        if self._channels_last:
            p["planar"] = 0
        as_bytes = options.uint8_transfer or options.decode != "cpu"
        if as_bytes and options.device is not None and p["to_float"]:
            mean, stdev = p.pop("mean", [0.0] * 3), p.pop("stdev", [1.0] * 3)
            p["to_float"] = 0
            scale = torch.tensor([1 / (255 * s) for s in stdev], device=options.device)
            bias = torch.tensor([-m / s for m, s in zip(mean, stdev)], device=options.device)
            self._normalise = scale.view(1, 3, 1, 1), bias.view(1, 3, 1, 1)
        self.pins = self.pins and _pictures.has_fixed_size(p)
        return p

    def pipeline(self, engine: Engine) -> _device.Pipeline | None:
        """The thread that makes an epoch's batches, where a device decodes."""
        if self.decoding is None:
            return None

        def make() -> Any:
            begin = perf_counter()
            got = engine.next(50_000_000)
            waited = perf_counter()
            item = self.to_device(got, engine) if got else got
            return item, waited - begin, perf_counter() - waited

        return _device.Pipeline(make, self.decoding.share, engine.core.leave_stored)

    def to_device(self, got: Any, engine: Engine) -> Item:
        """The parts of a batch: on the device, where there is one."""
        data, labels, stored = got
        if self._fields is not None:
            planar = self.parameters is not None and bool(self.parameters.get("planar"))
            data = _torch_fields.wrap(data, self._fields, planar)
            return _torch_fields.to_device(data, self._options.device, self.stream, self._options.pin_memory)
        parts: dict[str, Any] = {}
        with _device.on_stream(self.stream):
            if self._options.variable == "pad":
                data, parts["shape"] = padded(data)
            data = self._there(data)
            if stored is not None and self.decoding is not None:
                data, labels = self.decoding.fill(data, labels, stored, engine)
            data = self._shaped(data)
            if labels is not None and self._options.device is not None:
                labels = labels.pin_memory() if self.stream is not None else labels
                labels = labels.to(self._options.device, non_blocking=True)
            if self._unpack is not None:
                data = self._unpack(data)
                data, labels = data if isinstance(data, list) else (data, labels)
            if self._normalise is not None:
                data = data.float().mul_(self._normalise[0]).add_(self._normalise[1])
            parts = {"data": data, **({"label": labels} if labels is not None else {}), **parts}
            if self.stream is None:
                return parts, None
            event = torch.cuda.Event()
            event.record(self.stream)
        return parts, event

    def _there(self, data: Any) -> Any:
        if self._options.device is None:
            return data
        if isinstance(data, list):
            return [self._there(row) for row in data]
        return data.to(self._options.device, non_blocking=True)

    def _shaped(self, data: Any) -> Any:
        if not self._channels_last:
            return data
        if isinstance(data, list):
            return [row.permute(2, 0, 1) for row in data]
        return data.permute(0, 3, 1, 2)

    def from_device(self, item: Item) -> Any:
        """The batch in its structure, for the current stream."""
        parts, event = item
        if event is not None:
            stream = torch.cuda.current_stream(self._options.device)
            stream.wait_event(event)
            for part in parts.values():
                for tensor in part if isinstance(part, list) else [part]:
                    if isinstance(tensor, torch.Tensor) and tensor.is_cuda:
                        tensor.record_stream(stream)
        if self._options.structure == "dict" or (self._fields is not None and self._options.structure is None):
            return parts
        if len(parts) == 1 and self._fields is None:
            return parts["data"]
        return tuple(parts.values()) if self._options.structure == "tuple" else list(parts.values())
