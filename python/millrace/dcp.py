"""Storage for torch.distributed.checkpoint: FSDP and other sharded states as checkpoints of Millrace, written and loaded unchanged.

    import torch.distributed.checkpoint as dcp
    from millrace.dcp import StorageReader, StorageWriter

    writer = StorageWriter("checkpoints", keep_last=3)
    dcp.save(state_dict, storage_writer=writer)                                # the next step
    dcp.save(state_dict, checkpoint_id="checkpoints/step-120", storage_writer=writer)
    dcp.async_save(state_dict, storage_writer=writer)

    dcp.load(state_dict, storage_reader=StorageReader("checkpoints"))          # the newest complete one, on any number of ranks

On disk it is a checkpoint like every other: one safetensors file per rank, checksums, a list written last, nothing torn. What is no tensor is kept as JSON: no
pickle. `behind=True` lets dcp.save itself return after the copy: what is written behind is reported by the next save, `wait()` or `close()`.

A checkpoint's id is a folder, or FOLDER/step-N for the checkpoint of that step in it. Needs PyTorch 2.3 or later.
"""
import io
import json
import math
import os
import re
import uuid
from dataclasses import replace
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch.distributed import checkpoint as _dcp
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, ChunkStorageMetadata, Metadata, TensorProperties, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadItemType, WriteItemType
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from . import _core, checkpoint

__all__ = ["StorageReader", "StorageWriter"]

_VERSION = 1
_ASIDE = 256 << 20  # bytes of parts that cannot be read to where they belong, at a time


def _place(checkpoint_id: "str | os.PathLike", step: Optional[int]) -> "Tuple[str, Optional[int]]":
    path = os.fspath(checkpoint_id).rstrip("/") or "/"
    named = re.fullmatch(r"step-(\d+)", os.path.basename(path))
    return (os.path.dirname(path) or ".", int(named.group(1))) if named else (path, step)


def _done(value: Any) -> Future:
    future: Future = Future()
    future.set_result(value)
    return future


