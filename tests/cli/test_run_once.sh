#!/usr/bin/env bash
# Every sample exactly once per epoch over all ranks, in every order mode, proven from a trace of file offsets; another order
# in every epoch where it shuffles; the same sets of samples for any number of ranks.
# test-label: once (long under sanitizers: there only in make test-full)
set -eu
export MILLRACE_RUN_OVERWRITE=true # runs share a folder on purpose
fail() { echo "FAIL: $*" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
"$MILLRACE" -q gen d --format indexed_binary --files 12 --samples-per-file 7 --size 4096 2>/dev/null >/dev/null
cat >w.yaml <<'Y'
workflow: {train: true}
dataset: {format: indexed_binary, num_files_train: 12, num_samples_per_file: 7, record_length_bytes: 4096, data_folder: d}
reader: {batch_size: 4, read_threads: 1, shuffle_size: 16, drop_last: false}
train: {epochs: 2}
Y
cat >check.py <<'P'
import sys, glob, collections
mode, ranks = sys.argv[1], int(sys.argv[2])
epochs = [[], []]
orders = []
for r in range(ranks):
    rows = [l.rstrip("\n").split("\t") for l in open(f"t.{r}.tsv")]
    reads = sorted((int(c[5]), c[1], int(c[2])) for c in rows if c[0] == "read" and c[3] == "4096")
    assert len(reads) == 2 * 84 // ranks, (mode, ranks, r, len(reads))
    half = len(reads) // 2
    first, second = [x[1:] for x in reads[:half]], [x[1:] for x in reads[half:]]
    epochs[0] += first
    epochs[1] += second
    orders.append((first, second))
for e in epochs:
    count = collections.Counter(e)
    assert len(count) == 84 and set(count.values()) == {1}, (mode, ranks, "not every sample once")
same = all(a == b for a, b in orders)
assert same == (mode == "sequential"), (mode, ranks, "order of the second epoch")
P
for mode in sequential torch cipher shard buffer file; do
    for ranks in 1 2 3 7; do
        rm -f t.*.tsv t.*.mrt
        "$MILLRACE" -q run w.yaml reader.order=$mode --ranks $ranks --no-ceiling --out o --store "trace(file=t.{rank}.mrt):posix" \
            >out 2>err || fail "$mode on $ranks: $(cat err)"
        python3 "$MR_SOURCE_DIR/tests/cli/calls_as_tsv.py" "$MILLRACE" t.*.mrt
        python3 check.py $mode $ranks || fail "$mode on $ranks ranks"
    done
done
# several threads and the queue: still exactly once
for more in "--threads 4 --io threads" "--threads 2 --io queue" "--threads 0 reader.read_threads=0"; do
    rm -f t.*.tsv t.*.mrt
    # shellcheck disable=SC2086
    "$MILLRACE" -q run w.yaml reader.order=torch train.epochs=1 --ranks 3 $more --no-ceiling --out o \
        --store "trace(file=t.{rank}.mrt):posix" >out 2>err || fail "$more: $(cat err)"
    python3 "$MR_SOURCE_DIR/tests/cli/calls_as_tsv.py" "$MILLRACE" t.*.mrt
    n=$(cat t.*.tsv | awk -F'\t' '($1 == "read" || $1 == "read_path") && $4 == 4096 { print $2, $3 }' | sort | uniq -c | awk '$1 == 1' | wc -l)
    [ "$n" = 84 ] || fail "$more: $n of 84 samples once"
done
# formats that are decoded: no file is read to find out how large its samples become
for format in jpeg csv; do
    "$MILLRACE" -q gen "d-$format" --format $format --files 12 --size 6000 >/dev/null 2>&1
    rm -f t.*.tsv t.*.mrt
    "$MILLRACE" -q run w.yaml dataset.format=$format dataset.num_samples_per_file=1 --data "d-$format" train.epochs=1 --ranks 3 --no-ceiling \
        --out o --store "trace(file=t.{rank}.mrt):posix" >out 2>err || fail "$format: $(cat err)"
    python3 "$MR_SOURCE_DIR/tests/cli/calls_as_tsv.py" "$MILLRACE" t.*.mrt
    n=$(cat t.*.tsv | awk -F'\t' '$1 ~ /^read/ && $2 ~ /img_/ { print $2 }' | sort | uniq -c | awk '$1 == 1' | wc -l)
    [ "$n" = 12 ] || fail "$format: $n of 12 files read once"
done
# training and evaluation of one rank are in the same trace, each sample once
"$MILLRACE" -q gen e --format indexed_binary --files 12 --samples-per-file 7 --size 4096 --eval-files 6 >/dev/null 2>&1
for ranks in 1 3 memory; do
    type=on_demand
    [ $ranks = memory ] && type=memory ranks=1
    "$MILLRACE" -q run w.yaml workflow.evaluation=true dataset.num_files_eval=6 train.epochs=1 reader.order=torch reader.read_type=$type --data e --ranks $ranks --no-ceiling --out o \
        --store "trace(file=e.{rank}.mrt):posix" >out 2>err || fail "evaluation: $(cat err)"
    python3 "$MR_SOURCE_DIR/tests/cli/calls_as_tsv.py" "$MILLRACE" e.*.mrt
    for set in train:84 valid:42; do
        n=$(cat e.*.tsv | awk -F'\t' -v set="/${set%:*}/" '$1 ~ /^read/ && $4 == 4096 && index($2, set) { print $2, $3 }' | sort | uniq -c | awk '$1 == 1' | wc -l)
        [ "$n" = "${set#*:}" ] || fail "evaluation on $ranks ranks, $type: $n of $set once"
    done
    rm -f e.*.tsv e.*.mrt
done

echo "run, exactly once: ok"
