"""Compares a CSV export with what repeat_ways.c wrote down, call by call, and their times: csv_same.py TRUTH EXPORT SIGNALS. Exit 1 and the first
difference if they differ. The two count time from different moments, but the same one for all calls: that puts every call between the program's own two
time stamps, or there is none that does."""
import collections
import csv
import sys

TOLERANCE_NS = 5000  # of the calibration of two clocks on a busy machine
want, have, times, spans, handled = collections.defaultdict(list), collections.defaultdict(list), collections.defaultdict(list), collections.defaultdict(list), 0
with open(sys.argv[1]) as f:
    for line in f:
        thread, name, offset, result, fd, before, after = line.split()
        times[thread].append((int(before), int(after)))
        want[thread].append((name, offset, result, fd))
with open(sys.argv[2], newline="") as f:
    for row in csv.DictReader(f):
        if row["name"] in ("read", "pread", "pwrite", "lseek", "fsync"):
            if row["file"].endswith((".0", ".1")):
                have[row["tid"]].append((row["name"], row["offset_bytes"] or "-1", row["result"], row["fd"]))
                start = int(row["start_unix_ns"])
                spans[row["tid"]].append((start, start + int(row["dur_ns"])))
            else:
                handled += row["name"] == "pread"
for thread, calls in want.items():
    for i, call in enumerate(calls):
        got = have[thread][i] if i < len(have[thread]) else None
        if got != call:
            sys.exit("thread %s, call %d: the program made %s, the trace has %s" % (thread, i, call, got))
    if len(calls) != len(have[thread]):
        sys.exit("thread %s: %d calls, %d in the trace" % (thread, len(calls), len(have[thread])))
low = max((end - after, thread, i) for thread in want for i, ((_, end), (_, after)) in enumerate(zip(spans[thread], times[thread])))
high = min((start - before, thread, i) for thread in want for i, ((start, _), (before, _)) in enumerate(zip(spans[thread], times[thread])))
if low[0] > high[0] + TOLERANCE_NS:
    sys.exit("the end of thread %s, call %d is %d ns later than the start of thread %s, call %d allows" % (*low[1:], low[0] - high[0], *high[1:]))
if handled != int(sys.argv[3]):
    sys.exit("%s signals, %d reads of their handler in the trace" % (sys.argv[3], handled))
if not want:
    sys.exit("nothing to compare")
