"""Traces NAME.mrt as NAME.tsv, for scripts: kind, path, offset, length, result, start_ns, dur_ns, tid of each call of a
storage stack. usage: calls_as_tsv.py MILLRACE NAME.mrt ..."""
import csv, subprocess, sys

kinds = {"pread": "read", "pwrite": "write"}
for trace in sys.argv[2:]:
    text = subprocess.run([sys.argv[1], "-q", "export", "-f", "csv", "-o", "-", trace], check=True, stdout=subprocess.PIPE, text=True).stdout
    with open(trace[: -len(".mrt")] + ".tsv", "w") as out:
        for r in csv.DictReader(text.splitlines(keepends=True)):
            if r["category"] == "POSIX":
                print(kinds.get(r["name"], r["name"]), r["file"], r["offset_bytes"], r["requested_bytes"] or r["result"],
                      r["result"], r["start_unix_ns"], r["dur_ns"], r["tid"], sep="\t", file=out)
