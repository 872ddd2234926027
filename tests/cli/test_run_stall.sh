#!/usr/bin/env bash
# No progress: the run says what every rank waits for, and can be interrupted while it opens or reads storage that hangs.
set -eu
export MILLRACE_RUN_OVERWRITE=true # runs share a folder on purpose
. "$(dirname "$0")/waiting.sh"
fail() { echo "FAIL: $*" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
export ASAN_OPTIONS=detect_leaks=0 # threads that cannot be ended keep their memory
cat >w.yaml <<'Y'
workflow: {train: true}
dataset: {format: npz, num_files_train: 12, record_length_bytes: 5000, data_folder: d}
reader: {batch_size: 1, read_threads: 1, prefetch_size: 1}
train: {epochs: 1000}
Y
"$MILLRACE" -q gen d --workload w.yaml >/dev/null 2>&1
# A busy machine may take longer than 200 ms to start: what comes before all ranks are where they will stay is said, too.
says() { # texts, separated by '|', and the file that must hold them
    local one IFS='|'
    for one in $1; do grep -q "$one" "$2" || return 1; done
}
cases=
hang() { # what must be said, then the words of the run: it is interrupted when it has said so, and must end; all of them side by side
    case_of "$@" & cases="$cases $!"
}
case_of() {
    local want=$1 me=$BASHPID; shift
    "$MILLRACE" -q run w.yaml --ranks 3 --stall-after 200ms --out o.$me "$@" >out.$me 2>err.$me & p=$!
    soon says "$want" err.$me || { kill -9 $p; fail "never said '$want': $(cat err.$me)"; }
    kill -INT $p
    local begin=$SECONDS rc=0
    wait $p || rc=$?
    [ $rc = 130 ] && [ $((SECONDS - begin)) -le "$(limit 15)" ] || fail "$*: exit $rc after $((SECONDS - begin)) s: $(cat err.$me)"
    grep -q '"complete": false' o.$me/summary.json || fail "$*: no partial result"
}
# the sample that hangs is rank 1's; the others wait for it
hang "no step has ended for|rank 0: waiting for the other ranks|rank 1: waiting for a batch|rank 2: waiting for the other ranks" \
    --store "fault(op=read,path=*img_04*,every=1,slow=200s):posix"
hang "rank 0: opening the data set" --store "fault(op=read,path=*manifest*,every=1,slow=200s):posix"
hang "rank 0: opening the data set" --store "fault(op=open,path=*,every=1,slow=200s):posix"
hang "rank 0: reading the data set into memory" --store "fault(op=read,path=*img_01*,every=1,slow=200s):posix" reader.read_type=memory
hang "rank 2: waiting for a batch" pattern.unit=record --store "fault(op=read,path=*img_05*,every=1,slow=200s):posix"
for c in $cases; do wait "$c" || exit 1; done
# a run that makes progress says nothing
"$MILLRACE" -q run w.yaml train.epochs=2 --ranks 2 --stall-after 1000s --out o2 >out 2>err || fail "$(cat err)"
grep -q "no step has ended" err && fail "said so without need"
echo "run, stalls: ok"
