#!/usr/bin/env bash
# Layers above POSIX: annotations in C and C++, liburing, HDF5, MPI-IO (where they can be built), and Python's three ways to start workers.
# test-label: once (the tracer is built without sanitizers: there only in make test-full)
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
lib=${MILLRACE%/bin/millrace}/lib/libmillrace_trace.so
[ -e "$lib" ] || { echo "SKIP: no libmillrace_trace.so beside the program"; exit 77; }
src=$MR_SOURCE_DIR/tests/tracer
inc=$MR_SOURCE_DIR/include
head -c 65536 /dev/zero >"$dir/data"
checked=

expect() { # name, trace; the program's own list is in $dir/names
    "$MILLRACE" export -f csv -o "$dir/t.csv" "$2"
    python3 "$src/csv_count.py" "$dir/t.csv" >"$dir/seen"
    while read -r name count; do
        grep -qx "$name $count" "$dir/seen" || { echo "FAIL $1: want '$name $count', have: $(grep "^$name " "$dir/seen" || echo none)"; exit 1; }
    done <"$dir/names"
    checked="$checked $1"
}

layer() { # name, compiler command..., with {} for the sources
    local name=$1
    shift
    "$@" -w -D_GNU_SOURCE -I"$inc" -o "$dir/layer" "$src/layers.c" $libs 2>/dev/null || return 0
    local status=0
    "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- $runner "$dir/layer" "$dir/data" >"$dir/names" || status=$?
    [ $status = 77 ] && return 0
    [ $status = 0 ] || { echo "FAIL $name: status $status"; exit 1; }
    expect "$name" "$dir/t.mrt"
}
runner=
libs=
layer annotations ${CC:-cc} -O2
"$dir/layer" "$dir/data" >/dev/null || { echo "FAIL: annotations without the tracer: status $?"; exit 1; }
${CC:-cc} -O2 -w -D_GNU_SOURCE -I"$inc" -o "$dir/keys" "$src/key_ways.c" -pthread
"$MILLRACE" trace --quiet -o "$dir/t.mrt" -- "$dir/keys" >"$dir/names"
"$MILLRACE" export -f csv -o "$dir/t.csv" "$dir/t.mrt"
python3 - "$dir" <<'P' || { echo "FAIL: keys of annotations"; exit 1; }
import csv, json, sys
rows = [json.loads(r["args"]) for r in csv.DictReader(open(sys.argv[1] + "/t.csv", newline="")) if r["category"] == "keys"]
assert len(rows) == int(open(sys.argv[1] + "/names").read()), len(rows)
for args in rows:
    (key, value), *more = args.items()
    assert more in ([], [("second", 2)]) and (key == "" if value == -1 else key[:len(str(value)) + 1].rstrip("_ ") == str(value)), args
P
checked="$checked keys"
libs="-luring" layer io_uring ${CC:-cc} -DLAYER_URING
case "$checked" in *io_uring*) # every one with its file, offset and size
    [ "$(grep -cE "uring_read,$dir/data,[0-9]+,512,512,[0-9]+" "$dir/t.csv")" = 3000 ] || { echo "FAIL io_uring: files or sizes are wrong"; exit 1; } ;;
esac
libs="$(pkg-config --libs hdf5-serial 2>/dev/null || pkg-config --libs hdf5 2>/dev/null || true)"
# shellcheck disable=SC2046 # flags are words
layer hdf5 ${CC:-cc} -DLAYER_HDF5 $(pkg-config --cflags hdf5-serial 2>/dev/null || pkg-config --cflags hdf5 2>/dev/null || true)
case "$checked" in *hdf5*) # an object by its file and its place in it
    [ "$(grep -cE "H5Dread_chunk,$dir/data.h5:/g/chunked,,80," "$dir/t.csv")" = 1 ] || { echo "FAIL hdf5: names or sizes: $(grep H5 "$dir/t.csv")"; exit 1; } ;;
esac
libs=
if command -v mpicc >/dev/null && command -v mpirun >/dev/null; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    runner="mpirun --oversubscribe -n 2" layer mpi mpicc -DLAYER_MPI
    case "$checked" in *mpi*) # the bytes that were there, not those asked for
        grep -qE "MPI_File_read_at,$dir/data.mpi,20380,100," "$dir/t.csv" || { echo "FAIL mpi: a read over the end: $(grep MPI_File_read_at, "$dir/t.csv")"; exit 1; } ;;
    esac
    # Fortran's functions go other ways inside the library.
    cat >"$dir/f.f90" <<'S'
