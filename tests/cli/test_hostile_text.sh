#!/usr/bin/env bash
# Names and values from files reach terminal, CI log and spreadsheet without acting there: no control character but line
# ends, no line that begins a CI command, no cell that is a formula.
set -eu
. "$MR_SOURCE_DIR/tests/cli/expect.sh"

clean() { # what, file...
    local what=$1
    shift
    if LC_ALL=C grep -naP '[\x00-\x08\x0b-\x1f\x7f]|^\s*::|##\w*\[' "$@"; then fail "$what lets through the line above"; fi
}

# ---- a workload file: values, names, notes, unknown keys
bad='\e[31mred\n::error::from a file\a ##vso[task.complete]'
name=$(printf 'w\n::error::name\033[31m')
cat >"$name.yaml" <<Y
x-millrace: {source: "$bad", notes: ["$bad"]}
reader: {batch_size: 2}
dataset: {data_folder: "$bad", num_files_train: 100}
Y
for command in 'workloads show' 'run --dry-run'; do
    have=0
    $MILLRACE $command "./$name.yaml" >out 2>err || have=$?
    [ "$have" = 0 ] || [ "$have" = 2 ] || fail "$command: status $have"
    clean "$command" out err
done
expect 0 $MILLRACE workloads list --config-dir .
clean "workloads list" out err
printf '"%s": 1\n' "$bad" >key.yaml
expect 2 $MILLRACE workloads show ./key.yaml
clean "an unknown key" out err
expect 2 $MILLRACE workloads show "$name"
clean "a name that is not there" out err

# ---- a trace: files, functions, hosts
python3 - <<'P'
import json
evil = "\x1b[31m\n::error::x\r##[group]"
rows = []
for i, f in enumerate(["=cmd|' /C calc'!A0", "+1+1", "-2", "@SUM(A1)", "\t=1", "::error::y", evil, "/d/" + evil, 'a"b,c']):
    rows.append({"id": i, "name": "read", "cat": "POSIX", "pid": 1, "tid": 1, "ts": 10 * i, "dur": 5, "ph": "X",
                 "args": {"fname": f, "ret": 10, "hostname": evil, "offset": 0}})
    rows.append({"id": 100 + i, "name": f, "cat": f, "pid": 1, "tid": 1, "ts": 10 * i, "dur": 5, "ph": "X", "args": {}})
open("t.pfw", "w").write("[\n" + "\n".join(json.dumps(r) for r in rows) + "\n")
P
for command in "report" "report --all" "report --tables" "report --explain D0"; do
    $MILLRACE $command t.pfw >out 2>err || true
    clean "$command" out err
done
expect 0 $MILLRACE export -f csv -o t.csv t.pfw
expect 0 $MILLRACE report t.pfw --csv cells
LC_ALL=C grep -naP '[\x00-\x08\x0b-\x1f\x7f]' t.csv cells/* && fail "CSV lets through the line above"
python3 - <<'P'
import csv, glob
for path in ["t.csv"] + glob.glob("cells/*.csv"):
    for row in csv.reader(open(path, newline="")):
        for cell in row:
            number = cell.replace(".", "").replace("-", "").replace("+", "").replace("e", "").isdigit()
            assert number or not cell.strip().startswith(("=", "+", "-", "@")), (path, cell)
P

# ---- a budget file of somebody else's, in a CI log and as JUnit
printf 'budget: ["read_bytes <= 5", "%s <= 1"]\n' "$bad" >budget.yaml
$MILLRACE check t.pfw --budget budget.yaml >out 2>err || true
clean "check" out err
GITHUB_ACTIONS=true $MILLRACE check t.pfw --limit 'read_bytes <= 5' --junit junit.xml >out 2>err || true
LC_ALL=C grep -naP '[\x00-\x08\x0b-\x1f\x7f]' out err junit.xml && fail "check lets through the line above"
python3 -c 'import xml.dom.minidom as m; m.parse("junit.xml")'
