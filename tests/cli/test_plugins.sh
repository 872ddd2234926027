#!/usr/bin/env bash
# Plug-ins as a user makes them: the four skeletons are built outside the tree against installed headers, found through
# MILLRACE_PLUGIN_PATH and through 'plugin:' of a workload file, held to the conformance suites, and used from end to end.
# Bad ones are refused with the file and the reason, and never crash.
set -eu
[ -f "${MR_BINARY_DIR:-}/cmake_install.cmake" ] || { echo "SKIP: no build folder to install from"; exit 77; }
cc=$(command -v "${CC:-cc}") || { echo "SKIP: no C compiler"; exit 77; }
unset MILLRACE_PLUGIN_PATH
. "$MR_SOURCE_DIR/tests/cli/expect.sh"

# shellcheck disable=SC2154 # dir: expect.sh
cmake --install "$MR_BINARY_DIR" --prefix "$dir/prefix" >log 2>&1 || fail "cannot install: $(tail -5 log)"
m=$dir/prefix/bin/millrace
mkdir plugins && cp "$MR_SOURCE_DIR"/examples/plugins/* plugins
make -C plugins -s PREFIX="$dir/prefix" CC="$cc" CFLAGS="-O1 -Wall -Wextra -Werror" >log 2>&1 || { cat log; fail "a skeleton does not build"; }
rm plugins/store_skeleton.so
pc=$(dirname "$(find prefix -name millrace.pc)")
if command -v pkg-config >/dev/null; then # the other way to find the headers
    PKG_CONFIG_PATH=$dir/$pc make -C plugins -s CC="$cc" >log 2>&1 || { cat log; fail "millrace.pc does not lead to the headers"; }
else
    make -C plugins -s PREFIX="$dir/prefix" CC="$cc"
fi

# ---- found through the variable: a folder, a list; each kind by its name
export MILLRACE_PLUGIN_PATH=$dir/plugins
expect 0 "$m" help plugins
for word in 'store  *skeleton' 'format  *lenrec' 'policy  *first-fit' 'checkpoint engine  *rank-files'; do
    grep -q "$word " out || fail "'help plugins' does not list: $word"
done
expect 0 "$m" gen set --format lenrec --files 3 --samples-per-file 5 --size 3000 --store skeleton
expect 0 "$m" verify set/train
expect 0 "$m" scan set/train --out set.mrm
grep -q '3 lenrec files, 15 samples' out || fail "scan: $(cat out)"
expect 0 "$m" sim thesis-1 --policy first-fit,staging --grain 100
grep -q '^first-fit  *[0-9]' out || fail "sim does not know the policy: $(cat out)"
expect 0 "$m" sim thesis-1 --policy first-fit,staging --method expected # where it cannot run, it says why
grep -q '^first-fit  *cannot run: has no expected-value form; it takes the exact engine' out || fail "$(cat out)"
expect 0 "$m" sim thesis-1 --policy first-fit,staging --compat thesis
grep -q '^first-fit  *cannot run: not part of the published simulator' out || fail "$(cat out)"
MILLRACE_PLUGIN_PATH=:plugins/format_skeleton.so::$dir/plugins/policy_skeleton.so expect 0 "$m" help plugins
[ "$(sed -n '/^loaded/,/^$/p' out | grep -c '\.so')" = 2 ] || fail "a list of two gives: $(cat out)"

# ---- the conformance suites
for pair in store:skeleton 'store:trace:fault(nth=1000000000,error=EIO):skeleton(timing=true)' format:lenrec policy:first-fit checkpoint:rank-files; do
    suite=$MR_BINARY_DIR/tests/test_${pair%%:*}_conformance
    [ -x "$suite" ] || { echo "no cmocka: conformance of ${pair%%:*} not run"; continue; }
    MR_CONFORMANCE_ONLY=${pair#*:} "$suite" >log 2>&1 || { tail -30 log; fail "${pair#*:} does not conform"; }
    grep -q 'PASSED' log || fail "nothing ran for ${pair#*:}"
done
unset MILLRACE_PLUGIN_PATH

# ---- found through the workload file, relative to it; from end to end
cat >plugins/w.yaml <<Y
plugin: [checkpoint_engine_skeleton.so, format_skeleton.so, ./store_skeleton.so]
model: {model_size_bytes: 50000}
workflow: {generate_data: true, train: true, checkpoint: true}
dataset: {data_folder: data, format: lenrec, num_files_train: 4, num_samples_per_file: 4, record_length_bytes: 4096}
reader: {batch_size: 2}
train: {epochs: 1, computation_time: 0.0005}
checkpoint: {checkpoint_folder: ckpt, engine: rank-files}
Y
expect 0 "$m" run plugins/w.yaml --allow-plugins --ranks 2 --store skeleton --checkpoint-store skeleton --out result
[ -s ckpt/step-4.done ] && [ -s ckpt/step-4.g0.rank-1 ] || fail "the engine wrote no checkpoint: $(ls ckpt)"
[ -s data/train/img_0_of_4.lenrec ] || fail "the data set has another format: $(ls data/train)"
grep -q '"value": "rank-files"' result/config.json || fail "the result does not name the engine"
expect 2 "$m" run plugins/w.yaml --allow-plugins checkpoint.engine=rank-flies --out none
grep -q "unknown checkpoint engine 'rank-flies'" err && grep -q "did you mean 'rank-files'" err || fail "$(cat err)"
expect 0 "$m" gen again --allow-plugins workload=plugins/w.yaml plugin=plugins/format_skeleton.so
# ---- looking runs no code: one that leaves a mark when it is loaded
cat >mark.c <<'C'
#include <stdio.h>
__attribute__((constructor)) static void mark(void) { fclose(fopen(MARK, "w")); }
C
"$cc" -shared -fPIC -DMARK="\"$dir/marked\"" -o mark.so mark.c
mkdir presets && printf 'plugin: [%s]\nreader: {batch_size: 2}\n' "$dir/mark.so" >presets/marks.yaml
for looking in 'workloads show presets/marks.yaml' 'workloads list --config-dir presets' 'run --dry-run presets/marks.yaml' \
    'gen x --dry-run workload=presets/marks.yaml dataset.num_files_train=1' "run --dry-run plugin=$dir/mark.so"; do
    expect 0 "$m" $looking
    [ ! -e marked ] || fail "'millrace $looking' loads a plug-in"
done
for doing in 'run presets/marks.yaml --out none' 'gen x workload=presets/marks.yaml' 'run --virtual presets/marks.yaml' \
    'sim workload=presets/marks.yaml system=lassen' 'workloads check presets/marks.yaml'; do
    expect 2 "$m" $doing
    grep -q "names the plug-in '$dir/mark.so'" err && grep -q 'add --allow-plugins' err || fail "$doing: $(cat err)"
    [ ! -e marked ] || fail "'millrace $doing' loads a plug-in without --allow-plugins"
    expect 2 "$m" $doing --allow-plugins # it is no plug-in, but was loaded
    [ -e marked ] || fail "'millrace $doing --allow-plugins' loads nothing"
    rm marked
done
expect 2 "$m" run presets/marks.yaml "plugin=$dir/mark.so" --out none # an override is the user's own word
rm marked
# ---- what others can change is refused, whoever names it
untrusted()
{
    expect 2 "$m" gen x "plugin=$1"
    grep -q "$2" err || fail "$1: $(cat err)"
    [ ! -e marked ] || fail "$1 was loaded"
}
chmod 777 mark.so && untrusted "$dir/mark.so" "others can write to it"
chmod 755 mark.so && mkdir -m 775 shared && mkdir shared/mine && cp mark.so shared/mine && ln -s shared/mine link
untrusted link/mark.so "others can write to '$dir/shared'"
untrusted "$dir/shared" "others can write to it"
if [ "$(id -u)" = 0 ]; then
    chown 12345 mark.so && untrusted "$dir/mark.so" "another user owns it"
    chown 0 mark.so
fi
mkfifo pipe.so && untrusted "$dir/pipe.so" "not a regular file"

# without the plug-ins the names are unknown, and a plug-in that is not there is named with its line
expect 2 "$m" gen x --format lenrec
expect 2 "$m" run --allow-plugins workload=plugins/w.yaml --store no_such_store --out none
sed -i 's/format_skeleton/formt_skeleton/' plugins/w.yaml
expect 5 "$m" run plugins/w.yaml --allow-plugins --out none
grep -q 'plugins/formt_skeleton.so' err && grep -q 'w.yaml:1' err || fail "$(cat err)"

# ---- a program that links the library
lib=$(find prefix -name libmillrace.so | head -1)
if [ -n "$lib" ] && ! nm -D "$lib" | grep -qE '__[at]san_init'; then
    cat >user.c <<'C'
#include <millrace/plugin.h>
#include <millrace/plugin_store.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    struct mr_error err;
    struct mr_store *s;
    if (argc != 2 || mr_plugins_load(argv[1], &err) || mr_store_open("skeleton", &s, &err) ||
        mr_store_write_file(s, "by-library", "x", 1, &err))
        return fprintf(stderr, "%s\n", err.message), 1;
    mr_store_close(s);
    return !mr_plugin_get(3) || mr_plugin_get(4);
}
C
    "$cc" -I prefix/include user.c -o user "$lib" -Wl,-rpath,"$(dirname "$dir/$lib")" || fail "a program does not link"
    expect 0 ./user plugins
    [ -s by-library ] || fail "the library's plug-in wrote nothing"
fi

# ---- one in C++
if cxx=$(command -v "${CXX:-c++}"); then
    cat >plain.cc <<'C'
#include <millrace/plugin.h>
#include <millrace/plugin_policy.h>
static mr_policy_ops make()
{
    mr_policy_ops o{};
    o.abi = MR_POLICY_ABI;
    o.size = sizeof(o);
    o.name = "plain";
    o.doc = "a policy in C++";
    o.prefetches = true;
    return o;
}
static const mr_policy_ops ops = make();
MR_PLUGIN_DEFINE({MR_PLUGIN_POLICY, &ops});
C
    "$cxx" -std=c++17 -Wall -Wextra -Werror -Iprefix/include -fPIC -shared -fvisibility=hidden -o plain.so plain.cc || fail "C++ does not build"
    MILLRACE_PLUGIN_PATH=$dir/plain.so expect 0 "$m" help policies
    grep -q '^  plain  *a policy in C++' out || fail "the policy in C++ is not there"
fi

# ---- bad ones
cat >bad.c <<'C'
#include <millrace/plugin.h>
#include <millrace/plugin_policy.h>
#include <millrace/plugin_store.h>
#ifndef NAME
#define NAME "fine"
#endif
#ifndef OPS_ABI
#define OPS_ABI MR_POLICY_ABI
#endif
#ifndef OPS_SIZE
#define OPS_SIZE sizeof(struct mr_policy_ops)
#endif
#ifndef KIND
#define KIND MR_PLUGIN_POLICY
#endif
#ifndef LIST
#define LIST MR_PLUGIN_MAGIC, MR_PLUGIN_ABI, sizeof(struct mr_plugin), 1
#endif
#ifdef NULL_OP
static const struct mr_option rows[] = {MR_OPTION_END};
static const struct mr_store_ops ops = {.abi = MR_STORE_ABI, .size = sizeof(ops), .name = NAME, .doc = "no operations", .options = {.options = rows}};
#else
static const struct mr_policy_ops ops = {.abi = OPS_ABI, .size = OPS_SIZE, .name = NAME, .doc = "a policy"};
#endif
#ifdef CALLS
void mr_no_such_function(void);
void use(void);
void use(void) { mr_no_such_function(); }
#endif
#ifndef NO_SYMBOL
static const struct mr_plugin_entry entries[] = {{KIND, &ops}};
const struct mr_plugin mr_plugin = {LIST, entries};
#endif
const void *const keep_ops = &ops;
C
refused() { # the reason, flags of the compiler...
    local reason=$1
    shift
    "$cc" -Iprefix/include -w -shared -fPIC -o bad.so "$@" bad.c || fail "cannot build a bad plug-in: $*"
    MILLRACE_PLUGIN_PATH=$dir/bad.so expect 2 "$m" order --samples 3
    grep -q "bad.so': .*$reason" err && grep -q 'hint: ' err && grep -q MILLRACE_PLUGIN_PATH err ||
        { cat err; fail "flags '$*': the reason '$reason' is not given"; }
}
"$cc" -Iprefix/include -w -shared -fPIC -o bad.so bad.c
MILLRACE_PLUGIN_PATH=$dir/bad.so expect 0 "$m" order --samples 3 # good as it is: what follows is why it is not
refused 'begins with 00000007' -DLIST='7, MR_PLUGIN_ABI, sizeof(struct mr_plugin), 1'
refused 'abi 99 ' -DLIST='MR_PLUGIN_MAGIC, 99, sizeof(struct mr_plugin), 1'
refused '(4 bytes)' -DLIST='MR_PLUGIN_MAGIC, MR_PLUGIN_ABI, 4, 1'
refused '0 entries' -DLIST='MR_PLUGIN_MAGIC, MR_PLUGIN_ABI, sizeof(struct mr_plugin), 0'
refused 'policy of abi 77 ' -DOPS_ABI=77
refused 'with 12 bytes' -DOPS_SIZE=12
refused 'unknown kind 9' -DKIND=9
refused "there is a policy 'staging' already" -DNAME='"staging"'
refused "store 'fine' lacks the operation 'open'" -DNULL_OP -DKIND=MR_PLUGIN_STORE
refused "no symbol 'mr_plugin'" -DNO_SYMBOL
refused 'mr_no_such_function' -DCALLS
echo 'no ELF' >bad.so
MILLRACE_PLUGIN_PATH=bad.so expect 2 "$m" order --samples 3
grep -q "bad.so': .*\(invalid ELF\|file too short\)" err || fail "$(cat err)"
MILLRACE_PLUGIN_PATH=$dir/bad.so expect 0 "$m" doctor --help # who asks what is wrong gets an answer
MILLRACE_PLUGIN_PATH=/nowhere expect 5 "$m" order --samples 3
# twice the same file, under two names: loaded once
ln -s policy_skeleton.so plugins/other.so
MILLRACE_PLUGIN_PATH=$dir/plugins:$dir/plugins/policy_skeleton.so expect 0 "$m" help plugins
[ "$(grep -c first-fit out)" = 1 ] || fail "loaded twice: $(cat out)"
echo "plug-ins: 4 kinds, 14 bad ones"
