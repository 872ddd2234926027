#!/usr/bin/env bash
# Every C file is as .clang-format says; `make format` makes it so.
set -eu
cd "$(dirname "$0")/../.."
command -v clang-format >/dev/null || { echo "skipped: clang-format is not installed (scripts/setup full)"; exit 77; }
git rev-parse --git-dir >/dev/null 2>&1 || { echo "skipped: not a git checkout, so there is no list of files"; exit 77; }
mapfile -t files < <(git ls-files '*.c' '*.h' | while read -r f; do [ ! -f "$f" ] || echo "$f"; done)
printf '%s\0' "${files[@]}" | xargs -0 -n 40 -P "$(nproc)" clang-format --dry-run -Werror ||
    { echo "these files are not formatted; run 'make format'"; exit 1; }
echo "format: ${#files[@]} files"
