"""How the order of an epoch is written into a state: plain values (JSON can hold them) from which any number of ranks
can draw the whole sequence again.

R1  A recipe of a known kind (`sequential`, `random`, `distributed`, `mixture`) determines the sequence of the epoch
    over all ranks, without the samples that DistributedSampler repeats or drops to make ranks equal.
R2  A recipe of the kind `other` has a digest of the batches of the one rank that saved it: a sampler of the program's
    is drawn again and must give the same.
"""

import base64
import ctypes
import hashlib
from array import array
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from ._mixed import MixtureSampler

Recipe = dict[str, Any]
_KINDS: dict[Any, str] = {
    SequentialSampler: "sequential",
    RandomSampler: "random",
    DistributedSampler: "distributed",
    MixtureSampler: "mixture",
}


def pack(generator: torch.Generator) -> dict[str, Any]:
    """The state of a generator as text, and whether it is torch's global one."""
    state = generator.get_state()
    content = base64.b64encode(ctypes.string_at(state.data_ptr(), state.numel())).decode()
    return {"global": generator is torch.default_generator, "state": content}


def unpack(packed: dict[str, Any]) -> torch.Tensor:
    """What Generator.set_state takes."""
    return torch.tensor(list(base64.b64decode(packed["state"])), dtype=torch.uint8)


def kind_of(sampler: Any, batch_sampler: Any) -> str:
    """What a sampler is: "sequential", "random" or "distributed" of torch's own, or "other"."""
    return _KINDS.get(type(sampler), "other") if type(batch_sampler) is BatchSampler else "other"


def write(sampler: Any, batch_sampler: Any) -> Recipe:
    """What is known of an epoch's order from its sampler alone."""
    kind = kind_of(sampler, batch_sampler)
    out: Recipe = {"kind": kind, "sampler": type(sampler).__name__}
    if kind == "other":
        out.update(batch_sampler=type(batch_sampler).__name__)
    if kind in ("sequential", "random"):
        out.update(n=len(sampler.data_source))
    if kind == "random":
        out.update(replacement=bool(sampler.replacement), num_samples=sampler.num_samples)
    if isinstance(sampler, DistributedSampler):
        out.update(shuffle=sampler.shuffle, seed=sampler.seed, drop_last=sampler.drop_last)
        out.update(n=len(sampler.dataset) if hasattr(sampler.dataset, "__len__") else None)
    epoch = getattr(sampler, "epoch", None)
    return {**out, "epoch": epoch if isinstance(epoch, int) else None}


def digest(batches: Iterable[list[int]]) -> str:
    """Of an epoch's batches."""
    made = hashlib.blake2b(digest_size=16)
    for batch in batches:
        made.update(array("q", [len(batch), *batch]).tobytes())
    return made.hexdigest()


def sequence(recipe: Recipe) -> list[int]:
    """The samples of the epoch in the order in which all ranks together read them."""
    n = recipe["n"]
    if recipe["kind"] == "sequential":
        return list(range(n))
    if recipe["kind"] == "random":
        return _random(recipe)
    if recipe["kind"] == "mixture":
        return list(range(recipe["epoch"] * n, (recipe["epoch"] + 1) * n))
    alone = DistributedSampler(range(n), 1, 0, shuffle=recipe["shuffle"], seed=recipe["seed"])
    alone.epoch = recipe["epoch"]
    return list(alone)


def _random(recipe: Recipe) -> list[int]:
    packed, default = recipe["generators"], torch.default_generator
    generators = [default if one["global"] else torch.Generator() for one in packed]
    before = default.get_state()
    try:
        for generator, one in zip(generators, packed):
            generator.set_state(unpack(one))
        if recipe["draws_seed"]:
            torch.empty((), dtype=torch.int64).random_(generator=generators[0])
        last = generators[-1] if generators[-1] is not default else None
        count = recipe["num_samples"]
        return list(
            RandomSampler(range(recipe["n"]), recipe["replacement"], count if count != recipe["n"] else None, last)
        )
    finally:
        default.set_state(before)


def _shuffles(recipe: Recipe) -> bool:
    return recipe["kind"] == "random" or bool(recipe.get("shuffle"))


def share(left: list[int], rank: int, world: int, drop_last: bool) -> list[int]:
    """The part of a rank, made as long as the others' by repeating the first samples or dropping the last ones, as
    DistributedSampler does."""
    if drop_last:
        left = left[: len(left) // world * world]
    elif left and len(left) % world:
        left = left + (left * world)[: world - len(left) % world]
    return left[rank::world]


def why_not(saved: Recipe, here: Recipe, one_group: bool) -> str | None:
    """Why an order cannot be continued with the samplers here; None: it can. `one_group`: as many ranks."""
    if saved["kind"] == "other" or here["kind"] == "other":
        names = [
            f"'{r['sampler']}'" + (f" in '{r['batch_sampler']}'" if r["kind"] == "other" else "") for r in (saved, here)
        ]
        if saved["kind"] != here["kind"] or names[0] != names[1]:
            return f"its order comes from {names[0]}, here from {names[1]}"
        return (
            None
            if one_group
            else f"only torch's own samplers can be continued by another number of ranks, not {names[0]}"
        )
    if "mixture" in (saved["kind"], here["kind"]) and saved["kind"] != here["kind"]:
        return f"its order is that of a '{saved['sampler']}', here of a '{here['sampler']}'"
    if _shuffles(saved) != _shuffles(here):
        was, now = ("shuffled" if _shuffles(r) else "sequential" for r in (saved, here))
        return f"its order is {was}, here {now}"
    keys = {"n"}
    if saved["kind"] == here["kind"]:
        keys |= {"random": {"replacement", "num_samples"}, "distributed": {"seed"}}.get(saved["kind"], set())
    for key in sorted(keys):
        if saved[key] != here[key]:
            return f"its sampler has {key} {saved[key]}, here {here[key]}"
    return None
