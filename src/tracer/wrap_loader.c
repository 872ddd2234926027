/* The loader's functions, where they lead past the tracer.
 *
 * dlsym: a program that asks the C library itself for a function (Python's ctypes.CDLL("libc.so.6"), foreign function interfaces) is given ours
 * of that name, except where that could go in a circle: a library that stands behind us under the same name and looks for the function it
 * stands for.
 *
 * dlopen with RTLD_DEEPBIND and dlmopen: what is loaded so binds to the C library, or to one of its own, past everyone. Nothing is changed; it is
 * noted, to be told at the end.
 *
 * All three look at who calls them, so the calls are handed on by a jump: the real function sees the program's return address. */
#include "tracer/tracer_internal.h"
#include "tracer/wrap.h"

#include <dlfcn.h>

#pragma weak dlvsym /* mr_leave_foreign */

#if defined(__x86_64__)
extern MR_HIDDEN void *(*mr_real_dlsym)(void *handle, const char *name);
extern MR_HIDDEN void *mr_real_dlopen, *mr_real_dlmopen;
MR_HIDDEN void mr_loader_boot(void);
MR_HIDDEN void *mr_dlsym_by_handle(void *handle, const char *name, void *caller);
MR_HIDDEN void mr_loads_deep(const char *path);
MR_HIDDEN void mr_loads_apart(const char *path);

void *(*mr_real_dlsym)(void *handle, const char *name);
void *mr_real_dlopen, *mr_real_dlmopen;

/* The C library's own first, then whoever comes next: it may be another library that stands between. */
void mr_loader_boot(void)
{
    static const char *const version[] = {"GLIBC_2.34", "GLIBC_2.2.5", NULL};
    void *(*first)(void *, const char *) = NULL;
    for (unsigned i = 0; version[i] && !first; i++)
        *(void **)&first = dlvsym(RTLD_NEXT, "dlsym", version[i]);
    mr_real_dlopen = first(RTLD_NEXT, "dlopen");
    mr_real_dlmopen = first(RTLD_NEXT, "dlmopen");
    *(void **)&mr_real_dlsym = first(RTLD_NEXT, "dlsym");
}

static void *base_of(void *address)
{
    Dl_info info;
    return dladdr(address, &info) ? info.dli_fbase : NULL;
}

/* A function of the module that an address lies in, not of those it depends on. */
static void *own_function(void *address, const char *name)
{
    Dl_info info;
    void *module = dladdr(address, &info) && info.dli_fname ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    void *f = module ? mr_real_dlsym(module, name) : NULL;
    if (module)
        dlclose(module);
    return f && base_of(f) == info.dli_fbase ? f : NULL;
}

/* Something inside it: not a function that anybody wraps. */
static void *c_library(void)
{
    return mr_real_dlsym(RTLD_NEXT, "gnu_get_libc_version");
}

void *mr_dlsym_by_handle(void *handle, const char *name, void *caller)
{
    void *f = mr_real_dlsym(handle, name), *us = base_of((void *)mr_dlsym_by_handle);
    int keep = errno;
    if (f && base_of(caller) != us && base_of(f) == base_of(c_library()) && !own_function(caller, name)) {
        void *ours = own_function((void *)mr_dlsym_by_handle, name);
        f = ours ? ours : f;
    }
    errno = keep;
    return f;
}

void mr_loads_deep(const char *path)
{
    if (path && mr_live.alive)
        mr_note('d', path);
}

void mr_loads_apart(const char *path)
{
    if (path && mr_live.alive && !mr_config.strays)
        mr_note('m', path);
}

/* Registers with arguments, and the stack at a multiple of 16. */
#define MR_SAVE "    pushq %rdi\n    pushq %rsi\n    pushq %rdx\n"
#define MR_RESTORE "    popq %rdx\n    popq %rsi\n    popq %rdi\n"
#define MR_BOOT(pointer)                                                                                             \
    "    cmpq $0, " pointer "(%rip)\n"                                                                              \
    "    jne 1f\n" MR_SAVE "    call mr_loader_boot\n" MR_RESTORE "1:\n"

__asm__(".text\n"
        ".globl dlsym, dlopen, dlmopen\n"
        ".type dlsym, @function\n"
        ".type dlopen, @function\n"
        ".type dlmopen, @function\n"
        "dlsym:\n" MR_BOOT("mr_real_dlsym")
        "    leaq 1(%rdi), %rax\n" /* RTLD_NEXT is -1, RTLD_DEFAULT 0 */
        "    cmpq $1, %rax\n"
        "    ja 2f\n"
        "    jmp *mr_real_dlsym(%rip)\n"
        "2:  movq (%rsp), %rdx\n"
        "    jmp mr_dlsym_by_handle\n"
        ".size dlsym, .-dlsym\n"
        "dlopen:\n" MR_BOOT("mr_real_dlopen")
        "    testl $8, %esi\n" /* RTLD_DEEPBIND */
        "    jz 2f\n" MR_SAVE "    call mr_loads_deep\n" MR_RESTORE
        "2:  jmp *mr_real_dlopen(%rip)\n"
        ".size dlopen, .-dlopen\n"
        "dlmopen:\n" MR_BOOT("mr_real_dlmopen")
        "    testq %rdi, %rdi\n" /* LM_ID_BASE */
        "    jz 2f\n" MR_SAVE "    movq %rsi, %rdi\n    call mr_loads_apart\n" MR_RESTORE
        "2:  jmp *mr_real_dlmopen(%rip)\n"
        ".size dlmopen, .-dlmopen\n");
#endif
