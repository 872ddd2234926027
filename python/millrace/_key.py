"""The key by which the ranks of a job recognise each other where loaders with tiers meet over TCP.

Rank 0 draws it and hands it to the others through the process group's store; the last one that has it removes it from
there. The store itself lets in whoever reaches its port while the job starts: see doc/internals/wire.md."""

import os
import sys
from datetime import timedelta
from typing import Any

KEY_BYTES = 32
_WAIT = timedelta(seconds=60)
_drawn = 0  # keys of this process; ranks open loaders together, so all count alike


def _store(rank: int, world: int) -> Any:
    """The store of the process group, if this process is rank `rank` of `world` in it; else None."""
    dist: Any = sys.modules.get("torch.distributed")  # a program that has none does not import it for this
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    if dist.get_rank() != rank or dist.get_world_size() != world:
        return None
    try:
        return dist.distributed_c10d._get_default_store()
    except (AttributeError, RuntimeError, ValueError):
        return None


def job_key(rank: int, world: int) -> bytes | None:
    """The next key that all ranks have in common. Collective; None without a process group or for one rank."""
    global _drawn
    store = _store(rank, world) if world > 1 else None
    if store is None:
        return None
    _drawn += 1
    name = f"millrace/key/{_drawn}"
    if rank == 0:
        store.set(name, os.urandom(KEY_BYTES))
    store.wait([name], _WAIT)
    key = bytes(store.get(name))
    if store.add(name + "/taken", 1) == world:
        try:
            store.delete_key(name)
        except RuntimeError:  # a store without removal
            pass
    return key
