"""DFTracer's names, from Millrace; see millrace.trace.dftracer."""
from millrace.trace.dftracer import *  # noqa: F401,F403
