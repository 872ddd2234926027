#!/usr/bin/env bash
# The portable tarball carries a module for each MPI, linked with no MPI library, and says what is missing where there is none.
# Building it takes minutes: with MR_TEST_FULL=1 only.
# test-label: timing
# test-label: full
set -eu
fail() { echo "FAIL: $*" >&2; exit 1; }
[ -n "${MR_TEST_FULL:-}" ] || { echo "SKIP: builds the tarball; set MR_TEST_FULL=1"; exit 77; }
case ${MR_BINARY_DIR:-} in */dev | */tsan) echo "SKIP: one build is enough"; exit 77 ;; esac
for kind in openmpi mpich; do
    command -v mpirun.$kind >/dev/null && command -v mpicc.$kind >/dev/null || { echo "SKIP: no $kind here"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$MR_SOURCE_DIR/packaging/portable" >"$work/log" 2>&1 || fail "$(tail -20 "$work/log")"
for kind in openmpi mpich; do grep -q "under mpirun.$kind: two ranks meet" "$work/log" || fail "$kind: $(cat "$work/log")"; done
tarball=$(echo "$MR_SOURCE_DIR"/build/millrace-*-linux-"$(uname -m)".tar.gz)
tar -xzf "$tarball" -C "$work"
cd "$work"/millrace-*/
for kind in openmpi mpich; do
    module=lib/millrace_mpi_$kind.so
    [ -f $module ] || fail "no $module in the tarball"
    ! readelf -d $module | grep -q 'NEEDED.*mpi' || fail "$module is bound to one library: $(readelf -d $module)"
done
# Where the launcher's library is not found, the message says so: a folder with nothing but libc and libm.
if [ "$(id -u)" = 0 ]; then
    mkdir -p bare/lib64 bare/lib/x86_64-linux-gnu bare/tmp bare/proc
    cp -r bin lib share bare/
    cp "$(gcc -print-file-name=ld-linux-x86-64.so.2)" bare/lib64/
    cp "$(gcc -print-file-name=libc.so.6)" "$(gcc -print-file-name=libm.so.6)" bare/lib/x86_64-linux-gnu/
    if mount -t proc proc bare/proc 2>/dev/null; then # the program finds its modules through /proc
        rc=0
        OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 chroot bare /bin/millrace gen /tmp/x --files 2 >out 2>&1 || rc=$?
        umount bare/proc
        [ $rc != 0 ] && grep -q "LD_LIBRARY_PATH" out || fail "without the library: $rc $(cat out)"
    fi
fi
echo "portable: ok"
