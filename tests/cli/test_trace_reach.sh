#!/usr/bin/env bash
# Where the tracer reaches, and what is said where it does not: functions that a program asks the C library for; libraries that stand between;
# descriptors that a child inherits; a child that becomes another user; programs of another loader, which must not even be told of the tracer; Go programs; libraries that bind past
# it. With the command and with the library alone.
# test-label: once (the tracer is built without sanitizers: there only in make test-full)
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
chmod 755 "$dir" # another user reads in it
lib=${MILLRACE%/bin/millrace}/lib/libmillrace_trace.so
[ -e "$lib" ] || { echo "SKIP: no libmillrace_trace.so beside the program"; exit 77; }
src=$MR_SOURCE_DIR/tests/tracer
cc=${CC:-cc}
fail() { echo "FAIL $*"; exit 1; }
[ "$(uname -m)" = x86_64 ] || { echo "SKIP: the loader's functions are followed on x86-64 only"; exit 77; }
$cc -O1 -w -o "$dir/reach" "$src/reach_ways.c" -ldl
$cc -O1 -w -DLIBRARY -shared -fPIC -o "$dir/between.so" "$src/reach_ways.c" -ldl
echo content >"$dir/data"

traced() { # way, then the command; its output in $dir/out, what is said in $dir/err, the trace in $dir/t.mrt
    local way=$1
    shift
    if [ "$way" = command ]; then
        timeout 60 "$MILLRACE" trace -o "$dir/t.mrt" -- "$@" >"$dir/out" 2>"$dir/err"
    else
        rm -rf "$dir/alone" "$dir/t.mrt"
        LD_PRELOAD=$lib MILLRACE_TRACE_OUT=$dir/alone timeout 60 "$@" >"$dir/out" || return
        "$MILLRACE" report "$dir/alone" >/dev/null 2>"$dir/err"
        "$MILLRACE" recover --out "$dir/t.mrt" "$dir/alone" >/dev/null
    fi
}
count() {
    "$MILLRACE" export -f csv -o "$dir/t.csv" "$dir/t.mrt"
    python3 "$src/csv_count.py" "$dir/t.csv" --file "$dir/data" | tr '\n' ' '
}

# A loader of another name, as another C library's would be: it stands for musl's, which ends a program for a library it cannot link.
loader=$(readelf -l "$dir/reach" 2>/dev/null | sed -n 's/.*interpreter: \(.*\)]/\1/p')
if [ -n "$loader" ]; then
    cp "$loader" "$dir/ld-musl-other.so.1"
    $cc -O1 -w -o "$dir/other" "$src/reach_ways.c" -ldl "-Wl,--dynamic-linker=$dir/ld-musl-other.so.1"
    printf '#!%s told\n' "$dir/other" >"$dir/script"
    chmod +x "$dir/script"
fi
for bits in 32 64; do # names without and with 64
    $cc -O1 -w -D_FILE_OFFSET_BITS=$bits -DLIBRARY -shared -fPIC -o "$dir/stand$bits.so" "$src/stand_in.c" -ldl
    $cc -O1 -w -D_FILE_OFFSET_BITS=$bits -o "$dir/calls$bits" "$src/stand_in.c"
done
$cc -O1 -w -DGO_NOTE -o "$dir/go" "$src/reach_ways.c" -ldl

# Musl itself, where it is there: LD_PRELOAD made by hand does not end its programs. Elsewhere at least nothing of glibc's alone is a must for the library.
nm -D --undefined-only "$lib" >"$dir/needs" 2>/dev/null || :
! grep -E ' U (__register_atfork|dlvsym|gnu_get_libc_version|__libc_single_threaded|_IO_list_all)' "$dir/needs" || fail "the library needs what only glibc has"
printf '#include <stdio.h>\n#include <stdlib.h>\nint main(int n, char **a) { printf("%%d %%s %%s\\n", n, a[1], getenv("LD_PRELOAD")); return 5; }\n' >"$dir/musl.c"
if command -v musl-gcc >/dev/null && musl-gcc -o "$dir/musl" "$dir/musl.c" 2>/dev/null && "$dir/musl" x >/dev/null || [ $? = 5 ]; then
    status=0
    LD_PRELOAD=$lib MILLRACE_TRACE_OUT=$dir/musl.out "$dir/musl" 'a b' >"$dir/out" 2>"$dir/err" || status=$?
    [ $status = 5 ] && [ "$(cat "$dir/out")" = "2 a b (null)" ] || fail "a program of musl: status $status, $(cat "$dir/out" "$dir/err")"
    [ "$(grep -c 'not glibc' "$dir/err")" = 1 ] || fail "a program of musl is not told of: $(cat "$dir/err")"
