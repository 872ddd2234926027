"""Data sets of torch, torchvision and timm that millrace.torch.DataLoader reads natively, as sources and what becomes
of their pictures. The chain of transforms is parsed once, before files are looked at."""

import ast
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch.utils.data import ConcatDataset, Dataset, Subset

from . import _core, _pictures, mixtures
from ._corpus import FIXED, Corpus
from ._mixed import collate_tokens, tensors
from ._pictures import NotNative, Parts, split_transform
from ._sources import Source, folder_source
from ._split import Split

NO_PICTURES = Parts(None, [], "tensor", "")  # samples are delivered as they are stored


LLM_C = {20240520: "uint16", 20240801: "uint32"}  # llm.c's magic numbers of GPT-2 and Llama 3 tokens
LLM_C_HEADER = 1024


def _npy_header(path: str, head: bytes) -> tuple[int, str, tuple[int, ...]]:
    """Where the numbers of a .npy file begin, their type and shape."""
    wide = head[6] > 1
    start = 12 if wide else 10
    length = int.from_bytes(head[8:start], "little")
    try:
        fields = ast.literal_eval(head[start : start + length].decode("latin1"))
        return start + length, str(fields["descr"]), tuple(fields["shape"])
    except (ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError):
        raise ValueError(f"'{path}' begins as a .npy file, but its header cannot be read") from None


def _is_plain(path: str) -> bool:
    """A file of numbers behind at most a header; or nothing at all, which opening it will say."""
    if path.endswith((".idx", ".jsonl", ".json", ".ndjson", ".parquet", ".pq")) or os.path.isdir(path) or "://" in path:
        return False
    prefix = path[:-4] if path.endswith(".bin") else path
    return not os.path.exists(prefix + ".idx")


def _header_dtype(path: str) -> str:
    """The type that the header of a file names; else "uint16"."""
    with open(path, "rb", buffering=0) as f:
        head = f.read(4096)
    if head[:6] == b"\x93NUMPY" and len(head) >= 12:
        return {"<u4": "uint32"}.get(_npy_header(path, head)[1], "uint16")
    return LLM_C.get(int.from_bytes(head[:4], "little"), "uint16") if len(head) >= 12 else "uint16"


def _tokens_begin(path: str, dtype: str) -> int:
    """How many bytes a header takes; ValueError where the file's numbers are not `dtype` or no tokens at all."""
    with open(path, "rb", buffering=0) as f:
        head = f.read(4096)
    if head[:6] == b"\x93NUMPY" and len(head) >= 12:
        skip, descr, shape = _npy_header(path, head)
        known = {"<u2": "uint16", "<u4": "uint32"}.get(descr)
        if known is None or len(shape) != 1:
            raise ValueError(
                f"'{path}' is a .npy file of {descr} with {len(shape)} dimensions; Tokens reads one dimension of "
                f"uint16 or uint32: np.load(path).ravel().astype('{dtype}').tofile('tokens.bin') writes one"
            )
    elif head[:4] == b"PK\x03\x04":
        raise ValueError(f"'{path}' is a ZIP archive (.npz, .pt), not a file of token numbers")
    elif len(head) >= 12 and int.from_bytes(head[:4], "little") in LLM_C and head[4:8] == b"\x01\0\0\0":
        skip, known = LLM_C_HEADER, LLM_C[int.from_bytes(head[:4], "little")]
        claims = int.from_bytes(head[8:12], "little")
        have = (os.stat(path).st_size - skip) // (2 if known == "uint16" else 4)
        if claims != have:
            raise ValueError(f"'{path}' has the header of llm.c for {claims} tokens, but {have} tokens")
    else:
        return 0
    if known != dtype:
        raise ValueError(f"the header of '{path}' says {known}: pass dtype=\"{known}\"")
    return skip


