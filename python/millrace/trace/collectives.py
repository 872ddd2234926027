"""What a rank of a PyTorch program waits for in other ranks.

`barrier` spans on the thread that trains: collective calls by their names (all_reduce, broadcast, all_gather ...), and,
of calls that return at once, the wait for them (Work.wait, also that of the calls that FSDP makes), barriers, the
broadcast of buffers before DistributedDataParallel's forward pass, and the end of its backward pass. That end is where
its gradients meet those of
the other ranks, deep inside C++; but the autograd engine runs callbacks in the order in which they were queued once
all gradients are there, and the one that waits for the other ranks is queued with the last gradient. So one that is
queued with the first takes the time just before:

    backward()  |-- gradients, all_reduce of full buckets meanwhile --|- ours -|- waits for all_reduce -|  returns
                                                                                `barrier` `backward`

With NCCL the host does not wait there: its stream does. Two CUDA events at the same places, also around collective
calls and waits for them, tell how long, asked for later like those of waits for data (accelerator.py): `accelerator`
`collective`.

Nothing is computed differently: the hook returns nothing, callbacks change nothing, and where a name is missing the
program runs as it is.
"""

import functools
import sys
import threading

from . import accelerator, now, span

CALLS = (
    "all_reduce",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_to_all",
    "all_to_all_single",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
)
_here = threading.local()  # inside: a collective call waits
_reduces = False  # a DistributedDataParallel has been made in this process


def _span_of(original, label):
    """A function of the program's as a `barrier` span."""
    from . import instrument  # it imports this module when PyTorch is there

    return instrument._plain(original, "barrier", label)


def _meeting(original, label):
    """A call in which the host, or the device's stream, waits for other ranks; one inside another is that one's."""
    from . import instrument

    def traced(*args, **kwargs):
        begin = 0 if instrument._compiling() or getattr(_here, "inside", False) else now()
        if not begin:
            return original(*args, **kwargs)
        _here.inside, event = True, accelerator.begin()
        try:
            return original(*args, **kwargs)
        finally:
            _here.inside = False
            if not kwargs.get("async_op"):
                accelerator.collective_ends(event)
                span("barrier", label, begin, None)

    return functools.update_wrapper(traced, original)


def work(module, put):
    """torch.distributed.distributed_c10d: barriers, and the object that every collective call gives; and who this
    process is."""
    for name in ("barrier", "monitored_barrier"):
        if callable(getattr(module, name, None)):
            put(module, name, _span_of(getattr(module, name), name))
    for name in CALLS:
        if callable(getattr(module, name, None)):
            put(module, name, _meeting(getattr(module, name), name))
    owner = getattr(module, "Work", None)
    if owner is not None and "wait" in owner.__dict__:
        put(owner, "wait", _meeting(owner.__dict__["wait"], "collective"))
    original = getattr(module, "init_process_group", None)
    if callable(original):
        put(module, "init_process_group", _of_init(module, original))


def _of_init(module, original):
    @functools.wraps(original)
    def init_process_group(*args, **kwargs):
        begin = now()
        result = original(*args, **kwargs)
        try:
            span("startup", "init_process_group", begin, {"rank": module.get_rank(), "world": module.get_world_size()})
        except Exception:  # a group of a kind that has no numbers
            pass
        return result

    return init_process_group


def buffers(module, put):
    """torch.distributed: DistributedDataParallel asks it to broadcast a model's buffers."""
    if callable(getattr(module, "_broadcast_coalesced", None)):
        put(module, "_broadcast_coalesced", _span_of(module._broadcast_coalesced, "broadcast"))


def parallel(module, put):
    """torch.nn.parallel.distributed: from the first model on, backward passes may end with a wait."""
    owner = getattr(module, "DistributedDataParallel", None)
    original = owner.__dict__.get("__init__") if owner is not None else None
    if original is None:
        return

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        global _reduces
        _reduces = True
        original(self, *args, **kwargs)

    put(owner, "__init__", __init__)


class _End:
    """Where a backward pass has all its gradients."""

    __slots__ = ("at", "event", "handle")

    def __init__(self, loss):
        self.at, self.event = 0, None
        self.handle = loss.register_hook(self._begun)

    def _begun(self, grad):
        sys.modules["torch"].autograd.Variable._execution_engine.queue_callback(self._ended)

    def _ended(self):
        if not self.at:
            self.event = accelerator.begin()
            self.at = now()


def backward_begins(loss):
    """What backward_ended() wants; None where no other rank is waited for."""
    if not _reduces or not getattr(loss, "requires_grad", False):
        return None
    try:
        return _End(loss)
    except Exception:  # a graph that takes no hooks
        return None


def backward_ended(end):
    """The backward pass is over: its reductions are complete."""
    if end is None:
        return
    try:
        end.handle.remove()
        if end.at:
            span("barrier", "backward", end.at, None)
            accelerator.collective_ends(end.event)
    except Exception:
        pass
