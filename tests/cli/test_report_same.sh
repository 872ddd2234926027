#!/usr/bin/env bash
# The same trace gives the same bytes, whatever the number of threads: text, JSON and page. The trace is made to be
# hard: many processes, spans and calls at equal times, more sizes, names and points than are kept, reads in flight on
# all threads at once. test-label: once
set -eu
. "$(dirname "$0")/expect.sh"

python3 - <<'P'
import json, random
r = random.Random(7)
t = 1700000000000000
events = []
def span(pid, tid, cat, name, at, dur, **args):
    events.append({"id": len(events), "name": name, "cat": cat, "pid": pid, "tid": tid, "ph": "X", "ts": t + at, "dur": dur, "args": args})
for p in range(1, 7):
    main = p
    for s in range(90):
        at = 10000 * s
        span(p, main, "data_loader", "DataLoader.next", at, 4000, batch=s, epoch=s // 30, loader=0, workers=3, prefetch=6, rows=8)
        span(p, main, "train", "optimizer.step", at + 8000, 1000, optimizer=0)
        for w in range(3):
            tid = 100 * p + w
            if s % 3 == w:
                span(p, tid, "data_loader", "fetch", at - 20000 if s > 2 else at, 23000 + r.randrange(5) * 500, batch=s, epoch=s // 30, loader=0, worker=w)
            for k in range(16):
                span(p, tid, "POSIX", "read", at + 500 * k, 300 + 100 * (k % 3), fname="/data/%d.bin" % (s % 50), ret=r.randrange(1, 200000), offset=4096 * k)
        span(p, main, "my", "part %d" % (s * 8 + p), at + 5000, 700)
        span(p, main, "my", "always", at + 5000, 700)
open("hard.pfw", "w").write("[\n" + "\n".join(json.dumps(e) for e in events) + "\n]\n")
P
n=16; [ -z "${MR_TEST_FULL-}" ] || n=100
for ((i = 0; i < n; i++)); do
    threads=$((i % 8 + 1))
    "$MILLRACE" -q report hard.pfw --threads $threads --all --html page.html >text 2>err
    "$MILLRACE" -q report hard.pfw --threads $threads --json >json
    for f in text json page.html; do
        [ -e first.$f ] || cp $f first.$f
        cmp $f first.$f || { diff $f first.$f | cut -c1-300 | head -20; fail "$f differs with $threads threads, report $i"; }
    done
done
grep -q "steps" first.text || { cat first.text; fail "no steps in the report"; }