class Tokens(Dataset):
    """A token corpus as a data set: files of token numbers, cut into samples.

    path     a path or several: plain little-endian numbers, as nanoGPT or litgpt's preparation write them; llm.c's
             files; one-dimensional .npy; Megatron's prefixes (.bin and .idx); MDS folders; JSON lines;
             a column of Parquet
    length   tokens of a sample
    dtype    of plain numbers, "uint16" or "uint32" (default: "uint16"); with a header it must be the header's
    step     where the next sample begins, in tokens (`length`: none is in two samples)
    targets  with the tokens one later
    samples  "fixed": `length` tokens cut from the stream, as (tokens, targets), or the tokens alone; "documents": whole
             ones, {"tokens"}; "packed": `length` tokens filled with documents, {"tokens", "targets", "segment_ids",
             "position_ids"}, in batches also "cu_seqlens" and "max_seqlen"
    window, drop_tails, pad, eos, format, column   see millrace.tokens

    Tokens are int64. millrace.torch.DataLoader reads fixed samples of one file natively; every other loader can read
    them, too.
    """

    def __init__(
        self,
        path: "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]",
        length: int | None = None,
        dtype: str | None = None,
        step: int | None = None,
        targets: bool = True,
        *,
        samples: str = "fixed",
        **more: Any,
    ) -> None:
        plain = samples == "fixed" and not more and isinstance(path, (str, os.PathLike)) and _is_plain(os.fspath(path))
        if plain:
            dtype = _header_dtype(os.fspath(cast(str, path))) if dtype is None else dtype
            if dtype not in ("uint16", "uint32"):
                raise ValueError(f"dtype is 'uint16' or 'uint32', not '{dtype}'")
            if length is None or length < 1 or (step is not None and step < 1):
                raise ValueError("length and step must be at least 1")
        self.length, self.targets = length or 0, targets
        self.corpus: Corpus | None = None  # where it is not one plain file
        self.step = step if step is not None else self.length
        if plain:
            self._open_plain(os.path.abspath(os.fspath(cast(str, path))), cast(str, dtype))
        else:
            self._open_corpus(Corpus(path, length, dtype, step, targets, samples=samples, **more))

    def _open_plain(self, path: str, dtype: str) -> None:
        self.path, self.dtype, self.signed = path, dtype, False
        self.item = 2 if dtype == "uint16" else 4
        self.skip = _tokens_begin(self.path, dtype)
        have = os.stat(self.path).st_size - self.skip
        if have % self.item:
            raise ValueError(f"'{self.path}' has {have} bytes, which are no whole number of {dtype}")
        self.tokens = have // self.item
        want = self.length + (1 if self.targets else 0)
        if self.tokens < want:
            raise ValueError(f"'{self.path}' has {self.tokens} tokens, less than one sample of {want}")
        self.n = (self.tokens - want) // self.step + 1

    def _open_corpus(self, corpus: Corpus) -> None:
        info = corpus.info
        self.corpus = corpus
        self.n, self.tokens, self.dtype = corpus.n, info["tokens"], info["dtype"]
        self.item, self.signed, self.skip = int(info["dtype"][1:]), info["dtype"][0] == "i", 0
        self.path = corpus.paths[0]
        if corpus.cut != FIXED or info["format"] != "megatron" or info["files"] > 1 or self.item not in (2, 4):
            return
        data = self.path[:-4] if self.path.endswith((".idx", ".bin")) else self.path
        if os.path.isfile(data + ".bin") and os.stat(data + ".bin").st_size == self.tokens * self.item:
            self.path = data + ".bin"  # its index was looked at: from now on it is a plain file
            self.corpus = None

    @property
    def name(self) -> str:
        """For messages: the file's."""
        return self.corpus.name if self.corpus is not None else os.path.basename(self.path)

    @property
    def mean_tokens(self) -> float:
        """Of a sample, without padding and targets."""
        return self.corpus.mean_tokens if self.corpus is not None else float(self.length)

    def __len__(self) -> int:
        return self.n

    def _bytes(self) -> int:
        return (self.length + (1 if self.targets else 0)) * self.item

    def __getitem__(self, index: int) -> Any:
        if not -self.n <= index < self.n:
            raise IndexError(f"sample {index} of {self.n}")
        if self.corpus is not None:
            return self._sample(tensors(self.corpus[index]))
        with open(self.path, "rb", buffering=0) as f:
            raw = os.pread(f.fileno(), self._bytes(), self.skip + index % self.n * self.step * self.item)
        if len(raw) != self._bytes():
            raise _core.DataError(f"'{self.path}' is shorter than it was")
        one = self.unpack(torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(1, -1))
        return tuple(t[0] for t in one) if self.targets else one[0]

    def _sample(self, sample: dict[str, Any]) -> Any:
        """As it is delivered: fixed samples are a tuple, or the tokens alone."""
        if self.corpus is None or self.corpus.cut != FIXED:
            return sample
        return (sample["tokens"], sample["targets"]) if self.targets else sample["tokens"]

    def __getitems__(self, indices: "Sequence[int]") -> Any:
        if self.corpus is None:
            return [self[i] for i in indices]
        rows = self.corpus.rows(indices)
        if self.corpus.cut == FIXED:
            return [self._sample(tensors(row)) for row in rows]
        return rows

    @property
    def millrace_collate(self) -> "Callable[[Sequence[Any]], Any] | None":
        """What makes a batch, with the borders of packed samples and documents, where it is not read natively."""
        return collate_tokens if self.corpus is not None else None

    def unpack(self, data: torch.Tensor) -> Any:
        """The bytes of a batch as tokens. Signed views with the sign taken off: every version and device of torch has
        them."""
        signed, mask = (torch.int16, 0xFFFF) if self.item == 2 else (torch.int32, 0xFFFFFFFF)
        tokens = data.view(signed).to(torch.int64)
        if not self.signed:
            tokens = tokens.bitwise_and_(mask)
        return [tokens[:, :-1], tokens[:, 1:]] if self.targets else tokens

    def source(self) -> Source:
        """The file as the native loader reads it."""
        if self.corpus is not None:
            raise NotNative("these samples of tokens are put together of several ranges")
        step = self.step * self.item
        fd = _pictures.unnamed(lambda path: _core.index_records(self.path, self.skip, self._bytes(), step, path))
        out = Source(fd, self.n)
        out.unpack = self.unpack
        return out


