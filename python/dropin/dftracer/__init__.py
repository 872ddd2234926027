"""DFTracer's names, from Millrace; see millrace.trace.dftracer."""

import sys as _sys

from millrace.trace.dftracer import *  # noqa: F401,F403

from . import python as _python

for _part in ("dbg", "dbg.logger", "dynamo"):  # where some versions have them
    _sys.modules[__name__ + "." + _part] = _python
