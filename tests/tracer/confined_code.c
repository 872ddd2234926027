/* A program that confines itself by seccomp so that pread is allowed from the C library's code only; 0 if it works
 * then. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <gnu/libc-version.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
static uint64_t from, bytes;
static int look(struct dl_phdr_info *info, size_t size, void *base)
{
    for (int i = 0; i < info->dlpi_phnum && info->dlpi_addr == (uintptr_t)base; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X)
            from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, bytes = info->dlpi_phdr[i].p_memsz;
    return 0;
}

int main(int argc, char **argv)
{
    Dl_info libc;
    dladdr((void *)gnu_get_libc_version, &libc);
    dl_iterate_phdr(look, libc.dli_fbase);
    struct sock_filter f[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pread64, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer)),
        BPF_STMT(BPF_ALU | BPF_SUB | BPF_K, (uint32_t)from),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)bytes, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    struct sock_fprog p = {sizeof(f) / sizeof(f[0]), f};
    char b[4];
    int fd = open(argv[argc - 1], O_RDONLY);
    if (pread(fd, b, 1, 0) != 1 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p))
        return 2;
    return pread(fd, b, 1, 0) != 1;
}
