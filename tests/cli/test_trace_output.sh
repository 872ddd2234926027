#!/usr/bin/env bash
# Where the trace goes: what is no file is refused and left as it is, one file belongs to one writer, and a trace that did not begin leaves nothing behind.
set -eu
. "$(dirname "$0")/waiting.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
lib=${MILLRACE%/bin/millrace}/lib/libmillrace_trace.so
[ -e "$lib" ] || { echo "SKIP: no libmillrace_trace.so beside the program"; exit 77; }
fail() { echo "FAIL: $*"; exit 1; }
echo hello >"$dir/in"
spools_of() { # pid: the spool folders in memory that it made
    local s
    for s in /dev/shm/millrace-*/session; do
        [ "$(od -An -tu4 -j16 -N4 "$s" 2>/dev/null | tr -d ' ')" != "$1" ] || echo "$s"
    done
}
refused() { # words of the message, output
    "$MILLRACE" trace -o "$2" -- touch "$dir/ran" 2>"$dir/err" &
    local pid=$! status=0
    wait $pid || status=$?
    [ $status != 0 ] && [ ! -e "$dir/ran" ] || fail "$2: status $status"
    grep -q "$1" "$dir/err" || fail "$2: $(cat "$dir/err")"
    [ -z "$(spools_of $pid)" ] || fail "$2: a spool folder stays"
    [ ! -L "$2.spool" ] || fail "$2: a link stays"
}
mkfifo -m 644 "$dir/pipe"
refused 'is no file' "$dir/pipe"
[ "$(stat -c %a "$dir/pipe")" = 644 ] || fail "the pipe's mode was changed"
refused 'is no file' "$dir"
refused 'cannot create' "$dir/nowhere/t.mrt"

# Files are 0600 and folders 0700 under any umask, of any user; the program has its own.
chmod 755 "$dir"
mkdir -m 777 "$dir/open"
cat >"$dir/umask.sh" <<'S'
set -eu
for mask in 000 022 277 777; do
    umask $mask
    "$MILLRACE" trace --quiet -o "$dir/open/t$mask.mrt" -- sh -c 'umask; cat "$1" >/dev/null' sh "$dir/in" | grep -q "$mask"
    LD_PRELOAD=$lib MILLRACE_TRACE_OUT=$dir/open/alone$mask sh -c 'cat "$1"; exec cat "$1"' sh "$dir/in" >/dev/null
    [ "$(stat -c %a "$dir/open/alone$mask")" = 700 ]
    [ "$(stat -c %a "$dir/open/t$mask.mrt" "$dir/open/alone$mask"/* | sort -u)" = 600 ]
    [ "$("$MILLRACE" export -f csv -o - "$dir/open/t$mask.mrt" | grep -c "open[a-z]*,$dir/in")" = 1 ]
    [ "$("$MILLRACE" export -f csv -o - "$dir/open/alone$mask" | grep -c "open[a-z]*,$dir/in")" = 2 ]
done
S
export dir lib
bash "$dir/umask.sh" || fail "modes and the umask"
rm -rf "$dir"/open/*
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null && setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$MILLRACE" -a -r "$lib"; then
    HOME=/ setpriv --reuid 65534 --regid 65534 --clear-groups bash "$dir/umask.sh" || fail "modes and the umask of a user without rights"
fi

# Folders that cannot be written to: the program runs, and one line names the folder and says why.
LD_PRELOAD=$lib MILLRACE_TRACE_OUT=$dir/in/below cat "$dir/in" >"$dir/out" 2>"$dir/err" || fail "no folder: status $?"
cmp -s "$dir/in" "$dir/out" && [ "$(wc -l <"$dir/err")" = 1 ] && grep -q "'$dir/in/below': not a folder" "$dir/err" || fail "no folder: $(cat "$dir/err")"

# A second trace, and recover, while the first one runs.
rm "$dir/out" # it has a line already, which would be taken for the program's
"$MILLRACE" trace --quiet -o "$dir/t.mrt" -- sh -c 'cat "$1"; until [ -e "$2" ]; do sleep 0.02; done; cat "$1"' sh "$dir/in" "$dir/go" >"$dir/out" &
pid=$!
soon has_lines "$dir/out" 1 || fail "the program does not start"
status=0
"$MILLRACE" trace -o "$dir/t.mrt" -- touch "$dir/ran" 2>"$dir/err" || status=$?
[ $status = 2 ] && grep -q 'written by another' "$dir/err" && [ ! -e "$dir/ran" ] || fail "two traces into one file: $status, $(cat "$dir/err")"
"$MILLRACE" recover "$dir/t.mrt" >/dev/null 2>"$dir/err" && fail "recover of a trace that is being written"
grep -q 'written by another' "$dir/err" || fail "recover: $(cat "$dir/err")"
: >"$dir/go"
wait $pid
[ "$("$MILLRACE" export -f csv -o - "$dir/t.mrt" | grep -c "open[a-z]*,$dir/in")" = 2 ] || fail "the first trace suffered"
[ ! -L "$dir/t.mrt.spool" ] || fail "the link stays"

# Removed while the program runs: it is said.
mkdir "$dir/folder"
"$MILLRACE" trace -o "$dir/folder/t.mrt" -- rm -rf "$dir/folder" 2>"$dir/err" || fail "a removed folder ends the program: $(cat "$dir/err")"
grep -q 'removed while the program ran' "$dir/err" || fail "a removed trace: $(cat "$dir/err")"
# An export that is told to stop does not go on to the end.
"$MILLRACE" trace --quiet -o "$dir/t.mrt" -- dd if=/dev/zero of=/dev/null bs=1 count=200000 2>/dev/null
python3 - "$MILLRACE" "$dir/t.mrt" <<'EOF' || fail "export goes on after SIGTERM"
import signal, subprocess, sys
for format in ("csv", "chrome", "perfetto"):
    command = [sys.argv[1], "export", "-f", format, "-o", "-", sys.argv[2]]
    whole = len(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    part = len(p.stdout.read(1))
    p.send_signal(signal.SIGTERM)
    part += len(p.stdout.read())
    assert p.wait() == 130 and part < whole, (format, p.returncode, part, whole)
EOF
echo "output as asked for, or refused"
