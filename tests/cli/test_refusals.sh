#!/usr/bin/env bash
# What would be ignored or misunderstood is refused: flags that do nothing, names of nothing, stores that keep nothing, file names that break lists.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "FAIL: $*" >&2; exit 1; }
# refused WORDS COMMAND...: status 2, the words on standard error, nothing written
refused() {
    local words=$1 have=0
    shift
    timeout -k 1 20 "$MILLRACE" "$@" >out 2>err </dev/null || have=$?
    [ "$have" = 2 ] || fail "'millrace $*': want status 2, have $have: $(cat err)"
    grep -qF -- "$words" err || fail "'millrace $*' does not say '$words': $(cat err)"
    [ ! -e d ] || fail "'millrace $*' has written something"
}

refused "'--chunk' has no effect with format 'npz'" gen d --files 1 --chunk 2x2
refused "'--quality' has no effect with format 'png'" gen d --files 1 --format png --quality=50
refused "there is no workload ''" gen d --files 1 workload=
refused "there is no workload ''" run --dry-run workload=
refused "keeps nothing" gen d --files 1 --store null
refused "keeps nothing" gen d --files 1 --store 'throttle(bandwidth=1GB):null'
refused "not shared between ranks" gen d --files 4 --ranks 2 --store 'throttle(bandwidth=1GB):memory'
refused "bad prefix" gen d --files 1 --prefix "$(printf 'a\nb')"

"$MILLRACE" -q gen e --files 1 --size 1000 >/dev/null
refused "whole number" show e abc
refused "whole number" cat e -- -1
refused "have no effect" verify e --quick --sample-rate 0.5
refused "have no effect" verify e --quick --by-sample

refused "unknown system 'lasen'" sim workload=unet3d_h100 system=lasen
refused "did you mean 'lassen'?" sim workload=unet3d_h100 system=lasen
refused "unknown scenario 'nosuch'" sim nosuch

# The keys of a workload that its format does not use are no mistake: DLIO's files have them.
"$MILLRACE" -q gen f --files 1 --size 1000 workload=unet3d_h100 --dry-run >/dev/null 2>&1 || fail "a preset is refused"

# A folder of presets that was named must be there.
MILLRACE_WORKLOADS=$work/none refused "MILLRACE_WORKLOADS" workloads list
touch file
MILLRACE_WORKLOADS=$work/file refused "MILLRACE_WORKLOADS" run --dry-run workload=unet3d_h100
refused "Not a directory" workloads list --config-dir file

# A folder that cannot be looked into is an I/O error, not a set without a manifest; extra files are not for --repair.
touch e/train/extra.npz
"$MILLRACE" -q verify e >out 2>err && fail "an extra file passes"
grep -q 'move the extra files' err || fail "the hint for an extra file does not help: $(cat err)"
chmod 755 "$work"
if [ "$(id -u)" = 0 ] && setpriv --reuid=65534 --regid=65534 --clear-groups "$MILLRACE" --version >/dev/null 2>&1; then
    chmod 000 e/train
    status=0
    setpriv --reuid=65534 --regid=65534 --clear-groups "$MILLRACE" -q show e >out 2>err || status=$?
    chmod 755 e/train
    [ $status = 5 ] && grep -q 'Permission denied' err || fail "want status 5 and the reason, have $status: $(cat err)"
fi
