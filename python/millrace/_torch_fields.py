"""Batches of several fields on their way to torch programs."""

from typing import Any

import torch

from . import _device


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
