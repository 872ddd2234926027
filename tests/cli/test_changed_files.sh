#!/usr/bin/env bash
# A file that was replaced after the scan is named as changed: what its new content looks like to a decoder is not the
# cause.
set -eu
. "$MR_SOURCE_DIR/tests/cli/expect.sh"
expect 0 $MILLRACE gen set --format jpeg --files 4 --dims 32x32x3 --prefix img_ -q
rm set/train/manifest.mrm
expect 0 $MILLRACE scan set/train --out set.mrm
file=$(find set/train -name '*.jp*g' | sort | head -1)
size=$(stat -c %s "$file")
printf 'this is no picture' >"$file"
expect 4 $MILLRACE cat set.mrm 0
grep -q "has changed since it was scanned: it had $size bytes, now 18" err || fail "another size: $(cat err)"
head -c "$size" /dev/urandom >"$file"
expect 4 $MILLRACE cat set.mrm 0
grep -q "was modified after the data set was scanned\|has changed" err || fail "the same size: $(cat err)"
