"""Storage for torch.distributed.checkpoint: FSDP and other sharded states as checkpoints of Millrace, written and
loaded unchanged.

    import torch.distributed.checkpoint as dcp
    from millrace.dcp import StorageReader, StorageWriter

    writer = StorageWriter("checkpoints", keep_last=3)
    dcp.save(state_dict, storage_writer=writer)                                # the next step
    dcp.save(state_dict, checkpoint_id="checkpoints/step-120", storage_writer=writer)
    dcp.async_save(state_dict, storage_writer=writer)

    dcp.load(state_dict, storage_reader=StorageReader("checkpoints"))          # the newest complete one

On disk it is a checkpoint like every other: one safetensors file per rank, checksums, a list written last, nothing
torn. What is no tensor is kept as JSON: no pickle. `behind=True` lets dcp.save itself return after the copy: what is
written behind is reported by the next save, `wait()` or `close()`.

A checkpoint's id is a folder, or FOLDER/step-N for the checkpoint of that step in it. Needs PyTorch 2.3 or later.
"""

import io
import math
import os
import re
import uuid
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch.distributed import checkpoint as _dcp
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, WriteItemType
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from . import _core, _dcp_tiers, _saver, _tree, checkpoint

__all__ = ["StorageReader", "StorageWriter"]

_VERSION = 1
_ASIDE = 256 << 20  # bytes of parts that cannot be read to where they belong, at a time


def _place(checkpoint_id: "str | os.PathLike[str]", step: int | None) -> "tuple[str, int | None]":
    path = os.fspath(checkpoint_id).rstrip("/") or "/"
    named = re.fullmatch(r"step-(\d+)", os.path.basename(path))
    return (os.path.dirname(path) or ".", int(named.group(1))) if named else (path, step)


def _done(value: Any) -> Future:
    future: Future = Future()
    future.set_result(value)
    return future


class StorageWriter(BlockingAsyncStager, _dcp.StorageWriter):
    """Where dcp.save and dcp.async_save write to.

    folder: of the checkpoints, or FOLDER/step-N. step: of the next save; left out, one more than the newest in the
        folder, then one more each time.
    behind: a save returns after the copy, and is written while training goes on. Options are those of
        millrace.checkpoint.Saver (keep_last, fsync, ...).
    """

    def __init__(
        self, folder: "str | os.PathLike[str]", *, step: int | None = None, behind: bool = False, **options: Any
    ) -> None:
        # Pinned memory that is kept: only a GPU's copies gain by it.
        super().__init__(cache_staged_state_dict=torch.cuda.is_available())
        self.folder, self.step = _place(folder, step)
        self.behind = behind
        self._options = options
        self._saver: checkpoint.Saver | None = None
        self._last: dict[str, Any] | None = None  # how the save before was made: job, step, serial

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_saver": None, "_last": None, "state_dict_cache": None}  # another process has its own

    def reset(self, checkpoint_id: "str | os.PathLike[str] | None" = None) -> None:
        """The next save is the checkpoint of this id, where one is given."""
        if not checkpoint_id:
            return
        folder, step = _place(checkpoint_id, None)
        if folder != self.folder:
            self.close()
            self.folder = folder
        self.step = step

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Called by DCP; nothing to prepare."""

    def prepare_local_plan(self, plan: Any) -> Any:
        """The plan as it is."""
        return plan

    def _newest(self) -> int:
        try:
            return _core.State(self.folder, -1, 1, False).info()[0]
        except FileNotFoundError:
            return -1  # nothing there yet

    def prepare_global_plan(self, plans: list[Any]) -> list[Any]:
        """On the coordinator: which job and step this is, for all ranks."""
        last = self._last or {"job": uuid.uuid4().hex, "serial": 0, "step": self._newest()}
        step = last["step"] + 1 if self.step is None else self.step
        common = {"job": last["job"], "serial": last["serial"] + 1, "step": step, "world": len(plans)}
        return [replace(p, storage_data={**common, "rank": r}) for r, p in enumerate(plans)]

    def _order(self, plan: Any) -> dict[str, Any]:
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
        """Saves this rank's items; returns after the copy with `behind`, else when they are on storage."""
        said = self._order(plan)
        if self._saver is None:
            self._saver = checkpoint.Saver(
                self.folder, rank=said["rank"], world=said["world"], job=said["job"], **self._options
            )
        flat, items = _tree.Flat(None), []
        try:
            for item in plan.items:
                items.append(self._item(item, planner, flat))
            flat.tree = {
                "dcp": _VERSION,
                "save": f"{said['job']}-{said['serial']}",
                "items": items,
                "planner": flat.node(plan.planner_data, "planner_data"),
            }
        except Exception as error:
            self._saver.fail(said["step"], str(error))
            raise
        self._saver._start(said["step"], flat)
        if not self.behind:
            self._saver.wait(said["step"])
        return _done([WriteResult(index=i.index, size_in_bytes=0, storage_data=None) for i in plan.items])

    def _item(self, item: Any, planner: Any, flat: "_tree.Flat") -> dict[str, Any]:
        fqn = item.index.fqn
        if item.type == WriteItemType.BYTE_IO:
            if hasattr(planner, "lookup_object"):
                value = planner.lookup_object(item.index)
            else:
                value = torch.load(planner.resolve_data(item), weights_only=True)
            return {"fqn": fqn, "object": flat.node(value, fqn)}
        about = item.tensor_data
        node = flat.node(planner.resolve_data(item).detach(), fqn)
        return {
            "fqn": fqn,
            "tensor": node["tensor"],
            "size": list(about.size),
            "offset": list(about.chunk.offsets),
            "part": list(about.chunk.sizes),
            "dtype": str(about.properties.dtype).split(".")[1],
            "requires_grad": bool(about.properties.requires_grad),
        }

    def finish(self, metadata: Any, results: list[Any]) -> None:
        """Called by DCP on the coordinator; every rank keeps its part of the metadata."""

    def wait(self) -> None:
        """Waits for what is written behind; raises what failed."""
        if self._saver is not None:
            self._saver.wait()

    def close(self) -> None:
        """Waits, raises failures that were not raised before, and frees the memory."""
        saver, self._saver, self._last = self._saver, None, None
        if saver is not None:
            saver.close()

    def __enter__(self) -> "StorageWriter":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: "str | os.PathLike[str]") -> bool:
        """Paths, and addresses of object storage."""
        return _saver.is_url(checkpoint_id) or "://" not in os.fspath(checkpoint_id)


