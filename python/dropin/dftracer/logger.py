"""DFTracer's names, from Millrace; see millrace.trace.dftracer."""

import sys as _sys

from millrace.trace.dftracer import *  # noqa: F401,F403

for _part in ("ai", "logger"):  # modules of the same names
    _sys.modules[__name__ + "." + _part] = _sys.modules[__name__]