class PathDataset(Dataset):
    """A data set that was given by its path, sample by sample: for samplers, and for frameworks that make a loader of
    torch's over the same data. Crops and flips then follow torch's random numbers."""

    def __init__(self, path: str, transform: Any, source: Source, parts: Parts) -> None:
        self.path, self.transform = path, transform
        self._source, self._parts = source, parts
        self._reader: Split | None = None

    def __len__(self) -> int:
        return self._source.n

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reader": None}

    def __getitems__(self, indices: "list[int]") -> list[Any]:
        if self._reader is None:
            self._reader = Split(self._source, self._parts, 0, alone=True, skip=False)
        n = len(self)
        if any(not -n <= i < n for i in indices):
            raise IndexError(f"sample {next(i for i in indices if not -n <= i < n)} of {n}")
        drawn = int(torch.randint(2**62, ()))
        return self._reader.__getitems__([(drawn, i % n) for i in indices])

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __repr__(self) -> str:
        return f"'{self.path}'"


class _Listing(NamedTuple):
    """Files of a picture data set and what becomes of them."""

    root: str
    samples: list[tuple[str, int]]
    classes: list[str]
    parts: Parts
    seen: list[tuple[Any, Any]]


def path_dataset(path: str, transform: Any) -> tuple[Source, Parts]:
    """Source of a path, and what becomes of its samples; NotNative: why they cannot be read natively."""
    parts = split_transform(transform)  # before files are looked at
    remote = path.startswith("s3://")
    path = path if remote else os.path.abspath(os.path.expanduser(path))
    if not remote and not os.path.exists(path):
        raise FileNotFoundError(f"no such data set: '{path}'")
    if os.path.isfile(path) and path.endswith(".bin"):
        raise ValueError(f"'{path}' is a plain file: for token numbers pass millrace.torch.Tokens('{path}', length)")
    if remote or _pictures.find_manifest(path):
        source = Source(path)
        _ = source.n  # reads the manifest: what is wrong with it is an error now
    else:
        classes, samples = _pictures.list_folder(path)
        source = folder_source(path, samples, classes)
    return source, parts if transform is not None or source.classes else NO_PICTURES


def dataset_source(dataset: Any) -> tuple[Source, Parts]:
    """Source of a data set, and what becomes of its samples; NotNative: why they cannot be read natively."""
    if isinstance(dataset, mixtures.Mixture):
        raise NotNative("a mixture is read by its sources")
    tokens, picks = _tokens_of(dataset)
    if tokens is not None:
        source = tokens.source()
        if picks is not None:
            source.pick(picks)
        return source, NO_PICTURES
    listing = _listing(dataset)
    source = folder_source(listing.root, listing.samples, listing.classes)
    source.seen = listing.seen
    return source, listing.parts


