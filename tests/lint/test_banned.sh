#!/usr/bin/env bash
# The functions of src/base/banned.h really fail to compile where the build force-includes it, and our sources use it.
set -eu
cd "$(dirname "$0")/../.."
cc=${CC:-cc}
bad=0
try() { # statement
    printf '#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <time.h>\nvoid mr_f(char *a, const char *b, const time_t *t);\nvoid mr_f(char *a, const char *b, const time_t *t)\n{\n    (void)a; (void)b; (void)t;\n    %s;\n}\n' "$1" |
        "$cc" -std=gnu17 -D_GNU_SOURCE -Werror=implicit-function-declaration -include src/base/banned.h -c -o /dev/null -x c - 2>/dev/null
}
try 'memcpy(a, b, 1)' || { echo "a harmless file does not compile"; exit 1; }
while IFS='|' read -r name statement; do
    if try "$statement"; then
        echo "$name compiles, but must not"
        bad=1
    fi
done <<'LIST'
strcpy|strcpy(a, b)
strcat|strcat(a, b)
sprintf|sprintf(a, "%s", b)
vsprintf|vsprintf(a, b, 0)
strtok|strtok(a, b)
atoi|a[0] = (char)atoi(b)
gmtime|a[0] = (char)gmtime(t)->tm_sec
localtime|a[0] = (char)localtime(t)->tm_sec
alloca|a = alloca(10)
system|system(b)
rand|a[0] = (char)rand()
LIST
grep -q -- '-include ${CMAKE_SOURCE_DIR}/src/base/banned.h' cmake/MillraceModules.cmake ||
    { echo "the build does not force-include banned.h"; bad=1; }
# The macros that release and take the interpreter's lock change how the lines around them run: each on a line of its own.
glued=$(grep -nE 'Py_(BEGIN|END)_ALLOW_THREADS' python/ext/*.c python/ext/*.h python/millrace/trace/*.c |
    grep -vE '^[^:]*:[0-9]+:[[:space:]]*Py_(BEGIN|END)_ALLOW_THREADS;?$' || true)
[ -z "$glued" ] || { echo "lock macros that share a line:"; echo "$glued"; bad=1; }
[ $bad = 0 ] && echo "banned: all eleven functions fail to compile"
exit $bad
