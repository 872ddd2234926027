"""What the native loader reads: a manifest, and where the caller's samples are in it. No framework is imported here."""

import os
import weakref
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from . import _core, _fields, _pictures


class Source:
    """A manifest, by its path or by the descriptor of one without a name, which lives as long as this object.

    ids: the manifest's numbers of the caller's samples, None where they are the same. n: how many samples the caller
        has;
    None: as many as the manifest has."""

    def __init__(
        self,
        manifest: str | int,
        n: int | None = None,
        ids: Sequence[int] | None = None,
        classes: Sequence[str] = (),
    ) -> None:
        self._n, self.ids, self.classes = n, ids, list(classes)
        self.fields: _fields.Selection | None = None  # which ones are read, where samples have several
        self.unpack: Callable[[Any], Any] | None = None  # makes what is delivered of the bytes of a batch
        self.seen: list[tuple[Any, Any]] = []  # data sets and the transforms they had
        self._taken: tuple[Any, Any, bytes] | None = None  # what take() had and made last
        self._unnamed = isinstance(manifest, int)
        if isinstance(manifest, int):
            weakref.finalize(self, os.close, manifest)
            manifest = f"/proc/self/fd/{manifest}"
        self.manifest = manifest

    @property
    def n(self) -> int:
        """How many samples the caller has."""
        if self._n is None:
            probe = _core.Loader(self.manifest, 1, policy="naive", flags=_core.RAW)
            self._n = int(probe.info()["samples"])
            probe.close()
        return self._n

    def pick(self, ids: Sequence[int]) -> None:
        """The caller's samples are these."""
        self.ids, self._n = ids, len(ids)

    def __reduce__(self) -> Any:
        """Into a process that does not inherit descriptors: with the manifest itself, where it has no name."""
        content = None
        if self._unnamed:
            with open(self.manifest, "rb") as f:
                content = f.read()
        return _again, (self.manifest, content, self._n, self.ids, self.classes)

    def take(self, indices: Sequence[int]) -> bytes:
        """The sample numbers of these indices, in the form of the native loader."""
        ids = self.ids
        if self._taken is None or self._taken[0] is not indices or self._taken[1] is not ids:
            numbers = array("Q", indices if ids is None else [ids[i] for i in indices]).tobytes()
            self._taken = (indices, ids, numbers)  # an epoch is announced before it is started
        return self._taken[2]


def _again(
    manifest: str, content: bytes | None, n: int | None, ids: Sequence[int] | None, classes: Sequence[str]
) -> Source:
    def write(path: str) -> None:
        with open(path, "wb") as f:
            f.write(content or b"")

    return Source(manifest if content is None else _pictures.unnamed(write), n, ids, classes)


def folder_source(root: str, samples: Sequence[tuple[str, int]], classes: list[str]) -> Source:
    """These pictures with their labels, by a manifest without a name."""
    folder = _pictures.arrange(root, samples, classes)
    return Source(_pictures.write_manifest(folder), len(folder.ids), folder.ids, classes)


def path_source(path: str) -> Source:
    """A data set with a manifest, or a folder of class folders; anything else is left to the native loader, whose error
    messages are better."""
    if "@files=" in path or not os.path.isdir(path) or _pictures.find_manifest(path):
        return Source(path)
    try:
        classes, samples = _pictures.list_folder(path)
    except FileNotFoundError:
        return Source(path)
    return folder_source(path, samples, classes)
