"""Warnings that point at the program's own line, however deep inside of the package they arise."""

import sys
import warnings


def warn(message: str) -> None:
    """warnings.warn for the innermost caller outside of this package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("millrace."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)
