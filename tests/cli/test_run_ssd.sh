#!/usr/bin/env bash
# Training with an SSD folder, bytes counted at the source: the next run reads nothing there, with any number of ranks; room for half of
# the set costs no more than it must; damage is fetched again and said; a changed source file is named; a cache that was filled before is used.
set -eu
export MILLRACE_RUN_OVERWRITE=true
. "$(dirname "$0")/expect.sh"
cat >w.yaml <<'Y'
workflow: {train: true}
dataset: {format: raw, num_files_train: 240, record_length_bytes: 30000, data_folder: d}
reader: {batch_size: 4, read_threads: 2, sample_shuffle: seed, file_shuffle: seed, policy: millrace}
train: {epochs: 3, computation_time: 0.0005}
Y
set_bytes=$((240 * 30000))
"$MILLRACE" -q gen d --workload w.yaml >/dev/null 2>&1
run() { # count file, store below it, arguments
    local count=$1 below=$2
    shift 2
    rm -f "$count"
    # shellcheck disable=SC2154 # dir: expect.sh
    "$MILLRACE" -q run w.yaml --no-ceiling --no-probe --store "count(file=$dir/$count):$below" --out out_run "$@"
}
source_bytes() { # of a count file: bytes of samples; every rank opens the manifest and reads it, too
    python3 - "$1" <<'P'
import json, os, struct, sys
magic, opens, reads, read_bytes, *rest = struct.unpack("<7Q", open(sys.argv[1], "rb").read(56))
ranks = json.load(open("out_run/summary.json"))["millrace"]["per_rank"]
print(read_bytes - len(ranks) * os.path.getsize("d/train/manifest.mrm"))
P
}
figure() { python3 -c 'import json,sys; t=json.load(open("out_run/summary.json"))["millrace"]["tiers"]; print(eval(sys.argv[1], {}, t))' "$1"; }

# 1. Two ranks fill it, then one and three find everything there.
expect 0 run n posix --ranks 2 --verify --tiers "ssd=$dir/c:64MiB"
[ "$(source_bytes n)" = $set_bytes ] || fail "the first run read $(source_bytes n) bytes of $set_bytes"
for ranks in 1 3; do
    expect 0 run n posix --ranks $ranks --verify --tiers "ssd=$dir/c:64MiB,ram=1MiB,staging=1MiB"
    [ "$(source_bytes n)" = 0 ] || fail "$ranks ranks read $(source_bytes n) bytes from the source: $(cat out)"
done

# 2. Entries that are damaged: fetched again, counted, said; repaired for the next run.
seg=$(find c -name 0001.seg)
for i in 0 1 2; do printf 'damaged' | dd of="$seg" bs=1 seek=$((i * 32768 + 1000)) conv=notrunc status=none; done
expect 0 run n posix --ranks 2 --verify --tiers "ssd=$dir/c:64MiB"
[ "$(source_bytes n)" = 90000 ] || fail "3 damaged samples: $(source_bytes n) bytes from the source"
[ "$(figure corrupt)" = 3 ] && [ "$(figure refetched)" = 3 ] || fail "damage is not counted: $(figure '(corrupt, refetched)')"
grep -Eqi "3 .*(corrupt|checksum)" out err || fail "damage is not said: $(cat out err)"
expect 0 run n posix --ranks 2 --verify --tiers "ssd=$dir/c:64MiB"
[ "$(source_bytes n)" = 0 ] || fail "not repaired: $(source_bytes n)"
expect 0 "$MILLRACE" cache verify c

# 3. Room for half of the set in all: what does not fit is read in every epoch, and hardly more.
half="ssd=$dir/half:3600KiB,staging=256KiB"
expect 0 run n 'throttle(bandwidth=15MB):posix' --ranks 2 --verify --tiers "$half" # a source that is slower than the folder
python3 - "$(source_bytes n)" "$(figure 'ssd_bytes')" $set_bytes <<'P' || fail "half of the set"
import sys
read, kept, whole = map(int, sys.argv[1:])
least = whole + 2 * (whole - kept - 256 * 1024)  # staging may carry its size from one epoch to the next
assert kept > 0.4 * whole, kept
assert least <= read <= 1.05 * (whole + 2 * (whole - kept)), (read, least, kept)
P
[ "$(du -s --block-size=1 half | cut -f1)" -le $((3600 << 10)) ] || fail "capacity: $(du -s half) KiB"

# 4. A source file that changed: named, unless its bytes are not needed because they are kept.
victim=$(find d/train -type f ! -name '*manifest*' | sort | head -1)
cp "$victim" saved
truncate -s 12345 "$victim"
expect 4 run n posix --ranks 2 --tiers "ssd=$dir/fresh:64MiB"
grep -q "$(basename "$victim")" err || fail "the changed file is not named: $(cat err)"
expect 0 run n posix --ranks 2 --tiers "ssd=$dir/c:64MiB"
[ "$(source_bytes n)" = 0 ] || fail "a kept sample was read: $(source_bytes n)"
cp -p saved "$victim"

# 5. Filled ahead of the run, with the name of the set instead of its folder.
expect 0 "$MILLRACE" -q cache fill filled d --capacity 64MiB
expect 0 run n posix --ranks 2 --tiers "ssd=$dir/filled:64MiB"
[ "$(source_bytes n)" = 0 ] || fail "a filled cache: $(source_bytes n) bytes from the source"

# 6. Two jobs at once in one folder: both get what they read, the capacity holds.
for job in 1 2; do
    "$MILLRACE" -q run w.yaml --no-ceiling --no-probe --ranks 2 --verify --out "both_$job" --tiers "ssd=$dir/both:5MiB,staging=256KiB" >"out_$job" 2>"err_$job" &
    pids[job]=$!
done
for job in 1 2; do wait "${pids[job]}" || fail "job $job of two: $(cat "err_$job")"; done
[ "$(du -s --block-size=1 both | cut -f1)" -le $((5 << 20)) ] || fail "capacity of two jobs: $(du -s both) KiB"
expect 0 "$MILLRACE" cache verify both

# 7. Folders that cannot be used: said before anything is read.
mkdir mine && echo thesis >mine/thesis
expect 2 run n posix --ranks 2 --tiers "ssd=$dir/mine:64MiB"
grep -q "not a cache" err || fail "$(cat err)"
echo "millrace cache 7" >c/cache.lock
expect 2 run n posix --ranks 2 --tiers "ssd=$dir/c:64MiB"
grep -q "version 7" err || fail "$(cat err)"
echo ok
