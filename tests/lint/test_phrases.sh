#!/usr/bin/env bash
# Plain English in new lines: phrases in which code speaks, knows or asks, with what to write instead. Looks only at
# lines that were added, so that text from before the rule is no error until it is touched:
#
#   - against the branch that is landed on: the merge base with main or origin/main, the nearer one;
#   - on main itself, against the commit before HEAD;
#   - and always what is not committed yet, new files included.
#
# A phrase that was only moved or wrapped anew is no error. Without git or without a second commit there is nothing to
# compare with, and the test is skipped. MR_PHRASES_BASE=REV names another base.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }
python3 "$here/phrases.py" --self-test

# In a tree of its own: it finds a phrase that is added, none that was there before or was moved.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
repo() { git -C "$work" -c user.name=test -c user.email=test@localhost -c commit.gpgsign=false "$@" >/dev/null 2>&1; }
finds() { (unset MR_PHRASES_BASE && python3 "$here/phrases.py" "$work" >"$work/../phrases.$$") && echo no || echo yes; }
expect() { [ "$(finds)" = "$1" ] || { cat "$work/../phrases.$$"; echo "FAILED: $2"; exit 1; }; }
if command -v git >/dev/null && repo init -q; then
    trap 'rm -rf "$work" "$work/../phrases.$$"' EXIT
    printf '/* One\n * line that is told. */\n' >"$work/a.c"
    repo add -A && repo commit -qm one
    echo 'int x;' >>"$work/a.c" && repo add -A && repo commit -qm two
    expect no "an old phrase is no error"
    repo mv a.c b.c && printf '/* One line that is told. */\nint y;\n' >"$work/b.c"
    expect no "a moved and wrapped phrase is no error"
    echo '/* The caller is told. */' >>"$work/b.c"
    expect yes "a phrase in the working tree is found"
    repo add -A && repo commit -qm three
    expect yes "a phrase in the last commit is found"
fi
cd "$here/../.."
python3 tests/lint/phrases.py "$@"
