/* A library that stands in for some functions (with -DLIBRARY), and says at the end how often, and a program that calls
 * them: stand_in FILE. With -D_FILE_OFFSET_BITS=64 the library has, and the program calls, the functions of the names
 * with 64 only. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if _FILE_OFFSET_BITS == 64
#define NEXT(name) dlsym(RTLD_NEXT, name "64")
#else
#define NEXT(name) dlsym(RTLD_NEXT, name)
#endif

#ifdef LIBRARY
static int calls;

int open(const char *path, int flags, ...)
{
    int (*next)(const char *, int, mode_t) = NEXT("open");
    va_list a;
    va_start(a, flags);
    mode_t mode = flags & O_CREAT ? va_arg(a, mode_t) : 0;
    va_end(a);
    calls += 1;
    return next(path, flags, mode);
}

ssize_t pread(int fd, void *b, size_t n, off_t offset)
{
    ssize_t (*next)(int, void *, size_t, off_t) = NEXT("pread");
    calls += 10;
    return next(fd, b, n, offset);
}

off_t lseek(int fd, off_t offset, int whence)
{
    off_t (*next)(int, off_t, int) = NEXT("lseek");
    calls += 100;
    return next(fd, offset, whence);
}

int fstat(int fd, struct stat *s)
{
    int (*next)(int, struct stat *) = NEXT("fstat");
    calls += 1000;
    return next(fd, s);
}

int truncate(const char *path, off_t length)
{
    int (*next)(const char *, off_t) = NEXT("truncate");
    calls += 10000;
    return next(path, length);
}

FILE *fopen(const char *path, const char *mode)
{
    FILE *(*next)(const char *, const char *) = NEXT("fopen");
    calls += 100000;
    return next(path, mode);
}

static void __attribute__((destructor)) say(void)
{
    dprintf(1, "stood in %d\n", calls);
}
#else
int main(int argc, char **argv)
{
    char b[4];
    struct stat s;
    int fd = argc > 1 ? open(argv[1], O_RDWR | O_CREAT, 0600) : -1;
    if (fd < 0 || fstat(fd, &s) || lseek(fd, 0, SEEK_END) < 0 || truncate(argv[1], 100))
        return 1;
    for (int i = 0; i < 5; i++)
        if (pread(fd, b, 3, i) != 3)
            return 1;
    FILE *f = fopen(argv[1], "r");
    return !f || fclose(f) || close(fd);
}
#endif
