"""Loaded by every Python that `millrace trace --python` starts: instruments libraries as they are imported. Another
sitecustomize further down the path still runs."""
import importlib.machinery
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))

try:
    if os.environ.get("MILLRACE_TRACE_PYTHON", "").lower() in ("1", "true", "yes", "on"):
        from millrace.trace import instrument

        instrument.install()
except Exception as error:  # the program matters more than its trace
    sys.stderr.write("millrace: no Python instrumentation: %s\n" % error)

_rest = [p for p in sys.path if os.path.abspath(p or ".") != _here]
_spec = importlib.machinery.PathFinder.find_spec("sitecustomize", _rest)
if _spec is not None and _spec.loader is not None:
    _module = sys.modules[__name__]
    _module.__spec__, _module.__file__ = _spec, _spec.origin
    _spec.loader.exec_module(_module)
