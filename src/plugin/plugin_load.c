/* Loading plug-ins: see <millrace/plugin.h> for the contract. A shared object is opened, its one symbol is checked from
 * the outside in (magic, abi, size, count, kind), and each entry goes to the registry of its kind, which checks the
 * rest.
 *
 * What must stay true
 *  1. Nothing of an entry but abi and size is read before these two are known to be right (the registries do that).
 *  2. An object with a registered entry is never closed: the registries point into it.
 *  3. Nothing is loaded that another user could have changed (plugin_trust.h).
 *  4. A file is loaded once: files are told apart by device and inode, so links and spellings do not matter. */
#include <millrace/plugin.h>

#include "base/common.h"
#include "checkpoint/checkpointer.h"
#include "conf/workload.h"
#include "format/format.h"
#include "plugin/plugin_trust.h"
#include "policy/policy.h"
#include "store/store.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ENTRIES_MAX 64u
#define LOADED_MAX 256u

static struct loaded_file {
    dev_t device;
    ino_t inode;
} files[LOADED_MAX];
static unsigned file_count;
static struct mr_plugin_info infos[LOADED_MAX];
static unsigned info_count;

const struct mr_plugin_info *mr_plugin_get(unsigned index)
{
    return index < info_count ? &infos[index] : NULL;
}

static int refuse(struct mr_error *err, int code, const char *path, const char *what)
{
    mr_error_plain(err, code, "cannot use plug-in '%s': %s", path, what);
    mr_error_hint(err, "'millrace help plugins' says what a plug-in must have");
    return code;
}

static int add_store(const void *ops, struct mr_plugin_info *info, struct mr_error *err)
{
    const struct mr_store_ops *o = ops;
    int rc = mr_store_register(o, err);
    if (rc == 0)
        *info = (struct mr_plugin_info){.kind = "store", .name = o->name, .doc = o->doc};
    return rc;
}

/* A format can also be named in a workload file, whose keys know their choices. */
static int add_format(const void *ops, struct mr_plugin_info *info, struct mr_error *err)
{
    const struct mr_format_ops *o = ops;
    int rc = mr_format_register(o, err);
    if (rc == 0)
        rc = mr_conf_format_add(o->name, err);
    if (rc == 0)
        *info = (struct mr_plugin_info){.kind = "format", .name = o->name, .doc = o->doc};
    return rc;
}

static int add_policy(const void *ops, struct mr_plugin_info *info, struct mr_error *err)
{
    const struct mr_policy_ops *o = ops;
    int rc = mr_policy_register(o, err);
    if (rc == 0)
        *info = (struct mr_plugin_info){.kind = "policy", .name = o->name, .doc = o->doc};
    return rc;
}

static int add_engine(const void *ops, struct mr_plugin_info *info, struct mr_error *err)
{
    const struct mr_checkpoint_engine_ops *o = ops;
    int rc = mr_checkpoint_engine_register(o, err);
    if (rc == 0)
        *info = (struct mr_plugin_info){.kind = "checkpoint engine", .name = o->name, .doc = o->doc};
    return rc;
}

static int add_entry(const struct mr_plugin_entry *e, struct mr_plugin_info *info, struct mr_error *err)
{
    if (!e->ops)
        return mr_error_plain(err, MR_E_USAGE, "it has no operations");
    switch ((enum mr_plugin_kind)e->kind) {
    case MR_PLUGIN_STORE: return add_store(e->ops, info, err);
    case MR_PLUGIN_FORMAT: return add_format(e->ops, info, err);
    case MR_PLUGIN_POLICY: return add_policy(e->ops, info, err);
    case MR_PLUGIN_CHECKPOINT: return add_engine(e->ops, info, err);
    }
    return mr_error_plain(err, MR_E_CONFIG,
                          "unknown kind %u; known are 1 (store), 2 (format), 3 (policy) and 4 (checkpoint engine)",
                          e->kind);
}

/* From the outside in; 0 when the entries may be looked at. */
static int check_list(const struct mr_plugin *p, const char *path, struct mr_error *err)
{
    char what[160];
    if (p->magic != MR_PLUGIN_MAGIC) {
        snprintf(what, sizeof what, "its symbol '%s' begins with %08x instead of %08x", MR_PLUGIN_SYMBOL, p->magic,
                 MR_PLUGIN_MAGIC);
        return refuse(err, MR_E_CONFIG, path, what);
    }
    if (p->abi != MR_PLUGIN_ABI || p->size != sizeof(*p)) {
        snprintf(what, sizeof what, "it was built for abi %u (%u bytes), this program has abi %d (%zu bytes)", p->abi,
                 p->size, MR_PLUGIN_ABI, sizeof(*p));
        refuse(err, MR_E_UNSUPPORTED, path, what);
        return MR_E_UNSUPPORTED;
    }
    if (p->count == 0 || p->count > ENTRIES_MAX || !p->entries) {
        snprintf(what, sizeof what, "it lists %u entries; 1 to %u are allowed", p->count, ENTRIES_MAX);
        return refuse(err, MR_E_CONFIG, path, what);
    }
    return 0;
}

