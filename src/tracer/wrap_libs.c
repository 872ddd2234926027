/* Look-up of real functions by calling module, and handles of libraries. */
#include "tracer/wrap_libs.h"
#include "tracer/tracer_sys.h"

#include <dlfcn.h>

static void *base_of(void *address)
{
    Dl_info info;
    return dladdr(address, &info) ? info.dli_fbase : NULL;
}

static void *in_module(void *address, const char *name)
{
    Dl_info info;
    void *module = dladdr(address, &info) && info.dli_fname ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL,
         *f = NULL;
    if (module) {
        f = dlsym(module, name);
        dlclose(module);
    }
    return f && base_of(f) != base_of((void *)in_module) ? f : NULL;
}

void *mr_sibling(void *function, const char *name)
{
    void *f = in_module(function, name);
    return f ? f : dlsym(RTLD_NEXT, name);
}

void *mr_module_function(struct mr_module_cache *c, const char *name, void *caller)
{
    void *base = base_of(caller);
    uint32_t used = atomic_load_explicit(&c->used, memory_order_acquire);
    for (uint32_t i = 0; i < used; i++)
        if (c->entry[i].base == base)
            return c->entry[i].function;
    void *f = in_module(caller, name);
    if (!f)
        f = mr_next(name);
    while (atomic_exchange_explicit(&c->lock, 1, memory_order_acquire))
        mr_sys0(SYS_sched_yield);
    used = atomic_load(&c->used);
    if (used < MR_MODULES) {
        c->entry[used].base = base;
        c->entry[used].function = f;
        atomic_store_explicit(&c->used, used + 1, memory_order_release);
    }
    atomic_store_explicit(&c->lock, 0, memory_order_release);
    return f;
}

#define HANDLES 4096u
static struct {
    _Atomic uint64_t handle;
    _Atomic uint32_t file;
} handles[HANDLES];

/* Handles are few and reused; a collision overwrites, which costs a name, not a crash. */
void mr_handle_set(uint64_t handle, uint32_t file)
{
    unsigned i = (unsigned)((handle * 0x9e3779b97f4a7c15ull) >> 52);
    atomic_store(&handles[i].handle, 0);
    atomic_store(&handles[i].file, file);
    atomic_store(&handles[i].handle, handle);
}

uint32_t mr_handle_get(uint64_t handle)
{
    unsigned i = (unsigned)((handle * 0x9e3779b97f4a7c15ull) >> 52);
    return atomic_load(&handles[i].handle) == handle ? atomic_load(&handles[i].file) : 0;
}