class StorageWriter(BlockingAsyncStager, _dcp.StorageWriter):
    """Where dcp.save and dcp.async_save write to.

    folder: of the checkpoints, or FOLDER/step-N. step: of the next save; left out, one more than the newest in the folder, then one more each time.
    behind: a save returns after the copy, and is written while training goes on. Options are those of millrace.checkpoint.Saver (keep_last, fsync, ...).
    """

    def __init__(self, folder: "str | os.PathLike", *, step: Optional[int] = None, behind: bool = False, **options: Any) -> None:
        super().__init__(cache_staged_state_dict=torch.cuda.is_available())  # pinned memory that is kept: only a GPU's copies gain by it
        self.folder, self.step = _place(folder, step)
        self.behind = behind
        self._options = options
        self._saver: Optional[checkpoint.Saver] = None
        self._last: Optional[Dict[str, Any]] = None  # how the save before was made: job, step, serial

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_saver": None, "_last": None, "state_dict_cache": None}  # another process has its own

    def reset(self, checkpoint_id: "str | os.PathLike | None" = None) -> None:
        if not checkpoint_id:
            return
        folder, step = _place(checkpoint_id, None)
        if folder != self.folder:
            self.close()
            self.folder = folder
        self.step = step

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        pass

    def prepare_local_plan(self, plan: Any) -> Any:
        return plan

    def _newest(self) -> int:
        try:
            return _core.State(self.folder, -1, 1, False).info()[0]
        except RuntimeError:
            return -1  # nothing there yet

    def prepare_global_plan(self, plans: list) -> list:
        """On the coordinator: which job and step this is, for all ranks."""
        last = self._last or {"job": uuid.uuid4().hex, "serial": 0, "step": self._newest()}
        step = last["step"] + 1 if self.step is None else self.step
        common = {"job": last["job"], "serial": last["serial"] + 1, "step": step, "world": len(plans)}
        return [replace(p, storage_data={**common, "rank": r}) for r, p in enumerate(plans)]

    def _order(self, plan: Any) -> Dict[str, Any]:
        """What the coordinator said. A plan that its planner kept from an earlier save says it of that one."""
        said, last = plan.storage_data, self._last
        if last is not None and said["serial"] <= last["serial"]:
            said = {**said, "serial": last["serial"] + 1, "step": last["step"] + 1}
        if self.step is not None:
            said = {**said, "step": self.step}
        self.step = None
        self._last = said
        return said

    def write_data(self, plan: Any, planner: Any) -> Future:
        said = self._order(plan)
        if self._saver is None:
            self._saver = checkpoint.Saver(self.folder, rank=said["rank"], world=said["world"], job=said["job"], **self._options)
        flat, items = checkpoint._Flat(None), []
        try:
            for item in plan.items:
                items.append(self._item(item, planner, flat))
            flat.tree = {"dcp": _VERSION, "items": items, "planner": flat.node(plan.planner_data, "planner_data")}
        except Exception as error:
            self._saver.fail(said["step"], str(error))
            raise
        self._saver._start(said["step"], flat)
        if not self.behind:
            self._saver.wait(said["step"])
        return _done([WriteResult(index=i.index, size_in_bytes=0, storage_data=None) for i in plan.items])

    def _item(self, item: Any, planner: Any, flat: "checkpoint._Flat") -> Dict[str, Any]:
        fqn = item.index.fqn
        if item.type == WriteItemType.BYTE_IO:
            if hasattr(planner, "lookup_object"):
                value = planner.lookup_object(item.index)
            else:
                value = torch.load(planner.resolve_data(item), weights_only=True)
            return {"fqn": fqn, "object": flat.node(value, fqn)}
        about = item.tensor_data
        node = flat.node(planner.resolve_data(item).detach(), fqn)
        return {"fqn": fqn, "tensor": node["tensor"], "size": list(about.size), "offset": list(about.chunk.offsets), "part": list(about.chunk.sizes),
                "dtype": str(about.properties.dtype).split(".")[1], "requires_grad": bool(about.properties.requires_grad)}

    def finish(self, metadata: Any, results: list) -> None:
        pass  # every rank keeps its part of it

    def wait(self) -> None:
        """Waits for what is written behind; raises what failed."""
        if self._saver is not None:
            self._saver.wait()

    def close(self) -> None:
        """Waits, raises what failed and was not told, and frees the memory."""
        saver, self._saver, self._last = self._saver, None, None
        if saver is not None:
            saver.close()

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: "str | os.PathLike") -> bool:
        return "://" not in os.fspath(checkpoint_id)


def _covering(shape: List[int], offsets: Any, lengths: Any) -> "Tuple[int, int, bool]":
    """Which elements of a row-by-row tensor hold that part: the first, how many, and whether they are nothing else."""
    if not shape:
        return 0, 1, True
    first = last = 0
    for size, at, n in zip(shape, offsets, lengths):
        first = first * size + at
        last = last * size + at + n - 1
    return first, last - first + 1, last - first + 1 == math.prod(lengths)


class _Part:
    """One wanted part of a stored tensor: read to where it belongs where that is one piece of memory, else beside it and copied."""

    def __init__(self, number: int, row: tuple, item: Any, target: torch.Tensor) -> None:
        each = target.element_size()
        self.item, self.target = item, target
        self.shape = list(row[3])
        self.first, self.n, whole = _covering(self.shape, item.storage_offsets, item.lengths)
        self.direct = whole and target.is_contiguous() and target.device.type in ("cpu", "cuda") and checkpoint._stored_as(target.dtype) == row[2]
        stored = getattr(torch, checkpoint._DTYPE_NAMES[row[2]])
        self.aside = None if self.direct else torch.empty(self.n, dtype=stored)
        into = target if self.aside is None else self.aside
        each = into.element_size()
        self.bytes = self.n * each
        self.range = (number, self.first * each, self.bytes, into.data_ptr(), checkpoint._cuda_of(into))

    def put(self) -> None:
        if self.aside is None:
            return
        strides, step = [], 1
        for size in reversed(self.shape):
            strides.insert(0, step)
            step *= size
        part = torch.as_strided(self.aside, tuple(self.item.lengths), strides)
        self.target.copy_(part)
        self.aside = None


