"""DFTracer's names, from Millrace; see millrace.trace.dftracer."""

import sys as _sys

from millrace.trace.dftracer import *  # noqa: F401,F403
from millrace.trace.dftracer_torch import *  # noqa: F401,F403

# Modules of the same names. They are one, so that `from dftracer.python.X import` finds what is where in any version.
for _part in (
    "ai",
    "ai_common",
    "ai_init",
    "common",
    "dbg",
    "dbg.ai",
    "dbg.logger",
    "dbg.torch",
    "dynamo",
    "env",
    "logger",
    "torch",
    "torch.profiler",
):
    _sys.modules[__name__ + "." + _part] = _sys.modules[__name__]
