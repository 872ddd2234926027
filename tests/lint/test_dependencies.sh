#!/usr/bin/env bash
# Folders depend only downwards. THE table of arrows is MR_DEPS_* in cmake/MillraceModules.cmake, which also links the
# libraries; doc/tour.md draws it. This test reads every #include of src/ and fails on
#   - an arrow that the table lacks, and one in the table that no file uses;
#   - a header of another folder that MR_HEADERS_* leaves out, and one in it that no file includes;
#   - an arrow to a folder that stands later in MR_MODULE_NAMES, so there are no cycles;
#   - a public header that includes an internal one, a library's header outside the files that wrap it.
# A public header counts as an arrow to the folder that implements it.
set -eu
cd "$(dirname "$0")/../.."
python3 - <<'PY'
import glob, os, re, sys

# public header -> the folder that implements it; those missing here are implemented by nobody (macros, the tracer)
IMPLEMENTS = {
    "error": "base", "plugin_option": "conf", "order": "order", "schedule": "order", "mixture": "order", "tokens": "tokens",
    "plugin_store": "store", "plugin_shim": "store", "plugin_policy": "policy",
    "plugin_format": "format", "field": "format", "dtype": "format", "dataset": "dataset",
    "loader": "loader", "preprocess": "loader",
    "checkpoint": "checkpoint", "state": "checkpoint", "plugin_checkpoint": "checkpoint", "plugin": "plugin",
}
NO_OWNER = {"version", "trace", "dftracer"}
TRACER = {"base", "event"}  # an island with rules of its own in cmake/MillraceTracer.cmake
# third-party header -> who may include it
ONLY = {
    "mpi.h": r"src/comm/comm_mpi_module\.c",
    "ucp/api/ucp.h": r"src/wire/wire_ucx_module\.c",
    "curl/curl.h": r"src/s3/http_curl_module\.c",
    "hdf5.h": r"src/format/format_hdf5[a-z0-9_]*\.[ch]",
    "Python.h": r"python/.*",
    "liburing.h": r"src/(store/store_uring|tracer/wrap_uring)[a-z0-9_]*\.c",
}
bad = []
text = open("cmake/MillraceModules.cmake").read()
names = re.search(r"MR_MODULE_NAMES ([a-z0-9 ]+) CACHE", text).group(1).split()
allowed = {m[0]: m[1].split() for m in re.findall(r"^set\(MR_DEPS_([a-z0-9]+) ?([a-z0-9 ]*)\)$", text, re.M)}
allowed["tracer"] = sorted(TRACER)
doors = {m[0]: m[1].split() for m in re.findall(r"^set\(MR_HEADERS_([a-z0-9]+) ([a-z0-9_.: ]*)\)$", text, re.M)}
if len(doors) != len(re.findall(r"^set\(MR_HEADERS_", text, re.M)):
    bad.append("cmake/MillraceModules.cmake: a row of MR_HEADERS_* is not FOLDER:HEADER ...")


def includes(path):
    for number, line in enumerate(open(path, errors="replace"), 1):
        found = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if found:
            yield number, found.group(1), found.group(2)


public = {}
for path in glob.glob("include/millrace/*.h*"):
    stem = os.path.basename(path).rsplit(".", 1)[0]
    if stem not in IMPLEMENTS and stem not in NO_OWNER:
        bad.append(f"{path}: tests/lint/test_dependencies.sh does not say which folder implements it")
    for number, kind, name in includes(path):
        if kind == '"':
            bad.append(f"{path}:{number}: a public header includes an internal one")
        elif name.startswith("millrace/"):
            public.setdefault(stem, set()).add(name[len("millrace/"):].rsplit(".", 1)[0])


def owners(stem, seen):
    if stem in seen:
        return set()
    seen.add(stem)
    own = {IMPLEMENTS[stem]} if stem in IMPLEMENTS else set()
    return own.union(*(owners(s, seen) for s in public.get(stem, ())))


for folder in sorted(os.path.basename(d) for d in glob.glob("src/*") if os.path.isdir(d)):
    if folder not in allowed:
        bad.append(f"src/{folder}: not in the table of cmake/MillraceModules.cmake")
        continue
    used, direct, through = set(), {}, set()
    narrow = {d.split(":")[0] for d in doors.get(folder, ())}
    for path in sorted(glob.glob(f"src/{folder}/*.[ch]")):
        for number, kind, name in includes(path):
            if name in ONLY and not re.fullmatch(ONLY[name], path):
                bad.append(f"{path}:{number}: only files matching {ONLY[name]} may include {name}")
            if kind == "<":
                if name.startswith("millrace/"):
                    own = owners(name[len("millrace/"):].rsplit(".", 1)[0], set())
                    used |= own
                    through |= {f"{o}:public" for o in own}
                continue
            if name == "build_info.h" and folder == "cli":
                continue  # generated
            target = name.split("/")[0]
            if "/" not in name:
                bad.append(f'{path}:{number}: include "folder/file.h", not "{name}"')
            elif not os.path.isdir(f"src/{target}"):
                bad.append(f"{path}:{number}: includes '{target}/...', which is no folder of src")
            elif target != folder:
                used.add(target)
                direct.setdefault(target, f"{path}:{number}")
                door = f"{target}:{name.split('/')[1]}"
                through.add(door)
                if target in narrow and door not in doors[folder]:
                    bad.append(f"{path}:{number}: src/{folder} must not include {name} (MR_HEADERS_{folder})")
    for target in sorted(direct):
        if target not in allowed[folder]:
            bad.append(f"{direct[target]}: src/{folder} must not include from src/{target}")
    for door in doors.get(folder, ()):
        if door not in through:
            bad.append(f"cmake/MillraceModules.cmake: no file of src/{folder} includes {door} (MR_HEADERS_{folder})")
    if folder == "tracer":
        continue
    for target in allowed[folder]:
        if target not in used:
            bad.append(f"cmake/MillraceModules.cmake: no file of src/{folder} uses src/{target}")
        elif names.index(target) > names.index(folder):
            bad.append(f"cmake/MillraceModules.cmake: src/{folder} uses src/{target}, which stands above it")
for line in bad:
    print(line)
if not bad:
    print(f"dependencies: {len(names) + 1} folders, all arrows point down, each is used")
sys.exit(bool(bad))
PY
