"""A token corpus without a framework: what millrace.torch.Tokens and millrace.tokens.Tokens share. Samples are numpy
arrays; a batch is read by one call into C, without the interpreter's lock."""

import os
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _core

FIXED, DOCUMENTS, PACKED = 0, 1, 2
CUTS = {"fixed": FIXED, "documents": DOCUMENTS, "packed": PACKED}
MAX_WINDOW = 65534
IGNORED = -100  # the target of a token that predicts nothing

PathLike = "str | os.PathLike[str]"


class Rows(list):  # type: ignore[type-arg]
    """Samples of one batch that was read as a whole: `batch` is what a collate function makes of them."""

    batch: dict[str, Any]


class Corpus:
    """Files of tokens, cut into samples; sample numbers may be asked for in any order, from any thread or process."""

    def __init__(
        self,
        paths: "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]",
        length: int | None = None,
        dtype: str | None = None,
        step: int | None = None,
        targets: bool = True,
        *,
        samples: str = "fixed",
        window: int = 1024,
        drop_tails: bool = False,
        pad: int = 0,
        eos: int | None = None,
        format: str | None = None,
        column: str | None = None,
        store: str | None = None,
    ) -> None:
        if samples not in CUTS:
            raise ValueError(f"samples is 'fixed', 'documents' or 'packed', not '{samples}'")
        if samples != "documents" and (length is None or length < 1):
            raise ValueError(f"samples='{samples}' needs a length of at least 1 token")
        if samples == "documents" and length is not None:
            raise ValueError("samples='documents' has no length: documents are delivered whole")
        if step is not None and (step < 1 or samples != "fixed"):
            raise ValueError("step is at least 1, and goes with samples='fixed'")
        if not 1 <= window <= MAX_WINDOW:
            raise ValueError(f"window is 1 to {MAX_WINDOW} documents, not {window}")
        given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
        self.paths = [_absolute(os.fspath(p)) for p in given]
        self.cut, self.length, self.targets, self.pad = CUTS[samples], length, targets, pad
        extra = 1 if targets and samples == "fixed" else 0
        self._arguments = dict(
            paths=self.paths,
            cut=self.cut,
            length=length or 0,
            step=step or 0,
            extra=extra,
            window=window,
            drop_tails=drop_tails,
            format=format,
            dtype=dtype,
            column=column,
            store=store,
            eos=eos,
        )
        self._pid = os.getpid()
        self._core = _core.Tokens(**self._arguments)  # type: ignore[arg-type]
        self.info = self._core.info()
        self.n = int(self.info["samples"])

    @property
    def name(self) -> str:
        """For messages: the first file's."""
        more = f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else ""
        return os.path.basename(self.paths[0].rstrip("/")) + more

    @property
    def mean_tokens(self) -> float:
        """Of a sample, without padding and targets; 0: only reading all of it would show it."""
        if self.cut == FIXED:
            return float(self.length or 0)
        return self.info["delivered"] / self.n

    def __len__(self) -> int:
        return self.n

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_core"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def _open(self) -> None:
        self._pid = os.getpid()
        self._core = _core.Tokens(**self._arguments)  # type: ignore[arg-type]
        if self._core.info() != self.info:
            raise _core.DataError(f"'{self.paths[0]}' or another file of tokens was changed since it was opened")

    def place(self, index: int) -> tuple[int, int, int]:
        """Where a sample is: (number of the file, window, position in the window); packed samples have windows."""
        return self._core.place(index)

    def read(self, indices: Sequence[int]) -> dict[str, Any]:
        """A batch as numpy arrays.

        fixed      tokens (int64, rows of length), targets (the tokens one later; with targets=True)
        documents  tokens (all of them one behind the other), offsets (int64, n + 1)
        packed     tokens, targets (-100: none), segment_ids (0: padding), position_ids (int32), cu_seqlens (int32,
                   where pieces of the flat batch begin and end), max_seqlen
        """
        if not len(indices):
            raise ValueError("a batch has at least one sample")
        n = self.n
        wrong = [i for i in indices if not -n <= i < n]
        if wrong:
            raise IndexError(f"sample {wrong[0]} of {n}")
        if self._pid != os.getpid():  # a fork: its parent may have been reading
            self._open()
        got = self._core.read(array("Q", [int(i) % n for i in indices]).tobytes(), self.pad, True)
        if self.cut == FIXED:
            rows = np.asarray(got)
            return {"tokens": rows[:, :-1], "targets": rows[:, 1:]} if self.targets else {"tokens": rows}
        if self.cut == DOCUMENTS:
            return {"tokens": np.asarray(got[0]), "offsets": offsets_of(np.asarray(got[1]))}
        names = ("tokens", "targets", "segment_ids", "position_ids", "cu_seqlens")
        out: dict[str, Any] = {name: np.asarray(a) for name, a in zip(names, got)}
        if not self.targets:
            del out["targets"]
        out["max_seqlen"] = int(np.diff(out["cu_seqlens"]).max())
        return out

    def rows(self, indices: Sequence[int]) -> Rows:
        """The same, also as a list of samples."""
        batch, out = self.read(indices), Rows()
        out.batch = batch
        if self.cut == DOCUMENTS:
            borders = batch["offsets"]
            out.extend({"tokens": batch["tokens"][a:b]} for a, b in zip(borders, borders[1:]))
        else:
            fields = {name: a for name, a in batch.items() if name not in ("cu_seqlens", "max_seqlen")}
            out.extend({name: a[i] for name, a in fields.items()} for i in range(len(indices)))
        return out

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> Rows:
        return self.rows(indices)

    def __repr__(self) -> str:
        return f"<Tokens '{self.name}', {self.n} samples>"


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.abspath(os.path.expanduser(path))


