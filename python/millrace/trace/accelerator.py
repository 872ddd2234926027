"""What the accelerator does while the program waits for data, without ever waiting for it.

Where CUDA is in use in this process, an event is put on the current stream when a wait begins and one when it ends.
The first is reached when the device has finished what it was given before, the second not before the wait ends: the
time between them is how long the stream had nothing to do during the wait. Both are asked for at later waits, and only
once they have been reached. `accelerator`/`idle` is that part of the wait, as a span on the program's clock, with the
numbers of the batch. CUDA is never initialised here, and nothing synchronises.

As a cross-check NVML says once a second how busy the device is (`accelerator`/`utilisation`, percent), where its
library is there.
"""

import atexit
import ctypes
import sys
import time
from collections import deque

from . import counter, now, span

PENDING = 4096  # waits whose events are not reached yet; more are not asked for
SAMPLE_NS = 1000000000

_pending = deque()
_spare = []  # events to be used again: making one takes longer than recording it
_zero = (now(), time.perf_counter_ns())  # the tracer's clock against nanoseconds
_nvml = None  # None: not tried yet; False: there is none
_sampled = 0


def _cuda():
    """torch.cuda, if this process uses it."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


def _mark(cuda):
    event = _spare.pop() if _spare else cuda.Event(enable_timing=True)
    event.record()
    return event


def begin():
    """Marks the current stream: what wait_ends() and collective_ends() want; None where there is nothing to be
    measured."""
    try:
        cuda = _cuda()
        if cuda is None or len(_pending) >= PENDING or cuda.is_current_stream_capturing():
            return None
        return cuda, _mark(cuda), cuda.current_device()
    except Exception:
        return None


def _end(begun, name, said):
    cuda, first, device = begun
    if cuda.current_device() == device and not cuda.is_current_stream_capturing():
        _pending.append((first, _mark(cuda), now(), name, said))
        return True
    return False


def wait_ends(begun, args):
    """The program has waited for a batch since begin()."""
    if begun is None:
        return
    try:
        if _end(begun, "idle", {"batch": args["batch"], "epoch": args["epoch"], "loader": args["loader"]}):
            look()
            _sample(begun[0], begun[2])
    except Exception:
        pass


def collective_ends(begun):
    """The stream has waited for other ranks since begin(); told at the next wait for a batch."""
    if begun is not None:
        _end(begun, "collective", None)


def ticks(ns):
    """Nanoseconds in the tracer's clock."""
    passed = time.perf_counter_ns() - _zero[1]
    return int(ns * (now() - _zero[0]) / passed) if passed > 0 else 0


def look():
    """Tells of the waits whose events have been reached, in their order."""
    try:
        while _pending and _pending[0][1].query() and _pending[0][0].query():
            _tell(*_pending.popleft())
    except Exception:  # a device that has failed: nothing will be reached any more
        _pending.clear()


def _tell(first, last, end, name, said):
    try:
        took = ticks(first.elapsed_time(last) * 1e6)
    except Exception:  # the program has changed the stream's device in between, say: nothing is known of this wait
        return
    span("accelerator", name, max(end - max(took, 0), 1), said, end)
    _spare.extend((first, last))


atexit.register(look)  # the last waits


class _Utilisation(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


def _open_nvml(cuda, device):
    """The library and the device's handle: by its place on the bus, as the numbers of CUDA need not be NVML's."""
    library = ctypes.CDLL("libnvidia-ml.so.1")
    if library.nvmlInit_v2() != 0:
        return False
    handle = ctypes.c_void_p()
    told = cuda.get_device_properties(device)
    if hasattr(told, "pci_bus_id"):
        bus = "%08x:%02x:%02x.0" % (
            getattr(told, "pci_domain_id", 0),
            told.pci_bus_id,
            getattr(told, "pci_device_id", 0),
        )
        found = library.nvmlDeviceGetHandleByPciBusId_v2(bus.encode(), ctypes.byref(handle)) == 0
    else:
        found = library.nvmlDeviceGetHandleByIndex_v2(device, ctypes.byref(handle)) == 0
    return (library, handle) if found else False


def _sample(cuda, device):
    global _nvml, _sampled
    at = time.perf_counter_ns()
    if _nvml is False or at - _sampled < SAMPLE_NS:
        return
    _sampled = at
    if _nvml is None:
        try:
            _nvml = _open_nvml(cuda, device)
        except Exception:
            _nvml = False
    if _nvml:
        is_now = _Utilisation()
        if _nvml[0].nvmlDeviceGetUtilizationRates(_nvml[1], ctypes.byref(is_now)) == 0:
            counter("utilisation", is_now.gpu, category="accelerator")
