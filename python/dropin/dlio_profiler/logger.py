"""DFTracer under its first name, from Millrace; see millrace.trace.dftracer."""

from millrace.trace.dftracer import dft_fn as fn_interceptor  # noqa: F401
from millrace.trace.dftracer import dftracer as dlio_logger