program t
  use mpi
  integer :: f, e, d(10), s(MPI_STATUS_SIZE)
  integer(kind=MPI_OFFSET_KIND) :: o
  d = 1
  o = 0
  call MPI_INIT(e)
  call MPI_FILE_OPEN(MPI_COMM_WORLD, 'fortran.out', MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, f, e)
  call MPI_FILE_WRITE_AT(f, o, d, 10, MPI_INTEGER, s, e)
  call MPI_FILE_READ_AT(f, o, d, 10, MPI_INTEGER, s, e)
  call MPI_FILE_CLOSE(f, e)
  call MPI_FINALIZE(e)
end program
S
    if (cd "$dir" && mpifort -o fortran f.f90) 2>/dev/null && (cd "$dir" && mpirun --oversubscribe -n 1 ./fortran) 2>/dev/null; then
        (cd "$dir" && "$MILLRACE" trace --quiet -o t.mrt -- mpirun --oversubscribe -n 1 ./fortran)
        printf 'MPI_File_open 1\nMPI_File_write_at 1\nMPI_File_read_at 1\nMPI_File_close 1\n' >"$dir/names"
        expect fortran "$dir/t.mrt"
    fi
fi

# Where linkers settle weak references for good: programs that are not position-independent, also with a part that is; without the tracer they do nothing.
runner=
for way in "-fno-pie -no-pie" "-fPIE -no-pie" "-fno-pie -no-pie -O0"; do
    layer annotations ${CC:-cc} -O2 $way
    "$dir/layer" >/dev/null || { echo "FAIL: annotations without the tracer, $way"; exit 1; }
done

# Steps filter: 3 of the 7 steps.
layer annotations ${CC:-cc} -O2
"$MILLRACE" report --json --steps 2:4 "$dir/t.mrt" | python3 -c '
import json, sys
f = {x["name"]: x["count"] for x in json.load(sys.stdin)["functions"]}
assert f["step"] == 3 and f["access"] == 3, f'

cat >"$dir/s.cpp" <<'S'
#include <millrace/dftracer.h>
#include <cstdio>
int main()
{
    DFTRACER_CPP_FUNCTION();
    for (int i = 0; i < 3; i++) {
        MILLRACE_SCOPE(one, "cpp", "scope");
        one.arg("i", i).arg("d", 1.5).arg("s", "text").arg("step", 9).arg("step", std::size_t(i)); // the last one counts
    }
    {
        const char *log = "a log", *none = nullptr;
        int rank = 0;
        const std::string text("text");
        DFTRACER_CPP_INIT(log, nullptr, &rank);
        DFTRACER_CPP_INIT_NO_BIND(log, nullptr, &rank);
        DFTRACER_CPP_REGION_START(dynamic);
        DFTRACER_CPP_REGION_DYN_UPDATE(dynamic, "text", text);
        DFTRACER_CPP_REGION_DYN_UPDATE(dynamic, "none", none);
        DFTRACER_CPP_REGION_DYN_UPDATE(dynamic, "large", UINT64_MAX);
        DFTRACER_CPP_REGION_END(dynamic);
        DFTRACER_CPP_METADATA(meta, "key", none);
    }
    {
        MILLRACE_SCOPE(strings, "cpp", "strings"); // ends after what is declared below it
        std::string gone("a string of the block that is too long to be kept in place");
        strings.arg("gone", gone).arg("made", gone + "!");
        gone = "something else";
#if __cplusplus >= 201703L
        strings.arg("view", std::string_view("view of some").substr(0, 4));
#endif
    }
    if (std::getchar() == EOF)
        DFTRACER_CPP_FINI();
    std::puts("scope 3\nmain 1\ndynamic 1\nstrings 1");
}
S
for standard in 11 17; do
    ${CXX:-c++} -std=c++$standard -Wall -Wextra -Werror -I"$inc" -o "$dir/layer" "$dir/s.cpp" || continue
    "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- "$dir/layer" >"$dir/names" </dev/null
    expect c++ "$dir/t.mrt"
    "$MILLRACE" export -f csv -o "$dir/t.csv" "$dir/t.mrt"
    grep -qF '"{""text"":""text"",""none"":"""",""large"":18446744073709551615}"' "$dir/t.csv" || { echo "FAIL: arguments of C++"; exit 1; }
    kept='"{""gone"":""a string of the block that is too long to be kept in place"",""made"":""a string of the block that is too long to be kept in place!""'
    [ $standard = 11 ] || kept="$kept,\"\"view\"\":\"\"view\"\""
    grep -qF "$kept}" "$dir/t.csv" || { echo "FAIL: strings of C++$standard"; exit 1; }
    for steps in 1:2=2 9=0; do
        "$MILLRACE" report --json --steps ${steps%=*} "$dir/t.mrt" | python3 -c '
