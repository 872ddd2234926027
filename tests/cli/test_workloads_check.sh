#!/bin/bash
# 'millrace workloads check': quick presets hold, a wrong expectation fails with exit status 3, bad ones with 2.
# test-label: once (presets are checked by C tests there, too)
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export MILLRACE_WORKLOADS=$MR_SOURCE_DIR/workloads

fail() { echo "FAIL: $1"; exit 1; }

for preset in bert-mrpc l2hmc climateseg-theta cosmoflow_datagen llama3_405b dlrm_b200; do
    "$MILLRACE" workloads check $preset --dir "$dir/work" > "$dir/out" || { cat "$dir/out"; fail "preset $preset"; }
    grep -q ' exact .*ok' "$dir/out" || fail "$preset printed no exact expectation"
    grep -q FAIL "$dir/out" && fail "$preset printed FAIL and exit status 0"
    [ -z "$(ls "$dir/work" 2>/dev/null)" ] || fail "$preset left files behind"
done
grep -q 'samples.missed .*= 0 .* 0  exact  ok' "$dir/out" || fail "Parquet's samples are not counted"

# Figures are measured: the same preset with a target that is off by one call must fail.
sed 's/posix.read.count, eq: 3600/posix.read.count, eq: 3601/' "$MR_SOURCE_DIR/workloads/bert-mrpc.yaml" > "$dir/wrong.yaml"
status=0
"$MILLRACE" workloads check "$dir/wrong.yaml" > "$dir/out" 2> "$dir/err" || status=$?
[ $status = 3 ] || fail "a wrong expectation gave exit status $status"
grep -q 'posix.read.count .*3601 .*3600 .*FAIL' "$dir/out" || fail "target and measured value are not printed"
grep -q '1 of 6 expectations failed' "$dir/err" || fail "the failure is not counted"

# A native one never fails.
sed -i 's/eq: 3601, class: exact/eq: 3601, class: native/' "$dir/wrong.yaml"
"$MILLRACE" workloads check "$dir/wrong.yaml" > "$dir/out" || fail "a native expectation failed"
grep -q 'native reported' "$dir/out" || fail "a native expectation is not reported"

# Scaled-back counts: half of the lines are read, the figure stands for all of them.
"$MILLRACE" workloads check bert-mrpc --scale 0.5 > "$dir/out" || fail "scale 0.5"
grep -q 'posix.read.count .*3600 .*ok  scaled back by 0.5' "$dir/out" || fail "a count is not scaled back"
# at a scale that does not divide, and where files have sizes that are the point
for small in "bert-mrpc --scale 0.003" "l2hmc --scale 0.05"; do
    # shellcheck disable=SC2086
    "$MILLRACE" workloads check $small > "$dir/out" 2>&1 || fail "$small: $(cat "$dir/out")"
done

# Variants: another data set, other ranks and storage, compared in one expectation. A bad one is named with its line.
cat > "$dir/variants.yaml" <<'END'
workflow: {train: True}
dataset: {format: hdf5, num_files_train: 4, num_samples_per_file: 8, record_length_bytes: 4096}
reader: {batch_size: 2}
x-millrace:
  source: test
  ranks: 4
  pattern: {unit: record}
  variants:
    one: {ranks: 2, dataset: {num_files_train: 1, num_samples_per_file: 32}, reader: {file_access: shared}}
    alone: {ranks: 1}
  expect:
    - {metric: posix.read.files_touched, eq: 4, class: exact}
    - {metric: at one posix.read.files_touched, eq: 1, class: exact}
    - {metric: at alone posix.read.files_touched, eq: 4, class: exact}
    - {metric: ratio posix.read.count_per_rank - alone, eq: 4, class: exact}
    - {metric: ratio posix.read.count_per_rank one alone, eq: 2, class: exact}
END
"$MILLRACE" workloads check "$dir/variants.yaml" > "$dir/out" || { cat "$dir/out"; fail "variants"; }
sed -i 's/alone: {ranks: 1}/alone: {ranks: 1, reader: {batch_sise: 2}}/' "$dir/variants.yaml"
status=0
"$MILLRACE" workloads check "$dir/variants.yaml" > "$dir/out" 2>&1 || status=$?
[ $status = 2 ] && grep -q "batch_sise" "$dir/out" && grep -q "variants.yaml:10" "$dir/out" || fail "a bad variant: $status $(cat "$dir/out")"

