#!/usr/bin/env bash
# check: budgets by file and by option, baselines, exit codes, JUnit XML and annotations; names are those of report --json.
set -eu
. "$(dirname "$0")/expect.sh"
cat >w.yaml <<'Y'
workflow: {train: true}
dataset: {format: npz, num_files_train: 32, record_length_bytes: 2000, data_folder: d}
reader: {batch_size: 1, read_threads: 1, sample_shuffle: seed}
train: {epochs: 1, computation_time: 0.002}
Y
"$MILLRACE" -q gen d --workload w.yaml >/dev/null
runs() { "$MILLRACE" -q run w.yaml --no-ceiling --cache warm "$@" >/dev/null || fail "run $*"; }
runs --repeat 2 --out main
runs --out x
runs --out slow train.computation_time=0.02
cat >budget.yaml <<'Y'
baseline: main
budget:
  - au            >= 0.01          # comments are comments
  - stall_pct     <= 100
  - p99_stall_s   <= 5
  - wall_s        <= baseline * 3
  - run.samples_per_s > 0
  - findings.critical == 0
  - findings.ZZ9 == 0
Y
export MILLRACE_CHECK_ALLOW_UNTRUSTED=true # on a busy machine these short runs doubt themselves
expect 0 "$MILLRACE" check x --budget budget.yaml
[ "$(grep -c '^ok ' out)" = 7 ] && grep -q "7 of 7 limits met; baseline of 2 runs" out || fail "$(cat out)"
expect 0 "$MILLRACE" check main --limit 'au > 1%'
grep -q "by the mean of 2 runs" out || fail "$(cat out)"

# a miss: exit 3, said in every form
expect 3 "$MILLRACE" check slow --budget budget.yaml --junit j.xml --github
grep -q "^MISSED .*wall_s .*baseline" out && grep -q "1 of 7 limits missed" err || fail "$(cat out err)"
grep -q "^::error file=budget.yaml,line=6,title=millrace check::wall_s " out || fail "annotation: $(cat out)"
python3 - <<'P' || fail "junit: $(cat j.xml)"
import xml.etree.ElementTree as E
s = E.parse("j.xml").getroot()
assert s.get("tests") == "7" and s.get("failures") == "1" and s.get("errors") == "0", s.attrib
assert [c.get("name").split()[0] for c in s if len(c)] == ["wall_s"]
why = next(c[0].get("message") for c in s if len(c))
assert why.startswith("wall_s is ") and ", limit " in why and ", want wall_s " in why, why
P
# the figures are those of the report
"$MILLRACE" report --json x >r.json
expect 0 "$MILLRACE" check x --json -l 'verdict.stall_share < 2' -l 'time.compute_s > 0' -l 'duration_s > 0' -l 'facts.au > 0' -l 'stall_pct < 200'
python3 - <<'P' || fail "figures: $(cat out)"
import json
r, c = json.load(open("r.json")), json.load(open("out"))
want = [r["verdict"]["stall_share"], r["time"]["compute_s"], r["duration_s"], r["facts"]["au"], 100 * r["verdict"]["stall_share"]]
have = [l["value"] for l in c["lines"]]
assert c["met"] and all(abs(a - b) <= 1e-9 * max(1, abs(a)) for a, b in zip(want, have)), (want, have)
P
# a run that doubts itself, and figures and limits that are infinite
cp -r x doubts
python3 - <<'P'
import json
s = json.load(open("doubts/summary.json"))
s["trust"].update(trusted=False, doubts=["the disk was\n::error::warm"])
json.dump(s, open("doubts/summary.json", "w"))
P
expect 0 "$MILLRACE" check doubts -l 'wall_s > 0'
MILLRACE_CHECK_ALLOW_UNTRUSTED=false expect 6 "$MILLRACE" check doubts -l 'wall_s > 0'
grep -q "cannot be trusted: the disk was\\\\x0a::error::warm" err && grep -q "hint: .*--allow-untrusted" err || fail "doubts: $(cat err)"
expect 6 "$MILLRACE" check x --baseline main -l 'run.samples_per_s <= baseline * 1.7e308'
grep -q "^unknown " out || fail "infinite: $(cat out)"
echo '{"trust": {"trusted": Infinity}' >doubts/summary.json
expect 4 "$MILLRACE" check doubts -l 'wall_s > 0'
# what is not known meets nothing, and is no miss
expect 6 "$MILLRACE" check x -l 'accelerator_utilisation >= 0'
grep -q "^unknown " out && grep -q "not known" err || fail "unknown: $(cat out err)"
# an incomplete run
sed 's/"complete": true/"complete": false/' x/summary.json >t && cp t x/summary.json
expect 6 "$MILLRACE" check x -l 'wall_s > 0'

expect 2 "$MILLRACE" check slow -l 'p99_stal_s < 1'; grep -q "did you mean 'p99_stall_s'" err || fail "nearest: $(cat err)"
expect 2 "$MILLRACE" check slow -l 'au 0.9'; expect 2 "$MILLRACE" check slow -l 'au >= often'
expect 2 "$MILLRACE" check slow -l 'wall_s < baseline'; grep -q -- "--baseline" err || fail "baseline: $(cat err)"
expect 2 "$MILLRACE" check slow; expect 2 "$MILLRACE" check
printf 'budget:\n  - au >= 0.9\n  - nonsense\n' >bad.yaml
expect 2 "$MILLRACE" check slow --budget bad.yaml; grep -q "in bad.yaml:3" err || fail "line: $(cat err)"
printf 'budgets: []\n' >bad.yaml; expect 2 "$MILLRACE" check slow --budget bad.yaml
expect 5 "$MILLRACE" check nosuch -l 'au > 0'
echo "check: ok"
