#!/usr/bin/env bash
# Help, man pages, completion, version, usage errors: all from the tables, and they agree.
# test-label: once (long under sanitizers: there only in make test-full)
set -eu
. "$(dirname "$0")/waiting.sh"
fail() { echo "FAIL: $*" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# expect STATUS TEXT COMMAND...: exit status, and the text somewhere on stderr
expect() {
    local want=$1 text=$2 rc=0
    shift 2
    "$@" >"$tmp/out" 2>"$tmp/err" || rc=$?
    [ "$rc" = "$want" ] || fail "$*: exit $rc, not $want: $(cat "$tmp/err")"
    grep -qF -- "$text" "$tmp/err" || fail "$*: no '$text' in: $(cat "$tmp/err")"
}

commands=$($MILLRACE help | awk '/^  [a-z]/{print $1}')
[ -n "$commands" ] || fail "no commands"
# The first screen groups every command there is, and says where a newcomer starts.
[ "$(printf '%s\n' $commands | sort)" = "$(grep -oE '^ *X\([a-z_]+\)' "$MR_SOURCE_DIR/src/cli/commands.h" | tr -d ' X()' | sort)" ] ||
    fail "the first screen lacks a command"
[ "$($MILLRACE help | grep -E '^[A-Z][a-z ]+$' | tr '\n' ,)" = "Try,Benchmark,Trace and explain,Simulate,Data," ] || fail "groups: $($MILLRACE help)"
$MILLRACE help | grep -q '^New here? millrace demo$' || fail "the first screen does not name the demo"
$MILLRACE help --completion bash >"$tmp/bash"
for c in $commands; do
    $MILLRACE "$c" --help >"$tmp/a"
    $MILLRACE help "$c" >"$tmp/b"
    cmp -s "$tmp/a" "$tmp/b" || fail "'$c --help' and 'help $c' differ"
    head -1 "$tmp/a" | grep -q "^usage: millrace $c" || fail "$c: no usage line"
    $MILLRACE "$c" -h | cmp -s - "$tmp/a" || fail "$c -h differs"
    awk 'length > 100' "$tmp/a" | grep -v '^  ' | grep -q . && fail "$c: help is wider than 100 columns"
    $MILLRACE help --man "$c" >"$tmp/man"
    grep -q "^.SH OPTIONS" "$tmp/man" || fail "$c: man page without options"
    # an option that takes a value shows one
    grep -E '^\.B .*\\-\\-' "$tmp/man" | sed 's/\\-/-/g' >"$tmp/man_options"
    grep -E '^  (-., )?--[a-z-]+ [A-Z]' "$tmp/a" | sed -E 's/^  (-., )?//' | while read -r flag value; do
        grep -qF -- "$flag \\fI$value\\fP" "$tmp/man_options" || fail "$c: no value of $flag in the man page"
    done
    if command -v groff >/dev/null; then
        groff -man -Tutf8 -ww "$tmp/man" 2>&1 >/dev/null | grep -q . && fail "$c: groff complains"
    fi
    # every flag of the help is in the man page and in the completion
    grep -oE '^  (-., )?--[a-z-]+' "$tmp/a" | grep -oE -- '--[a-z-]+$' | while read -r flag; do
        grep -qF -- "$(printf '%s' "$flag" | sed 's/-/\\-/g')" "$tmp/man" || fail "$c: $flag is not in the man page"
        grep -qF -- "$flag" "$tmp/bash" || fail "$c: $flag is not in the completion"
    done
done
$MILLRACE help --man >"$tmp/man"
grep -q '^.TH MILLRACE 1' "$tmp/man" || fail "no man page of the program"
$MILLRACE help --completion bash | bash -n || fail "bash completion"
$MILLRACE help --completion fish | grep -q 'complete -c millrace' || fail "fish completion"
$MILLRACE help --completion zsh | head -1 | grep -q '#compdef millrace' || fail "zsh completion"
if command -v zsh >/dev/null; then $MILLRACE help --completion zsh | zsh -n || fail "zsh syntax"; fi
# completion works: the shell function offers commands and flags
bash -c 'source <($0 help --completion bash); COMP_WORDS=(millrace ru); COMP_CWORD=1; _millrace; [ "${COMPREPLY[*]}" = run ] || exit 1
  COMP_WORDS=(millrace run --dry); COMP_CWORD=2; _millrace; [ "${COMPREPLY[*]}" = --dry-run ]' "$MILLRACE" || fail "completion offers nothing"
# presets and formats are offered, too, also behind the '=' that breaks words
offers() { # want, words...
    local want=$1
    shift
    bash -c 'source <("$0" help --completion bash); shift; COMP_WORDS=("$0" "$@"); COMP_CWORD=$#; _millrace; echo " ${COMPREPLY[*]} "' \
        "$MILLRACE" x "$@" | grep -qF " $want " || fail "completion of '$*' does not offer '$want'"
}
offers unet3d_h100 run unet3d_h
offers unet3d_h100 workloads show unet3d_h
offers unet3d_h100 gen folder workload = unet3d_h
offers unet3d_h100 gen folder workload =
offers tfrecord gen folder --format tf
offers jpeg scan folder -f jp
offers nopfs sim thesis-2 --policy nop
offers staging,nopfs sim thesis-2 -p staging,nop
offers thesis-2 sim thesis-
offers reader.batch_size= run unet3d_h100 reader.batch_s
offers dataset.num_files_train= sim workload = unet3d_h100 dataset.num_files_t
for shell in zsh fish; do
    $MILLRACE help --completion $shell >"$tmp/$shell"
    for word in reader.batch_size= nopfs 'sim --list' 'workloads list'; do
        grep -qF -- "$word" "$tmp/$shell" || fail "$shell completion lacks '$word'"
    done
done
# the words of a run are explained
for word in AU headroom 'by DLIO' 'time split' trust; do
    $MILLRACE help metrics | grep -qF "  $word" || fail "help metrics lacks $word"
done
$MILLRACE help au | grep -q 'sum of compute' || fail "help au"

for t in $($MILLRACE help topics | awk '/^  /{print $1}'); do
    [ "$($MILLRACE help "$t" | wc -c)" -gt 100 ] || fail "topic $t is empty"
done
# hints and texts name only topics that exist
grep -rohE "millrace help [a-z][a-z-]+" "$MR_SOURCE_DIR/src" "$MR_SOURCE_DIR/doc" | sort -u | while read -r _ _ t; do
    $MILLRACE help "$t" >/dev/null || fail "a text names 'millrace help $t'"
done
$MILLRACE help config >"$tmp/a"
for key in batch_size record_length_bytes zero_stage chunk_dims exclude_start_steps s3_max_attempts au; do
    grep -q "^  $key:" "$tmp/a" || fail "help config lacks $key"
done
grep -q MILLRACE_READER_BATCH_SIZE "$tmp/a" || fail "help config lacks the variables"

$MILLRACE --version | head -1 | grep -qE '^millrace [0-9]+\.[0-9]+\.[0-9]+$' || fail "version"
$MILLRACE --version | grep -qE 'features:.*hdf5.*io_uring.*mpi' || fail "features"
$MILLRACE --version --json | grep -q '"schema": "millrace.version/1"' || fail "version as JSON"

expect 2 "no command given" $MILLRACE
expect 2 "did you mean 'millrace workloads'?" $MILLRACE worklods
# What follows a traced program is the program's.
$MILLRACE trace --quiet -o "$tmp/t.mrt" ls --help | grep -q '^Usage: .*ls' || fail "trace ls --help is not ls's help"
$MILLRACE trace -o "$tmp/t.mrt" --help ls | grep -q '^usage: millrace trace' || fail "trace --help ls is not our help"
expect 2 "unknown option '--bogus'" $MILLRACE trace --bogus ls
expect 2 "unknown option '--bogus'" $MILLRACE --bogus
expect 2 "did you mean '--dry-run'?" $MILLRACE run --dry-rn
expect 2 "there is no help on 'unitss'" $MILLRACE help unitss
expect 2 "did you mean 'millrace help units'?" $MILLRACE help unitss
expect 2 "must be one of: none, bash, zsh, fish" $MILLRACE help --completion csh
expect 2 "unexpected argument 'b'" $MILLRACE help topics b
expect 2 "unexpected argument" $MILLRACE --version nonsense

# a result that cannot be written is an error
if [ -w /dev/full ]; then
    rc=0; $MILLRACE help config >/dev/full 2>"$tmp/err" || rc=$?
    [ "$rc" = 5 ] || fail "full standard output: exit $rc"
    grep -q "cannot write to standard output" "$tmp/err" || fail "full standard output: $(cat "$tmp/err")"
fi
rc=0; $MILLRACE help config >&- 2>"$tmp/err" || rc=$?
[ "$rc" = 5 ] || fail "closed standard output: exit $rc"
set +e
# The reader is gone before the first byte: what is written fits a pipe's buffer, so a slow reader would hide the break.
python3 -c '
import os, subprocess, sys
r, w = os.pipe()
os.close(r)
print(subprocess.run(sys.argv[1:], stdout=w).returncode)' "$MILLRACE" help config >"$tmp/rc"
{ $MILLRACE order --samples 100000000 --mode cipher; echo $? >"$tmp/rc2"; } | head -c 10 >/dev/null
$MILLRACE order --samples 1000000000 --mode cipher >/dev/null 2>"$tmp/err" & pid=$!
ready $pid || fail "no handler of signals"
kill -TERM $pid
wait $pid
rc=$?
set -e
[ "$(cat "$tmp/rc")" = 5 ] && [ "$(cat "$tmp/rc2")" = 5 ] || fail "broken pipe went unnoticed"
[ "$rc" = 130 ] && grep -q interrupted "$tmp/err" || fail "a terminated command: exit $rc"
echo "help: ok"
