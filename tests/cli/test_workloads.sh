#!/usr/bin/env bash
# `millrace workloads`: every preset is listed and can be shown; search path; errors.
set -eu
fail() { echo "FAIL: $*" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

$MILLRACE workloads list >"$tmp/list"
for name in default unet3d_h100 resnet50_h100 cosmoflow_h100 bert_v100 dlrm llama3_405b megatron_deepspeed_LLNL retinanet_b200 \
    flux_b200 imagenet-theta hepcnn-cori-global climate-cori tf-micro; do
    grep -q "^$name " "$tmp/list" || fail "$name is not listed"
done
awk 'NR > 1' "$tmp/list" | grep -vE 'DLIO|MLPerf|ALCF|NERSC|TensorFlow' | grep -q . && fail "a preset without source"
$MILLRACE workloads list --json >"$tmp/list.json"
python3 - "$tmp/list.json" "$tmp/list" <<'PY' || fail "list --json"
import json, sys
d = json.load(open(sys.argv[1]))
assert d["schema"] == "millrace.workloads/1"
assert len(d["workloads"]) == len(open(sys.argv[2]).readlines()) - 1
by = {w["name"]: w for w in d["workloads"]}
assert by["unet3d_h100"]["dataset_bytes"] == 24628905504 and by["unet3d_h100"]["supported"] is True
assert by["flux_b200"]["supported"] is True
PY
$MILLRACE workloads show unet3d_h100 >"$tmp/show"
grep -q "steps per epoch (each rank)  24" "$tmp/show" || fail "show: steps"
grep -q "source: MLPerf Storage v2.0" "$tmp/show" || fail "show: source"
$MILLRACE workloads show imagenet-theta --json | python3 -c '
import json, sys
d = json.load(sys.stdin)
assert d["workload"]["ranks"] == 8 and len(d["workload"]["expect"]) >= 5
assert d["plan"]["total_steps"] == 110' || fail "show --json"

printf 'reader: {batch_size: 3}\ndataset: {num_files_train: 30}\n' >"$tmp/mine.yaml"
$MILLRACE workloads list --config-dir "$tmp" | grep -q '^mine ' || fail "--config-dir"
MILLRACE_WORKLOADS=$tmp $MILLRACE workloads show mine >/dev/null || fail "MILLRACE_WORKLOADS"
mkdir "$tmp/workload"; mv "$tmp/mine.yaml" "$tmp/workload/"
$MILLRACE run --dry-run workload=mine --config-dir "$tmp" >/dev/null || fail "Hydra's folder"

rc=0; $MILLRACE workloads show unet3d_h10 2>"$tmp/err" || rc=$?
[ "$rc" = 2 ] && grep -q "did you mean 'unet3d_" "$tmp/err" || fail "unknown preset: $rc $(cat "$tmp/err")"
rc=0; $MILLRACE workloads show 2>"$tmp/err" || rc=$?
[ "$rc" = 2 ] || fail "show without a name: $rc"
rc=0; $MILLRACE workloads list --config-dir "$tmp/absent" 2>"$tmp/err" || rc=$?
[ "$rc" = 2 ] || fail "absent folder: $rc"
printf 'readr: 1\n' >"$tmp/workload/broken.yaml"
rc=0; $MILLRACE workloads list --config-dir "$tmp" >"$tmp/list" 2>"$tmp/err" || rc=$?
[ "$rc" = 2 ] && grep -q "'broken' is not usable" "$tmp/err" && grep -q '^unet3d_h100 ' "$tmp/list" || fail "a broken preset hides the others"
echo "workloads: ok"
