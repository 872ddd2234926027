"""Batches of several fields on their way to torch programs: to their device, and as torchvision's tv_tensors where a
field's use is one of these classes."""

from typing import Any

import torch

from . import _device
from ._fields import Selection


def _there(value: Any, device: Any, pin: bool) -> Any:
    if isinstance(value, list):
        return [_there(row, device, pin) for row in value]
    if not isinstance(value, torch.Tensor):
        return value  # text
    if pin and not value.is_pinned():
        value = value.pin_memory()
    return value if device is None else value.to(device, non_blocking=True)


def to_device(parts: dict[str, Any], device: Any, stream: Any, pins: bool) -> tuple[dict[str, Any], Any]:
    """The fields where they are wanted, and the event behind which they are there, or None."""
    with _device.on_stream(stream):
        pin = (pins or stream is not None) and torch.cuda.is_available()
        if device is not None or pin:
            parts = {name: _there(value, device, pin) for name, value in parts.items()}
        if stream is None:
            return parts, None
        event = torch.cuda.Event()
        event.record(stream)
    return parts, event


def _size(images: Any, row: int) -> tuple[int, int]:
    image = images[row] if isinstance(images, list) else images
    height, width = image.shape[-2:]
    return int(height), int(width)


def wrap(parts: dict[str, Any], selection: Selection, planar: bool) -> dict[str, Any]:
    """The fields as the classes that were given as their uses. `planar`: pictures are channels x height x width."""
    if not selection.classes:
        return parts
    parts = dict(parts)
    images = None
    for name, kind in selection.classes.items():
        if kind.__name__ == "Image":
            rows = parts[name]
            if not planar:
                rows = [r.movedim(-1, -3) for r in rows] if isinstance(rows, list) else rows.movedim(-1, -3)
            parts[name] = images = [kind(r) for r in rows] if isinstance(rows, list) else kind(rows)
        elif kind.__name__ == "Mask":
            rows = parts[name]
            parts[name] = [kind(r) for r in rows] if isinstance(rows, list) else kind(rows)
    for name, kind in selection.classes.items():
        rows = parts[name]
        if kind.__name__ != "BoundingBoxes" or images is None:
            continue
        if isinstance(rows, list):
            parts[name] = [kind(r, format="XYXY", canvas_size=_size(images, i)) for i, r in enumerate(rows)]
        elif not isinstance(images, list) and rows.ndim == 2:  # packed
            parts[name] = kind(rows, format="XYXY", canvas_size=_size(images, 0))
    return parts
