"""What millrace.torch.DataLoader reads natively: data sets of torchvision and paths, as manifests of the native loader."""
import os
import weakref
from array import array
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch
from torch.utils.data import ConcatDataset, Dataset, Subset

from . import _core, _pictures
from ._pictures import NotNative


class Length:
    """Stands for a data set that is only a path: a sampler asks for its length."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n


class Source:
    """A manifest, by its path or by the descriptor of one without a name, and where the caller's samples are in it."""

    def __init__(self, manifest: Union[str, int], n: int, ids: Optional[Sequence[int]], classes: List[str]) -> None:
        self.manifest, self.n, self.ids, self.classes = manifest, n, ids, classes
        self.unpack: Optional[Callable[[torch.Tensor], Any]] = None  # makes what is delivered of the bytes of a batch
        self.seen: List[Tuple[Any, Any]] = []  # data sets and the transforms they had
        self._unnamed = isinstance(manifest, int)
        if isinstance(manifest, int):
            self.manifest = f"/proc/self/fd/{manifest}"
            weakref.finalize(self, os.close, manifest)

    def __reduce__(self) -> Any:
        """Into a process that does not inherit descriptors: with the manifest itself, where it has no name."""
        content = None
        if self._unnamed:
            with open(self.manifest, "rb") as f:
                content = f.read()
        return _again, (self.manifest, content, self.n, self.ids, self.classes)

    def take(self, indices: List[int]) -> bytes:
        """The sample numbers of these indices, as the C library wants them."""
        ids = self.ids
        return array("Q", indices if ids is None else [ids[i] for i in indices]).tobytes()


def _again(manifest: str, content: Optional[bytes], n: int, ids: Optional[Sequence[int]], classes: List[str]) -> Source:
    def write(path: str) -> None:
        with open(path, "wb") as f:
            f.write(content or b"")

    return Source(manifest if content is None else _pictures.unnamed(write), n, ids, classes)


class Tokens(Dataset):
    """A file of token numbers, one behind the other, cut into samples of `length` tokens: (tokens, the tokens one later), both
    int64. With targets=False a sample is the tokens alone.

    path    a file of little-endian numbers without a header, as nanoGPT, llm.c or litgpt's preparation write them
    dtype   "uint16" or "uint32"
    step    where the next sample begins, in tokens (`length`: none is in two samples)

    millrace.torch.DataLoader reads it natively; every other loader can read it, too.
    """

    def __init__(
        self,
        path: Union[str, "os.PathLike[str]"],
        length: int,
        dtype: str = "uint16",
        step: Optional[int] = None,
        targets: bool = True,
    ) -> None:
        if dtype not in ("uint16", "uint32"):
            raise ValueError(f"dtype is 'uint16' or 'uint32', not '{dtype}'")
        if length < 1 or (step is not None and step < 1):
            raise ValueError("length and step must be at least 1")
        self.path, self.length, self.dtype, self.targets = os.path.abspath(os.fspath(path)), length, dtype, targets
        self.step = step if step is not None else length
        self.item = 2 if dtype == "uint16" else 4
        have = os.stat(self.path).st_size
        if have % self.item:
            raise ValueError(f"'{self.path}' has {have} bytes, which are no whole number of {dtype}")
        self.tokens = have // self.item
        want = length + (1 if targets else 0)
        if self.tokens < want:
            raise ValueError(f"'{self.path}' has {self.tokens} tokens, less than one sample of {want}")
        self.n = (self.tokens - want) // self.step + 1

    def __len__(self) -> int:
        return self.n

    def _bytes(self) -> int:
        return (self.length + (1 if self.targets else 0)) * self.item

    def __getitem__(self, index: int) -> Any:
        if not -self.n <= index < self.n:
            raise IndexError(f"sample {index} of {self.n}")
        with open(self.path, "rb", buffering=0) as f:
            raw = os.pread(f.fileno(), self._bytes(), index % self.n * self.step * self.item)
        if len(raw) != self._bytes():
            raise _core.DataError(f"'{self.path}' is shorter than it was")
        one = self.unpack(torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(1, -1))
        return tuple(t[0] for t in one) if self.targets else one[0]

    def unpack(self, data: torch.Tensor) -> Any:
        """The bytes of a batch as tokens. Signed views with the sign taken off: every version and device of torch has them."""
        signed, mask = (torch.int16, 0xFFFF) if self.item == 2 else (torch.int32, 0xFFFFFFFF)
        tokens = data.view(signed).to(torch.int64).bitwise_and_(mask)
        return [tokens[:, :-1], tokens[:, 1:]] if self.targets else tokens

    def source(self) -> Source:
        fd = _pictures.unnamed(lambda path: _core.index_records(self.path, self._bytes(), self.step * self.item, path))
        out = Source(fd, self.n, None, [])
        out.unpack = self.unpack
        return out


class _Listing(NamedTuple):
    """Files of a picture data set and what becomes of them."""

    root: str
    samples: List[Tuple[str, int]]
    classes: List[str]
    transform: Any
    seen: List[Tuple[Any, Any]]


