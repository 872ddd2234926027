#!/usr/bin/env bash
# File names are unique tree-wide, no unfinished marks are left, exported names carry our prefix, no file tells where it
# was written.
set -eu
cd "$(dirname "$0")/../.."
bad=0
complain() { echo "$*"; bad=1; }
files() { git ls-files --cached --others --exclude-standard -- "$@" 2>/dev/null || find . -type f -name "${1##*/}" | grep -v '^./build'; }

dups=$(files '*.c' '*.h' | sed 's|.*/||' | sort | uniq -d)
[ -z "$dups" ] || complain "file names used twice: $dups"

# written so that this script does not find itself
marks="TO""DO|FIX""ME|X""XX"
hits=$(files src include tests bench python cmake scripts doc packaging Makefile README.md CONTRIBUTING.md |
    xargs -r grep -InE "\b($marks)\b" 2>/dev/null || true)
[ -z "$hits" ] || complain "unfinished marks: $hits"

# names a linker sees in our libraries: functions and data that are not static
build=${MR_BINARY_DIR:-build}
checked=0
for lib in "$build"/lib/libmr_*.a; do
    [ -f "$lib" ] || continue
    checked=$((checked + 1))
    wrong=$(nm -g --defined-only "$lib" 2>/dev/null | awk 'NF == 3 && $2 ~ /^[TDBRVWi]$/ {print $3}' |
        grep -vE '^(mr_|__asan|__odr_asan|__ubsan|_ZN|__llvm|__start|__stop|__sancov|__tsan|asan\.)' || true)
    [ -z "$wrong" ] || complain "$(basename "$lib") exports names without mr_: $(tr '\n' ' ' <<<"$wrong")"
done
[ $checked -gt 0 ] || complain "no libraries in $build/lib: build first"

[ $bad = 0 ] && echo "names: unique, finished, prefixed ($checked libraries)"
exit $bad
