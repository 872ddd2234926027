#!/usr/bin/env bash
# Paths that are no files: a pipe or an endless device is refused at once, never waited for or read until memory ends.
set -eu
. "$(dirname "$0")/waiting.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "FAIL: $*" >&2; exit 1; }
# expect STATUS WORDS COMMAND...: ends at once with that status and says the words on standard error
expect() {
    local want=$1 words=$2 have=0
    shift 2
    timeout -k 1 "$(limit 10)" "$MILLRACE" "$@" >out 2>err </dev/null || have=$?
    [ "$have" = "$want" ] || fail "'millrace $*': want status $want, have $have: $(cat err)"
    grep -qF -- "$words" err || fail "'millrace $*' does not say '$words': $(cat err)"
}

mkfifo pipe
mkdir pipes
mkfifo pipes/x.npy
for command in "show" "verify"; do
    expect 4 "'/dev/zero'" "$command" /dev/zero
    expect 4 "'pipe'" "$command" pipe
done
expect 4 "'/dev/zero'" cat /dev/zero 0
expect 4 "pipes/x.npy" scan pipes
expect 4 "pipe" scan pipe --format npy
expect 2 "'pipe.yaml'" workloads show "$(mkfifo pipe.yaml && echo pipe.yaml)"

# A link to the folder it lies in ends the search some day, and counts each file once.
mkdir loop
ln -s . loop/again
echo 1 >loop/a.raw
timeout -k 1 "$(limit 20)" "$MILLRACE" -q scan loop --format raw | grep -q ' 1 sample,' || fail "a loop of links multiplies files"

# An empty file has no samples, and so no manifest.
: >empty.csv
expect 4 "'empty.csv' holds no samples" scan empty.csv

# Bounds can be typed in as they are printed; what is wrong with the command line names the help.
expect 2 "4611686018427387904" order --samples 0
expect 2 "9223372036854775807" order --samples 1 --seed 18446744073709551615
expect 2 "millrace gen --help" gen one two
