/* Programs that the tracer will not be in, or will not see: linked statically, or with more rights than their user (the
 * loader ignores LD_PRELOAD then); of another C library or machine; Go programs, which make system calls themselves;
 * libraries that bind past it. Their names go to the file `unseen` in the folder of the rings, a letter for the reason
 * before each (src/launch/untraced.c), so that `millrace trace`, or `millrace report` on a folder, can say what is
 * missing. System calls only: this also runs in a child of vfork. */
#include "event/program_kind.h"
#include "tracer/tracer_internal.h"
#include "tracer/tracer_sys.h"
#include "tracer/wrap.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static bool has_more_rights(long fd)
{
    struct stat s;
    if (mr_sys2(SYS_fstat, fd, &s) < 0)
        return false;
    if (mr_sys0(SYS_geteuid) != 0 && mr_sys4(SYS_fgetxattr, fd, "security.capability", NULL, 0) > 0)
        return true;
    return (s.st_mode & S_ISUID && s.st_uid != (uid_t)mr_sys0(SYS_geteuid)) ||
           (s.st_mode & S_ISGID && s.st_gid != (gid_t)mr_sys0(SYS_getegid));
}

long mr_spool_open(const char *name, int flags)
{
    long folder = mr_sys4(SYS_openat, AT_FDCWD, mr_config.dir, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    if (folder < 0)
        return folder;
    long fd = mr_open(folder, name, flags);
    mr_sys1(SYS_close, folder);
    return fd;
}

bool mr_note(char why, const char *path)
{
    const struct iovec line[] = {{&why, 1}, {(void *)path, strlen(path) + 1}};
    long fd = mr_spool_open("unseen", O_WRONLY | O_CREAT | O_APPEND);
    if (fd < 0)
        return false;
    long written = mr_write_quietly(fd, line, 2);
    mr_sys1(SYS_close, fd);
    return written > 1;
}

bool mr_note_self(char why)
{
    static char exe[MR_PATH_BYTES]; /* whoever begins the process is alone */
    long n = mr_sys4(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", exe, sizeof(exe) - 1);
    exe[n > 0 ? n : 0] = 0;
    return n > 0 && mr_note(why, exe);
}

static long read_at(int fd, void *to, size_t bytes, uint64_t at)
{
    return mr_sys4(SYS_pread64, fd, to, bytes, (long)at);
}

/* Of an open file that is no script. */
static enum mr_program look_at_file(long fd, const char *path)
{
    enum mr_program_kind kind = mr_program_kind((int)fd, read_at);
    if (kind == MR_PROGRAM_FOREIGN)
        mr_note('f', path);
    else if ((kind == MR_PROGRAM_STATIC && !mr_loader_is_ours(path)) ||
             has_more_rights(fd)) /* the loader itself loads us */
        mr_note('s', path);
    return kind == MR_PROGRAM_FOREIGN ? MR_CANNOT_LOAD : MR_THERE;
}

static enum mr_program look_at(const char *path)
{
    long rc = mr_sys4(SYS_faccessat2, AT_FDCWD, path, X_OK, AT_EACCESS);
    if (rc == -ENOENT || rc == -ENOTDIR || rc == -EACCES || rc == -ELOOP || rc == -ENAMETOOLONG)
        return MR_ABSENT;
    if (!mr_live.alive)
        return MR_THERE;
    long fd = mr_sys4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0) /* it may be run, but not read */
        return MR_THERE;
    char by[256];
    long n = read_at((int)fd, by, sizeof(by) - 1, 0);
    bool script = n > 0 && mr_script_program(by, (size_t)n);
    enum mr_program r = n == -EISDIR ? MR_ABSENT : script ? MR_THERE : look_at_file(fd, path);
    mr_sys1(SYS_close, fd);
    if (script && (fd = mr_sys4(SYS_openat, AT_FDCWD, by, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0)) >= 0) {
        r = look_at_file(fd, by);
        mr_sys1(SYS_close, fd);
    }
    return r;
}

/* The next place where a program without a folder may be; false: there is none left. */
static bool next_place(const char **list, const char *name, char *full)
{
    for (size_t n, m = strnlen(name, MR_PATH_BYTES); **list; *list += n + ((*list)[n] != 0)) {
        n = strcspn(*list, ":");
        if (n + m + 3 > MR_PATH_BYTES)
            continue;
        memcpy(full, *list, n);
        *list += n + ((*list)[n] != 0);
        if (!n)
            full[n++] = '.'; /* the working directory */
        full[n] = '/';
        memcpy(full + n + 1, name, m);
        full[n + 1 + m] = 0;
        return true;
    }
    return false;
}

enum mr_program mr_program_look(const char *path, bool search, uint32_t *file)
{
    *file = 0;
    if (mr_sys3(SYS_faccessat, AT_FDCWD, path, 0) == -EFAULT)
        return MR_ABSENT;
    char *full = search && !strchr(path, '/') ? mr_map_pages(MR_PATH_BYTES) : NULL; /* the stack may be small */
    if (!full) {
        *file = mr_path_id(AT_FDCWD, path);
        return look_at(path);
    }
    const char *places = getenv("PATH");
    places = places ? places : "/bin:/usr/bin";
    enum mr_program found = MR_ABSENT;
    while (found == MR_ABSENT && next_place(&places, path, full))
        found = look_at(full);
    *file =
        found == MR_ABSENT ? mr_string_id(MR_STR_PATH, path, strnlen(path, MR_PATH_BYTES)) : mr_path_id(AT_FDCWD, full);
    mr_sys2(SYS_munmap, full, MR_PATH_BYTES);
    return found;
}

/* execveat and fexecve: the kernel's name for what they lead to. */
enum mr_program mr_program_look_at(int dirfd, const char *path, int flags)
{
    char link[32] = "/proc/self/fd/", *target;
    if (path && mr_sys3(SYS_faccessat, AT_FDCWD, path, 0) == -EFAULT)
        return MR_ABSENT;
    if (path && (path[0] == '/' || dirfd == AT_FDCWD))
        return look_at(path);
    bool itself = !path || (!path[0] && flags & AT_EMPTY_PATH);
    long fd = itself ? dirfd : mr_sys4(SYS_openat, dirfd, path, O_PATH | O_CLOEXEC, 0);
    if (fd < 0) /* without a descriptor left to us it may be there all the same */
        return fd == -EMFILE || fd == -ENFILE ? MR_THERE : MR_ABSENT;
    if (!(target = mr_map_pages(MR_PATH_BYTES))) {
        if (!itself)
            mr_sys1(SYS_close, fd);
        return MR_THERE;
    }
    link[14 + mr_decimal(link + 14, (uint64_t)fd)] = 0;
    long n = mr_sys4(SYS_readlinkat, AT_FDCWD, link, target, MR_PATH_BYTES - 1);
    target[n > 0 ? n : 0] = 0;
    if (!itself)
        mr_sys1(SYS_close, fd);
    enum mr_program r = n > 0 ? look_at(target) : MR_THERE;
    mr_sys2(SYS_munmap, target, MR_PATH_BYTES);
    return itself && r == MR_ABSENT ? MR_THERE : r; /* it may have no name any more */
}

/* A Go program says so in a note. */
static bool is_go(void)
{
    const ElfW(Phdr) *h = (const void *)(uintptr_t)getauxval(AT_PHDR);
    unsigned long n = getauxval(AT_PHNUM);
    uintptr_t base = 0;
    for (unsigned long i = 0; h && i < n; i++)
        if (h[i].p_type == PT_PHDR)
            base = (uintptr_t)h - h[i].p_vaddr;
    for (unsigned long i = 0; h && i < n; i++) {
        if (h[i].p_type != PT_NOTE)
            continue;
        const uint8_t *p = (const uint8_t *)(base + h[i].p_vaddr);
        for (size_t at = 0, size = h[i].p_memsz; at + sizeof(ElfW(Nhdr)) + 4 <= size;) {
            ElfW(Nhdr) note_header;
            memcpy(&note_header, p + at, sizeof(note_header));
            if (note_header.n_namesz >= 3 && note_header.n_namesz <= 4 &&
                !memcmp(p + at + sizeof(note_header), "Go", 3))
                return true;
            at += sizeof(note_header) + MR_ALIGN_UP((size_t)note_header.n_namesz, 4) +
                  MR_ALIGN_UP((size_t)note_header.n_descsz, 4);
        }
    }
    return false;
}

void mr_note_own_calls(void)
{
    if (is_go())
        mr_note_self('g');
}

/* ---- another C library ---- */

#define FOREIGN_BYTES (8 * MR_MIB) /* of arguments or of the environment; more than the kernel allows by default */
extern const char *gnu_get_libc_version(void) __attribute__((weak));

/* The words of a file in /proc, each ended by NUL; NULL if that cannot be had. */
static char **words_of(const char *path)
{
    char *text = mr_map_pages(FOREIGN_BYTES), **word = mr_map_pages(FOREIGN_BYTES * sizeof(*word) / 2);
    long fd = mr_sys4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0), n = 0;
    size_t used = 0, k = 0;
    if (!text || !word || fd < 0)
        return NULL;
    while (used < FOREIGN_BYTES - 1 && (n = mr_sys3(SYS_read, fd, text + used, FOREIGN_BYTES - 1 - used)) > 0)
        used += (size_t)n;
    mr_sys1(SYS_close, fd);
    for (size_t at = 0; at < used && k < FOREIGN_BYTES / 2 - 1; at += strlen(text + at) + 1)
        word[k++] = text + at;
    return n == 0 ? word : NULL;
}

