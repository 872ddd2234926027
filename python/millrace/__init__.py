"""Millrace: measure, explain, predict and fix the I/O of deep-learning training.

    from millrace.torch import DataLoader       # a drop-in for torch.utils.data.DataLoader
    from millrace.numpy import Loader           # plain batches of numpy arrays
    from millrace import trace                  # annotations in the trace of `millrace trace`

Importing this package loads no framework and nothing native; each part loads what it needs when it is imported.
`python -m millrace` is the command `millrace`.
"""

__all__ = ["DataError", "home", "version"]


def home() -> str:
    """The folder with the command, the libraries and the presets: of the wheel, or of the build this package lies
    in."""
    import os

    here = os.path.dirname(os.path.abspath(__file__))
    for place in (
        os.path.join(here, "_home"),
        os.path.join(here, "..", ".."),
        os.path.join(here, "..", "..", "..", ".."),
    ):
        if os.path.exists(os.path.join(place, "bin", "millrace")):
            return os.path.normpath(place)
    raise FileNotFoundError(
        "the command 'millrace' is not beside this package; install the wheel, or build the project"
    )


def __getattr__(name: str) -> object:
    if name in ("DataError", "version", "__version__"):
        from . import _core

        return getattr(_core, name.strip("_"))
    raise AttributeError(f"module 'millrace' has no attribute '{name}'")