fi

for way in command alone; do
    traced $way "$dir/reach" handles "$dir/data" || fail "$way: functions by handle: status $?"
    case "$(count)" in *"pread 40 "*) ;; *) fail "$way: functions by handle: $(count)" ;; esac
    "$dir/reach" versions "$dir/data" || fail "functions by version fail without the tracer: status $?"
    traced $way "$dir/reach" versions "$dir/data" || fail "$way: functions by version: status $?"
    case "$(count)" in *"pread 20 "*) ;; *) fail "$way: functions by version: $(count)" ;; esac
    traced $way env "LD_PRELOAD=$dir/between.so" "$dir/reach" between "$dir/data" || fail "$way: a library between: status $?"
    case "$(count)" in *"pread 1 "*) ;; *) fail "$way: a library between: $(count)" ;; esac
    traced $way "$dir/reach" inherits "$dir/data"
    case "$(count)" in *"close 2 "*"pids 2 "*) ;; *) fail "$way: an inherited descriptor has no name: $(count)" ;; esac

    traced $way "$dir/reach" borrows "$dir/data"
    case "$(count)" in *"close 1 open 1 read 1 "*) ;; *) fail "$way: a child of vfork: $(count)" ;; esac

    # A child that gives up root before its first call.
    status=0
    "$dir/reach" drops "$dir/data" || status=$?
    if [ $status = 0 ]; then
        traced $way "$dir/reach" drops "$dir/data" 2>"$dir/said" || fail "$way: a child of another user: status $?"
        [ ! -s "$dir/said" ] || fail "$way: a child of another user says: $(cat "$dir/said")"
        case "$(count)" in *"open 1 "*"read 1 "*) ;; *) fail "$way: a child of another user is not seen: $(count)" ;; esac
    fi

    traced $way sh -c '"$@"; "$@"; exec env -i "$@"' sh "$dir/reach" told x
    [ "$(sort -u "$dir/out")" = told ] || fail "$way: $(cat "$dir/out")"
    if [ -n "$loader" ]; then
        traced $way sh -c '"$@"; exec env -i "$@"' sh "$dir/other" told x || fail "$way: another loader: status $?"
        [ "$(sort -u "$dir/out")" = 'not told' ] || fail "$way: a program of another loader is told of the tracer: $(cat "$dir/out")"
        grep -q "cannot load the tracer.* 2 times: '$dir/other'" "$dir/err" || fail "$way: a program of another loader is not named: $(cat "$dir/err")"
        traced $way sh -c '"$1" x; :' sh "$dir/script" || fail "$way: a script of another loader: status $?"
        [ "$(cat "$dir/out")" = 'not told' ] || fail "$way: a script of another loader: $(cat "$dir/out")"
        traced $way env "LD_PRELOAD=$lib:$dir/between.so" "$dir/other" told x
        [ "$(cat "$dir/out")" = "$dir/between.so" ] || fail "$way: another's LD_PRELOAD is lost: $(cat "$dir/out")"
    fi

    # A library that stands in for functions is asked for those, and only for those, whose names it has; every call is an event once.
    for bits in 32.32 32.64 64.32 64.64; do
        want=$(LD_PRELOAD=$dir/stand${bits%.*}.so "$dir/calls${bits#*.}" "$dir/stood") || fail "a library that stands in, $bits: status $?"
        for order in "$lib:$dir/stand${bits%.*}.so" "$dir/stand${bits%.*}.so:$lib"; do
            traced $way env "LD_PRELOAD=$order" "$dir/calls${bits#*.}" "$dir/stood" || fail "$way: a library that stands in, $bits: status $?"
            [ "$(cat "$dir/out")" = "$want" ] || fail "$way: a library that stands in, $order, $bits: $(cat "$dir/out"), not $want"
            "$MILLRACE" export -f csv -o "$dir/t.csv" "$dir/t.mrt"
            got=$(python3 "$src/csv_count.py" "$dir/t.csv" --file "$dir/stood" | sort | tr '\n' ' ')
            [ "$got" = "close 1 fclose 1 fopen 1 fstat 1 lseek 1 open 1 pids 1 pread 5 truncate 1 " ] || fail "$way: events behind a library that stands in, $order, $bits: $got"
        done
    done

    # A program that is only asked for its libraries, as ldd does, does not have ours.
    traced $way sh -c 'LD_TRACE_LOADED_OBJECTS= "$1"; env LD_TRACE_LOADED_OBJECTS=1 "$1"' sh "$dir/reach" || fail "$way: libraries of a program: status $?"
    [ "$(grep -c libc.so "$dir/out")" = 2 ] && ! grep -q millrace "$dir/out" || fail "$way: libraries of a program: $(cat "$dir/out")"

    traced $way "$dir/go" inherits "$dir/data" || fail "$way: Go: status $?"
    grep -q "Go programs.*--strays.* 1 time: '$dir/go'" "$dir/err" || fail "$way: a Go program is not named: $(cat "$dir/err")"
    for name in deep:RTLD_DEEPBIND apart:dlmopen; do
        status=0
        "$dir/reach" "${name%:*}" "$dir/data" "$dir/between.so" || status=$?
        [ $status = 0 ] || continue # not with this loader
        traced $way "$dir/reach" "${name%:*}" "$dir/data" "$dir/between.so" || fail "$way: $name: status $?"
        grep -q "libraries were loaded.*${name#*:}.* 1 time: '$dir/between.so'" "$dir/err" || fail "$way: $name is not said: $(cat "$dir/err")"
    done