class StorageReader(_dcp.StorageReader):
    """Where dcp.load reads from: the newest complete checkpoint of the folder, or of `step` (or FOLDER/step-N), whatever number of ranks saved it. Every byte is
    compared with its checksum, and only what this rank needs is read."""

    def __init__(self, folder: "str | os.PathLike", *, step: Optional[int] = None, threads: int = 0, direct: bool = False) -> None:
        self.folder, self.step = _place(folder, step)
        self._threads, self._direct = threads, direct
        self._stored: Any = None

    def reset(self, checkpoint_id: "str | os.PathLike | None" = None) -> None:
        if checkpoint_id:
            self.folder, self.step = _place(checkpoint_id, None)
        self._stored = None

    def _open(self) -> None:
        if self._stored is not None:
            return
        self._stored = _core.State(self.folder, -1 if self.step is None else self.step, self._threads, self._direct)
        self._rows = self._stored.tensors()
        number = {(r, name): i for i, (name, r, *_) in enumerate(self._rows)}
        self._tensors: Dict[tuple, int] = {}  # by name and offset
        self._objects: Dict[str, tuple] = {}  # by name: tree and rank
        self._planner: Dict[Any, Any] = {}
        self._about: Dict[str, Any] = {}
        self._number = number
        for rank in range(self._stored.info()[1]):
            self._read_rank(rank)

    def _read_rank(self, rank: int) -> None:
        tree = json.loads(self._stored.json(rank, "state") or "null")
        if not isinstance(tree, dict) or tree.get("dcp", 0) != _VERSION:
            newer = isinstance(tree, dict) and "dcp" in tree
            raise ValueError(f"the checkpoint in '{self.folder}' was " + ("saved by a newer version of millrace.dcp" if newer else
                             "not saved through millrace.dcp: load it with millrace.checkpoint.load"))
        self._planner.update(checkpoint._Reading().value(tree["planner"]) or {})
        for item in tree["items"]:
            fqn = item["fqn"]
            if "object" in item:
                self._about[fqn] = BytesStorageMetadata()
                self._objects.setdefault(fqn, (item["object"], rank))
                continue
            key = (fqn, tuple(item["offset"]))
            if key in self._tensors:
                continue
            self._tensors[key] = self._number[rank, item["tensor"]]
            about = self._about.get(fqn)
            if about is None:
                properties = TensorProperties(dtype=getattr(torch, item["dtype"]), requires_grad=item["requires_grad"])
                about = self._about[fqn] = TensorStorageMetadata(properties, torch.Size(item["size"]), [])
            about.chunks.append(ChunkStorageMetadata(torch.Size(item["offset"]), torch.Size(item["part"])))

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        self._open()
        return Metadata(state_dict_metadata=self._about, planner_data=self._planner)

    def set_up_storage_reader(self, metadata: Any, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._open()

    def prepare_local_plan(self, plan: Any) -> Any:
        return plan

    def prepare_global_plan(self, plans: list) -> list:
        return plans

    def read_data(self, plan: Any, planner: Any) -> Future:
        parts: List[_Part] = []
        aside = 0
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                self._load_object(item, planner)
                continue
            number = self._tensors[item.storage_index.fqn, tuple(item.storage_index.offset or ())]
            target = planner.resolve_tensor(item).detach()
            if tuple(target.shape) != tuple(item.lengths):
                raise ValueError(f"'{item.storage_index.fqn}': {tuple(item.lengths)} is stored, {tuple(target.shape)} is wanted")
            if not target.numel():
                planner.commit_tensor(item, target)
                continue
            parts.append(_Part(number, self._rows[number], item, target))
            aside += 0 if parts[-1].direct else parts[-1].bytes
            if aside > _ASIDE:
                self._read(parts, planner)
                parts, aside = [], 0
        self._read(parts, planner)
        return _done(None)

    def _read(self, parts: List[_Part], planner: Any) -> None:
        checkpoint._before_reading(p.target for p in parts)
        self._stored.read([p.range for p in parts])
        for p in parts:
            p.put()
            planner.commit_tensor(p.item, p.target)

    def _load_object(self, item: Any, planner: Any) -> None:
        tree, rank = self._objects[item.storage_index.fqn]
        value = checkpoint._Reading(self._stored, rank).value(tree)
        text = io.BytesIO()
        torch.save(value, text)  # what the planner expects; it never leaves memory
        text.seek(0)
        planner.load_bytes(item, text)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: "str | os.PathLike") -> bool:
        return "://" not in os.fspath(checkpoint_id)
