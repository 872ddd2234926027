#!/usr/bin/env bash
# C files are as .clang-format says; `make format` makes them so. Looks at the files that the last 20 commits or the
# working tree changed; at all of them with MR_LINT_ALL=1 (make lint) or where there are fewer commits.
set -eu
cd "$(dirname "$0")/../.."
command -v clang-format >/dev/null || { echo "skipped: clang-format is not installed (scripts/setup full)"; exit 77; }
git rev-parse --git-dir >/dev/null 2>&1 || { echo "skipped: not a git checkout, so there is no list of files"; exit 77; }
list() {
    if [ -z "${MR_LINT_ALL:-}" ] && git rev-parse -q --verify 'HEAD~20^{commit}' >/dev/null; then
        git diff --name-only HEAD~20 -- '*.c' '*.h'
        git ls-files --others --exclude-standard -- '*.c' '*.h'
    else
        git ls-files '*.c' '*.h'
    fi
}
mapfile -t files < <(list | while read -r f; do [ ! -f "$f" ] || echo "$f"; done)
[ ${#files[@]} -gt 0 ] || { echo "format: no C file has changed"; exit 0; }
printf '%s\0' "${files[@]}" | xargs -0 -n 40 -P "$(nproc)" clang-format --dry-run -Werror ||
    { echo "these files are not formatted; run 'make format'"; exit 1; }
echo "format: ${#files[@]} files"
