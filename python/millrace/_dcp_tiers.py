"""Where a load of millrace.dcp reads from: the folder, or tiers before it. In a tier every rank has its own part only,
on its own node, and DCP gives what several ranks share to one of them. So ranks exchange lists of what their nodes
have, choose the newest step of which every part exists, read what is near and send each other the rest."""

import ctypes
import json
import os
import re
import sys
from functools import partial
from typing import Any

from torch import distributed as dist

from . import _core, _tree

_ROUND = 256 << 20  # bytes that one rank gives another at a time

Read = tuple[int, str, int, int, int, int]  # rank that saved it, tensor, first byte, bytes, address, CUDA device + 1


class Folder:
    """A step with the parts of all ranks in one place."""

    def __init__(self, folder: str, step: int | None, threads: int, direct: bool) -> None:
        self._state = _core.State(folder, -1 if step is None else step, threads, direct)
        self.step, self.world = self._state.info()[:2]
        self._number = {(r, name): i for i, (name, r, *_) in enumerate(self._state.tensors())}

    def tree(self, rank: int) -> Any:
        return json.loads(self._state.json(rank, "state") or "null")

    def value(self, rank: int, tree: Any) -> Any:
        return _tree.Reading(self._state, rank).value(tree)

    def is_far(self, rank: int) -> bool:
        return False

    def read(self, reads: list[Read]) -> None:
        self._state.read(
            [(self._number[r, name], first, n, address, cuda) for r, name, first, n, address, cuda in reads]
        )

    def exchange(self, wanted: list[Read]) -> None:
        pass


def _steps_in(folder: str) -> list[int]:
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [int(m.group(1)) for m in map(re.compile(r"step-(\d{12,})").fullmatch, names) if m]


def _ranks_in(tier: str) -> list[int]:
    try:
        names = os.listdir(tier)
    except OSError:
        return []
    return [int(m.group(1)) for m in map(re.compile(r"rank-(\d{5,})").fullmatch, names) if m]


def _save_of(tree: Any) -> str | None:
    return tree.get("save") if isinstance(tree, dict) and "dcp" in tree else None


def _has_tensor(tree: Any) -> bool:
    if isinstance(tree, dict):
        return "tensor" in tree or any(map(_has_tensor, tree.values()))
    return isinstance(tree, list) and any(map(_has_tensor, tree))


def _tree_of(part: Folder, rank: int) -> Any:
    return part.tree(rank)


def _value_of(part: Folder, rank: int, tree: Any) -> Any:
    return part.value(rank, tree)


def _read_of(part: Folder, reads: list[Read]) -> None:
    part.read(reads)