def _covering(shape: list[int], offsets: Any, lengths: Any) -> "tuple[int, int, bool]":
    """Which elements of a row-by-row tensor hold that part: the first, how many, and whether they are nothing else."""
    if not shape:
        return 0, 1, True
    first = last = 0
    for size, at, n in zip(shape, offsets, lengths):
        first = first * size + at
        last = last * size + at + n - 1
    return first, last - first + 1, last - first + 1 == math.prod(lengths)


class _Stored(NamedTuple):
    """A part of a tensor, as one rank saved it."""

    rank: int
    tensor: str
    dtype: torch.dtype
    shape: list[int]


class _Part:
    """One wanted part of a stored one: read to where it belongs where that is one piece of memory, else beside it and
    copied."""

    def __init__(self, stored: _Stored, item: Any, target: torch.Tensor, far: bool) -> None:
        self.item, self.target, self.far = item, target, far
        self.shape = stored.shape
        first, n, whole = _covering(self.shape, item.storage_offsets, item.lengths)
        devices = ("cpu",) if far else ("cpu", "cuda")
        self.direct = (
            whole and target.is_contiguous() and target.device.type in devices and target.dtype == stored.dtype
        )
        self.aside = None if self.direct else torch.empty(n, dtype=stored.dtype)
        into = target if self.aside is None else self.aside
        each = into.element_size()
        self.bytes = n * each
        self.range = (stored.rank, stored.tensor, first * each, self.bytes, into.data_ptr(), _tree.cuda_of(into))

    def put(self) -> None:
        if self.aside is None:
            return
        strides: list[int] = []
        step = 1
        for size in reversed(self.shape):
            strides.insert(0, step)
            step *= size
        part = torch.as_strided(self.aside, tuple(self.item.lengths), strides)
        self.target.copy_(part)
        self.aside = None


