#!/usr/bin/env bash
# Folders that others can write to, and files that others have written: what they plant there is never written through,
# waited for or removed. As root, links of another user are tried, too.
# test-label: once
set -eu
. "$MR_SOURCE_DIR/tests/cli/expect.sh"

cat >w.yaml <<'Y'
model: {name: small, model_size_bytes: 65536}
workflow: {generate_data: true, train: true}
dataset: {data_folder: data, format: npz, num_files_train: 2, num_samples_per_file: 4, record_length_bytes: 4096}
reader: {batch_size: 2, read_threads: 1}
train: {epochs: 1, computation_time: 0.001}
Y
at_once() { # status, command...
    local want=$1
    shift
    expect "$want" timeout -k 1 20 "$@"
}
at_once 0 $MILLRACE run w.yaml --out first

# ---- results: links and pipes that have our names
names="summary.json.tmp config.json.tmp rank-0.steps.csv rank-0.steps.csv.tmp rank-0.state"
mkdir linked piped
for name in $names; do
    echo mine >"kept-$name"
    ln -s "../kept-$name" "linked/$name"
    mkfifo "piped/$name"
done
for folder in linked piped; do
    at_once 0 $MILLRACE run w.yaml --out $folder
    at_once 0 $MILLRACE report $folder
done
for name in $names; do
    [ "$(cat "kept-$name")" = mine ] || fail "a planted link '$name' was followed"
done
head -1 linked/rank-0.steps.csv | grep -q step || fail "the series is not in the results folder"

# ---- a trace replaces a trace only
echo "years of work" >thesis
at_once 2 $MILLRACE trace -q -o thesis -- true
grep -q "no trace and would be lost" err && grep -q "hint:" err || fail "$(cat err)"
at_once 2 $MILLRACE run w.yaml --out traced --trace thesis
[ "$(cat thesis)" = "years of work" ] || fail "a file that is no trace was replaced"
for _ in 1 2; do at_once 0 $MILLRACE trace -q -o again.mrt -- true; done

# ---- a folder that is no spool
mkdir notes
echo "minutes of the session" >notes/session
echo import os >notes/python
at_once 4 $MILLRACE recover notes
grep -q "holds no interrupted trace" err || fail "$(cat err)"
[ "$(cat notes/session) $(cat notes/python)" = "minutes of the session import os" ] || fail "recover changed a file"
rm notes/session && ln -s ../thesis notes/session
at_once 5 $MILLRACE recover notes
rm notes/session && mkfifo notes/session
at_once 4 $MILLRACE recover notes
[ "$(cat thesis)" = "years of work" ] && [ "$(ls notes | tr '\n' ' ')" = "python session " ] || fail "recover changed a file"

# ---- the rings of a killed trace of Python are found, and go when it is recovered
cat >forever.py <<'P'
import os, time
open("w.yaml").read()
open("began", "w").close()
while os.getppid() == int(os.environ["PARENT"]):
    time.sleep(0.01)
P
bash -c 'export PARENT=$$; exec "$@"' - $MILLRACE trace -q -o killed.mrt -- python3 forever.py &
for _ in $(seq 500); do [ -e began ] && [ -L killed.mrt.spool ] && break || sleep 0.02; done
kill -9 $! && wait $! 2>/dev/null || true
sleep 0.3
spool=$(readlink killed.mrt.spool)
$MILLRACE trace -q -o killed.mrt -- true 2>err || fail "$(cat err)"
grep -q "recover --out FILE $spool" err || fail "rings of an earlier trace are lost without a word: $(cat err)"
at_once 0 $MILLRACE recover --out end.mrt "$spool"
at_once 0 $MILLRACE report end.mrt
[ ! -e "$spool" ] || fail "the spool is left behind: $(ls "$spool")"

# ---- a workload file names folders, not files of a store
for store in 'trace(file=thesis):posix' 'trace, file = thesis :posix' 'fault(seed=1):count(file="made"):posix' \
    'throttle(bandwidth=1GB,group=x,group_folder=.):posix'; do
    sed 's/train: true/train: true, checkpoint: true/' w.yaml >store.yaml
    printf 'checkpoint: {checkpoint_folder: ck, engine: burst, burst_buffer: {folder: bb, store: %s}}\n' "'$store'" >>store.yaml
    for dry in --dry-run ''; do
        at_once 2 $MILLRACE run store.yaml --out stored $dry
        grep -q "store.yaml:6: a workload file may not name a place" err && grep -q "hint:" err || fail "$(cat err)"
    done
done
[ "$(cat thesis)" = "years of work" ] && [ ! -e made ] && [ ! -e bb ] || fail "a store of a workload file wrote"
grep -v '^checkpoint' store.yaml >own.yaml
at_once 0 $MILLRACE run own.yaml --out own checkpoint.checkpoint_folder=ck checkpoint.engine=burst \
    checkpoint.burst_buffer.folder=bb 'checkpoint.burst_buffer.store="count(file=made):posix"'
[ -s made ] || fail "the user's own word was not taken"

# ---- links of another user
[ "$(id -u)" = 0 ] || exit 0
# shellcheck disable=SC2154 # dir: expect.sh
plant() { ln -s "$dir/thesis" "$1" && chown -h 65534 "$1"; }
for name in manifest.mrm.tmp .img_0_of_2.npz.tmp; do
    rm -rf set && mkdir -p set/train && plant set/train/$name
    at_once 5 $MILLRACE gen set --files 2 --size 4096 -q --overwrite
    grep -q "'set/train/$name': it is a link of another user" err || fail "$(cat err)"
done
plant theirs.mrt
at_once 2 $MILLRACE trace -q -o theirs.mrt -- true
grep -q "a link of another user" err || fail "$(cat err)"
[ "$(cat thesis)" = "years of work" ] || fail "a link of another user was followed"
ln -s elsewhere.mrt mine.mrt
at_once 0 $MILLRACE trace -q -o mine.mrt -- true
[ -s elsewhere.mrt ] || fail "a link of our own was not followed"

# ---- the name of a burst buffer's folder, which can be foreseen
printf 'checkpoint: {checkpoint_folder: deep, engine: burst, burst_buffer: {folder: shared}}\n' |
    cat w.yaml - | sed 's/train: true/train: true, checkpoint: true/' >burst.yaml
mkdir -m 777 shared home
at_once 0 $MILLRACE run burst.yaml --out b1
name=$(ls shared)
rm -rf "shared/$name" && ln -s ../home "shared/$name" && chown -h 65534 "shared/$name"
at_once 5 $MILLRACE run burst.yaml --out b2
grep -q "is a link of another user" err || fail "$(cat err)"
[ -z "$(ls -A home)" ] || fail "a tier was made through a link of another user: $(ls -A home)"

# ---- a cache folder
ln -s home cache && chown -h 65534 cache
at_once 2 $MILLRACE cache fill cache data/train --capacity 1MiB
grep -q "is a link of another user" err && [ -z "$(ls -A home)" ] || fail "a cache was made through a link of another user"
