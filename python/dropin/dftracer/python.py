"""DFTracer's names, from Millrace; see millrace.trace.dftracer."""
from millrace.trace.dftracer import ai, dft_fn, dftracer  # noqa: F401