done

# The program itself is of another loader.
if [ -n "$loader" ]; then
    for program in "$dir/other told" "$dir/script"; do
        # shellcheck disable=SC2086
        "$MILLRACE" trace -o "$dir/t.mrt" -- $program x >"$dir/out" 2>"$dir/err" || fail "another loader: status $?"
        [ "$(cat "$dir/out")" = 'not told' ] || fail "a program of another loader is told of the tracer: $(cat "$dir/out")"
        grep -q 'did not load the tracer' "$dir/err" || fail "a program of another loader is not said to run untraced: $(cat "$dir/err")"
    done
fi
# A folder named by a relative path, or not at all, is the same one for programs that start elsewhere.
for folder in rel ''; do
    (cd "$dir" && rm -rf rel millrace-trace elsewhere t.mrt && mkdir elsewhere && LD_PRELOAD=$lib MILLRACE_TRACE_OUT=$folder sh -c 'cd elsewhere && cat ../data; env -i cat ../data') >/dev/null
    [ -z "$(ls "$dir/elsewhere")" ] || fail "a trace folder '$folder' became another one: $(ls "$dir/elsewhere")"
    "$MILLRACE" recover --out "$dir/t.mrt" "$dir/${folder:-millrace-trace}" >/dev/null
    case "$(count)" in *"open 2 "*) ;; *) fail "programs that started elsewhere are missing: $(count)" ;; esac
done
# So is a library named by a relative path: the loader of a program that starts elsewhere finds it, and does not complain.
ln -s "$lib" "$dir/relative.so"
printf 'int nothing;\n' | $cc -shared -fPIC -o "$dir/nothing.so" -xc -
for list in ./relative.so "./relative.so:$dir/nothing.so" "$dir/nothing.so ./relative.so"; do
    # shellcheck disable=SC2016
    (cd "$dir" && LD_PRELOAD=$list MILLRACE_TRACE_OUT=rel sh -c 'cd elsewhere && env | grep ^LD_PRELOAD=') >"$dir/out" 2>"$dir/err"
    [ ! -s "$dir/err" ] || fail "LD_PRELOAD=$list: $(cat "$dir/err")"
    case $list in *nothing*) wanted="$dir/./relative.so:$dir/nothing.so" ;; *) wanted=$dir/./relative.so ;; esac
    [ "$(cat "$dir/out")" = "LD_PRELOAD=$wanted" ] || fail "LD_PRELOAD=$list became $(cat "$dir/out")"
done
LD_PRELOAD=$lib MILLRACE_TRACE_OUT=$dir/alone MILLRACE_TRACE_SAMPLE=often cat /dev/null 2>"$dir/err"
grep -q 'MILLRACE_TRACE_SAMPLE: not a number' "$dir/err" || fail "a setting that is no number is not said: $(cat "$dir/err")"
echo "what is not reached is said"
