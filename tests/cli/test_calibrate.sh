#!/usr/bin/env bash
# millrace calibrate: measures, stays in its budget and space, leaves nothing behind (also when interrupted), and writes a
# system that the simulator takes. Speed is not judged here; bench/check_calibrate compares with fio.
# test-label: once (long under sanitizers: there only in make test-full)
set -eu
. "$(dirname "$0")/waiting.sh"
. "$(dirname "$0")/expect.sh"
mkdir a b
small="--budget 3s --file-size 16MiB --max-threads 2"

expect 0 "$MILLRACE" calibrate a b $small --net --json --out here.yaml
python3 - <<'PY' || fail "json"
import json
d = json.load(open("out"))
assert d["schema"] == "millrace.calibrate/1" and len(d["paths"]) == 2
assert 0 < d["took_s"] < 600, d["took_s"]  # a stuck probe, not a slow machine
for p in d["paths"]:
    assert p["file_bytes"] == 16 << 20 and p["free_bytes"] > 0
    kinds = {(q["operation"], q["pattern"], q["threads"], q["request_bytes"]) for q in p["points"]}
    for want in (("read", "random", 1, 4096), ("read", "random", 2, 1 << 20), ("read", "sequential", 1, 1 << 20), ("write", "sequential", 2, 1 << 20)):
        assert want in kinds, (want, kinds)
    assert p["direct"] is False or {q["direct"] for q in p["points"]} == {True, False}
    for q in p["points"]:
        r = q["bytes_per_s"]
        assert r["n"] == 3 and 0 < r["low"] <= r["median"] <= r["high"], q
    assert p["opens_per_s"]["median"] > 0 and p["stats_per_s"]["median"] > 0
assert [m["threads"] for m in d["memory"]] == [1, 2] and d["memory"][0]["bytes_per_s"]["median"] > 1e6
assert d["network"]["ranks"] == 2 and d["network"]["bytes_per_s"] > 1e4 and d["network"]["latency_s"] > 0
PY
[ -z "$(find a b -mindepth 1)" ] || { ls -lA a b; fail "something was left behind"; }

grep -q "^  spread: [0-9]*\.[0-9]*$" here.yaml || { cat here.yaml; fail "the spread of the rates is not in the system"; }
grep -q "^    - {size: 4096, bandwidth: " here.yaml || { cat here.yaml; fail "no rates by the size of requests"; }
if python3 -c 'import json; exit(not json.load(open("out"))["paths"][0]["direct"])'; then # both kinds, and a prediction takes its own
    grep -q "size: 1048576, .*buffered_bandwidth: " here.yaml || { cat here.yaml; fail "no rates of buffered reads"; }
    sed -i 's/buffered_bandwidth: [0-9]*, buffered_stream: [0-9]*/buffered_bandwidth: 1000000, buffered_stream: 1000000/; s/, bandwidth: [0-9]*, stream: [0-9]*/, bandwidth: 2000000, stream: 2000000/' here.yaml
    for direct in false true; do
        expect 0 "$MILLRACE" -q run dataset.format=npz dataset.num_files_train=64 dataset.record_length_bytes=1MiB train.computation_time=0.001 reader.odirect=$direct \
            --virtual --system here.yaml --json
        python3 -c "
import json
d = json.load(open('out'))
assert abs(d['samples_per_s'] * 1048576 / (2e6 if '$direct' == 'true' else 1e6) - 1) < 0.1, d['samples_per_s']
assert d['confidence']['rates_leave_out'] is None and d['confidence']['rates_spread'] > 0 and not d['confidence']['rates_of_other_reads'], d['confidence']" || fail "direct=$direct: $(cat out)"
    done
    # where something is known to be left out, the range is wide and says why
    for what in "8MiB larger" "50000 opening"; do
        expect 0 "$MILLRACE" -q run dataset.format=npz dataset.num_files_train=64 dataset.record_length_bytes=${what% *} train.computation_time=0.001 --virtual --system here.yaml
        grep -q "^  confidence .*${what#* }" out || { cat out; fail "${what% *}: what the rates leave out"; }
    done
fi
# The simulator takes the result, by path, and finds the second folder as a class.
cat >s.yaml <<'YAML'
system: here.yaml
dataset: {samples: 500, size: 1MB}
batch: 10
epochs: 2
step_time: 0.01s
YAML
expect 0 "$MILLRACE" sim s.yaml --json -p staging,millrace
python3 -c 'import json; d=json.load(open("out")); assert len(d["policies"][0]["class_bytes"]) == 2, d' || fail "classes"

expect 0 "$MILLRACE" calibrate a $small
for word in knee 'random read' 'open+close' 'memory: copying'; do grep -q "$word" out || { cat out; fail "no '$word' in the table"; }; done

# One kind, and nothing else.
expect 0 "$MILLRACE" calibrate a $small --only random-read --request-size 64KiB --json
python3 -c 'import json
d = json.load(open("out"))
assert d["memory"] == [] and {(q["pattern"], q["operation"], q["request_bytes"]) for q in d["paths"][0]["points"]} == {("random", "read", 65536)}, d' ||
    fail "--only random-read"
expect 0 "$MILLRACE" calibrate a $small --only memory --json
python3 -c 'import json; d=json.load(open("out")); assert d["paths"] == [] and d["memory"][0]["block_bytes"] >= 4 << 20, d' || fail "--only memory"
expect 0 "$MILLRACE" calibrate a $small --only memory
expect 2 "$MILLRACE" calibrate a $small --only memory --out here.yaml

# Interrupted: the test file and folder are gone, and so is the process.
"$MILLRACE" calibrate a --budget 60s --file-size 16MiB --max-threads 1 >out 2>err &
pid=$!
at_work() { [ -n "$(ls -A a)" ]; }
ready $pid && soon at_work || { cat err; fail "it does not begin"; }
sleep 0.5
kill -INT $pid
rc=0
wait $pid || rc=$?
[ "$rc" = 130 ] || { cat err; fail "interrupted: want 130, have $rc"; }
[ -z "$(ls -A a)" ] || fail "an interrupted run left something"

expect 5 "$MILLRACE" calibrate nowhere $small
expect 2 "$MILLRACE" calibrate
expect 2 "$MILLRACE" calibrate a --file-size 1MiB
expect 2 "$MILLRACE" calibrate a --request-size 5000
expect 2 "$MILLRACE" calibrate a --budget 0.1s
expect 5 "$MILLRACE" calibrate a $small --out nowhere/here.yaml
if mkdir tiny && mount -t tmpfs -o size=32m none tiny 2>/dev/null; then
    have=0
    "$MILLRACE" calibrate tiny $small >out 2>err || have=$?
    umount tiny
    [ "$have" = 2 ] && grep -q 'no room' err || { cat err; fail "a nearly full disk: $have"; }
fi
echo passed