def offsets_of(lengths: Any) -> Any:
    """Where values of these lengths begin and end, one behind the other."""
    out = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=out[1:])
    return out


def borders_of(segments: Any) -> Any:
    """cu_seqlens of rows of segment ids."""
    segments = np.asarray(segments)
    begins = np.ones(segments.shape, bool)
    begins[:, 1:] = segments[:, 1:] != segments[:, :-1]
    return np.append(np.flatnonzero(begins.ravel()), segments.size).astype(np.int32)


def collate(samples: Sequence[Any]) -> Any:
    """A batch of samples, which may come from several corpora of the same kind: arrays stacked by name; documents one
    behind the other, with offsets."""
    if isinstance(samples, Rows):
        return samples.batch
    first = samples[0]
    if not isinstance(first, dict):
        if any(isinstance(s, dict) for s in samples):
            raise ValueError(
                f"samples of a batch are not alike: dicts and {type(first).__name__}s; give sources that are"
            )
        if isinstance(first, (tuple, list)):
            return tuple(collate([s[i] for s in samples]) for i in range(len(first)))
        return np.stack([np.asarray(s) for s in samples])
    for s in samples:
        if not isinstance(s, dict) or s.keys() != first.keys():
            other = sorted(s) if isinstance(s, dict) else f"a {type(s).__name__}"
            raise ValueError(
                f"samples of a batch are not alike: fields {sorted(first)} and {other}; give sources that are"
            )
    out: dict[str, Any] = {}
    if set(first) == {"tokens"} and any(s["tokens"].shape != first["tokens"].shape for s in samples):
        out["tokens"] = np.concatenate([s["tokens"] for s in samples])
        out["offsets"] = offsets_of([len(s["tokens"]) for s in samples])
        return out
    for name in first:
        shapes = {np.shape(s[name]) for s in samples}
        if len(shapes) > 1:
            raise ValueError(
                f"samples of a batch differ in shape: '{name}' has {sorted(shapes)}; give sources one length"
            )
        out[name] = np.stack([np.asarray(s[name]) for s in samples])
    if "segment_ids" in out:
        out["cu_seqlens"] = borders_of(out["segment_ids"])
        out["max_seqlen"] = int(np.diff(out["cu_seqlens"]).max())
    return out
