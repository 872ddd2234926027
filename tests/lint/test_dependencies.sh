#!/usr/bin/env bash
# Folders depend only downwards. Reads every #include of src/ and include/ and fails on an arrow that the table below does
# not allow. The table is the plan of the house (doc/tour.md); the build's link order (cmake/MillraceModules.cmake) must
# stay within it. To allow an arrow, change the plan first.
set -eu
cd "$(dirname "$0")/../.."

# folder: what it may include besides itself and the public headers; base is always allowed, except to the tracer
declare -A allowed=(
    [base]=""
    [conf]="base" [order]="base" [event]="base" [comm]="base"
    [launch]="base event"
    [wire]="base comm"
    [store]="base conf event"
    [model]="base conf"
    [probe]="base conf comm model"
    [policy]="base order model"
    [format]="base conf store"
    [dataset]="base conf store format"
    [tier]="base conf order policy dataset store comm wire event model format"
    [loader]="base tier wire conf order policy dataset store comm event model format"
    [checkpoint]="base conf store comm event"
    [plugin]="base conf store format policy checkpoint"
    [sim]="base conf order policy model event"
    [metrics]="base event"
    [bench]="base conf loader wire checkpoint metrics event comm model dataset format store order"
    [analyze]="base conf event metrics model sim order policy"
    [explain]="base conf order event metrics model sim policy analyze"
    [report]="base conf analyze explain metrics event"
    [job]="base conf order event comm store model policy format dataset loader checkpoint sim metrics bench analyze explain report"
    [tracer]="base event"
    [cli]="*"
)
bad=0
complain() { echo "$*"; bad=1; }

for dir in src/*/; do
    folder=$(basename "$dir")
    if [ -z "${allowed[$folder]+set}" ]; then
        complain "src/$folder: not in the table of tests/lint/test_dependencies.sh"
        continue
    fi
    while IFS=: read -r file line target; do
        [ -n "$target" ] || continue
        if [ ! -d "src/$target" ]; then
            complain "$file:$line: includes '$target/...', which is no folder of src"
        elif [ "$target" != "$folder" ] && [ "${allowed[$folder]}" != "*" ]; then
            case " ${allowed[$folder]} " in
            *" $target "*) ;;
            *) complain "$file:$line: src/$folder must not include from src/$target" ;;
            esac
        fi
    done < <(grep -rnHoE --include='*.[ch]' '^[[:space:]]*#[[:space:]]*include[[:space:]]+"[^"/]+/' "$dir" |
        sed -E 's/^([^:]*):([0-9]+):.*"([^"\/]+)\/$/\1:\2:\3/')
    # a header without its folder's name would escape the check above (build_info.h is generated, for the command line)
    while IFS=: read -r file line text; do
        [ -n "$text" ] || continue
        case $text in *'"build_info.h"'*) [ "$folder" = cli ] && continue ;; esac
        complain "$file:$line: include \"folder/file.h\", not $text"
    done < <(grep -rnHE --include='*.[ch]' '^[[:space:]]*#[[:space:]]*include[[:space:]]+"[^"/]+"' "$dir")
done

# nothing under src/ includes tests, and public headers include only each other and the system
grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]+"' include && complain "a public header includes an internal one"

only() { # header, allowed file pattern
    local hits
    hits=$(grep -rlE "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]$1[>\"]" src include | grep -vE "$2" || true)
    [ -z "$hits" ] || complain "only files matching $2 may include $1, not: $hits"
}
only 'mpi\.h' '^src/comm/comm_mpi_module\.c$'
only 'ucp/api/ucp\.h' '^src/wire/wire_ucx_module\.c$'
only 'hdf5\.h' '^src/format/format_hdf5[a-z0-9_]*\.[ch]$'
only 'Python\.h' '^python/'
only 'liburing\.h' '^src/(store/store_uring|tracer/wrap_uring)[a-z0-9_]*\.c$'

# the link graph may not know more than the include graph
while read -r folder deps; do
    [ -d "src/$folder" ] || continue
    for d in $deps; do
        [ "${allowed[$folder]:-}" = "*" ] && continue
        case " ${allowed[$folder]:-} " in
        *" $d "*) ;;
        *) complain "cmake/MillraceModules.cmake: mr_$folder links mr_$d, which the table does not allow" ;;
        esac
    done
done < <(sed -nE 's/^set\(MR_DEPS_([a-z]+) ?(.*)\)$/\1 \2/p' cmake/MillraceModules.cmake)

[ $bad = 0 ] && echo "dependencies: $(ls -d src/*/ | wc -l) folders, all arrows point down"
exit $bad