def _folder_source(root: str, samples: Any, classes: List[str]) -> Source:
    folder = _pictures.arrange(root, samples, classes)
    return Source(_pictures.write_manifest(folder), len(folder.ids), folder.ids, classes)


def path_source(path: str) -> Source:
    path = os.path.abspath(os.path.expanduser(path))
    if not os.path.exists(path):
        raise FileNotFoundError(f"no such data set: '{path}'")
    if os.path.isfile(path) and path.endswith(".bin"):
        raise ValueError(f"'{path}' is a plain file: for token numbers pass millrace.torch.Tokens('{path}', length)")
    if _pictures.find_manifest(path):
        probe = _core.Loader(path, 1, policy="naive", flags=_core.RAW)
        n = probe.info()["samples"]
        probe.close()
        return Source(path, n, None, [])
    classes, samples = _pictures.list_folder(path)
    return _folder_source(path, samples, classes)


def dataset_source(dataset: Any) -> Tuple[Source, Any]:
    """Source and transform (None: of samples that are no pictures) of a data set; NotNative says why there is none."""
    tokens, picks = _tokens_of(dataset)
    if tokens is not None:
        source = tokens.source()
        if picks is not None:
            source.ids, source.n = picks, len(picks)
        return source, None
    listing = _listing(dataset)
    source = _folder_source(listing.root, listing.samples, listing.classes)
    source.seen = listing.seen
    return source, listing.transform


def _tokens_of(dataset: Any) -> Tuple[Optional[Tokens], Optional[List[int]]]:
    """Tokens inside Subsets, and which samples of them."""
    if type(dataset) is Tokens:
        return dataset, None
    if not _is(dataset, Subset):
        return None, None
    inner, picks = _tokens_of(dataset.dataset)
    return inner, [int(i) if picks is None else picks[i] for i in dataset.indices] if inner is not None else None


def _is(dataset: Any, kind: type) -> bool:
    """One of these, with this class's own way to get an item."""
    return isinstance(dataset, kind) and type(dataset).__getitem__ is kind.__getitem__


def _listing(dataset: Any) -> _Listing:
    if _is(dataset, Subset):
        inner = _listing(dataset.dataset)
        return inner._replace(samples=[inner.samples[i] for i in dataset.indices])
    if _is(dataset, ConcatDataset):
        return _joined([_listing(part) for part in dataset.datasets])
    return _folder_listing(dataset)


def _joined(parts: List[_Listing]) -> _Listing:
    done = [_pictures.split_transform(part.transform) for part in parts]
    if any(p.parameters != done[0].parameters or [id(t) for t in p.rest] != [id(t) for t in done[0].rest] for p in done):
        raise NotNative("the parts of a ConcatDataset have different transforms")
    root = os.path.commonpath([os.path.abspath(os.path.expanduser(part.root)) for part in parts])
    classes = parts[0].classes if all(part.classes == parts[0].classes for part in parts) else []
    return _Listing(root, [s for part in parts for s in part.samples], classes, parts[0].transform, [one for part in parts for one in part.seen])


def _timm_listing(dataset: Any, base: type) -> _Listing:
    """timm's ImageDataset over a folder of class folders."""
    reader = dataset.reader
    if type(dataset).__getitem__ is not base.__getitem__ or type(reader).__name__ != "ReaderImageFolder":
        raise NotNative(f"class '{type(dataset).__name__}' with a reader '{type(reader).__name__}' is read by its own code")
    if dataset.target_transform is not None or dataset.load_bytes or getattr(dataset, "additional_features", None) or dataset.input_img_mode != "RGB":
        raise NotNative("the data set has a target_transform, or gives something else than RGB pictures and labels")
    if dataset.transform is None:
        raise NotNative("the data set has no transform")
    _pictures.split_transform(dataset.transform)
    names = sorted(reader.class_to_idx, key=reader.class_to_idx.get) if reader.class_to_idx else []
    return _Listing(os.fspath(reader.root), reader.samples, names, dataset.transform, [(dataset, dataset.transform)])


def _folder_listing(dataset: Any) -> _Listing:
    timm = [c for c in type(dataset).__mro__ if c.__name__ == "ImageDataset" and c.__module__ == "timm.data.dataset"]
    if timm:
        return _timm_listing(dataset, timm[0])
    bases = {c.__name__: c for c in type(dataset).__mro__ if c.__module__.startswith("torchvision.datasets")}
    base = bases.get("DatasetFolder")
    if base is None:
        raise NotNative(f"a data set of class '{type(dataset).__name__}' is read by its own code")
    if type(dataset).__getitem__ is not base.__getitem__:
        raise NotNative(f"class '{type(dataset).__name__}' has a __getitem__ of its own")
    import torchvision

    if dataset.loader is not torchvision.datasets.folder.default_loader:
        raise NotNative("the data set has a loader function of its own")
    if dataset.target_transform is not None:
        raise NotNative("the data set has a target_transform")
    if dataset.transform is None:
        raise NotNative("the data set has no transform")
    _pictures.split_transform(dataset.transform)  # before files are looked at
    return _Listing(os.fspath(dataset.root), dataset.samples, dataset.classes, dataset.transform, [(dataset, dataset.transform)])