class Tiers:
    """A step whose parts are in tiers, on this node or others', and perhaps in the folder as well."""

    def __init__(
        self,
        folder: str,
        tiers: list[tuple[Any, ...]],
        step: int | None,
        threads: int,
        direct: bool,
        group: Any,
        alone: bool,
    ) -> None:
        self._folder, self._threads, self._direct = folder, threads, direct
        self._tiers = [t[0] for t in tiers]
        self._group = group
        self._dist = not alone and dist.is_available() and dist.is_initialized()
        self._rank = dist.get_rank(group) if self._dist else 0
        self._opened: dict[str, Folder] = {}
        self._failed: Exception | None = None
        self._mine: set[int] = set()  # ranks whose parts this node has
        self._trees: dict[int, Any] = {}  # by rank
        self._choose(step)

    def _all(self, mine: Any) -> list[Any]:
        if not self._dist:
            return [mine]
        everybody: list[Any] = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(everybody, mine, group=self._group)
        return everybody

    def _open(self, place: str, step: int) -> Folder:
        if place not in self._opened:
            self._opened[place] = Folder(place, step, self._threads, self._direct)
        return self._opened[place]

    def _near(self, rank: int) -> list[str]:
        return [os.path.join(t, f"rank-{rank:05d}") for t in self._tiers]

    def _look(self, only: int | None) -> dict[tuple[int, str, int], int]:
        """(step, save, rank) of what this node's tiers have: how many ranks saved it. A copy that cannot be read is
        none."""
        have: dict[tuple[int, str, int], int] = {}
        for tier in self._tiers:
            for rank in _ranks_in(tier):
                place = os.path.join(tier, f"rank-{rank:05d}")
                for step in _steps_in(place):
                    if only is not None and step != only:
                        continue
                    try:
                        part = Folder(place, step, 1, False)
                        save = _save_of(part.tree(rank))
                    except (RuntimeError, OSError, ValueError) as error:
                        sys.stderr.write(f"millrace: step {step} in '{place}' cannot be used: {error}\n")
                        continue
                    if save is not None:
                        have[step, save, rank] = part.world
        return have

    def _in_folder(self, only: int | None) -> int | None:
        try:
            return Folder(self._folder, only, 1, False).step
        except (RuntimeError, OSError):
            return None

    def _choose(self, only: int | None) -> None:
        said = self._all((self._look(only), self._in_folder(only)))
        owners: dict[tuple[Any, ...], dict[int, int]] = {}  # by step and save: which rank of this job has which part
        worlds: dict[tuple[Any, ...], int] = {}
        for who, (have, _) in enumerate(said):
            for (step, save, rank), world in have.items():
                owners.setdefault((step, save), {}).setdefault(rank, who)
                worlds[step, save] = world
        whole = [k for k, ranks in owners.items() if len(ranks) == worlds[k]]
        there = said[0][1]  # as the first rank sees the folder: the same for all
        best = max(whole, default=None)
        if best is None or (there is not None and there > best[0]):
            self._use_folder(there, only)
            return
        self.step, self._save = best
        self.world, self._owner = worlds[best], owners[best]
        self._mine = {rank for step, save, rank in said[self._rank][0] if (step, save) == best}
        self._also = there == self.step and self._folder_has_it()
        self._gather()

    def _folder_has_it(self) -> bool:
        try:
            return _save_of(self._open(self._folder, self.step).tree(0)) == self._save
        except (RuntimeError, OSError, ValueError):
            return False

    def _use_folder(self, step: int | None, only: int | None) -> None:
        if step is None:
            if only is not None:
                raise RuntimeError(
                    f"there is no complete checkpoint of step {only} in '{self._folder}' or the tiers before it"
                )
            raise FileNotFoundError(f"there is no complete checkpoint in '{self._folder}' or the tiers before it")
        whole = self._open(self._folder, step)
        self.step, self.world, self._owner, self._also = step, whole.world, {}, True
        self._mine = set()
        self._trees = {r: whole.tree(r) for r in range(whole.world)}

    def _gather(self) -> None:
        """What every part holds, sent by its owner. A value that has tensors inside comes with it."""
        mine: dict[int, Any] = {}
        for rank, who in self._owner.items():
            if who != self._rank:
                continue
            try:
                mine[rank] = tree = self._first_good(rank, partial(_tree_of, rank=rank))
                for item in tree["items"]:
                    if "object" in item and _has_tensor(item["object"]):
                        item["value"] = self._first_good(rank, partial(_value_of, rank=rank, tree=item["object"]))
            except Exception as error:  # raised by all: the others wait for this one's word
                mine[rank] = RuntimeError(f"rank {self._rank} could not read the part of rank {rank}: {error}")
        self._trees = {}
        for some in self._all(mine):
            self._trees.update(some)
        failed = next((t for t in self._trees.values() if isinstance(t, Exception)), None)
        if failed is not None:
            raise failed

    def tree(self, rank: int) -> Any:
        return self._trees[rank]

    def value(self, rank: int, tree: Any) -> Any:
        if not _has_tensor(tree):
            return _tree.Reading().value(tree)
        return self._first_good(rank, lambda part: part.value(rank, tree))

    def _places(self, rank: int) -> list[str]:
        return (self._near(rank) if rank in self._mine else []) + ([self._folder] if self._also else [])

    def _first_good(self, rank: int, use: Any) -> Any:
        """By the nearest place whose copy is of this save and whole."""
        last: Any = None
        for place in self._places(rank):
            try:
                part = self._open(place, self.step)
                if place != self._folder and _save_of(part.tree(rank)) != self._save:
                    continue
                return use(part)
            except (RuntimeError, OSError) as error:
                if os.path.isdir(os.path.join(place, f"step-{self.step:012d}")):
                    sys.stderr.write(
                        f"millrace: step {self.step} in '{place}' cannot be used, the next place is: {error}\n"
                    )
                last = error
        raise (
            last
            if last is not None
            else RuntimeError(f"the part of rank {rank} of step {self.step} is in no place that this rank can read")
        )

    def is_far(self, rank: int) -> bool:
        """Only other ranks of this job can read it."""
        return not self._places(rank)

    def read(self, reads: list[Read]) -> None:
        by_rank: dict[int, list[Read]] = {}
        for r in reads:
            by_rank.setdefault(r[0], []).append(r)
        for rank, some in by_rank.items():
            self._first_good(rank, partial(_read_of, reads=some))

    # ---- what is far ----

    def _serve(self, wanted: list[tuple[Any, ...]]) -> list[Any]:
        """The bytes another rank asked for; an error where they cannot be read."""
        out: list[Any] = []
        for rank, name, first, n in wanted:
            into = ctypes.create_string_buffer(n)
            try:
                self.read([(rank, name, first, n, ctypes.addressof(into), 0)])
                out.append(into.raw)
            except Exception as error:
                out.append(RuntimeError(f"rank {self._rank} could not read the part of rank {rank}: {error}"))
        return out

    def _rounds(self, wanted: list[tuple[Any, ...]]) -> list[list[tuple[Any, ...]]]:
        rounds: list[list[tuple[Any, ...]]] = [[]]
        size = 0
        for w in wanted:
            if size + w[3] > _ROUND and rounds[-1]:
                rounds.append([])
                size = 0
            rounds[-1].append(w)
            size += w[3]
        return rounds

    def exchange(self, wanted: list[Read]) -> None:
        """Every rank calls it once, also one that wants nothing. Addresses are of memory of the CPU."""
        if not self._dist or not self._owner:
            return
        asked = self._all([w[:4] for w in wanted])
        for owner in sorted(set(self._owner.values())):
            each = [self._rounds([w for w in ask if self._owner[w[0]] == owner]) for ask in asked]
            address = iter([w[4] for w in wanted if self._owner[w[0]] == owner])
            for k in range(max(map(len, each))):
                now = [r[k] if k < len(r) else [] for r in each]
                if any(now):
                    self._take(self._scatter(owner, now), address)
        failed, self._failed = self._failed, None  # not before: the others went on
        if failed is not None:
            raise failed

    def _scatter(self, owner: int, now: list[Any]) -> list[Any]:
        mine: list[Any] = [None]
        give = [self._serve(w) for w in now] if owner == self._rank else None
        source = dist.get_global_rank(self._group, owner) if self._group is not None else owner
        dist.scatter_object_list(mine, give, src=source, group=self._group)
        return mine[0]

    def _take(self, got: list[Any], address: Any) -> None:
        failed = next((g for g in got if isinstance(g, Exception)), None)
        if failed is not None:
            self._failed = failed
        for g in got:
            at = next(address)
            if failed is None:
                ctypes.memmove(at, g, len(g))