# Collective reads: of four ranks two read the shared file, every byte once, and all four make the same steps.
cat > "$dir/collective.yaml" <<'END'
workflow: {train: True}
dataset: {format: hdf5, num_files_train: 1, num_samples_per_file: 64, record_length_bytes: 4096}
reader: {batch_size: 2, prefetch_size: 1}
x-millrace:
  source: test
  ranks: 4
  reader: {file_access: collective}
  pattern: {unit: record, collective_readers: 2}
  expect:
    - {metric: posix.read.count, eq: 64, class: exact}
    - {metric: posix.read.per_dataset_byte, ge: 0.9, le: 1, class: exact}
    - {metric: posix.read.sharing_degree, eq: 1, class: exact}
    - {metric: posix.read.files_per_rank, eq: 0.5, class: exact}
    - {metric: samples.out_of_order, eq: 0, class: exact}
END
"$MILLRACE" workloads check "$dir/collective.yaml" > "$dir/out" || { cat "$dir/out"; fail "collective reads"; }
grep -q 'samples.out_of_order .*skipped: the order of these reads is not known' "$dir/out" || fail "collective: $(cat "$dir/out")"

# The order of a pattern, for what presets do not use: sets that do not divide by ranks, jumps between runs of records, headers over
# records, parts, several epochs and readers.
for pattern in "unit: file" "unit: file, file_passes: 29" "unit: record, sequential_samples: 3" \
    "unit: record, pieces: [1000, 300], header_reads: 7, header_bytes: 5000" "unit: record, same_offsets: true, part: 0.5"; do
    for threads in 0 4; do
        cat > "$dir/order.yaml" <<END
workflow: {train: True}
dataset: {format: hdf5, num_files_train: 11, num_samples_per_file: 13, record_length_bytes: 4096}
reader: {batch_size: 2, prefetch_size: 1, read_threads: $threads, file_shuffle: seed, sample_shuffle: seed}
train: {total_training_steps: 12, epochs: 3}
x-millrace:
  source: test
  ranks: 4
  pattern: {$pattern}
  expect:
    - {metric: samples.out_of_order, eq: 0, class: exact}
END
        "$MILLRACE" workloads check "$dir/order.yaml" > "$dir/out" || fail "order of $pattern: $(cat "$dir/out")"
        grep -q 'samples.out_of_order .* ok' "$dir/out" || fail "order of $pattern was not checked: $(cat "$dir/out")"
    done
done

sed 's/posix.read.count/posix.read.cuont/' "$MR_SOURCE_DIR/workloads/bert-mrpc.yaml" > "$dir/typo.yaml"
status=0
"$MILLRACE" workloads check "$dir/typo.yaml" > "$dir/out" 2> "$dir/err" || status=$?
[ $status = 2 ] || fail "an unknown metric gave exit status $status"
grep -q "unknown metric 'posix.read.cuont'" "$dir/err" || fail "the unknown metric is not named"
grep -q 'typo.yaml:' "$dir/err" || fail "the line of the unknown metric is not named"

status=0
"$MILLRACE" workloads check > /dev/null 2>&1 || status=$?
[ $status = 2 ] || fail "a missing name gave exit status $status"

"$MILLRACE" workloads check bert-mrpc --json > "$dir/out" || fail "json"
grep -q '"schema": "millrace.workloads_check/1"' "$dir/out" || fail "json has no schema"
grep -q '"verdict": "ok"' "$dir/out" || fail "json has no verdict"

# A scale at which a file has so few reads that the last, shorter one counts: said, not failed. Other lines depend on the machine.
"$MILLRACE" -q workloads check imagenet-theta --scale 0.0005 > "$dir/out" 2> "$dir/err" || true
grep -q "size_share.262144 .*skipped: files are too small at this scale" "$dir/out" || fail "too small: $(cat "$dir/out" "$dir/err")"

# Passes over files that do not divide by the ranks: all ranks make the same steps, and every pass is made.
cat > "$dir/passes.yaml" <<'Y'
workflow: {train: true}
dataset: {format: indexed_binary, num_files_train: 8, num_samples_per_file: 4, record_length_bytes: 5000, data_folder: d}
reader: {batch_size: 2, read_threads: 2}
train: {epochs: 1, computation_time: 0.001}
x-millrace:
  ranks: 4
  scale: {default: 1}
  pattern: {unit: file, file_passes: 29}
  expect:
    - {metric: posix.read.file_passes, eq: 29, class: exact}
    - {metric: train.barrier_violations, eq: 0, class: exact}
Y
"$MILLRACE" workloads check "$dir/passes.yaml" > "$dir/out" 2>&1 || fail "29 passes on 4 ranks: $(cat "$dir/out")"