class StorageReader(_dcp.StorageReader):
    """Where dcp.load reads from: the newest complete checkpoint of the folder, or of `step` (or FOLDER/step-N),
    whatever number of ranks saved it. Every byte is compared with its checksum, and only what this rank needs is read.

    tiers: as of the writer: the newest step whose parts are all in some node's tiers, or in the folder; each part from
    the nearest place that has it whole. What only another node has comes from a rank there, by torch.distributed: then
    all ranks of `process_group` (the one dcp.load is given) load together. no_dist: as of dcp.load: this process loads
    by itself."""

    def __init__(
        self,
        folder: "str | os.PathLike[str]",
        *,
        step: int | None = None,
        threads: int = 0,
        direct: bool = False,
        tiers: "list[Any] | tuple[Any, ...]" = (),
        process_group: Any = None,
        no_dist: bool = False,
    ) -> None:
        self.folder, self.step = _place(folder, step)
        self._threads, self._direct = threads, direct
        self._tiers = _saver.tier_rows(tiers)
        self._group, self._alone = process_group, no_dist
        self._stored: Any = None

    def reset(self, checkpoint_id: "str | os.PathLike[str] | None" = None) -> None:
        """The next load is of the checkpoint of this id, where one is given."""
        if checkpoint_id:
            self.folder, self.step = _place(checkpoint_id, None)
        self._stored = None

    def _open(self) -> None:
        if self._stored is not None:
            return
        if self._tiers:
            self._stored = _dcp_tiers.Tiers(
                self.folder, self._tiers, self.step, self._threads, self._direct, self._group, self._alone
            )
        else:
            self._stored = _dcp_tiers.Folder(self.folder, self.step, self._threads, self._direct)
        self._tensors: dict[tuple[Any, ...], _Stored] = {}  # by name and offset
        self._objects: dict[str, tuple[Any, ...]] = {}  # by name: what the rank's list says of it, and the rank
        self._planner: dict[Any, Any] = {}
        self._about: dict[str, Any] = {}
        for rank in range(self._stored.world):
            self._read_rank(rank)

    def _read_rank(self, rank: int) -> None:
        tree = self._stored.tree(rank)
        if not isinstance(tree, dict) or tree.get("dcp", 0) != _VERSION:
            newer = isinstance(tree, dict) and "dcp" in tree
            raise ValueError(
                f"the checkpoint in '{self.folder}' was "
                + (
                    "saved by a newer version of millrace.dcp"
                    if newer
                    else "not saved through millrace.dcp: load it with millrace.checkpoint.load"
                )
            )
        self._planner.update(_tree.Reading().value(tree["planner"]) or {})
        for item in tree["items"]:
            fqn = item["fqn"]
            if "object" in item:
                self._about[fqn] = BytesStorageMetadata()
                self._objects.setdefault(fqn, (item, rank))
                continue
            key = (fqn, tuple(item["offset"]))
            if key in self._tensors:
                continue
            dtype = _tree.torch_dtype(item["dtype"])
            self._tensors[key] = _Stored(rank, item["tensor"], dtype, item["part"])
            about = self._about.get(fqn)
            if about is None:
                properties = TensorProperties(dtype=dtype, requires_grad=item["requires_grad"])
                about = self._about[fqn] = TensorStorageMetadata(properties, torch.Size(item["size"]), [])
            about.chunks.append(ChunkStorageMetadata(torch.Size(item["offset"]), torch.Size(item["part"])))

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """What the checkpoint holds, of all ranks."""
        self._open()
        return Metadata(state_dict_metadata=self._about, planner_data=self._planner)

    def set_up_storage_reader(self, metadata: Any, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Called by DCP: opens the checkpoint."""
        self._open()

    def prepare_local_plan(self, plan: Any) -> Any:
        """The plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[Any]) -> list[Any]:
        """The plans as they are."""
        return plans

    def read_data(self, plan: Any, planner: Any) -> Future:
        """Reads this rank's items to where the planner wants them."""
        self._read_far(plan, planner)
        parts: list[_Part] = []
        aside = 0
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                self._load_object(item, planner)
                continue
            part = self._part(item, planner)
            if part is None or part.far:
                continue
            parts.append(part)
            aside += 0 if part.direct else part.bytes
            if aside > _ASIDE:
                self._read(parts, planner)
                parts, aside = [], 0
        self._read(parts, planner)
        return _done(None)

    def _part(self, item: Any, planner: Any) -> _Part | None:
        """None: an empty one, done."""
        stored = self._tensors[item.storage_index.fqn, tuple(item.storage_index.offset or ())]
        target = planner.resolve_tensor(item).detach()
        if tuple(target.shape) != tuple(item.lengths):
            raise ValueError(
                f"'{item.storage_index.fqn}': {tuple(item.lengths)} is stored, {tuple(target.shape)} is wanted"
            )
        if not target.numel():
            planner.commit_tensor(item, target)
            return None
        return _Part(stored, item, target, self._stored.is_far(stored.rank))

    def _read_far(self, plan: Any, planner: Any) -> None:
        """What only other ranks can read. All ranks come here, whatever they want."""
        wanted = [
            i
            for i in plan.items
            if i.type != LoadItemType.BYTE_IO
            and self._stored.is_far(self._tensors[i.storage_index.fqn, tuple(i.storage_index.offset or ())].rank)
        ]
        try:
            parts = [p for p in (self._part(i, planner) for i in wanted) if p is not None]
        except Exception:
            self._stored.exchange([])
            raise
        self._stored.exchange([p.range for p in parts])
        for p in parts:
            p.put()
            planner.commit_tensor(p.item, p.target)

    def _read(self, parts: list[_Part], planner: Any) -> None:
        _tree.before_reading(p.target for p in parts)
        self._stored.read([p.range for p in parts])
        for p in parts:
            p.put()
            planner.commit_tensor(p.item, p.target)

    def _load_object(self, item: Any, planner: Any) -> None:
        about, rank = self._objects[item.storage_index.fqn]
        value = about["value"] if "value" in about else self._stored.value(rank, about["object"])
        text = io.BytesIO()
        torch.save(value, text)  # what the planner expects; it never leaves memory
        text.seek(0)
        planner.load_bytes(item, text)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: "str | os.PathLike[str]") -> bool:
        """Paths, and addresses of object storage."""
        return _saver.is_url(checkpoint_id) or "://" not in os.fspath(checkpoint_id)
