#!/usr/bin/env bash
# Each public header compiles alone, as C17 and as C++17; each internal header compiles alone as C.
set -eu
cd "$(dirname "$0")/../.."
bad=0
cc=${CC:-cc}
for header in include/millrace/*.h; do
    name=${header#include/}
    printf '#include <%s>\nextern int mr_lint_unused;\n' "$name" |
        "$cc" -std=c17 -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only -x c - ||
        { echo "$header does not compile alone as C17"; bad=1; }
done
for header in src/*/*.h; do
    printf '#include "%s"\nextern int mr_lint_unused;\n' "${header#src/}" |
        "$cc" -std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Werror -Iinclude -Isrc -fsyntax-only -x c - ||
        { echo "$header does not compile alone"; bad=1; }
done
cxx=$(command -v "${CXX:-g++}" || command -v clang++ || true)
if [ -n "$cxx" ]; then
    for header in include/millrace/*.h; do
        printf '#include <%s>\n' "${header#include/}" |
            "$cxx" -std=c++17 -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only -x c++ - ||
            { echo "$header does not compile alone as C++17"; bad=1; }
    done
fi
[ $bad = 0 ] || exit 1
[ -n "$cxx" ] || { echo "SKIP: no C++ compiler; the headers compile alone as C17"; exit 77; }
echo "headers: all compile alone"
