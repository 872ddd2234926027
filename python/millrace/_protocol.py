"""torchdata's protocol for data sets, samplers and iterators that can say where they are and go on there."""

from collections.abc import Iterator
from typing import Any


def has_state(thing: Any) -> bool:
    """Has it state_dict and load_state_dict?"""
    return callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))


def state_of(dataset: Any, iterator: Any) -> dict[str, Any]:
    """Of a data set or sampler, and of its iterator where it is another object; what has no state is left out."""
    out: dict[str, Any] = {}
    if iterator is not None and iterator is not dataset and has_state(iterator):
        out["iterator"] = iterator.state_dict()
    if has_state(dataset):
        out["dataset"] = dataset.state_dict()
    return out


def begin(dataset: Any, state: "dict[str, Any] | None") -> Iterator[Any]:
    """iter(dataset) where `state` was saved: first the data set's state, then the iterator's."""
    if state is not None and "dataset" in state:
        dataset.load_state_dict(state["dataset"])
    iterator: Any = iter(dataset)
    if iterator is dataset and state is not None and "dataset" in state:
        dataset.load_state_dict(state["dataset"])  # __iter__ may have begun anew
    if state is not None and "iterator" in state:
        iterator.load_state_dict(state["iterator"])
    return iterator
