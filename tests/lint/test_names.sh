#!/usr/bin/env bash
# File names are unique tree-wide, a struct tag has one definition, the prefix of enum constants belongs to one folder, no
# unfinished marks are left, exported names carry our prefix.
set -eu
cd "$(dirname "$0")/../.."
bad=0
complain() { echo "$*"; bad=1; }
files() { git ls-files --cached --others --exclude-standard -- "$@" 2>/dev/null || find . -type f -name "${1##*/}" | grep -v '^./build'; }

dups=$(files '*.c' '*.h' | sed 's|.*/||' | sort | uniq -d)
[ -z "$dups" ] || complain "file names used twice: $dups"

# Tags and prefixes: headers of two folders can be included together, and a name means one thing to a reader.
python3 - <<'PY' || bad=1
import collections, glob, re, sys
implements = {"plugin_checkpoint": "checkpoint", "state": "checkpoint", "preprocess": "loader", "plugin_policy": "policy",
              "plugin_store": "store", "plugin_shim": "store", "plugin_format": "format", "field": "format", "schedule": "order", "error": "base"}
tags, prefixes, bad = collections.defaultdict(set), collections.defaultdict(dict), []
for path in sorted(glob.glob("src/*/*.[ch]") + glob.glob("include/millrace/*.h") + glob.glob("python/ext/*.[ch]")):
    text = re.sub(r"/\*.*?\*/", "", open(path, errors="replace").read(), flags=re.S)
    stem = path.split("/")[-1].split(".")[0]
    folder = path.split("/")[1] if path.startswith("src/") else implements.get(stem, stem)
    for kind, name in re.findall(r"^\s*(?:typedef )?(struct|enum|union) (mr_[a-z0-9_]+) \{", text, re.M):
        tags[name].add(path)
    for body in re.findall(r"\benum(?: mr_[a-z0-9_]+)? \{(.*?)\}", text, re.S):
        constants = re.findall(r"(?:^|,)\s*(MR_[A-Z0-9_]+)\s*(?==|,|$)", body)
        for constant in constants + re.findall(r"\b(MR_[A-Z0-9]+_)##", body):  # rows of an X-macro
            prefixes[re.match(r"MR_[A-Z0-9]+", constant).group()].setdefault(folder, f"{path} ({constant})")
for name, paths in sorted(tags.items()):
    if len(paths) > 1:
        bad.append(f"mr tag '{name}' is defined in {' and '.join(sorted(paths))}")
for prefix, folders in sorted(prefixes.items()):
    if len(folders) > 1:
        bad.append(f"enum constants {prefix}_* belong to several folders: {', '.join(folders[f] for f in sorted(folders))}")
print("\n".join(bad), end="\n" if bad else "")
sys.exit(bool(bad))
PY

# written so that this script does not find itself
marks="TO""DO|FIX""ME|X""XX"
hits=$(files src include tests bench python cmake scripts doc packaging Makefile README.md CONTRIBUTING.md |
    xargs -r grep -InE "\b($marks)\b" 2>/dev/null || true)
[ -z "$hits" ] || complain "unfinished marks: $hits"

# names a linker sees in our libraries: functions and data that are not static
build=${MR_BINARY_DIR:-build}
checked=0
for lib in "$build"/lib/libmr_*.a; do
    [ -f "$lib" ] || continue
    checked=$((checked + 1))
    wrong=$(nm -g --defined-only "$lib" 2>/dev/null | awk 'NF == 3 && $2 ~ /^[TDBRVWi]$/ {print $3}' |
        grep -vE '^(mr_|__asan|__odr_asan|__ubsan|_ZN|__llvm|__start|__stop|__sancov|__tsan|asan\.)' || true)
    [ -z "$wrong" ] || complain "$(basename "$lib") exports names without mr_: $(tr '\n' ' ' <<<"$wrong")"
done
[ $checked -gt 0 ] || complain "no libraries in $build/lib: build first"

[ $bad = 0 ] && echo "names: unique, finished, prefixed ($checked libraries)"
exit $bad
