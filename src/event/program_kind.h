/* What a program file is, for whoever is about to start it with the tracer preloaded. Only what its ELF headers say is
 * looked at; the caller brings the way to read, because the tracer makes its system calls itself.
 *
 * A loader that is not glibc's ends a program for a library it cannot link (musl), or complains on its stderr (32
 * bits): such programs must not be told of the tracer. */
#ifndef MR_EVENT_PROGRAM_KIND_H
#define MR_EVENT_PROGRAM_KIND_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum mr_program_kind {
    MR_PROGRAM_NO_ELF,  /* a script, or something the kernel will refuse */
    MR_PROGRAM_LOADED,  /* by a loader that can load the tracer */
    MR_PROGRAM_STATIC,  /* by no loader: LD_PRELOAD goes on to what it starts */
    MR_PROGRAM_FOREIGN, /* by another loader, or for another machine */
};

/* As pread; a negative number or fewer bytes mean that it cannot be had. */
typedef long mr_program_read_fn(int fd, void *to, size_t bytes, uint64_t at);

static inline bool mr_loader_is_ours(const char *loader)
{
    static const char *const begin[] = {"ld-linux", "ld64.so", "ld.so", "ld-lsb", NULL};
    const char *base = strrchr(loader, '/');
    base = base ? base + 1 : loader;
    for (unsigned i = 0; begin[i]; i++)
        if (!strncmp(base, begin[i], strlen(begin[i])))
            return true;
    return false;
}

static inline bool mr_machine_is_ours(const Elf64_Ehdr *e)
{
#if defined(__x86_64__)
    return e->e_ident[EI_CLASS] == ELFCLASS64 && e->e_machine == EM_X86_64;
#elif defined(__aarch64__)
    return e->e_ident[EI_CLASS] == ELFCLASS64 && e->e_machine == EM_AARCH64;
#else
    return e->e_ident[EI_CLASS] == ELFCLASS64;
#endif
}

static inline enum mr_program_kind mr_program_kind(int fd, mr_program_read_fn *read_at)
{
    Elf64_Ehdr e;
    Elf64_Phdr h;
    char loader[256];
    if (read_at(fd, &e, sizeof(e), 0) != sizeof(e) || memcmp(e.e_ident, ELFMAG, SELFMAG) != 0)
        return MR_PROGRAM_NO_ELF;
    if (!mr_machine_is_ours(&e))
        return MR_PROGRAM_FOREIGN;
    for (unsigned i = 0; i < e.e_phnum && i < 64; i++) {
        if (read_at(fd, &h, sizeof(h), e.e_phoff + i * sizeof(h)) != sizeof(h))
            return MR_PROGRAM_NO_ELF;
        if (h.p_type != PT_INTERP)
            continue;
        if (!h.p_filesz || h.p_filesz > sizeof(loader) ||
            read_at(fd, loader, h.p_filesz, h.p_offset) != (long)h.p_filesz)
            return MR_PROGRAM_LOADED;
        loader[h.p_filesz - 1] = 0;
        return mr_loader_is_ours(loader) ? MR_PROGRAM_LOADED : MR_PROGRAM_FOREIGN;
    }
    return e.e_type == ET_EXEC || e.e_type == ET_DYN ? MR_PROGRAM_STATIC : MR_PROGRAM_NO_ELF;
}

/* The program that runs a script, from its first bytes text[0, n): in place. False if it is no script. */
static inline bool mr_script_program(char *text, size_t n)
{
    if (n < 3 || text[0] != '#' || text[1] != '!')
        return false;
    text[n] = 0;
    size_t from = 2 + strspn(text + 2, " \t"), len = strcspn(text + from, " \t\r\n");
    memmove(text, text + from, len);
    text[len] = 0;
    return true;
}

#endif
