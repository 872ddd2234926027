#!/usr/bin/env bash
# Pages are well-formed, load nothing, stay below 2 MB and keep hostile names as text: for made-up runs of all kinds.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/expect.sh"
command -v python3 >/dev/null || { echo "skipped: no python3 to parse pages with"; exit 77; }
maker=${MR_BINARY_DIR:-$here/../../build}/tests/test_report_page
[ -x "$maker" ] || { echo "skipped: '$maker' is not built"; exit 77; }
for kind in typical tiny wide long hostile healthy worst; do
    expect 0 "$maker" --write $kind $kind.html
    expect 0 python3 "$here/check_page.py" $kind.html
    echo "$kind: $(cat out)"
done

# the check itself sees what it is for
sed 's|</h1>|</h1><img src="http://example.com/x">|' tiny.html >bad.html
expect 1 python3 "$here/check_page.py" bad.html
sed "s|'use strict';|'use strict'; |" tiny.html >bad.html
expect 1 python3 "$here/check_page.py" bad.html
