#!/usr/bin/env bash
# Training over tiers: the options and what they refuse, the same data as without, every byte read once, the figures in the summary and in
# the trace; a rank that is killed and an interruption end it as they end any other run.
set -eu
export MILLRACE_RUN_OVERWRITE=true # runs share a folder on purpose
. "$(dirname "$0")/waiting.sh"
. "$(dirname "$0")/expect.sh"
cat >w.yaml <<'Y'
workflow: {train: true}
dataset: {format: npz, num_files_train: 90, record_length_bytes: 20000, data_folder: d}
reader: {batch_size: 5, read_threads: 2, sample_shuffle: seed, file_shuffle: seed}
train: {epochs: 3, computation_time: 0.001}
Y
"$MILLRACE" -q gen d --workload w.yaml >/dev/null 2>&1
run() { "$MILLRACE" -q run w.yaml "$@"; }
refused() { # status, text, arguments
    local status=$1 text=$2
    shift 2
    expect "$status" run "$@"
    grep -qe "$text" err || fail "'$*' does not say '$text': $(cat err)"
}

# 1. What is refused, and says why.
refused 2 "unknown policy 'no-such'" --policy no-such
refused 2 "changes the sample order" --policy deepio-opportunistic
refused 2 "millrace sim' simulates" --policy deepio-opportunistic
refused 2 "unknown option" --allow-reorder
refused 2 "keeps nothing" --policy staging --tiers ram=1MiB
refused 2 "tape" --dry-run --tiers ram=1MiB,tape=3
refused 2 "peers" --peers perhaps
refused 2 "file_access" --tiers auto reader.file_access=collective
refused 2 "read_type" --policy millrace reader.read_type=memory
refused 2 "pattern.unit" --policy nopfs pattern.unit=file
refused 2 "need .* of memory, and this machine has" --tiers staging=900TiB

# 2. A dry run says what would be done.
expect 0 run --dry-run --tiers ram=2GiB
grep -q "reads with .*policy millrace, tiers ram=2GiB (ram 1.72 MiB, staging .*), peers auto" out || fail "dry run: $(cat out)"
expect 0 run --dry-run --policy nopfs --peers off
grep -q "reads with .*policy nopfs, tiers auto (ram .*), peers off" out || fail "dry run: $(cat out)"
expect 0 run --dry-run
grep -q "reads with .*policy staging" out || fail "dry run: $(cat out)"
expect 0 run --dry-run reader.read_threads=0 --json
grep -q '"reads_with": "policy naive"' out || fail "dry run: $(cat out)"

# 3. The same rows for every rank, checked byte for byte, and every byte once from the source.
expect 0 run --ranks 2 --verify --out plain
for policy in millrace nopfs lbann-dynamic; do
    expect 0 run --ranks 2 --verify --out "$policy" --policy $policy --tiers ram=8MiB --trace $policy.mrt
    grep -q "^  sources  *ram" out || fail "$policy: no line about sources: $(cat out)"
done
cat >t.yaml <<'Y'
workflow: {train: true}
dataset: {format: npz, num_files_train: 90, record_length_bytes: 20000, data_folder: d}
reader: {batch_size: 5, read_threads: 2, sample_shuffle: seed, file_shuffle: seed, policy: millrace, tiers: 'ram=400KiB,staging=300KiB', peers: off}
train: {epochs: 3, computation_time: 0.001}
Y
expect 0 "$MILLRACE" -q run t.yaml --ranks 2 --verify --out yaml
python3 - <<'P' || fail "figures of tiers"
import json
def crc(s):
    return [r["rows_crc32c_sum"] for r in s["millrace"]["per_rank"]]
plain = json.load(open("plain/summary.json"))
assert plain["millrace"]["tiers"] is None and plain["millrace"]["policy"] == {"name": "staging", "keeps_order": True}
for run in ("millrace", "nopfs", "lbann-dynamic", "yaml"):
    s = json.load(open(run + "/summary.json"))
    t = s["millrace"]["tiers"]
    src = t["sources"]
    assert crc(s) == crc(plain), run
    assert sum(x["samples"] for x in src.values()) == s["millrace"]["samples"] == 270, (run, src)
    assert abs(sum(x["hit_ratio"] for x in src.values()) - 1) < 1e-9
    assert t["nodes"] == 1 and len(s["tiers_chosen"]) == 1 and s["tiers_chosen"][0], run
    assert t["source_bytes"] >= t["distinct_bytes"] > 90 * 20000, (run, t)
    assert t["bound_s"] > 0 and t["bound_ratio"] > 0
    if run != "yaml":
        assert s["millrace"]["policy"] == {"name": run, "keeps_order": True}
    if run in ("millrace", "nopfs"):  # room for all of it
        assert t["source_bytes"] <= 1.01 * t["distinct_bytes"], (run, t)
        assert src["source"]["samples"] == 90 and src["ram"]["samples"] == 180, (run, src)
    if run == "yaml":
        assert src["ram"]["samples"] < 180 and t["ram_bytes"] <= t["ram_capacity_bytes"] <= 400 * 1024
P
# the trace has the same figures, and each fetch its source
expect 0 "$MILLRACE" -q report millrace
grep -qi "tiers" out || fail "report says nothing about tiers: $(cat out)"
# the run's own policy, predicted: a staging buffer with room for the set keeps what it staged, one without reads it again
small="dataset.num_files_train=24 dataset.num_samples_per_file=1 dataset.record_length_bytes=20000 train.epochs=3 train.computation_time=0"
for staging in 64MiB 200KiB; do
    # shellcheck disable=SC2086
    "$MILLRACE" -q run w.yaml $small --data kept --generate --policy millrace --tiers ram=40KiB,staging=$staging --no-probe --no-ceiling \
        --store "throttle(bandwidth=8MB):posix" --out staged >/dev/null 2>err || fail "staging=$staging: $(cat err)"
    "$MILLRACE" sim --from staged --json >sim.json 2>err && python3 - $staging <<'P' || fail "sim --from, staging=$staging: $(cat err)"
