#!/usr/bin/env bash
# A disk that fills up, a device that fails, a folder that cannot be written: clear errors, status 5, nothing lost.
set -eu
dir=$(mktemp -d)
mounted=
trap '[ -z "$mounted" ] || umount "$dir/small"; rm -rf "$dir"' EXIT
cd "$dir"
fail() { echo "FAILED: $1"; exit 1; }
expect() {
    local want=$1 have=0
    shift
    "$@" >out 2>err || have=$?
    [ "$have" = "$want" ] || { cat out err; fail "exit status of '$*': want $want, have $have"; }
}

expect 5 "$MILLRACE" gen set --files 20 --size 10KB --format npy --threads 1 --store 'fault(op=write,nth=17,error=ENOSPC):posix'
grep -q 'No space left' err && grep -q 'the same command continues' err || { cat err; fail "message of a full disk"; }
ls set/train/*.npy >/dev/null || fail "finished files are gone"
[ -z "$(find set -name '.*.tmp')" ] || fail "half-written files are left"
expect 0 "$MILLRACE" gen set --files 20 --size 10KB --format npy
expect 0 "$MILLRACE" verify set
expect 5 "$MILLRACE" gen set2 --files 20 --size 10KB --format npy --store 'fault(op=write,nth=5,error=EIO):posix'

if [ "$(id -u)" != 0 ]; then
    mkdir ro && chmod 500 ro
    expect 5 "$MILLRACE" gen ro/set --files 2
    grep -q 'Permission denied' err || fail "message of a read-only folder"
else
    echo "note: read-only folder not tested: root may write anywhere"
fi

mkdir small
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=3m,nr_inodes=200 none small 2>/dev/null; then
    mounted=1
    expect 5 "$MILLRACE" gen small/set --files 100 --size 100KB --format npy
    grep -q 'does not fit: need .* have .*small' err || { cat err; fail "does not refuse what does not fit"; }
    expect 5 "$MILLRACE" gen small/set --files 300 --size 100 --format npy
    grep -q 'inodes' err || { cat err; fail "does not refuse for inodes"; }
    expect 0 "$MILLRACE" gen small/set --files 10 --size 100KB --format npy
    expect 0 "$MILLRACE" verify small/set
    # The estimate says it fits, then somebody else takes the space.
    dd if=/dev/zero of=small/hog bs=1k count=1500 status=none
    rm -rf small/set && expect 0 "$MILLRACE" gen small/set --files 10 --size 100KB --format npy
else
    echo "note: small file system not tested: cannot mount a tmpfs here"
fi
# A limit on the size of files is an error like a full disk, not the end of the process; then the same command continues.
(ulimit -f 400 && expect 5 "$MILLRACE" gen limited --files 2 --size 1MiB --format npy)
grep -q 'File too large' err && grep -q 'limited/train' err || { cat err; fail "a limit on file sizes"; }
expect 0 "$MILLRACE" gen limited --files 2 --size 1MiB --format npy
echo passed
