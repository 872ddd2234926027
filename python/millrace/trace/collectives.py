"""What a rank of a PyTorch program waits for in other ranks.

`barrier` spans on the thread that trains: every wait for a collective call that Python sees (Work.wait: all_reduce,
broadcast, all_gather ..., the calls that FSDP makes), barriers, the broadcast of buffers before
DistributedDataParallel's forward pass, and the end of its backward pass. That end is where its gradients meet those of
the other ranks, deep inside C++; but the autograd engine runs callbacks in the order in which they were queued once
all gradients are there, and the one that waits for the other ranks is queued with the last gradient. So one that is
queued with the first takes the time just before:

    backward()  |-- gradients, all_reduce of full buckets meanwhile --|- ours -|- waits for all_reduce -|  returns
                                                                                `barrier` `backward`

With NCCL the host does not wait there: its stream does. Two CUDA events at the same places tell how long, asked for
later like those of waits for data
(accelerator.py): `accelerator` `collective`.

Nothing is computed differently: the hook returns nothing, callbacks change nothing, and where a name is missing the
program runs as it is.
"""

import functools
import sys

from . import accelerator, now, span

_reduces = False  # a DistributedDataParallel has been made in this process


def _span_of(original, label):
    """A function of the program's as a `barrier` span."""
    from . import instrument  # it imports this module when PyTorch is there

    return instrument._plain(original, "barrier", label)


def work(module, put):
    """torch.distributed.distributed_c10d: barriers, and the object that every collective call gives; and who this
    process is."""
    for name in ("barrier", "monitored_barrier"):
        if callable(getattr(module, name, None)):
            put(module, name, _span_of(getattr(module, name), name))
    owner = getattr(module, "Work", None)
    if owner is not None and "wait" in owner.__dict__:
        put(owner, "wait", _span_of(owner.__dict__["wait"], "collective"))
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
