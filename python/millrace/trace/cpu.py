"""What a thread's time went to that no call tells: on a CPU, or ready to run without one, or waiting for a page of a
mapped file.

    begun = cpu.begin()
    ...
    span("data_loader", "fetch", begin, cpu.end(begun, {}))     # adds cpu_ns, delay_ns where others had the CPUs, and
                                                                major_faults

A thread that was off the CPU and never slept of its own accord was ready to run. Of others the kernel counts how long
they waited for a CPU; asking it takes some microseconds, and for all threads of a process a fraction of a millisecond.
So it is asked about work that follows soon behind work during which the thread was off the CPU for a good part, and not
about short work.
"""

import threading
from time import perf_counter_ns, process_time_ns, thread_time_ns

from . import _trace

LONG_NS = 1000000  # shorter work: asking would be a part of it
SHORT_NS = 100000  # even after long work
ASKS = 16  # so many times after long work
ALL_NS = 20000000  # the same of asking for all threads
OFF = 0.1  # of the work before, off the CPU: with less nobody had to wait for one

_delay = getattr(_trace, "cpu_delay", int)
_children = getattr(_trace, "children_cpu", int)
_others = getattr(_trace, "others", lambda: (0, 0))
_usage = getattr(_trace, "thread_usage", lambda: (0, 0))
_here = threading.local()  # asks: so many times more; asks_all: the work before was long, a good part of it off the CPU


class Others:
    """What other threads of the process, and its children, use from now on. `closely`: also waits for a CPU, and
    children that live on: a fraction of a millisecond."""

    __slots__ = ("closely", "delay", "used")

    def __init__(self, closely):
        self.closely, self.used = closely, process_time_ns() + _children() - thread_time_ns()
        self.delay, living = _others() if closely else (0, 0)
        self.used += living

    def since(self, args, own_delay):
        """Adds it to the arguments of a span; own_delay: of this thread."""
        now = Others(self.closely)
        args["threads_ns"] = max(now.used - self.used, 0)
        if self.closely and now.delay:
            args["threads_delay_ns"] = max(now.delay - self.delay - own_delay, 0)


def begin():
    """The clocks at the beginning of a span, for end()."""
    asks = getattr(_here, "asks", ASKS)
    others = Others(getattr(_here, "asks_all", False)) if asks else None
    return perf_counter_ns(), thread_time_ns(), _delay() if asks else None, _usage(), others


def end(begun, args):
    """Adds to the arguments of a span, and returns them."""
    wall, cpu, delay, (faults, sleeps), others = begun
    wall, cpu = perf_counter_ns() - wall, thread_time_ns() - cpu
    args["cpu_ns"] = cpu
    off = wall - cpu > OFF * wall
    if off:
        faults_now, sleeps_now = _usage()
        if delay is not None:
            delay = max(_delay() - delay, 0)
        elif sleeps_now == sleeps:
            delay = wall - cpu
        if delay is not None:
            args["delay_ns"] = delay
        if others is not None and wall >= LONG_NS:  # what others computed while it slept
            others.since(args, delay or 0)
        if faults_now > faults:
            args["major_faults"] = faults_now - faults
    left = getattr(_here, "asks", ASKS)
    _here.asks = ASKS if off and wall >= LONG_NS else 0 if wall < SHORT_NS else max(left - 1, 0)
    _here.asks_all = off and wall >= ALL_NS
    return args
