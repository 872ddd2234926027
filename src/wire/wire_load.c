/* Finds and loads the transport's module. UCX is loaded with it, not before: a job that needs no wire has none of it in
 * its process.
 *
 * UCX wants to be told how to behave before it is loaded: its library constructors put handlers on error signals and
 * patch mmap, munmap and malloc, which it only leaves out if the environment says so then, and settings of its
 * transports have other names for ucp_config_modify in every version. So the environment is exchanged for a copy with
 * our settings while the module is loaded and a transport opened, and put back. Other threads that call getenv
 * meanwhile see the one or the other, both whole; a setenv of another thread in these milliseconds could get lost. */
#include "base/common.h"
#include "wire/wire_transport.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODULE "millrace_wire_ucx.so"

/* Relative to the program or to the library that this code is in (from Python the program is the interpreter). */
static const char *const places[] = {".",
                                     "../lib",
                                     "millrace",
                                     "../lib/millrace",
                                     "../lib64/millrace",
                                     "../lib/x86_64-linux-gnu/millrace",
                                     "../lib/aarch64-linux-gnu/millrace"};

static bool find_near(const char *file, char *path, size_t cap)
{
    char folder[3072];
    snprintf(folder, sizeof(folder), "%s", file);
    char *slash = strrchr(folder, '/');
    if (!slash)
        return false;
    *slash = '\0';
    for (unsigned i = 0; i < MR_ARRAY_LEN(places); i++) {
        int n = snprintf(path, cap, "%s/%s/" MODULE, folder, places[i]);
        if (n > 0 && (size_t)n < cap && access(path, R_OK) == 0)
            return true;
    }
    return false;
}

bool mr_wire_module_find(char *path, size_t cap)
{
    char exe[3072];
    Dl_info here;
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    if (n > 0) {
        exe[n] = '\0';
        if (find_near(exe, path, cap))
            return true;
    }
    return dladdr((const void *)places, &here) && here.dli_fname && find_near(here.dli_fname, path, cap);
}

/* ---- UCX's settings ---- */

struct setting {
    const char *entry; /* NAME=VALUE */
    bool forced;       /* also where the user has set something else */
};
static const struct setting settings[] = {
    {"UCX_HANDLE_ERRORS=none", false},        /* no handlers for SIGSEGV and its kin */
    {"UCX_MEM_MMAP_HOOK_MODE=none", false},   /* mmap, munmap ... stay as they are */
    {"UCX_MEM_MALLOC_HOOKS=n", false},        /* and malloc */
    {"UCX_MEM_EVENTS=n", false},              /* and nobody may install such hooks later */
    {"UCX_RCACHE_ENABLE=n", false},           /* what needs them */
    {"UCX_IB_REG_METHODS=odp,direct", false}, /* the same for InfiniBand */
    {"UCX_TCP_CONN_NB=y", false},             /* connecting to a dead host does not stop the progress thread */
    {"UCX_TCP_PUT_ENABLE=n", true},           /* "put" writes to any address a message names */
};

static bool same_name(const char *a, const char *b)
{
    size_t n = strcspn(a, "=");
    return n == strcspn(b, "=") && strncmp(a, b, n) == 0;
}

/* Settings of hardware that is not there would be called unused by UCX, on the program's standard output. */
static bool applies(const struct setting *s)
{
    return strncmp(s->entry, "UCX_IB_", 7) != 0 || access("/sys/class/infiniband", F_OK) == 0;
}

/* The environment with our settings added: never freed, since others may keep what getenv gave them. NULL: no memory.
 */
static char **own_environment(char **old)
{
    size_t n = 0, used = 0;
    while (old && old[n])
        n++;
    char **list = calloc(n + MR_ARRAY_LEN(settings) + 1, sizeof(*list));
    if (!list)
        return NULL;
    bool set[MR_ARRAY_LEN(settings)] = {false};
    for (size_t i = 0; i < n; i++) {
        bool keep = true;
        for (unsigned k = 0; k < MR_ARRAY_LEN(settings); k++)
            if (same_name(old[i], settings[k].entry)) {
                keep = !settings[k].forced;
                set[k] = keep;
            }
        if (keep)
            list[used++] = old[i];
    }
    for (unsigned k = 0; k < MR_ARRAY_LEN(settings); k++)
        if (!set[k] && applies(&settings[k]))
            list[used++] = (char *)(uintptr_t)settings[k].entry;
    static char **last;
    free(last);
    last = list;
    return list;
}

static int load_and_open(const char *path, const struct mr_wire_transport_params *p, struct mr_wire_transport **out,
                         struct mr_error *err)
{
    mr_wire_module_open_fn *open_fn = NULL;
    /* Never unloaded: UCX leaves keys and exit handlers behind. */
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (module)
        *(void **)&open_fn = dlsym(module, MR_WIRE_MODULE_SYMBOL);
    if (!open_fn) {
        const char *why = dlerror();
        return mr_error_plain(err, MR_E_UNSUPPORTED, "cannot load '%s': %s", path, why ? why : "symbol missing");
    }
    return open_fn(MR_WIRE_TRANSPORT_ABI, p, out, err);
}

/* Two wires may be opened at a time; the environment is one. */
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

int mr_wire_module_load(const struct mr_wire_transport_params *p, struct mr_wire_transport **out, struct mr_error *err)
{
    char path[4096];
    if (!mr_wire_module_find(path, sizeof(path))) {
        mr_error_plain(err, MR_E_UNSUPPORTED, "this installation has no wire module (" MODULE ")");
        mr_error_hint(err, "install libucx-dev, then build again; without it nodes read everything from the source");
        return MR_E_UNSUPPORTED;
    }
    pthread_mutex_lock(&loading);
    char **old = environ, **own = own_environment(old);
    int rc = own ? 0 : mr_error_set(err, -ENOMEM, "cannot load '%s'", path);
    if (own) {
        environ = own;
        rc = load_and_open(path, p, out, err);
        environ = old;
    }
    pthread_mutex_unlock(&loading);
    return rc;
}
