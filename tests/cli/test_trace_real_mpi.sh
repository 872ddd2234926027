#!/usr/bin/env bash
# MPI-IO under every MPI that is installed (Open MPI, MPICH): each call of each rank with its file, offset and bytes, and the ranks; how long ranks
# wait for each other in collective calls.
# test-label: once (the tracer is built without sanitizers: there only in make test-full)
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
lib=${MILLRACE%/bin/millrace}/lib/libmillrace_trace.so
[ -e "$lib" ] || { echo "SKIP: no libmillrace_trace.so beside the program"; exit 77; }
cat >"$dir/m.c" <<'S'
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    int rank, size;
    char b[4096];
    MPI_File f;
    MPI_Status s;
    MPI_Request q;
    MPI_Offset end;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    memset(b, rank, sizeof(b));
    MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &f);
    for (int i = 0; i < 10; i++)
        MPI_File_write_at(f, (MPI_Offset)(i * size + rank) * 4096, b, 4096, MPI_BYTE, &s);
    MPI_File_sync(f);
    if (rank == 0)
        usleep(100000); /* the others wait for it */
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 10; i++)
        MPI_File_read_at_all(f, (MPI_Offset)(i * size + rank) * 4096, b, 4096, MPI_BYTE, &s);
    for (int i = 0; i < 5; i++) {
        MPI_File_iread_at(f, (MPI_Offset)(i * size + rank) * 4096, b, 4096, MPI_BYTE, &q);
        MPI_Wait(&q, &s);
    }
    MPI_File_set_view(f, (MPI_Offset)rank * 4096, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    for (int i = 0; i < 3; i++)
        MPI_File_read(f, b, 4096, MPI_BYTE, &s);
    MPI_File_seek(f, 0, MPI_SEEK_SET);
    for (int i = 0; i < 2; i++)
        MPI_File_write_all(f, b, 100, MPI_BYTE, &s);
    MPI_File_get_size(f, &end);
    MPI_File_close(&f);
    printf("rank %d size %lld\n", rank, (long long)end);
    MPI_Finalize();
    return 0;
}
S
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
checked=
for kind in openmpi mpich; do
    command -v mpicc.$kind >/dev/null && command -v mpirun.$kind >/dev/null || { echo "not checked: $kind is not installed"; continue; }
    mpicc.$kind -w -o "$dir/m" "$dir/m.c"
    mpirun.$kind -n 4 "$dir/m" "$dir/f" | sort >"$dir/bare"
    rm -f "$dir/f"
    "$MILLRACE" trace --quiet -o "$dir/t.mrt" -- mpirun.$kind -n 4 "$dir/m" "$dir/f" | sort >"$dir/traced"
    diff "$dir/bare" "$dir/traced" || { echo "FAIL $kind: output differs"; exit 1; }
    "$MILLRACE" export -f csv -o "$dir/t.csv" "$dir/t.mrt"
    python3 - "$dir/t.csv" "$dir/f" <<'P' || { echo "FAIL $kind"; exit 1; }
import collections, csv, sys
count, offsets, met = collections.Counter(), collections.defaultdict(list), collections.Counter()
for row in csv.DictReader(open(sys.argv[1], newline="", errors="surrogateescape")):
    if row["category"] == "barrier" and row["name"] == "MPI_Barrier":
        met[row["rank"]] += int(row["dur_ns"])
    if row["category"] == "MPIIO":
        assert row["file"] == sys.argv[2], row
        count[row["name"], row["rank"]] += 1
        if row["name"] in ("MPI_File_write_at", "MPI_File_read_at_all", "MPI_File_iread_at"):
            assert row["requested_bytes"] == "4096", row
            offsets[row["name"], row["rank"]].append(int(row["offset_bytes"]))
want = dict(open=1, write_at=10, sync=1, read_at_all=10, iread_at=5, set_view=1, read=3, seek=1, write_all=2, get_size=1, close=1)
for name, n in want.items():
    for rank in "0123":
        assert count["MPI_File_" + name, rank] == n, (name, rank, count)
assert all(met[rank] > 5e7 for rank in "123"), met
for rank in range(4):
    assert sorted(offsets["MPI_File_write_at", str(rank)]) == [(i * 4 + rank) * 4096 for i in range(10)]
P
    checked="$checked $kind"
done
[ -n "$checked" ] || { echo "SKIP: there is no MPI with a compiler wrapper"; exit 77; }
echo "captured:$checked"
