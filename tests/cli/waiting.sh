# Sourced by tests that wait for something: however long a busy machine takes, it is waited for, and two minutes without it are a hang.
soon() { # command...: until it succeeds
    local end=$((SECONDS + 120))
    until "$@" 2>/dev/null; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.02
    done
}
alive() { # pid: runs; one that has ended and that nobody has waited for does not
    case $(sed -n 's/^State:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null) in '' | Z* | X*) return 1 ;; esac
}
gone() { # pids
    local p
    for p in "$@"; do ! alive "$p" || return 1; done
}
# The program handles SIGINT and SIGTERM. A shell starts background jobs with SIGINT ignored: what comes before is lost. A shell with a
# trap handles them itself, and so does its child until it has become the program.
handles_signals() {
    [ "$(readlink "/proc/$1/exe")" != "$(readlink /proc/$$/exe)" ] || return 1
    [ $((0x$(awk '/SigCgt/ { print $2 }' "/proc/$1/status") & 0x4002)) = $((0x4002)) ]
}
ready() { soon handles_signals "$1"; }
lines_of() { cat "$1" 2>/dev/null | wc -l; }
has_lines() { # file, at least so many
    [ "$(lines_of "$1")" -ge "$2" ]
}
children() { # pid, exactly so many
    [ "$(pgrep -P "$1" | wc -l)" = "$2" ]
}
# Seconds in which something must be over: what is promised, where the machine is ours (MR_TEST_FULL=1); where it may be busy, six times that,
# which still tells an end from a hang.
limit() { if [ -n "${MR_TEST_FULL:-}" ]; then echo "$1"; else echo $((6 * $1)); fi; }