import json, sys
d, t = json.load(open("sim.json"))["against"], json.load(open("staged/summary.json"))["millrace"]["tiers"]
assert t["staging_capacity_bytes"] == {"64MiB": 64 << 20, "200KiB": 200 << 10}[sys.argv[1]], t
read = [d[k]["source_bytes"] / t["distinct_bytes"] for k in ("predicted", "measured")]
assert abs(read[0] - read[1]) < 0.35 and (read[1] < 1.3) == (sys.argv[1] == "64MiB"), read
P
    rm -rf staged
done
! grep -q "does not confirm" err || fail "trace and summary differ: $(cat err)"
expect 0 "$MILLRACE" -q export millrace.mrt --format csv -o events.csv
[ "$(grep -c 'fetch ram' events.csv)" = 180 ] && [ "$(grep -c 'fetch store' events.csv)" = 90 ] || fail "fetches: $(grep -o 'fetch [a-z]*' events.csv | sort | uniq -c)"

# what is on an SSD serves the next run, with other ranks; also of a run that ends within an epoch
ssd="--tiers ram=300KiB,ssd=$PWD/cache:50MiB"
expect 0 run --verify --ranks 2 --out s1 $ssd train.epochs=2 train.total_training_steps=15
expect 0 run --verify --ranks 3 --out s2 $ssd train.epochs=2
expect 0 run --verify --ranks 1 --out s3 $ssd train.epochs=1
python3 - <<'P' || fail "tiers with an SSD"
import json
a, b, c = (json.load(open(f"s{i}/summary.json"))["millrace"]["tiers"] for i in (1, 2, 3))
assert a["source_bytes"] == a["distinct_bytes"] > 0, a
for t in (b, c):
    assert t["source_bytes"] == 0 and t["sources"]["source"]["samples"] == 0 and t["sources"]["ssd"]["samples"] >= 60, t
P

# 4. Prepared batches say that they are.
expect 0 run --policy perfect --out perfect
grep -q "prepared batches" out || fail "perfect: $(cat out)"
grep -q '"keeps_order": false' perfect/summary.json || fail "perfect: summary"

# 5. A rank that is killed ends the job, with the cause; an interruption leaves a valid partial result.
slow="--store throttle(latency=2ms):posix train.epochs=100000"
partial() {
    python3 - "$1" <<'P' || fail "results in $1"
import json, sys
s = json.load(open(sys.argv[1] + "/summary.json"))
assert s["complete"] is False and s["millrace"]["incomplete_reason"] and s["millrace"]["tiers"] is not None, s["millrace"]
P
}
for victim in 1 2 0; do
    "$MILLRACE" -q run w.yaml --ranks 3 --policy millrace --tiers ram=8MiB --out killed $slow >out 2>err & p=$!
    ready $p; soon children $p 2 || fail "no ranks: $(cat err)"; sleep 0.5
    kids=$(pgrep -P $p)
    who=$([ $victim = 0 ] && echo $p || echo "$kids" | sed -n ${victim}p)
    kill -9 "$who"; start=$SECONDS
    rc=0; wait $p || rc=$?
    soon gone $kids && [ $((SECONDS - start)) -lt "$(limit 10)" ] || fail "killing rank $victim: $((SECONDS - start)) s"
    [ $victim = 0 ] || [ $rc = 5 ] || fail "killing rank $victim: exit $rc: $(cat err)"
    grep -q "rank $victim failed: its process died" err || fail "killing rank $victim: $(cat err)"
done
"$MILLRACE" -q run w.yaml --ranks 2 --policy millrace --tiers ram=8MiB --out stopped $slow >out 2>err & p=$!
ready $p; sleep 0.7; kill -INT $p; start=$SECONDS
rc=0; wait $p || rc=$?
[ $rc = 130 ] && [ $((SECONDS - start)) -le "$(limit 9)" ] || fail "SIGINT: exit $rc after $((SECONDS - start)) s: $(cat err)"
partial stopped

# 6. A file that is not what the manifest says is named, and the run is not called healthy; one that was touched after a scan, too.
file=$(find d/train -type f | head -1)
printf x >>"$file"
expect 4 run --policy millrace --tiers ram=8MiB --out changed
grep -q "'$file' has changed since it was scanned" err || fail "a longer file: $(cat err)"
! grep -q "VERDICT  Healthy" out || fail "a run that ended early is healthy: $(cat out)"
mkdir -p s/train; for i in 1 2 3 4 5 6; do head -c 3000 /dev/urandom >s/train/$i.raw; done
expect 0 "$MILLRACE" -q scan s/train --format raw
touch -d '2 hours' s/train/3.raw
cat >s.yaml <<'Y'
workflow: {train: true}
dataset: {format: raw, num_files_train: 6, record_length_bytes: 3000, data_folder: s}
reader: {batch_size: 2, read_threads: 2, policy: millrace, tiers: ram=1MiB}
train: {epochs: 2, computation_time: 0.001}
Y
expect 4 "$MILLRACE" -q run s.yaml --out touched
grep -q "3.raw' was modified after the data set was scanned" err || fail "a file that was touched: $(cat err)"
