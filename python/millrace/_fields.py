"""Samples of several fields: which are read, and batches of them by their names. No framework is imported here."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from . import _core

Wanted = "str | Sequence[str] | Mapping[str, Any] | None"
_USES = ("auto", "value", "image", "mask", "boxes")


class Selection(NamedTuple):
    """The fields of a loader. `text`: names of those that are characters; `axis`: of each, in which axis its values
    differ (None: in none, -1: in any); `classes`: what batches of a field come as, where its use was a class."""

    names: tuple[str, ...]
    uses: tuple[str, ...]
    variable: str
    text: frozenset[str]
    axis: dict[str, int | None]
    classes: dict[str, Any]

    def options(self) -> dict[str, Any]:
        """For the native loader."""
        return dict(fields=self.names, uses=self.uses, ragged=self.variable)


def _axis(field: dict[str, Any]) -> int | None:
    dims = field["dims"]
    if dims is None:
        return -1
    return dims.index(None) if None in dims else None


def _use(name: str, use: Any) -> str:
    word = use if isinstance(use, str) else getattr(use, "__name__", str(use))
    word = {"Image": "image", "Mask": "mask", "BoundingBoxes": "boxes"}.get(word, word)
    if word not in _USES:
        raise ValueError(f"field '{name}': its use is one of {', '.join(_USES)}, not '{word}'")
    return word


def is_simple(schema: list[dict[str, Any]]) -> bool:
    """What is delivered by default is one input and at most one label that the manifest has."""
    default = [f for f in schema if f["role"] != "other"]
    labels = [f for f in default if f["storage"] == "label"]
    return len(labels) <= 1 and len(default) - len(labels) == 1


def choose(manifest: str, fields: Any, variable: str = "list", store: str | None = None) -> Selection | None:
    """None: samples are what they were before there were fields."""
    if variable not in ("list", "pad", "pack"):
        raise ValueError(f"variable is 'list', 'pad' or 'pack', not '{variable}'")
    schema = _core.schema(manifest, store)
    if fields is None and is_simple(schema) and variable != "pack":
        return None
    by_name = {field["name"]: field for field in schema}
    uses: dict[str, str] = {}
    if isinstance(fields, Mapping):
        uses = {name: _use(name, use) for name, use in fields.items()}
        names = tuple(fields)
    elif fields is None or fields == "*":
        names = tuple(f["name"] for f in schema if f["role"] != "other")
    else:
        names = (fields,) if isinstance(fields, str) else tuple(fields)
    for name in names:
        if name not in by_name:
            raise ValueError(f"the data set has no field '{name}'; it has {', '.join(repr(n) for n in by_name)}")
    if not names:
        raise ValueError("no field is asked for")
    return Selection(
        names,
        tuple(uses.get(name, "auto") for name in names),
        variable,
        frozenset(name for name in names if by_name[name]["storage"] == "text"),
        {name: _axis(by_name[name]) for name in names},
        {n: use for n, use in fields.items() if isinstance(use, type)} if isinstance(fields, Mapping) else {},
    )


def _text(value: Any) -> str:
    return bytes((value.numpy() if hasattr(value, "numpy") else value).tobytes()).decode(errors="surrogateescape")


def collect(
    selection: Selection, fields: Sequence[tuple[str, Any, Any, Any]], make: Callable[[Any], Any]
) -> dict[str, Any]:
    """The batch by names; `make` turns an Array of the native loader into the caller's kind."""
    out: dict[str, Any] = {}
    for name, data, lengths, offsets in fields:
        if not isinstance(data, list):
            out[name] = make(data)
        elif name in selection.text:
            out[name] = [_text(make(row)) for row in data]
        else:
            out[name] = [make(row) for row in data]
        if offsets is not None:
            out[f"{name}_offsets"] = make(offsets)
        if lengths is not None:
            n = len(out[name])
            every, axis = make(lengths).reshape(n, -1), selection.axis[name]
            out[f"{name}_lengths"] = every if axis is None or axis < 0 else every[:, axis]
    return out
