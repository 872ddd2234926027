"""Checks that a CSV export has the events that tests/tracer/exact_ways.c printed: csv_expect.py TRACE.csv EVENTS FOLDER."""
import csv
import os
import sys

trace, events, folder = sys.argv[1:]
columns = ("name", "result", "file", "offset_bytes", "requested_bytes", "fd")
with open(trace, newline="", encoding="utf-8", errors="surrogateescape") as f:
    seen = [[row[c] for c in columns] for row in csv.DictReader(f)]
missing = 0
lines = open(events, encoding="utf-8").read().splitlines()
for line in sorted(lines, key=lambda line: line[:1] == "!"):
    want = line.lstrip("!").split("|")
    if want[2][:1] == "*":
        want[2] = want[2][1:] or "*"
    elif want[2]:
        want[2] = os.path.normpath(os.path.join(folder, want[2]))
    found = next((i for i, got in enumerate(seen) if all(w in ("*", g) for w, g in zip(want, got))), None)
    if line[:1] == "!":
        if found is not None:
            missing += 1
            print("in the trace:", seen[found])
    elif found is None:
        missing += 1
        print("not in the trace:", "|".join(want), "but", [s for s in seen if s[0] == want[0]])
    else:
        del seen[found]
sys.exit(missing != 0)
