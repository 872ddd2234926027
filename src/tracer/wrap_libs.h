/* Wrappers of libraries a program may load more than once or privately (HDF5 inside h5py): the real function is that of
 * the calling module, found by its return address and remembered per module. Calls of these libraries are microseconds
 * long. */
#ifndef MR_TRACER_WRAP_LIBS_H
#define MR_TRACER_WRAP_LIBS_H

#include "tracer/wrap.h"

#define MR_MODULES 4
struct mr_module_cache {
    struct {
        void *base, *function;
    } entry[MR_MODULES];
    _Atomic uint32_t used, lock;
};

/* The real `name` for the module that contains `caller`. */
MR_HIDDEN void *mr_module_function(struct mr_module_cache *c, const char *name, void *caller);
/* A function of the module that contains `function`; NULL if it has none. */
MR_HIDDEN void *mr_sibling(void *function, const char *name);

/* Small table from a library's handles to our file ids. */
MR_HIDDEN void mr_handle_set(uint64_t handle, uint32_t file);
MR_HIDDEN uint32_t mr_handle_get(uint64_t handle);

/* real: the name to call (PMPI_... for MPI). */
#define MR_LIBRARY(ret, name, real, params, args, ...)                                                                 \
    MR_SYMBOL(ret, name, params)                                                                                       \
    {                                                                                                                  \
        static struct mr_module_cache cache;                                                                           \
        ret(*fn) params;                                                                                               \
        *(void **)&fn = mr_module_function(&cache, #real, __builtin_return_address(0));                                \
        if (!mr_enter())                                                                                               \
            return fn args;                                                                                            \
        uint64_t t0 = mr_stamp();                                                                                      \
        ret r = fn args;                                                                                               \
        uint64_t t1 = mr_stamp();                                                                                      \
        void *self = *(void **)&fn;                                                                                    \
        (void)self;                                                                                                    \
        __VA_ARGS__;                                                                                                   \
        return r;                                                                                                      \
    }

#endif
