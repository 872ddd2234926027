/* Finds and loads the module with libcurl: see http.h. It is never unloaded: OpenSSL leaves exit handlers behind. */
#include "base/common.h"
#include "s3/http.h"

#include <dlfcn.h>
#include <millrace/error.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MODULE "millrace_s3_curl.so"

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
    snprintf(folder, sizeof folder, "%s", file);
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

bool mr_http_module_find(char *path, size_t cap)
{
    char exe[3072];
    Dl_info here;
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n > 0) {
        exe[n] = '\0';
        if (find_near(exe, path, cap))
            return true;
    }
    return dladdr((const void *)places, &here) && here.dli_fname && find_near(here.dli_fname, path, cap);
}

static int load(const struct mr_http_ops **out, struct mr_error *err)
{
    char path[4096];
    if (!mr_http_module_find(path, sizeof path)) {
        mr_error_plain(err, MR_E_UNSUPPORTED, "this build cannot reach object storage (no " MODULE ")");
        return mr_error_hint(err, "install libcurl4-openssl-dev and libssl-dev, then build again with MR_WITH_S3=ON"),
               MR_E_UNSUPPORTED;
    }
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const struct mr_http_ops *ops = module ? dlsym(module, MR_HTTP_MODULE_SYMBOL) : NULL;
    if (!ops) {
        const char *why = dlerror();
        return mr_error_plain(err, MR_E_UNSUPPORTED, "cannot load '%s': %s", path, why ? why : "symbol missing");
    }
    if (ops->abi != MR_HTTP_ABI)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "'%s' is of another version (abi %u, want %d)", path, ops->abi,
                              MR_HTTP_ABI);
    *out = ops;
    return 0;
}

int mr_http_load(const struct mr_http_ops **out, struct mr_error *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static const struct mr_http_ops *loaded;
    pthread_mutex_lock(&lock);
    int rc = loaded ? 0 : load(&loaded, err);
    if (!rc)
        *out = loaded;
    pthread_mutex_unlock(&lock);
    return rc;
}
