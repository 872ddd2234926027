/* Plug-ins: stores, formats, policies and checkpoint engines in shared objects of the user's.
 *
 * A shared object exports one symbol, `mr_plugin`, that lists what is in it:
 *
 *     #include <millrace/plugin.h>
 *     #include <millrace/plugin_format.h>
 *     static const struct mr_format_ops lines = {.abi = MR_FORMAT_ABI, .size = sizeof(struct mr_format_ops), ...};
 *     MR_PLUGIN_DEFINE({MR_PLUGIN_FORMAT, &lines});
 *
 *     cc -shared -fPIC -I PREFIX/include -o lines.so lines.c
 *     MILLRACE_PLUGIN_PATH=$PWD/lines.so millrace gen --format lines ...
 *
 * The functions a plug-in calls (mr_error_set, mr_object_read, ...) are those of the program that loads it: do not link
 * a library. A program that opens libmillrace.so by dlopen must do so with RTLD_GLOBAL.
 *
 * What is checked before anything of it is used: the magic number, abi and size of the list and of each entry's struct
 * (a plug-in that was built for another version is refused, never misread), the kind, that the name is free, and that
 * every operation is there. A shared object that is refused stays unused; its own constructors may have run.
 *
 * Trust: a plug-in is code of the user's and runs with the user's rights, like any library on LD_LIBRARY_PATH. An object
 * is refused when it, its folder or one above can be changed by users other than root and this one; sticky folders such
 * as /tmp are fine.
 * Thread safety: load at the start, before other threads use stores, formats, policies or checkpoints. What is loaded
 * stays until the process ends. */
#ifndef MILLRACE_PLUGIN_H
#define MILLRACE_PLUGIN_H

#include <millrace/error.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

#define MR_PLUGIN_MAGIC 0x4d52504cu /* "MRPL" */
#define MR_PLUGIN_ABI 1
#define MR_PLUGIN_SYMBOL "mr_plugin"

enum mr_plugin_kind {
    MR_PLUGIN_STORE = 1,      /* const struct mr_store_ops: a backend or a shim */
    MR_PLUGIN_FORMAT = 2,     /* const struct mr_format_ops */
    MR_PLUGIN_POLICY = 3,     /* const struct mr_policy_ops */
    MR_PLUGIN_CHECKPOINT = 4, /* const struct mr_checkpoint_engine_ops */
};

struct mr_plugin_entry {
    uint32_t kind;   /* enum mr_plugin_kind */
    const void *ops; /* begins with abi and size, whatever the kind */
};

struct mr_plugin {
    uint32_t magic, abi, size, count; /* MR_PLUGIN_MAGIC, MR_PLUGIN_ABI, sizeof(struct mr_plugin), entries */
    const struct mr_plugin_entry *entries;
};

/* The one symbol of a plug-in; MR_PLUGIN_DEFINE makes it from {kind, ops} entries. Programs do not define it. */
extern const struct mr_plugin mr_plugin;
#define MR_PLUGIN_DEFINE(...)                                                                                          \
    static const struct mr_plugin_entry mr_plugin_entries[] = {__VA_ARGS__};                                           \
    const struct mr_plugin mr_plugin = {MR_PLUGIN_MAGIC, MR_PLUGIN_ABI, sizeof(struct mr_plugin),                      \
                                        sizeof(mr_plugin_entries) / sizeof(mr_plugin_entries[0]), mr_plugin_entries}

/* Loads one shared object, or all *.so of a folder in the order of their names. One that is loaded already counts as
 * loaded. Errors: MR_E_UNSUPPORTED (another abi or size), MR_E_CONFIG (no plug-in, not loadable, others can change
 * it, unknown kind, the name is taken), MR_E_USAGE (an operation is missing), -ENOENT and other errors of the system; the message names the file.
 * With an error nothing more is loaded; what came before it stays. */
int mr_plugin_load(const char *path, struct mr_error *err);
/* The same for a colon-separated list, such as the value of MILLRACE_PLUGIN_PATH. NULL and empty parts are skipped. */
int mr_plugins_load(const char *list, struct mr_error *err);

/* What is loaded, in the order of loading; NULL behind the last. Strings live as long as the process. */
struct mr_plugin_info {
    const char *file, *kind, *name, *doc; /* kind: "store", "format", "policy", "checkpoint engine" */
};
const struct mr_plugin_info *mr_plugin_get(unsigned index);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