import json, sys
n = sum(f["count"] for f in json.load(sys.stdin)["functions"] if f["name"] == "scope")
assert n == int(sys.argv[1]), n' ${steps#*=} || { echo "FAIL: steps of an unsigned type, $steps"; exit 1; }
    done
done

# Programs for DFTracer, unchanged: as its header allows, without semicolons after most macros; regions end where they are left.
cat >"$dir/d.c" <<'S'
#include <dftracer/dftracer.h>
#include <stdio.h>
#include <string.h>
static int early(int n)
{
    DFTRACER_C_FUNCTION_START()
    for (int i = 0; i < 100; i++)
        DFTRACER_C_FUNCTION_UPDATE_INT("count", i)
    DFTRACER_C_FUNCTION_UPDATE_STR("kind", "first")
    DFTRACER_C_FUNCTION_UPDATE_STR_TYPE("kind", "second", 1)
    for (int i = 0; i < n; i++) {
        DFTRACER_C_REGION_START(left);
        DFTRACER_C_REGION_UPDATE_INT_TYPE(left, "i", i, MT_VALUE);
        if (i == 2)
            break;
        if (i == 1)
            continue;
        DFTRACER_C_REGION_END(left);
        DFTRACER_C_REGION_UPDATE_INT(left, "late", i);
    }
    if (n == 3)
        return 3;
    DFTRACER_C_FUNCTION_END();
    return n;
}
int main(int argc, char **argv)
{
    int rank = 0;
    DFTRACER_C_INIT("log", "all", &rank)
    DFTRACER_C_APP_METADATA_INT("ranks", 4)
    DFTRACER_C_APP_METADATA_STR("model", argc && argv[0] ? "unet" : "none")
    DFTRACER_C_METADATA(meta, "site", "here")
    DFTRACER_C_MARK_USED("mine")
    DFTRACER_C_ENTITY_TYPE("file", DFT_ROLE_INPUT, "a file")
    EntityID entity = DFTRACER_C_ENTITY("file", "x", DFT_STORE_LOCAL_DISK, "uri");
    DFTRACER_C_ENTITY_RELATE(DFT_REL_CONTAINS, entity, entity)
    early(2);
    early(3);
    DFTRACER_C_REGION_START(buffers);
    char key[8], text[8];
    for (int i = 0; i < 30; i++) {
        snprintf(key, sizeof(key), "k%d", i % 3);
        snprintf(text, sizeof(text), "t%d", i);
        DFTRACER_C_REGION_UPDATE_STR(buffers, key, text);
    }
    strcpy(key, "x");
    DFTRACER_C_REGION_UPDATE_STR(buffers, key, NULL);
    strcpy(text, "y");
    DFTRACER_C_REGION_END(buffers);
#ifndef __clang__ /* an error there, with DFTracer's header too */
    for (int turn = 0; turn < 2; turn++) {
        char garbage[600];
        memset(garbage, turn, sizeof(garbage));
        __asm__ volatile("" : : "r"(garbage) : "memory");
        switch (argc + turn) {
        case 1:;
            DFTRACER_C_REGION_START(chosen);
            DFTRACER_C_REGION_END(chosen);
            break;
        default:
            break;
        }
    }
    printf("chosen 1\n");
#endif
    printf("early 2\nleft 5\nmetadata 3\nbuffers 1\n");
    DFTRACER_C_FINI();
    return entity != (millrace_trace_active() ? 0x8bbc25ce1072009a : DFT_ENTITY_NONE);
}
S
cat >"$dir/d.cpp" <<'S'
#include <dftracer/dftracer.h>
#include <cstdio>
#include <unistd.h>
static int twice(int fn) // names that DFTracer leaves to the program
{
    DFTRACER_CPP_FUNCTION()
    DFTRACER_CPP_FUNCTION_UPDATE("fn", fn)
    DFTRACER_CPP_REGION(read);
    char data;
    DFTRACER_CPP_REGION_START(data);
    DFTRACER_CPP_REGION_UPDATE(read, "bytes", (int)read(-1, &data, 1));
    DFTRACER_CPP_REGION_DYN_UPDATE(data, "many", 1)
    for (int i = 0; i < 100; i++)
        DFTRACER_CPP_REGION_DYN_UPDATE_TYPE(data, "many", std::to_string(i), MetadataType::MT_VALUE)
    profiler_dft_fn.uses("file", "x");
    profiler_data->relate(DFT_REL_USED, DFTRACER_CPP_ENTITY("file", "x", DFT_STORE_MEMORY, nullptr));
    DFTRACER_CPP_REGION_END(data);
    return fn;
}
int main()
{
    DFTRACER_CPP_INIT(nullptr, nullptr, nullptr)
    DFTRACER_CPP_APP_METADATA_INT("ranks", 2)
    DFTRACER_CPP_METADATA(meta, "site", "here")
    twice(5);
    twice(6);
    {
        std::string name("made"); // here
        DFTracer made(name.c_str(), CPP_LOG_CATEGORY), fact("fact", "value", DF_METADATA_EVENT);
        made.update("text", "literal");
        for (int i = 0; i < 3; i++)
            made.update(("k" + std::to_string(i % 2)).c_str(), ("a text that is made for this call only " + std::to_string(i)).c_str());
        made.update("double", 2.5);
    }
    std::puts("twice 2\ndata 2\nmetadata 3\nmade 1");
    DFTRACER_CPP_FINI();
}
S
for source in "${CC:-cc} -x c -std=c11" "${CC:-cc} -x c -std=gnu17 -O2 -fno-pie -no-pie" "${CXX:-c++} -x c++ -std=c++11" "${CXX:-c++} -x c++ -std=c++17 -O2"; do
    file=d.c
    case "$source" in *c++*) file=d.cpp ;; esac
    $source -Wall -Wextra -Werror -I"$inc" -I"$MR_BINARY_DIR/generated/dropin" -o "$dir/layer" "$dir/$file" || { command -v ${source%% *} >/dev/null && exit 1 || continue; }
    "$dir/layer" >/dev/null || { echo "FAIL: DFTracer's macros without the tracer, $source"; exit 1; }
    "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- "$dir/layer" >"$dir/names"
    expect "dftracer ($source)" "$dir/t.mrt"
    "$MILLRACE" export -f csv -o "$dir/t.csv" "$dir/t.mrt"
    if [ $file = d.c ]; then
        [ "$(grep -c ',early,.*"{""count"":99,""kind"":""second""}"' "$dir/t.csv")" = 2 ] && [ "$(grep -c ',left,.*{""i"":' "$dir/t.csv")" = 5 ] &&
            ! grep -q late "$dir/t.csv" && grep -qF '"{""k0"":""t27"",""k1"":""t28"",""k2"":""t29"",""x"":""""}"' "$dir/t.csv" && grep -q '""ranks"":4' "$dir/t.csv" || { echo "FAIL: arguments of DFTracer's macros:"; grep ',early,' "$dir/t.csv"; exit 1; }
    else
        [ "$(grep -c ',data,.*"{""many"":""99""}"' "$dir/t.csv")" = 2 ] && [ "$(grep -c 'CPP_APP,read,.*"{""bytes"":-1}"' "$dir/t.csv")" = 2 ] &&
            grep -q 'CPP_APP,made,.*"{""text"":""literal"",""k0"":""a text that is made for this call only 2"",""k1"":""a text that is made for this call only 1"",""double"":2.5}"' "$dir/t.csv" && [ "$(grep -cE ',twice,.*"\{""fn"":[56]\}"' "$dir/t.csv")" = 2 ] || { echo "FAIL: arguments of DFTracer's C++ macros:"; cat "$dir/t.csv"; exit 1; }
    fi
done
checked="$checked dftracer"

cat >"$dir/w.py" <<'S'
import multiprocessing, os, sys
def work(n):
    for _ in range(100):
        fd = os.open(sys.argv[2], os.O_RDONLY); os.read(fd, 10); os.close(fd)
if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[1])
    workers = [multiprocessing.Process(target=work, args=(i,)) for i in range(4)]
    for w in workers: w.start()
    for w in workers: w.join()
S
for way in fork forkserver spawn; do
    "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- python3 "$dir/w.py" $way "$dir/data"
    "$MILLRACE" export -f csv -o "$dir/t.csv" "$dir/t.mrt"
    python3 "$src/csv_count.py" "$dir/t.csv" --file "$dir/data" >"$dir/seen"
    grep -qx 'read 400' "$dir/seen" && grep -qx 'pids 4' "$dir/seen" || { echo "FAIL: Python $way: $(tr '\n' ' ' <"$dir/seen")"; exit 1; }
    checked="$checked python-$way"
done
echo "captured:$checked"
