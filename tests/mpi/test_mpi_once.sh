#!/usr/bin/env bash
# Under mpirun, at 1, 2, 3 and 7 ranks and in every order mode: every sample exactly once per epoch over all ranks, proven
# from the offsets of the calls; and collective reading through MPI-IO gives all ranks the rows they would have read.
# test-label: once (long under sanitizers: there only in make test-full)
set -eu
export MILLRACE_RUN_OVERWRITE=true # runs share a folder on purpose
fail() { echo "FAIL: $*" >&2; exit 1; }
. "$(dirname "$0")/launchers.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
cat >w.yaml <<'Y'
workflow: {train: true}
dataset: {format: indexed_binary, num_files_train: 12, num_samples_per_file: 7, record_length_bytes: 4096, data_folder: d}
reader: {batch_size: 4, read_threads: 1, shuffle_size: 16, drop_last: false}
train: {epochs: 2}
Y
"$MILLRACE" -q gen d --workload w.yaml >/dev/null 2>&1
cat >check.py <<'P'
import collections, sys
mode, ranks = sys.argv[1], int(sys.argv[2])
epochs, same = [[], []], True
for r in range(ranks):
    rows = [l.rstrip("\n").split("\t") for l in open(f"t.{r}.tsv")]
    reads = [x[1:] for x in sorted((int(c[5]), c[1], int(c[2])) for c in rows if c[0] == "read" and c[3] == "4096")]
    half = len(reads) // 2
    assert len(reads) == 2 * 84 // ranks, (mode, ranks, r, len(reads))
    epochs[0] += reads[:half]
    epochs[1] += reads[half:]
    same &= reads[:half] == reads[half:]
for e in epochs:
    count = collections.Counter(e)
    assert len(count) == 84 and set(count.values()) == {1}, (mode, ranks, "not every sample once")
assert same == (mode == "sequential"), (mode, ranks, "order of the second epoch")
P
done_in=
# shellcheck disable=SC2154 # launchers: launchers.sh
for kind in $launchers; do
    for ranks in 1 2 3 7; do
        for mode in sequential torch cipher shard buffer file; do
            # tests/cli/test_run_once.sh has them all; here all modes with one implementation
            [ $mode = torch ] || { [ $ranks = 7 ] && [ "${done_in:-$kind}" = $kind ]; } || [ -n "${MR_TEST_FULL:-}" ] || continue
            rm -f t.*.tsv t.*.mrt
            start $kind $ranks "$MILLRACE" -q run w.yaml reader.order=$mode --no-ceiling --out o --store "trace(file=t.{rank}.mrt):posix" \
                >out 2>err || fail "$kind, $mode on $ranks: $(cat err)"
            python3 "$MR_SOURCE_DIR/tests/cli/calls_as_tsv.py" "$MILLRACE" t.*.mrt
            python3 check.py $mode $ranks || fail "$kind, $mode on $ranks ranks"
        done
    done
    done_in=${done_in:-$kind}
done
# collective reads: by MPI-IO from one file and from many, and by the storage stack
one="dataset.num_files_train=1 dataset.num_samples_per_file=84 --data one"
"$MILLRACE" -q gen one --workload w.yaml dataset.num_files_train=1 dataset.num_samples_per_file=84 >/dev/null 2>&1
sums() { python3 -c "import json; print([r['rows_crc32c_sum'] for r in json.load(open('$1/summary.json'))['millrace']['per_rank']])"; }
for kind in $launchers; do
    for where in "" "$one"; do
        # shellcheck disable=SC2086
        "$MILLRACE" -q run w.yaml $where pattern.unit=record reader.transfer_size=1000 --ranks 3 --verify --no-ceiling --out a >out 2>err || fail "$(cat err)"
        for access in collective mpio; do
            # shellcheck disable=SC2086
            start $kind 3 "$MILLRACE" -q run w.yaml $where pattern.unit=record reader.transfer_size=1000 reader.file_access=$access \
                pattern.collective_readers=2 --verify --no-ceiling --out m >out 2>err || fail "$kind, $access $where: $(cat err)"
            [ "$(sums a)" = "$(sums m)" ] || fail "$kind, $access $where: other rows: $(sums a) $(sums m)"
        done
    done
    rm -f t.*.tsv t.*.mrt
    start $kind 3 "$MILLRACE" -q run w.yaml reader.file_access=collective pattern.collective_readers=1 --no-ceiling --out m \
        --store "trace(file=t.{rank}.mrt):posix" >out 2>err || fail "$kind, collective through the loader: $(cat err)"
    compgen -G 't.[12]*.mrt' >/dev/null && fail "$kind: a rank that does not read opened the data"
    if command -v strace >/dev/null && strace -o /dev/null true 2>/dev/null; then
        rm -f s.*
        # shellcheck disable=SC2086
        start $kind 3 strace -f -e trace=openat,pread64,read,readv,preadv,lseek -y -o "|sed -n '/one.train.*indexed\|one.train.img/p' >>s.\$\$" \
            "$MILLRACE" -q run w.yaml $one pattern.unit=record reader.file_access=mpio pattern.collective_readers=1 --no-ceiling --out m >out 2>err ||
            fail "$kind, strace: $(cat err)"
        n=$(grep -lE "(pread64|read|readv|preadv)\([0-9]+<.*one/train/.*\) += 4096" s.* | wc -l)
        [ "$n" = 1 ] || fail "$kind: $n processes read the file, want 1: $(head -3 s.*)"
    fi
done
echo "once under mpirun:$launchers: ok"
