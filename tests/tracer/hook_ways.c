/* A preloaded library that puts a jump at the beginning of the C library's pread (x86-64), as hooking tools do: whoever
 * calls it gets "hooked". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static ssize_t hooked(int fd, void *b, size_t n, off_t offset)
{
    (void)fd, (void)offset;
    return n < 6 ? -1 : (memcpy(b, "hooked", 6), 6);
}

static void __attribute__((constructor)) hook(void)
{
    close(open("/dev/null", O_RDONLY)); /* the tracer begins before the code is changed */
    uint8_t *code = dlvsym(RTLD_NEXT, "pread64", "GLIBC_2.2.5"), jump[12] = {0x48, 0xb8, [10] = 0xff, [11] = 0xe0};
    void *to = (void *)hooked;
    memcpy(jump + 2, &to, sizeof(to));
    char *page = (char *)((uintptr_t)code & ~4095ul);
    mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
    memcpy(code, jump, sizeof(jump));
    mprotect(page, 8192, PROT_READ | PROT_EXEC);
}
