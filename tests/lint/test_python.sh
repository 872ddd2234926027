#!/usr/bin/env bash
# The changed Python files pass ruff and mypy (scripts/lint_python); `make lint` looks at all of them. That both find
# something is tried first, with a file for each.
set -eu
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf '"""A file without faults."""\n' >"$work/good.py"
scripts/lint_python "$work/good.py" >"$work/out" 2>&1 || { rc=$?; cat "$work/out"; exit $rc; }
printf '"""A name that is not used, and a long line."""\n\nimport os\n' >"$work/bad.py"
if scripts/lint_python "$work/bad.py" >"$work/out" 2>&1; then echo "FAILED: ruff does not find an unused import"; exit 1; fi
printf '"""A function without types, and a wrong one."""\n\n\ndef f(a):\n    return a\n\n\nx: int = "a"\n' >"$work/types.py"
if build/venv-lint/bin/mypy --strict --cache-dir "$work/cache" "$work/types.py" >"$work/out" 2>&1; then
    echo "FAILED: mypy does not find a wrong type"
    exit 1
fi
scripts/lint_python --changed
