/* The loader's functions, where they lead past the tracer.
 *
 * dlsym: a program that asks the C library itself for a function (Python's ctypes.CDLL("libc.so.6"), foreign function
 * interfaces) is given ours of that name, except where that could go in a circle: a library that stands behind us under
 * the same name and looks for the function it stands for.
 *
 * dlvsym: the same, where the version asked for is the one that everybody gets; an older one may be another function.
 * Also without a handle, as our functions have no version. With RTLD_NEXT the caller means those behind it.
 *
 * dlopen with RTLD_DEEPBIND and dlmopen: what is loaded so binds to the C library, or to one of its own, past everyone.
 * Nothing is changed; it is noted, to be told at the end.
 *
 * All of them look at who calls them, so the calls are handed on by a jump: the real function sees the program's return
 * address. */
#include "tracer/tracer_internal.h"
#include "tracer/wrap.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>

#pragma weak dlvsym /* mr_leave_foreign */

#if defined(__x86_64__)
extern MR_HIDDEN void *(*mr_real_dlsym)(void *handle, const char *name);
extern MR_HIDDEN void *(*mr_real_dlvsym)(void *handle, const char *name, const char *version);
extern MR_HIDDEN void *mr_real_dlopen, *mr_real_dlmopen;
MR_HIDDEN void mr_loader_boot(void);
MR_HIDDEN void *mr_dlsym_by_handle(void *handle, const char *name, void *caller);
MR_HIDDEN void *mr_dlvsym_ours(void *handle, const char *name, const char *version, void *caller);
MR_HIDDEN void mr_loads_deep(const char *path);
MR_HIDDEN void mr_loads_apart(const char *path);

void *(*mr_real_dlsym)(void *handle, const char *name);
void *(*mr_real_dlvsym)(void *handle, const char *name, const char *version);
void *mr_real_dlopen, *mr_real_dlmopen;

/* What a module's dynamic section says. */
struct module {
    const ElfW(Sym) *symbol;
    const char *text;
    const uint32_t *hash; /* buckets, first symbol, words of the filter, shift; filter, buckets, chain */
    bool has_versions;
};

static struct module read_module(const struct link_map *m)
{
    struct module r = {.symbol = NULL};
    for (const ElfW(Dyn) *d = m->l_ld; d && d->d_tag != DT_NULL; d++) {
        uintptr_t at = d->d_un.d_ptr +
                       (d->d_un.d_ptr < m->l_addr ? m->l_addr : 0); /* the kernel's own module is as it was linked */
        if (d->d_tag == DT_SYMTAB)
            r.symbol = (const void *)at;
        else if (d->d_tag == DT_STRTAB)
            r.text = (const void *)at;
        else if (d->d_tag == DT_GNU_HASH)
            r.hash = (const void *)at;
        r.has_versions |= d->d_tag == DT_VERDEF;
    }
    return r;
}

static void *find_in(const struct link_map *m, const char *name)
{
    struct module r = read_module(m);
    uint32_t want = 5381;
    for (const char *p = name; *p; p++)
        want = want * 33 + (uint8_t)*p;
    if (!r.symbol || !r.text || !r.hash || !r.has_versions || !r.hash[0])
        return NULL;
    const uint32_t *bucket = r.hash + 4 + r.hash[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t)),
                   *chain = bucket + r.hash[0];
    for (uint32_t i = bucket[want % r.hash[0]]; i >= r.hash[1]; i++) {
        uint32_t hash = chain[i - r.hash[1]];
        if ((hash | 1) == (want | 1) && r.symbol[i].st_shndx != SHN_UNDEF &&
            !strcmp(r.text + r.symbol[i].st_name, name))
            return (void *)(m->l_addr + r.symbol[i].st_value);
        if (hash & 1)
            break;
    }
    return NULL;
}

/* A function of the C library, or of libdl where that is apart: of the first module whose symbols have versions, as
 * those of libraries that stand between have not. By hand, because every function that could be asked is one of ours.
 */
#pragma weak _r_debug /* it is not there with musl, where we only help a program to start itself without us */
static void *find_first(const char *name)
{
    void *f = NULL;
    for (const struct link_map *m = &_r_debug ? _r_debug.r_map : NULL; m && !f; m = m->l_next)
        f = find_in(m, name);
    return f;
}

/* The C library's own first, then whoever comes next: it may be another library that stands between. */
void mr_loader_boot(void)
{
    void *(*first)(void *, const char *);
    *(void **)&first = find_first("dlsym");
    mr_real_dlopen = first(RTLD_NEXT, "dlopen");
    mr_real_dlmopen = first(RTLD_NEXT, "dlmopen");
    *(void **)&mr_real_dlvsym = first(RTLD_NEXT, "dlvsym");
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

/* NULL: the program gets what it asks for. */
void *mr_dlvsym_ours(void *handle, const char *name, const char *version, void *caller)
{
    int keep = errno;
    void *f = name && version ? mr_real_dlvsym(handle, name, version) : NULL, *ours = NULL;
    if (f && base_of(caller) != base_of((void *)mr_dlvsym_ours) && f == own_function(c_library(), name) &&
        !own_function(caller, name))
        ours = own_function((void *)mr_dlvsym_ours, name);
    errno = keep;
    return ours;
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
#define MR_BOOT(pointer)                                                                                               \
    "    cmpq $0, " pointer "(%rip)\n"                                                                                 \
    "    jne 1f\n" MR_SAVE "    call mr_loader_boot\n" MR_RESTORE "1:\n"

/* clang-format off */
__asm__(".text\n"
        ".globl dlsym, dlvsym, dlopen, dlmopen\n"
        ".type dlsym, @function\n"
        ".type dlvsym, @function\n"
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
        "dlvsym:\n" MR_BOOT("mr_real_dlsym")
        "    cmpq $-1, %rdi\n" /* RTLD_NEXT */
        "    je 2f\n"
        "    movq (%rsp), %rcx\n" MR_SAVE "    call mr_dlvsym_ours\n" MR_RESTORE
        "    testq %rax, %rax\n"
        "    jz 2f\n"
        "    ret\n"
        "2:  jmp *mr_real_dlvsym(%rip)\n"
        ".size dlvsym, .-dlvsym\n"
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
/* clang-format on */
#endif
