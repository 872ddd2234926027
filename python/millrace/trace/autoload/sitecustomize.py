"""Loaded by every Python that runs under `millrace trace`: instruments libraries as they are imported. Another
sitecustomize further down the path still runs, and finds this module in its place. The folder of this file leaves
sys.path again; that of the package comes last there, so that a program's own modules are found first. A Python 2 that
a program starts inherits the path, and only runs its own sitecustomize."""

import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
_on = os.environ.get("MILLRACE_TRACE_PYTHON", "1").lower() not in (
    "0",
    "false",
    "no",
    "off",
    "",
) and sys.version_info >= (3, 8)
sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != _here]

if _on:
    try:
        _package = os.path.dirname(os.path.dirname(os.path.dirname(_here)))
        if _package not in sys.path:
            sys.path.append(_package)
        from millrace.trace import instrument

        instrument.install()
    except Exception as error:  # the program matters more than its trace
        sys.stderr.write("millrace: no Python instrumentation: %s\n" % error)

if sys.version_info[0] == 2:
    import imp

    try:
        _found = imp.find_module("sitecustomize", sys.path)
    except ImportError:
        _found = None
    if _found:
        _self = sys.modules.pop(__name__)  # kept: a module that nobody refers to loses its names
        imp.load_module("sitecustomize", *_found)
else:
    import importlib.machinery

    _spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if _spec is not None and _spec.loader is not None:
        _module = sys.modules[__name__]
        _module.__spec__, _module.__file__ = _spec, _spec.origin
        _spec.loader.exec_module(_module)
