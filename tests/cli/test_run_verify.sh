#!/usr/bin/env bash
# run --verify compares what reaches the trainer with what gen must have written, in every format, by threads, by a queue and by the
# trainer's own reads, before preprocessing; files that are whole but hold other samples are found.
set -eu
export MILLRACE_RUN_OVERWRITE=true # runs share a folder on purpose
fail() { echo "FAIL: $*" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
run() { "$MILLRACE" -q run dataset.num_files_train=4 reader.batch_size=2 --no-ceiling --verify --out o "$@" >out 2>err; }
for format in npz npy hdf5 tfrecord indexed_binary csv json jsonl tar raw jpeg png; do
    more="--dtype uint8"
    case $format in csv | json | jsonl) more="--dtype float32" ;; esac
    # shellcheck disable=SC2086
    "$MILLRACE" -q gen d-$format --format $format --files 4 --size 12KiB --labels 5 $more >/dev/null 2>&1 || fail "gen $format"
    for io in "--io threads" "--io queue" "reader.read_threads=0"; do
        # shellcheck disable=SC2086
        run dataset.format=$format --data d-$format $io || fail "$format, $io: $(cat err)"
    done
    # two files change places: sizes and checksums are right, samples are not
    a=$(ls d-$format/train/*_0_of_4*[a-z0-9] | head -1)
    b=$(ls d-$format/train/*_3_of_4*[a-z0-9] | head -1)
    mv "$a" x && mv "$b" "$a" && mv x "$b"
    for io in "--io threads" "--io queue" "reader.read_threads=0"; do
        # shellcheck disable=SC2086
        if run dataset.format=$format --data d-$format $io; then fail "$format, $io: samples in the wrong file were not found"; fi
        # Where a file's size tells, it is the first thing that is found.
        grep -q "sample\|file\|want" err || fail "$format, $io: $(cat err)"
        grep -q "repair\|millrace verify" err out || fail "$format, $io: no hint: $(cat err)"
    done
    mv "$a" x && mv "$b" "$a" && mv x "$b"
done
for format in png jpeg; do
    for io in "--io threads" "--io queue"; do
        # shellcheck disable=SC2086
        run dataset.format=$format --data d-$format $io 'reader.preprocess={size: [16, 16], dtype: float32}' || fail "$format preprocessed: $(cat err)"
    done
done
echo "run --verify: ok"
