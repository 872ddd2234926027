"""DFTracer under its first name, from Millrace; see millrace.trace.dftracer."""