/* Takes a library out of a list; false if it is not there. */
static bool take_out(char *list, const char *name)
{
    for (char *p = list; *p;) {
        size_t n = strcspn(p, ": "), len = strlen(name);
        if (n >= len && !memcmp(p + n - len, name, len) && (n == len || p[n - len - 1] == '/')) {
            char *next = p + n + (p[n] != 0);
            memmove(p, next, strlen(next) + 1);
            return true;
        }
        p += n + (p[n] != 0);
    }
    return false;
}

/* Musl's loader takes what LD_PRELOAD names, and ends the program if a function is missing that the library must have.
 * So nothing of glibc's own is a must, and this is the first that runs of us: nothing else would work there. The
 * program is started once more, without us. */
void mr_leave_foreign(void)
{
    Dl_info info;
    if (gnu_get_libc_version)
        return;
    char **argv = words_of("/proc/self/cmdline"), **env = words_of("/proc/self/environ"),
         *exe = mr_map_pages(MR_PATH_BYTES);
    const char *name = dladdr((void *)mr_leave_foreign, &info) && info.dli_fname ? info.dli_fname : "";
    bool taken = false;
    name = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
    for (size_t i = 0, to = 0; env && (env[to] = env[i]); i++) {
        bool preload = !strncmp(env[i], "LD_PRELOAD=", 11);
        taken |= preload && *name && take_out(env[i] + 11, name);
        to += !preload || env[i][11]; /* an empty one goes */
    }
    if (argv && exe && taken && mr_sys4(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", exe, MR_PATH_BYTES - 1) > 0) {
        mr_say_plain("this program's C library is not glibc: it runs untraced");
        mr_sys3(SYS_execve, exe, argv, env);
    }
    mr_sys1(SYS_exit_group, 127); /* as its loader would have done */
}