def _tokens_of(dataset: Any) -> tuple[Tokens | None, list[int] | None]:
    """Tokens inside Subsets, and which samples of them."""
    if type(dataset) is Tokens:
        return dataset, None
    if not _is(dataset, Subset):
        return None, None
    inner, picks = _tokens_of(dataset.dataset)
    return inner, [int(i) if picks is None else picks[i] for i in dataset.indices] if inner is not None else None


def _getter(dataset: Any) -> Any:
    """The function by which its class gets an item."""
    kind: Any = type(dataset)
    return kind.__getitem__


def _is(dataset: Any, kind: Any) -> bool:
    """One of these, with this class's own way to get an item."""
    return isinstance(dataset, kind) and _getter(dataset) is kind.__getitem__


def _listing(dataset: Any) -> _Listing:
    if _is(dataset, Subset):
        inner = _listing(dataset.dataset)
        return inner._replace(samples=[inner.samples[i] for i in dataset.indices])
    if _is(dataset, ConcatDataset):
        return _joined([_listing(part) for part in dataset.datasets])
    return _folder_listing(dataset)


def _joined(parts: list[_Listing]) -> _Listing:
    first = parts[0].parts
    if any(
        p.parts.parameters != first.parameters or [id(t) for t in p.parts.rest] != [id(t) for t in first.rest]
        for p in parts
    ):
        raise NotNative("the parts of a ConcatDataset have different transforms")
    root = os.path.commonpath([os.path.abspath(os.path.expanduser(part.root)) for part in parts])
    classes = parts[0].classes if all(part.classes == parts[0].classes for part in parts) else []
    return _Listing(
        root,
        [s for part in parts for s in part.samples],
        classes,
        first,
        [one for part in parts for one in part.seen],
    )


def _timm_listing(dataset: Any, base: Any) -> _Listing:
    """timm's ImageDataset over a folder of class folders."""
    reader = dataset.reader
    if _getter(dataset) is not base.__getitem__ or type(reader).__name__ != "ReaderImageFolder":
        raise NotNative(
            f"class '{type(dataset).__name__}' with a reader '{type(reader).__name__}' is read by its own code"
        )
    if (
        dataset.target_transform is not None
        or dataset.load_bytes
        or getattr(dataset, "additional_features", None)
        or dataset.input_img_mode != "RGB"
    ):
        raise NotNative("the data set has a target_transform, or gives something else than RGB pictures and labels")
    if dataset.transform is None:
        raise NotNative("the data set has no transform")
    parts = split_transform(dataset.transform)
    names = sorted(reader.class_to_idx, key=reader.class_to_idx.get) if reader.class_to_idx else []
    return _Listing(os.fspath(reader.root), reader.samples, names, parts, [(dataset, dataset.transform)])


def _folder_listing(dataset: Any) -> _Listing:
    timm = [c for c in type(dataset).__mro__ if c.__name__ == "ImageDataset" and c.__module__ == "timm.data.dataset"]
    if timm:
        return _timm_listing(dataset, timm[0])
    bases = {c.__name__: c for c in type(dataset).__mro__ if c.__module__.startswith("torchvision.datasets")}
    base: Any = bases.get("DatasetFolder")
    if base is None:
        raise NotNative(f"a data set of class '{type(dataset).__name__}' is read by its own code")
    if _getter(dataset) is not base.__getitem__:
        raise NotNative(f"class '{type(dataset).__name__}' has a __getitem__ of its own")
    import torchvision

    if dataset.loader is not torchvision.datasets.folder.default_loader:
        raise NotNative("the data set has a loader function of its own")
    if dataset.target_transform is not None:
        raise NotNative("the data set has a target_transform")
    if dataset.transform is None:
        raise NotNative("the data set has no transform")
    parts = split_transform(dataset.transform)  # before files are looked at
    return _Listing(os.fspath(dataset.root), dataset.samples, dataset.classes, parts, [(dataset, dataset.transform)])
