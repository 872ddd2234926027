/* Programs that the tracer will not be in: linked statically, or with more rights than their user (the loader ignores LD_PRELOAD then). Their
 * names go to the file `unseen` in the folder of the rings, so that `millrace trace`, or `millrace report` on a folder, can say what is missing. System calls only: this
 * also runs in a child of vfork. */
#include "tracer/tracer_internal.h"
#include "tracer/tracer_sys.h"
#include "tracer/wrap.h"

#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A program without an interpreter has no loader. */
static bool is_static(long fd)
{
    Elf64_Ehdr e;
    if (mr_sys4(SYS_pread64, fd, &e, sizeof(e), 0) != sizeof(e) || memcmp(e.e_ident, ELFMAG, SELFMAG) || e.e_ident[EI_CLASS] != ELFCLASS64)
        return false; /* scripts are run by a program of their own */
    for (unsigned i = 0; i < e.e_phnum && i < 64; i++) {
        Elf64_Phdr h;
        if (mr_sys4(SYS_pread64, fd, &h, sizeof(h), e.e_phoff + i * sizeof(h)) != sizeof(h) || h.p_type == PT_INTERP)
            return false;
    }
    return e.e_type == ET_EXEC || e.e_type == ET_DYN;
}

static bool has_more_rights(long fd)
{
    struct stat s;
    if (mr_sys2(SYS_fstat, fd, &s) < 0)
        return false;
    return (s.st_mode & S_ISUID && s.st_uid != (uid_t)mr_sys0(SYS_geteuid)) || (s.st_mode & S_ISGID && s.st_gid != (gid_t)mr_sys0(SYS_getegid));
}

static void note(const char *path)
{
    char file[MR_PATH_BYTES];
    size_t n = mr_copy_text(file, sizeof(file) - 16, mr_config.dir);
    mr_copy_text(file + n, 16, "/unseen");
    long fd = mr_sys4(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return;
    mr_sys3(SYS_write, fd, path, strnlen(path, MR_PATH_BYTES) + 1);
    mr_sys1(SYS_close, fd);
}

/* The program that runs a script, from its first line. */
static bool interpreter(long fd, char out[256])
{
    long n = mr_sys4(SYS_pread64, fd, out, 255, 0);
    if (n < 3 || out[0] != '#' || out[1] != '!')
        return false;
    out[n] = 0;
    size_t from = 2 + strspn(out + 2, " \t"), len = strcspn(out + from, " \t\r\n");
    memmove(out, out + from, len);
    out[len] = 0;
    return true;
}

/* False if there is no such program. */
static bool look_at(const char *path)
{
    long rc = mr_sys4(SYS_faccessat2, AT_FDCWD, path, X_OK, AT_EACCESS);
    if (rc == -ENOENT || rc == -ENOTDIR || rc == -EACCES || rc == -ELOOP || rc == -ENAMETOOLONG)
        return false;
    if (!mr_live.alive)
        return true;
    long fd = mr_sys4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0) /* it may be run, but not read */
        return true;
    char by[256];
    bool script = interpreter(fd, by);
    if (!script && (is_static(fd) || has_more_rights(fd)))
        note(path);
    mr_sys1(SYS_close, fd);
    if (script && (fd = mr_sys4(SYS_openat, AT_FDCWD, by, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0)) >= 0) {
        if (is_static(fd) || has_more_rights(fd))
            note(by);
        mr_sys1(SYS_close, fd);
    }
    return true;
}

bool mr_program_there(const char *path, bool search)
{
    char full[MR_PATH_BYTES];
    if (mr_sys3(SYS_faccessat, AT_FDCWD, path, 0) == -EFAULT)
        return false;
    if (!search || strchr(path, '/'))
        return look_at(path);
    const char *p = getenv("PATH");
    bool found = false;
    for (p = p ? p : "/bin:/usr/bin"; *p && !found; p += p[strcspn(p, ":")] ? strcspn(p, ":") + 1 : strcspn(p, ":")) {
        size_t n = strcspn(p, ":"), m = strnlen(path, sizeof(full));
        if (n + m + 3 > sizeof(full))
            continue;
        memcpy(full, p, n);
        if (!n)
            full[n++] = '.'; /* the working directory */
        full[n] = '/';
        memcpy(full + n + 1, path, m);
        full[n + 1 + m] = 0;
        found = look_at(full);
    }
    return found;
}

void mr_note_program(const char *path, bool search)
{
    mr_program_there(path, search);
}
