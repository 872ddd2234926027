"""torchdata's protocol for data sets, samplers and iterators that can say where they are and go on there."""

from collections.abc import Iterator
from typing import Any


def has_state(thing: Any) -> bool:
    """Has it state_dict and load_state_dict?"""
    return callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))


def state_of(dataset: Any, iterator: Any) -> dict[str, Any]:
    """Of a data set or sampler, and of its iterator where it is another object; what has no state is left out.
    `own_iterator`: it is its own iterator, so that its state is that of an iteration."""
    out: dict[str, Any] = {}
    if iterator is not None and iterator is not dataset and has_state(iterator):
        out["iterator"] = iterator.state_dict()
    if has_state(dataset):
        if iterator is dataset:
            out["own_iterator"] = True
        out["dataset"] = dataset.state_dict()
    return out


def between(state: dict[str, Any]) -> dict[str, Any]:
    """Of a state behind the end of an epoch: an iterator is over, its data set goes on with the next epoch."""
    out = {name: value for name, value in state.items() if name in ("dataset", "own_iterator")}
    return {**out, "over": True} if "own_iterator" in out else out


def begin(dataset: Any, state: "dict[str, Any] | None") -> Iterator[Any]:
    """iter(dataset) where `state` was saved. One that is its own iterator has something to load into when it has begun,
    and begins once more where its epoch was over."""
    state = state or {}
    if "own_iterator" in state:
        iterator: Any = iter(dataset)
        dataset.load_state_dict(state["dataset"])
        return iter(dataset) if "over" in state else iterator
    if "dataset" in state:
        dataset.load_state_dict(state["dataset"])
    iterator = iter(dataset)
    if "iterator" in state:
        iterator.load_state_dict(state["iterator"])
    return iterator
