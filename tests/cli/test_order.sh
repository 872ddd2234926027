#!/usr/bin/env bash
# `millrace order`: known ids, equality of ranks and positions, proofs, pipes, refusals.
set -eu
m=$MILLRACE
fail() { echo "FAILED: $*" >&2; exit 1; }
same() { [ "$1" = "$2" ] || fail "$3: want '$2', have '$1'"; }
refused() { # pattern, arguments...
    local pattern=$1 out rc=0
    shift
    out=$("$m" order "$@" 2>&1 >/dev/null) || rc=$?
    [ "$rc" = 2 ] || fail "order $*: want exit 2, have $rc"
    grep -q -- "$pattern" <<<"$out" || fail "order $*: want '$pattern' in '$out'"
}

# torch.randperm(20) with seed 42, as PyTorch gives it
same "$("$m" order --samples 20 --seed 42 --mode torch | tr '\n' ' ')" \
    "2 14 18 15 1 10 0 4 6 11 8 3 7 17 13 12 19 5 16 9 " "torch vector"
same "$("$m" order --samples 5 --mode sequential --world 2 --rank 1 | tr '\n' ' ')" "1 3 0 " "padding repeats the head"
same "$("$m" order --samples 5 --mode sequential --world 2 --rank 1 --drop-last | tr '\n' ' ')" "1 3 " "drop_last"

# the ranks together, in every mode
for mode in sequential torch cipher shard 'buffer(16)' file; do
    extra=
    [ "$mode" = file ] && extra="--samples-per-file 9"
    for world in 1 3 7; do
        for r in $(seq 0 $((world - 1))); do
            # shellcheck disable=SC2086
            "$m" order --samples 210 --mode "$mode" --world $world --rank "$r" --epoch 2 $extra
        done | sort -n | uniq | wc -l | grep -qx 210 || fail "mode $mode, world $world: not all samples"
        # shellcheck disable=SC2086
        "$m" order --samples 1009 --mode "$mode" --world $world $extra --check | grep -q '^permutation:' ||
            fail "--check of mode $mode, world $world"
        # shellcheck disable=SC2086
        "$m" order --samples 1009 --mode "$mode" --world $world $extra --check --drop-last --json |
            grep -q '"ok":true' || fail "--check --drop-last of mode $mode"
    done
done

# resuming at a position with another world continues the same sequence
whole=$("$m" order --samples 100 --mode cipher --seed 7 --epoch 1)
resumed=$(paste -d'\n' <("$m" order --samples 100 --mode cipher --seed 7 --epoch 1 --world 2 --rank 0 --from 40) \
    <("$m" order --samples 100 --mode cipher --seed 7 --epoch 1 --world 2 --rank 1 --from 40))
same "$resumed" "$(tail -n 60 <<<"$whole")" "resume with another world"
same "$("$m" order --samples 100 --mode cipher --seed 7 --epoch 1 --from 40 --count 3)" \
    "$(sed -n 41,43p <<<"$whole")" "--from --count"
same "$("$m" order --samples 100 --epoch 5 --no-shuffle-each-epoch)" "$("$m" order --samples 100)" "no reshuffle"

# huge: constant memory, no overflow; a closed pipe ends it
same "$("$m" order --samples 1000000000000 --mode cipher --from 999999999000 | wc -l)" 1000 "10^12 samples"
# quietly, with the status every command gives for a result that was cut short (src/cli/main.c)
said=$(mktemp)
trap 'rm -f "$said"' EXIT
{ "$m" order --samples 1000000000 --mode cipher 2>"$said" || echo "$?" >>"$said"; } | head -n 2 >/dev/null
same "$(cat "$said")" 5 "closed pipe"

# JSON
"$m" order --samples 10 --world 3 --rank 1 --json | grep -q '^{"schema":"millrace.order/1".*"next_position":12.*"ids":\[[0-9]*,[0-9]*,[0-9]*,[0-9]*\]}$' ||
    fail "JSON form"
"$m" order --samples 10 --from 10 --json | grep -q '"ids":\[\]}$' || fail "JSON with no ids"

refused "unknown order mode" --samples 10 --mode nosuch
refused "samples" --mode torch
refused "must be" --samples 0
refused "does not exist" --samples 10 --rank 3 --world 3
refused "beyond the end" --samples 10 --from 11
refused "multiple of the world" --samples 10 --mode shard --world 3 --from 4
refused "needs to know the files" --samples 10 --mode file
refused "needs a window" --samples 10 --mode buffer
refused "only has a meaning" --samples 10 --window 5
refused "only has a meaning" --samples 10 --samples-per-file 5
refused "twice" --samples 10 --mode 'buffer(3)' --window 5
refused "whole epoch" --samples 10 --check --from 5
refused "cannot check" --samples 10000000000 --mode cipher --check
if [ -w /dev/full ]; then
    rc=0; "$m" order --samples 10 >/dev/full 2>/dev/null || rc=$?
    same "$rc" 5 "full device"
fi
echo "order: all checks passed"
