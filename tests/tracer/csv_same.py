"""Compares a CSV export with what repeat_ways.c wrote down, call by call: csv_same.py TRUTH EXPORT SIGNALS. Exit 1 and the first difference if they differ."""
import collections
import csv
import sys

want, have, handled = collections.defaultdict(list), collections.defaultdict(list), 0
with open(sys.argv[1]) as f:
    for line in f:
        thread, name, offset, result, fd = line.split()
        want[thread].append((name, offset, result, fd))
with open(sys.argv[2], newline="") as f:
    for row in csv.DictReader(f):
        if row["name"] in ("read", "pread", "pwrite", "lseek", "fsync"):
            if row["file"].endswith((".0", ".1")):
                have[row["tid"]].append((row["name"], row["offset_bytes"] or "-1", row["result"], row["fd"]))
            else:
                handled += row["name"] == "pread"
for thread, calls in want.items():
    for i, call in enumerate(calls):
        got = have[thread][i] if i < len(have[thread]) else None
        if got != call:
            sys.exit("thread %s, call %d: the program made %s, the trace has %s" % (thread, i, call, got))
    if len(calls) != len(have[thread]):
        sys.exit("thread %s: %d calls, %d in the trace" % (thread, len(calls), len(have[thread])))
if handled != int(sys.argv[3]):
    sys.exit("%s signals, %d reads of their handler in the trace" % (sys.argv[3], handled))
if not want:
    sys.exit("nothing to compare")
