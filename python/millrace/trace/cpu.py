"""What a thread's time went to that no call tells: on a CPU, or ready to run without one, or waiting for a page of a
mapped file.

    begun = cpu.begin()
    ...
    span("data_loader", "fetch", begin, cpu.end(begun, {}))     # adds cpu_ns, delay_ns where others had the CPUs, and
                                                                major_faults

The kernel counts how long a thread waited for a CPU; asking it takes some microseconds. So it is asked about work that
follows work during which the thread was off the CPU for a good part, and not about short work.
"""

import threading
from time import perf_counter_ns, process_time_ns, thread_time_ns

from . import _trace

LONG_NS = 1000000  # shorter work: asking would be a part of it
OFF = 0.1  # of the work before, off the CPU: with less nobody had to wait for one

_delay = getattr(_trace, "cpu_delay", int)
_faults = getattr(_trace, "major_faults", int)
_here = threading.local()  # asks: the work before was long, and a good part of it off the CPU


def begin():
    """The clocks at the beginning of a span, for end()."""
    asks = getattr(_here, "asks", True)
    return (
        perf_counter_ns(),
        thread_time_ns(),
        _delay() if asks else None,
        _faults(),
        process_time_ns() if asks else None,
    )


def end(begun, args):
    """Adds to the arguments of a span, and returns them."""
    wall, cpu, delay, faults, process = begun
    wall, cpu = perf_counter_ns() - wall, thread_time_ns() - cpu
    args["cpu_ns"] = cpu
    off = wall - cpu > OFF * wall
    if off and delay is not None:
        args["delay_ns"] = max(_delay() - delay, 0)
    if off and process is not None and wall >= LONG_NS:
        args["threads_ns"] = max(process_time_ns() - process - cpu, 0)  # what others computed while it slept
    if off and _faults() > faults:
        args["major_faults"] = _faults() - faults
    _here.asks = off and wall >= LONG_NS
    return args
