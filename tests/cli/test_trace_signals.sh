#!/usr/bin/env bash
# Signals are the program's own: those of the terminal reach it once, those sent to `millrace trace` are passed on, and it starts with the same ones
# ignored and blocked as without the tracer. The trace ends when the program has.
# test-label: once (the tracer is built without sanitizers: there only in make test-full)
set -eu
. "$(dirname "$0")/waiting.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAIL: $*"; exit 1; }
trace=("$MILLRACE" trace --quiet -o "$dir/t.mrt" --)
with() { python3 "$MR_SOURCE_DIR/tests/tracer/with_signals.py" "$@"; }
whole() { "$MILLRACE" report "$dir/t.mrt" | grep -q 'none lost' && [ ! -L "$dir/t.mrt.spool" ] || fail "$1: the trace is not whole"; }

# What is ignored or blocked at the start.
for how in "SigIgn INT" "SigIgn QUIT" "SigIgn PIPE" "SigIgn TERM" "SigIgn USR1" "SigIgn CHLD" "SigIgn XFSZ" "SigBlk INT" "SigBlk TERM"; do
    want=$(with $how grep ${how% *} /proc/self/status)
    have=$(with $how "${trace[@]}" grep ${how% *} /proc/self/status)
    [ "$want" = "$have" ] || fail "$how: '$want', traced '$have'"
done
status=0
with SigIgn CHLD "${trace[@]}" sh -c 'exit 3' || status=$?
[ $status = 3 ] || fail "SIGCHLD ignored: status $status"

# A program that handles them all: each one is told, and three times SIGINT do not end it.
cat >"$dir/tells.py" <<'P'
import os, signal, sys
names = "HUP INT QUIT TERM USR1 USR2".split()
numbers = {getattr(signal, "SIG" + n) for n in names}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
for n in numbers:
    signal.signal(n, lambda *_: None)
print("ready", flush=True)
for _ in range(int(sys.argv[1])):
    print(signal.Signals(signal.sigwait(numbers)).name, flush=True)
sys.exit(11)
P
"${trace[@]}" python3 "$dir/tells.py" 9 >"$dir/out" 2>"$dir/err" &
pid=$!
soon has_lines "$dir/out" 1 || fail "the program does not start: $(cat "$dir/err")"
n=1
for s in HUP INT INT INT QUIT TERM TERM USR1 USR2; do
    kill -$s $pid
    n=$((n + 1))
    soon has_lines "$dir/out" $n || fail "SIG$s is not passed on"
    [ "$(tail -n 1 "$dir/out")" = SIG$s ] || fail "SIG$s came as $(tail -n 1 "$dir/out")"
done
status=0
wait $pid || status=$?
[ $status = 11 ] || fail "the program's status became $status: $(cat "$dir/err")"
whole "passed on"

# Keys of the terminal: each one comes once, and only to the program that wants it.
python3 - "$MILLRACE" "$dir" <<'P' || fail "terminal"
import os, pty, sys
millrace, folder = sys.argv[1:]
pid, terminal = pty.fork()
if pid == 0:
    os.execv(millrace, [millrace, "trace", "--quiet", "-o", folder + "/t.mrt", "--", "python3", folder + "/tells.py", "4"])
seen = b""
def wait_for(text):
    global seen
    while text not in seen:
        seen += os.read(terminal, 4096)
    seen = seen[seen.index(text) + len(text):]
wait_for(b"ready")
for key, name in ((b"\x03", b"SIGINT"), (b"\x03", b"SIGINT"), (b"\x1c", b"SIGQUIT"), (b"\x03", b"SIGINT")):
    os.write(terminal, key)
    wait_for(name)
try:
    while os.read(terminal, 4096):
        pass
except OSError:
    pass
status = os.waitpid(pid, 0)[1]
assert status == 11 << 8, "status %x" % status
P
whole terminal

# Nobody reads our last line: the status is the program's.
mkfifo "$dir/pipe"
"$MILLRACE" trace -o "$dir/t.mrt" -- sh -c 'echo begun >&2; until [ -e "$1" ]; do sleep 0.02; done; exit 4' sh "$dir/closed" 2>"$dir/pipe" &
pid=$!
read -r line <"$dir/pipe" # and closes it
: >"$dir/closed"
status=0
wait $pid || status=$?
[ "$line" = begun ] && [ $status = 4 ] || fail "with a closed stderr: '$line', status $status"
whole "closed stderr"
echo "signals are the program's own"
