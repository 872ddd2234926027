"""How long a training loop waits for batches, and one warning that says what to do about it. The iteration over an
epoch adds each wait to `waited` itself and calls look() from the time `look_at` on: this is done for every batch."""

from collections.abc import Callable
from time import perf_counter
from typing import Any

from ._warn import warn

# read_ns, decode_ns, transform_ns so far; {} where the data set's own code runs.
Counters = Callable[[], dict[str, Any]]

WAIT_SHARE = 0.05

_ADVICE = {
    "storage": "reading is the limit: a faster or nearer storage, or more threads (num_workers) where it has latency",
    "decode": "decoding and transforms are the limit: more CPUs (num_workers), or smaller pictures",
    "called": "the data set's own code is the limit: more worker processes (num_workers), or a data set "
    "that runs natively",
}


class Watch:
    """Adds up waits. When more than 5 % of `seconds` were waited it warns, once."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.waited = 0.0  # over the loader's life
        self._begin, self._waited = 0.0, 0.0  # of the interval, and `waited` then
        self.look_at = float("inf")  # the time at which the interval is over
        self._before: dict[str, Any] = {}
        self._said = seconds <= 0

    def resume(self, counters: Counters) -> None:
        """An epoch begins: time between epochs is nobody's wait."""
        self._begin, self._waited = perf_counter(), self.waited
        self.look_at = float("inf") if self._said else self._begin + self.seconds
        self._before = {} if self._said else counters()

    def look(self, now: float, counters: Counters) -> None:
        """At `look_at` or behind it: an interval is over."""
        spent = now - self._begin
        share = (self.waited - self._waited) / spent
        if share > WAIT_SHARE:
            self._said = True
            limiter = _ADVICE[self._limiter(counters())]
            warn(f"millrace: the loop waited for data {100 * share:.0f} % of the last {spent:.0f} s; {limiter}")
        self.resume(counters)

    def _limiter(self, after: dict[str, Any]) -> str:
        before = self._before
        if not after:
            return "called"
        grown = {k: after[k] - before.get(k, 0) for k in ("read_ns", "decode_ns", "transform_ns")}
        return "storage" if grown["read_ns"] > grown["decode_ns"] + grown["transform_ns"] else "decode"