static int add_all(const struct mr_plugin *p, const char *path, unsigned *added, struct mr_error *err)
{
    int rc = check_list(p, path, err);
    char *file = rc == 0 ? strdup(path) : NULL; /* for the infos: lives as long as they do */
    if (rc == 0 && !file)
        return mr_error_set(err, -ENOMEM, "cannot load plug-in '%s'", path);
    for (unsigned i = 0; rc == 0 && i < p->count; i++) {
        struct mr_plugin_info info = {0};
        struct mr_error why = {0};
        if (info_count == LOADED_MAX)
            rc = mr_error_plain(&why, MR_E_LIMIT, "%u are loaded already", LOADED_MAX);
        else
            rc = add_entry(&p->entries[i], &info, &why);
        if (rc == 0) {
            info.file = file;
            infos[info_count++] = info;
            ++*added;
        } else {
            rc = rc == -EEXIST ? MR_E_CONFIG : rc; /* no fault of the system */
            refuse(err, rc, path, why.message);
            mr_error_context(err, "in entry %u of %u", i + 1, p->count);
        }
    }
    if (*added == 0)
        free(file);
    return rc;
}

static int load_object(const char *path, struct mr_error *err)
{
    char full[4096]; /* dlopen searches for a name without a slash */
    snprintf(full, sizeof full, "%s%s", strchr(path, '/') ? "" : "./", path);
    void *object = dlopen(full, RTLD_NOW | RTLD_LOCAL);
    if (!object) {
        const char *why = dlerror();
        return refuse(err, MR_E_CONFIG, path, why ? why : "it cannot be loaded");
    }
    const struct mr_plugin *p = dlsym(object, MR_PLUGIN_SYMBOL);
    unsigned added = 0;
    int rc = p ? add_all(p, path, &added, err)
               : refuse(err, MR_E_CONFIG, path, "it has no symbol '" MR_PLUGIN_SYMBOL "' (MR_PLUGIN_DEFINE makes it)");
    if (rc < 0 && added == 0)
        dlclose(object); /* invariant 2 */
    return rc;
}

static int load_file(const char *path, const struct stat *st, struct mr_error *err)
{
    for (unsigned i = 0; i < file_count; i++)
        if (files[i].device == st->st_dev && files[i].inode == st->st_ino)
            return 0;
    if (file_count == LOADED_MAX)
        return mr_error_plain(err, MR_E_LIMIT, "cannot load plug-in '%s': %u are loaded already", path, LOADED_MAX);
    int rc = mr_plugin_check_trust(path, err);
    rc = rc ? rc : load_object(path, err);
    if (rc == 0)
        files[file_count++] = (struct loaded_file){.device = st->st_dev, .inode = st->st_ino};
    return rc;
}

static int is_object(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n > 3 && e->d_name[0] != '.' && strcmp(e->d_name + n - 3, ".so") == 0;
}

static int load_folder(const char *path, struct mr_error *err)
{
    struct dirent **names = NULL;
    int rc = mr_plugin_check_trust(path, err);
    if (rc < 0)
        return rc;
    int n = scandir(path, &names, is_object, alphasort);
    if (n < 0)
        return mr_error_set(err, -errno, "cannot look for plug-ins in '%s'", path);
    for (int i = 0; i < n; i++) {
        char file[4096];
        struct stat st;
        snprintf(file, sizeof file, "%s/%s", path, names[i]->d_name);
        if (rc == 0 && stat(file, &st) != 0)
            rc = mr_error_set(err, -errno, "cannot load plug-in '%s'", file);
        if (rc == 0)
            rc = load_file(file, &st, err);
        free(names[i]);
    }
    free(names);
    return rc;
}

int mr_plugin_load(const char *path, struct mr_error *err)
{
    struct stat st;
    if (!path || !*path)
        return mr_error_plain(err, MR_E_USAGE, "cannot load a plug-in: its path is empty");
    if (stat(path, &st) != 0) {
        int rc = mr_error_set(err, -errno, "cannot load plug-in '%s'", path);
        mr_error_hint(err, "name a shared object, or a folder with shared objects");
        return rc;
    }
    return S_ISDIR(st.st_mode) ? load_folder(path, err) : load_file(path, &st, err);
}

int mr_plugins_load(const char *list, struct mr_error *err)
{
    int rc = 0;
    while (list && *list && rc == 0) {
        size_t n = strcspn(list, ":");
        char part[4096];
        if (n >= sizeof part)
            return mr_error_plain(err, MR_E_USAGE, "a path of plug-ins has %zu bytes, more than %zu", n,
                                  sizeof part - 1);
        snprintf(part, sizeof part, "%.*s", (int)n, list);
        if (n > 0)
            rc = mr_plugin_load(part, err);
        list += n + (list[n] == ':');
    }
    return rc;
}
