"""Counts the events of a CSV export by name: prints 'name count' lines; with --file TEXT only those on files that contain TEXT."""
import collections
import csv
import sys

want = sys.argv[sys.argv.index("--file") + 1] if "--file" in sys.argv else ""
counts = collections.Counter()
pids = set()
with open(sys.argv[1], newline="", encoding="utf-8", errors="surrogateescape") as f:
    rows = csv.reader(f)
    file, name, pid = map(next(rows).index, ("file", "name", "pid"))
    for row in rows:
        if want in row[file]:
            counts[row[name]] += 1
            pids.add(row[pid])
for name, n in sorted(counts.items()):
    print(name, n)
print("pids", len(pids))
