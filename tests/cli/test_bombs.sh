#!/usr/bin/env bash
# Files of somebody else's that cost more than they should: compressed bombs end with an error within a bounded memory,
# and a pipe where a file is expected is refused instead of waited for.
# test-label: once (ulimit -v leaves a sanitizer no memory)
set -eu
. "$MR_SOURCE_DIR/tests/cli/expect.sh"

# ---- 90 MB of zeros and of one valid line in 90 kB: refused, also with a length that lies, within bounded memory
python3 - <<'P'
import gzip, struct
zeros = gzip.compress(b"\0" * 90_000_000, 6)
open("zeros.pfw.gz", "wb").write(zeros)
open("lies.pfw.gz", "wb").write(zeros[:-4] + struct.pack("<I", 100))
line = b'{"id":1,"name":"read","cat":"POSIX","pid":1,"tid":1,"ts":1,"dur":5,"ph":"X","args":{"ret":10}}\n'
open("lines.pfw.gz", "wb").write(3 * gzip.compress(line * 320_000, 6))
open("fine.pfw.gz", "wb").write(gzip.compress(line * 100_000, 6))
P
for bomb in zeros lies lines; do
    expect 4 bash -c "ulimit -v 600000; exec $MILLRACE report $bomb.pfw.gz"
    grep -q "decompresses to more than" err && grep -q "hint: .*gzip -d" err || fail "$bomb: $(cat err)"
done
expect 0 $MILLRACE report fine.pfw.gz

# ---- pipes where files are expected
at_once() { # status, command...
    local want=$1
    shift
    expect "$want" timeout -k 1 5 "$@"
}
at_once 0 $MILLRACE gen set --files 2 --samples-per-file 2 --size 4096 -q
at_once 0 $MILLRACE cache fill cache set/train --capacity 50MB -q
key=$(basename "$(dirname "$(find cache -name about.json)")")
for file in "cache/$key"/*; do
    file=${file##*/}
    mv "cache/$key/$file" kept && mkfifo "cache/$key/$file"
    at_once 0 $MILLRACE cache ls cache
    [ -p "cache/$key/$file" ] || fail "$file was removed"
    rm "cache/$key/$file" && mv kept "cache/$key/$file"
done
mv cache/cache.lock kept && mkfifo cache/cache.lock
at_once 2 $MILLRACE cache ls cache
grep -q "cache.lock is not a regular file" err || fail "lock: $(cat err)"
rm cache/cache.lock && ln -s ../kept cache/cache.lock
at_once 2 $MILLRACE cache ls cache
rm cache/cache.lock && mv kept cache/cache.lock
at_once 0 $MILLRACE cache verify cache
chmod 755 cache
at_once 2 $MILLRACE cache ls cache
grep -q "others may enter it" err || fail "mode: $(cat err)"

mkdir run && mkfifo run/summary.json w.yaml run/manifest.mrm
at_once 5 $MILLRACE sim --from run
at_once 2 $MILLRACE run --dry-run ./w.yaml
grep -q "w.yaml' is not a regular file" err || fail "workload: $(cat err)"
mkfifo img.mrm
for command in "show img.mrm" "verify img.mrm" "compare run run" "ckpt verify run"; do
    have=0
    timeout -k 1 5 $MILLRACE $command >out 2>err || have=$?
    [ "$have" != 124 ] && [ "$have" != 137 ] && [ "$have" != 0 ] || fail "$command: status $have"
done

# ---- a workload that names a folder of the user's for its results replaces nothing in it
cat >results.yaml <<Y
dataset: {format: synthetic, num_files_train: 8, record_length_bytes: 100}
reader: {batch_size: 2}
train: {epochs: 1, computation_time: 0.0001}
output: {folder: project}
Y
for file in config.json trace.mrt; do
    rm -rf project && mkdir project && echo precious >project/$file
    expect 2 $MILLRACE run -q results.yaml
    grep -q "holds a $file that is not of a run" err && grep -qx precious project/$file || fail "results: $(cat err)"
done
