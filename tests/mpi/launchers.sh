# Sourced by the tests here: the MPI launchers this machine and this build both have, and how to start with each.
#   launchers        words like "openmpi mpich"; exits 77 when there is none
#   start KIND N ... runs a command on N ranks
[ -n "${MR_BINARY_DIR:-}" ] || { echo "SKIP: MR_BINARY_DIR is not set"; exit 77; }
export ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=report_bugs=0 # MPI libraries leak at exit
launchers=
for kind in openmpi mpich; do
    [ -f "$MR_BINARY_DIR/lib/millrace_mpi_$kind.so" ] || continue
    program=$(command -v mpirun.$kind || true)
    if [ -z "$program" ] && command -v mpirun >/dev/null; then
        is=mpich
        mpirun --version 2>/dev/null | grep -q "Open MPI" && is=openmpi
        [ $is = $kind ] && program=mpirun
    fi
    [ -n "$program" ] || continue
    launchers="$launchers $kind"
    declare "program_$kind=$program"
done
[ -n "$launchers" ] || { echo "SKIP: this build has no MPI module, or this machine no mpirun that fits"; exit 77; }
start() {
    local kind=$1 n=$2 name=program_$1
    shift 2
    if [ "$kind" = openmpi ]; then
        timeout 150 "${!name}" --allow-run-as-root --oversubscribe --mca btl_vader_single_copy_mechanism none -n "$n" "$@"
    else
        # MPICH's launcher now and then ends itself by SIGPIPE, and tells nothing, when its ranks fail at once (one time in eight on a busy machine, with `sh -c 'exit 2'` too).
        local tries status said
        for tries in 1 2 3 4 5 6; do
            status=0 said=$(stat -Lc %s /dev/stderr)
            timeout 150 "${!name}" -n "$n" "$@" || status=$?
            [ $status = 141 ] && [ "$(stat -Lc %s /dev/stderr)" = "$said" ] || break
        done
        return $status
    fi
}
