#!/usr/bin/env bash
# What `make install` puts in place works from there, with nothing in the environment: presets, manual pages, completion.
set -eu
[ -f "${MR_BINARY_DIR:-}/cmake_install.cmake" ] || { echo "SKIP: no build folder to install from"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAIL: $*" >&2; exit 1; }
DESTDIR=$work cmake --install "$MR_BINARY_DIR" --prefix /usr/local >"$work/log" 2>&1 || fail "$(tail -5 "$work/log")"
root=$work/usr/local
env -i "$root/bin/millrace" workloads list | grep -q '^unet3d_h100 ' || fail "the installed program does not find its presets"
env -i "$root/bin/millrace" workloads list | grep -q "$MR_SOURCE_DIR" && fail "the installed program reads the source folder"
for command in $("$root/bin/millrace" --help | sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p'); do
    page=$root/share/man/man1/millrace-$command.1
    grep -q '^\.SH NAME' "$page" || fail "no manual page for '$command'"
    if command -v groff >/dev/null; then
        [ -z "$(groff -man -Tutf8 -ww -z "$page" 2>&1)" ] || fail "groff does not like the page of '$command'"
    fi
done
llms=$(find "$root/share" -name llms.txt)
for command in $("$root/bin/millrace" --help | sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p'); do grep -q "^- .millrace $command" "$llms" || fail "llms.txt lacks '$command'"; done
for page in "$MR_SOURCE_DIR"/doc/*/*.md; do grep -qF "(doc/${page#"$MR_SOURCE_DIR"/doc/})" "$llms" || fail "llms.txt lacks $page"; done
grep -q '^\.SH NAME' "$root/share/man/man1/millrace.1" || fail "no manual page of the program"
bash -n "$root/share/bash-completion/completions/millrace" || fail "bash does not load its completion"
bash -c "source '$root/share/bash-completion/completions/millrace' && complete -p millrace" >/dev/null || fail "completion is not registered"
for file in share/zsh/site-functions/_millrace share/fish/vendor_completions.d/millrace.fish include/millrace/checkpoint.h include/millrace/dropin/dftracer/dftracer.h; do
    [ -s "$root/$file" ] || fail "'$file' is missing"
done
