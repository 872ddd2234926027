#!/usr/bin/env bash
# Every key of a workload file is read somewhere, or its row says that it has no effect. Left out: object stores,
# whose workloads are refused as a whole.
set -eu
cd "$(dirname "$0")/../.."
python3 - <<'P'
import glob, re, sys
table = "src/conf/workload_tables.c"
sources = "\n".join(open(p).read() for p in glob.glob("src/**/*.[ch]", recursive=True) if p != table)
rows = re.findall(r"OPT\((\w+), (\w+),(.*?)\),\n", open(table).read(), re.S)
assert len(rows) > 100, "the table has another form now: adapt this test"
unused = [f"{s}.{k}" for s, k, rest in rows
          if "NO_EFFECT" not in rest and s != "mr_conf_storage_options"
          and not re.search(r"(?:->|\.)%s\b" % k, sources)]
if unused:
    sys.exit("nobody reads: " + ", ".join(unused))
print(f"{len(rows)} keys")
P
