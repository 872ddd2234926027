"""A loader in a pickle: what it was made with, and its position. Where it is unpickled (a spawned process) it is made
again: threads, memory and open files belong to the process that has them."""

import pickle
from typing import Any


def arguments(names: dict[str, Any]) -> dict[str, Any]:
    """Of a constructor, from its locals() when it begins."""
    return {name: value for name, value in names.items() if name not in ("self", "__class__")}


def check(given: dict[str, Any]) -> None:
    """TypeError: which argument cannot be pickled, and why. The data set is left to the pickle: it may be large."""
    for name, value in given.items():
        if name == "dataset" or value is None:
            continue
        try:
            pickle.dumps(value)
        except Exception as why:
            raise TypeError(f"this loader cannot be pickled: its {name}: {why}") from None
