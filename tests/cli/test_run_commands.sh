#!/usr/bin/env bash
# Every command that a finding prints is one that 'run' takes: findings of several starved runs, with options that do not go together
# with some advice, each resolved as printed (--dry-run). What is printed for PyTorch is Python.
# test-label: once (runs are the same under sanitizers)
set -eu
fail() { echo "FAIL: $*" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
cat >w.yaml <<'Y'
workflow: {train: true}
dataset: {format: npz, num_files_train: 16, record_length_bytes: 100000, data_folder: d}
reader: {batch_size: 2, read_threads: 1, prefetch_size: 0, sample_shuffle: seed}
train: {epochs: 2, computation_time: 0.004}
Y
"$MILLRACE" -q gen d --workload w.yaml >/dev/null
cat >commands.py <<'P'
import json, shlex, subprocess, sys
program, path, wanted = sys.argv[1:]
done = subprocess.run([program, "report", path, "--json"], check=True, stdout=subprocess.PIPE)
findings = json.loads(done.stdout)["findings"]
for f in findings:
    compile(f["snippets"].get("pytorch", ""), f["id"], "exec")
findings = [f for f in findings if f["command"]]
assert {f["id"] for f in findings} >= set(wanted.split()), (wanted, [f["id"] for f in findings])
for f in findings:
    words = shlex.split(f["command"])
    assert words[0] == "millrace", f["command"]
    if words[1] == "run":
        words += ["--dry-run", "--out", "other"]
        tried = subprocess.run([program, *words[1:]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert not tried.returncode, (f["id"], f["command"], tried.stdout.decode()[-400:])
P
n=0
check() { # findings that must have commands, options of the run
    local wanted=$1
    shift
    n=$((n + 1))
    "$MILLRACE" -q run w.yaml --no-ceiling --no-probe --out o$n "$@" >out 2>err || fail "run $*: $(cat err)"
    python3 commands.py "$MILLRACE" o$n "$wanted" 2>err || fail "$*: $(tail -n 1 err)"
}
check "PF1 CA2 CA3" --store "throttle(bandwidth=8MB):posix"
check "PF1" --store "throttle(bandwidth=8MB):posix" --tiers ram=1MiB
check "PF1" --store "throttle(bandwidth=8MB):posix" --ranks 2 reader.file_access=collective
check "CK1" workflow.checkpoint=true model.model_size_bytes=2000000 checkpoint.steps_between_checkpoints=8 --checkpoint-folder ck \
    --checkpoint-store "throttle(bandwidth=20MB):posix"
echo "run, commands: ok"
