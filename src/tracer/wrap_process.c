/* Processes: fork, exec, spawn, exit, and the environment that carries the tracer into new programs. Also the look-up
 * of real functions. */
#undef _FILE_OFFSET_BITS
#include "tracer/tracer_internal.h"
#include "tracer/tracer_strays.h"
#include "tracer/tracer_sys.h"
#include "tracer/wrap.h"

#include <dlfcn.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

extern char **environ;
typedef const char *path;

/* ---- real functions ---- */

static long missing(void)
{
    errno = ENOSYS;
    return -1;
}

void *mr_next(const char *name)
{
    void *f = dlsym(RTLD_NEXT, name);
    return f ? f : (void *)missing;
}

/* For libraries that the program loads by dlopen without RTLD_GLOBAL: ask the module that called us. */
void *mr_next_for(const char *name, void *caller)
{
    void *f = dlsym(RTLD_NEXT, name);
    Dl_info info;
    if (!f && dladdr(caller, &info) && info.dli_fname) {
        void *module = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        if (module) {
            f = dlsym(module, name);
            dlclose(module);
        }
    }
    return f ? f : (void *)missing;
}

/* ---- environment ---- */

#define OWN_VARIABLES 24
#define OUT_VARIABLE "MILLRACE_TRACE_OUT="
static char own_text[2 * MR_GLOBS_BYTES + 8192];
static const char *own[OWN_VARIABLES]; /* "NAME=value" */
static unsigned owns;
static char preload[MR_PATH_BYTES + 16]; /* "LD_PRELOAD=<us>" */
static size_t preload_len;
static char
    given[MR_PATH_BYTES]; /* the same as LD_PRELOAD has it, if that is a relative path: elsewhere it would be missing */

size_t mr_library_path(char *out, size_t cap, const char **as_given)
{
    Dl_info info;
    size_t at = 0;
    if (!dladdr((void *)mr_library_path, &info) || !info.dli_fname)
        return 0;
    if (info.dli_fname[0] != '/') { /* the program may go elsewhere */
        long n = mr_sys2(SYS_getcwd, out, cap - 1);
        at = n > 1 ? (size_t)n - 1 : 0;
        out[at++] = '/';
    }
    if (as_given)
        *as_given = info.dli_fname;
    return at + mr_copy_text(out + at, cap - at, info.dli_fname);
}

/* Copies what must survive; called once, before the program's main. */
static void __attribute__((constructor)) remember(void)
{
    size_t used = 0, at = mr_copy_text(preload, 12, "LD_PRELOAD=");
    const char *name = "/";
    size_t path_len = mr_library_path(preload + at, sizeof(preload) - at, &name);
    preload_len = path_len ? at + path_len : 0;
    if (*name != '/')
        mr_copy_text(given, sizeof(given), name);
    for (char **e = environ; e && *e && owns < OWN_VARIABLES; e++) {
        size_t n = strlen(*e) + 1;
        if ((strncmp(*e, "MILLRACE_TRACE_", 15) != 0 && strncmp(*e, "MILLRACE_SPOOL=", 15) != 0) ||
            !strncmp(*e, OUT_VARIABLE, sizeof(OUT_VARIABLE) - 1) || used + n > sizeof(own_text))
            continue;
        memcpy(own_text + used, *e, n);
        own[owns++] = own_text + used;
        used += n;
    }
}

static bool is_word(const char *p, size_t n, const char *word)
{
    return n && n == strlen(word) && !memcmp(p, word, n);
}

static bool names(const char *list, const char *word)
{
    for (const char *p = list; *p;) {
        size_t k = strcspn(p, ": ");
        if (is_word(p, k, word))
            return true;
        p += k + (p[k] != 0);
    }
    return false;
}

/* Adds what LD_PRELOAD names beside us to a text that begins with "LD_PRELOAD="; there must be room for all of it and a
 * colon. */
static size_t put_others(char *text, size_t at, const char *theirs)
{
    for (const char *p = theirs; *p;) {
        size_t n = strcspn(p, ": ");
        if (n && !is_word(p, n, preload + 11) && !is_word(p, n, given)) {
            if (at > 11)
                text[at++] = ':';
            memcpy(text + at, p, n);
            at += n;
        }
        p += n + (p[n] != 0);
    }
    text[at] = 0;
    return at;
}

/* Whether the folder of the trace must be told: it is not, or by a path that means another one elsewhere. */
static bool needs_out(char *const *env)
{
    const size_t n = sizeof(OUT_VARIABLE) - 1;
    if (!mr_config.out[0])
        return false;
    for (; *env; env++)
        if (!strncmp(*env, OUT_VARIABLE, n))
            return (*env)[n] != '/';
    return true;
}

static bool env_has(char *const *env, const char *variable)
{
    size_t n = strcspn(variable, "=") + 1;
    for (; *env; env++)
        if (!strncmp(*env, variable, n))
            return true;
    return false;
}

struct injected {
    char *const *env;
    void *space;
    size_t bytes;
    char **before; /* environ_begin */
};

/* LD_PRELOAD without us, for a program that could not load us: its loader would complain on stderr, or end it. */
static struct injected without_us(char *const *env, size_t n, const char *theirs)
{
    struct injected r = {.env = env, .bytes = (n + 1) * sizeof(char *) + strlen(theirs) + 16};
    char **copy = r.space = mr_map_pages(r.bytes), *text = copy ? (char *)(copy + n + 1) : NULL;
    size_t k = 0;
    if (!copy)
        return (struct injected){.env = env};
    memcpy(text, "LD_PRELOAD=", 12);
    size_t at = put_others(text, 11, theirs);
    for (size_t i = 0; i < n; i++)
        if (strncmp(env[i], "LD_PRELOAD=", 11) != 0)
            copy[k++] = env[i];
        else if (at > 11)
            copy[k++] = text;
    copy[k] = NULL;
    r.env = copy;
    return r;
}

/* The environment a new program gets: as given, with our variables put back where they are missing; or without us, if
 * it could not load us. */
static struct injected inject(char *const *env, enum mr_program program)
{
    static char *const empty[] = {NULL};
    struct injected r = {.env = env ? env : empty};
    size_t n = 0, extra = 0, value = 0;
    const char *theirs = NULL;
    if (!mr_live.alive || !preload_len || !mr_readable(r.env, sizeof(*env)))
        return (struct injected){.env = env};
    for (; r.env[n]; n++)
        if (!strncmp(r.env[n], "LD_PRELOAD=", 11))
            theirs = r.env[n] + 11;
        else if (!strncmp(r.env[n], "LD_TRACE_LOADED_OBJECTS=", 24))
            program =
                MR_CANNOT_LOAD; /* ldd: it will not run, only be asked for its libraries, and we are none of them */
    bool in_reach = mr_sys3(SYS_faccessat, AT_FDCWD, preload + 11, R_OK) == 0;
    if (!in_reach || program == MR_CANNOT_LOAD) {
        if (!theirs || (!names(theirs, preload + 11) && !names(theirs, given)))
            return (struct injected){.env = env};
        if (!in_reach)
            mr_say_plain(
                "a program that is started now cannot reach the tracer (another root or user) and runs untraced");
        return without_us(r.env, n, theirs);
    }
    for (unsigned i = 0; i < owns; i++)
        extra += !env_has(r.env, own[i]);
    bool need_preload = !theirs || !names(theirs, preload + 11), need_out = needs_out(r.env);
    extra += need_out;
    if (!extra && !need_preload)
        return (struct injected){.env = env};
    value = theirs ? strlen(theirs) : 0;
    r.bytes = (n + extra + 2) * sizeof(char *) + preload_len + value + 16;
    char **copy = r.space = mr_map_pages(r.bytes);
    if (!copy)
        return (struct injected){.env = env};
    char *text = (char *)(copy + n + extra + 2);
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        if ((!need_preload || strncmp(r.env[i], "LD_PRELOAD=", 11) != 0) &&
            (!need_out || strncmp(r.env[i], OUT_VARIABLE, sizeof(OUT_VARIABLE) - 1) != 0))
            copy[k++] = r.env[i];
    if (need_out)
        copy[k++] = mr_config.out;
    if (need_preload) {
        put_others(text, mr_copy_text(text, preload_len + 1, preload), theirs ? theirs : "");
        copy[k++] = text;
    }
    for (unsigned i = 0; i < owns; i++)
        if (!env_has(r.env, own[i]))
            copy[k++] = (char *)own[i];
    copy[k] = NULL;
    r.env = copy;
    return r;
}

/* The kernel's room for arguments and variables may be enough for the program's own, but not for ours: it is started
 * once more without us. */
static bool no_room(const struct injected *i, int error, path program)
{
    if (error != E2BIG || !i->space)
        return false;
    mr_note('e', program ? program : "?");
    return true;
}

/* It was not for want of room for ours: nothing was started. */
static void had_room(path program)
{
    mr_note('E', program ? program : "?");
}

static void injected_done(struct injected *i)
{
    if (i->space)
        mr_sys2(SYS_munmap, i->space, i->bytes);
}

/* For calls that use `environ` themselves. If another thread has changed the environment meanwhile, its change stays,
 * and with it the memory it was made from. */
static struct injected environ_begin(void)
{
    struct injected i = inject(environ, MR_THERE);
    i.before = environ;
    if (i.space)
        environ = (char **)i.env;
    return i;
}

static void environ_end(struct injected *i)
{
    if (!i->space || environ != (char **)i->env)
        return;
    environ = i->before;
    injected_done(i);
}

/* ---- exec ---- */

/* False in a child that shares its parent's memory (clone with CLONE_VM): the rings are not its own to end. */
static bool own_memory(void)
{
    return !mr_live.alive || (uint32_t)mr_sys0(SYS_getpid) == mr_process.pid;
}

/* Of a vfork child that calls exec; its parent, which goes on when that has succeeded, records it. */
static __thread struct mr_exec vfork_exec __attribute__((tls_model("initial-exec")));

static void put_exec(const struct mr_exec *e, uint64_t t1, int64_t result)
{
    if (e->on && e->file != MR_FILE_EXCLUDED)
        mr_put(e->t0, t1, e->call, e->file, e->fd1, NONE, result);
}

void mr_exec_begin(struct mr_exec *e, unsigned call, uint32_t file, uint32_t fd1, bool likely)
{
    bool ours = own_memory();
    *e = (struct mr_exec){.t0 = mr_stamp(),
                          .call = call,
                          .file = file,
                          .fd1 = fd1,
                          .on = mr_enter(),
                          .ends = ours && likely && !mr_tls.vforked};
    if (e->ends) {
        if (e->on && file != MR_FILE_EXCLUDED)
            mr_exec_prepare(e);
        mr_before_exec();
    } else if (mr_tls.vforked) {
        vfork_exec = *e;
    } else if (!ours && likely) { /* made by clone: nobody will know how it ended */
        put_exec(e, e->t0, 0);
        e->done = true;
    }
    e->t0 = mr_stamp();
}

void mr_exec_failed(const struct mr_exec *e, int error)
{
    uint64_t t1 = mr_stamp();
    vfork_exec.on = false;
    if (e->ends)
        mr_after_exec();
    if (!e->done)
        put_exec(e, t1, -(int64_t)error);
}

typedef int exec_fn(path p, char *const *argv, char *const *env);

MR_REAL(int, execve, (path p, char *const *argv, char *const *env), (p, argv, env))
MR_REAL(int, execvpe, (path p, char *const *argv, char *const *env), (p, argv, env))

/* All exec calls by path end here. */
static int run_exec(exec_fn *real, unsigned call, path p, char *const *argv, char *const *env)
{
    struct mr_exec e;
    mr_enter();
    if (!mr_live.alive)
        return real(p, argv, env);
    uint32_t file;
    enum mr_program program = mr_program_look(p, real != real_execve, &file);
    struct injected i = inject(env, program);
    mr_exec_begin(&e, call, file, 0, program != MR_ABSENT);
    int r = real(p, argv, i.env);
    int keep = errno;
    if (no_room(&i, keep, file ? p : NULL)) {
        r = real(p, argv, env);
        keep = errno;
        had_room(file ? p : NULL);
    }
    mr_exec_failed(&e, keep);
    injected_done(&i);
    errno = keep;
    return r;
}

MR_SYMBOL(int, execve, (path p, char *const *argv, char *const *env))
{
    return run_exec(real_execve, CALL(execve), p, argv, env);
}
MR_SYMBOL(int, execvpe, (path p, char *const *argv, char *const *env))
{
    return run_exec(real_execvpe, CALL(execvpe), p, argv, env);
}
MR_SYMBOL(int, execv, (path p, char *const *argv))
{
    return run_exec(real_execve, CALL(execv), p, argv, environ);
}
MR_SYMBOL(int, execvp, (path p, char *const *argv))
{
    return run_exec(real_execvpe, CALL(execvp), p, argv, environ);
}

MR_REAL(int, fexecve, (int fd, char *const *argv, char *const *env), (fd, argv, env))
MR_SYMBOL(int, fexecve, (int fd, char *const *argv, char *const *env))
{
    struct mr_exec e;
    mr_enter();
    if (!mr_live.alive)
        return real_fexecve(fd, argv, env);
    enum mr_program program = mr_program_look_at(fd, NULL, 0);
    struct injected i = inject(env, program);
    mr_exec_begin(&e, CALL(fexecve), program != MR_ABSENT ? mr_file_of(fd) : 0, mr_fd1(fd), program != MR_ABSENT);
    int r = real_fexecve(fd, argv, i.env);
    int keep = errno;
    if (no_room(&i, keep, NULL)) {
        r = real_fexecve(fd, argv, env);
        keep = errno;
        had_room(NULL);
    }
    mr_exec_failed(&e, keep);
    injected_done(&i);
    errno = keep;
    return r;
}

MR_REAL(int, execveat, (int d, path p, char *const *argv, char *const *env, int f), (d, p, argv, env, f))
MR_SYMBOL(int, execveat, (int d, path p, char *const *argv, char *const *env, int f))
{
    struct mr_exec e;
    mr_enter();
    if (!mr_live.alive)
        return real_execveat(d, p, argv, env, f);
    enum mr_program program = p ? mr_program_look_at(d, p, f) : MR_ABSENT;
    struct injected i = inject(env, program);
    mr_exec_begin(&e, CALL(execveat), mr_path_failed(MR_UNREAD, d, p), 0, program != MR_ABSENT);
    int r = real_execveat(d, p, argv, i.env, f);
    int keep = errno;
    if (no_room(&i, keep, p)) {
        r = real_execveat(d, p, argv, env, f);
        keep = errno;
        had_room(p);
    }
    mr_exec_failed(&e, keep);
    injected_done(&i);
    errno = keep;
    return r;
}

/* execl and its kin: the words become an array, then as above. */
static int run_execl(exec_fn *real, unsigned call, path p, path first, va_list ap, bool with_env)
{
    va_list count;
    va_copy(count, ap);
    size_t n = 1;
    while (first && va_arg(count, char *))
        n++;
    va_end(count);
    char **argv = mr_map_pages((n + 1) * sizeof(*argv));
    if (!argv) {
        errno = ENOMEM;
        return -1;
    }
    argv[0] = (char *)first;
    for (size_t i = 1; first && i <= n; i++)
        argv[i] = va_arg(ap, char *);
    char *const *env = with_env ? va_arg(ap, char *const *) : environ;
    int r = run_exec(real, call, p, argv, env), keep = errno;
    mr_sys2(SYS_munmap, argv, (n + 1) * sizeof(*argv));
    errno = keep;
    return r;
}

#define MR_EXECL(name, by, with_env)                                                                                   \
    MR_EXPORT int w_##name(path p, path first, ...) __asm__(#name);                                                    \
    int w_##name(path p, path first, ...)                                                                              \
    {                                                                                                                  \
        va_list ap;                                                                                                    \
        va_start(ap, first);                                                                                           \
        int r = run_execl(real_##by, CALL(name), p, first, ap, with_env);                                              \
        va_end(ap);                                                                                                    \
        return r;                                                                                                      \
    }
MR_EXECL(execl, execve, false)
MR_EXECL(execlp, execvpe, false)
MR_EXECL(execle, execve, true)

/* ---- spawn ---- */

#define MR_SPAWN(name)                                                                                                 \
    MR_REAL(int, name, (pid_t * pid, path p, const void *a, const void *b, char *const *argv, char *const *env),       \
            (pid, p, a, b, argv, env))                                                                                 \
    MR_SYMBOL(int, name, (pid_t * pid, path p, const void *a, const void *b, char *const *argv, char *const *env))     \
    {                                                                                                                  \
        bool on = mr_enter();                                                                                          \
        uint32_t file;                                                                                                 \
        struct injected i = inject(env, mr_program_look(p, sizeof(#name) == sizeof("posix_spawnp"), &file));           \
        pid_t child = 0;                                                                                               \
        uint64_t t0 = mr_stamp();                                                                                      \
        int r = real_##name(&child, p, a, b, argv, i.env);                                                             \
        if (no_room(&i, r, p)) {                                                                                       \
            r = real_##name(&child, p, a, b, argv, env);                                                               \
            if (r)                                                                                                     \
                had_room(p);                                                                                           \
        }                                                                                                              \
        uint64_t t1 = mr_stamp();                                                                                      \
        injected_done(&i);                                                                                             \
        if (!r && pid)                                                                                                 \
            *pid = child;                                                                                              \
        if (on && file != MR_FILE_EXCLUDED)                                                                            \
            mr_put(t0, t1, CALL(name), file, 0, NONE, r ? -(int64_t)r : child);                                        \
        return r;                                                                                                      \
    }
MR_SPAWN(posix_spawn)
MR_SPAWN(posix_spawnp)

/* popen and system start a shell with the program's own environment; it gets our variables for that moment. */
MR_REAL(FILE *, popen, (path c, path m), (c, m))
MR_SYMBOL(FILE *, popen, (path c, path m))
{
    bool on = mr_enter();
    struct injected i = environ_begin();
    uint64_t t0 = mr_stamp();
    FILE *r = real_popen(c, m);
    uint64_t t1 = mr_stamp();
    int keep = errno, fd = r ? fileno(r) : -1;
    environ_end(&i);
    errno = keep;
    if (fd >= 0)
        mr_file_set(fd, 0);
    if (on)
        mr_put(t0, t1, CALL(popen), 0, fd >= 0 ? mr_fd1(fd) : 0, NONE, r ? fd : -errno);
    errno = keep;
    return r;
}

MR_ALIAS(_IO_popen, popen)

MR_REAL(int, pclose, (FILE * f), (f))
MR_SYMBOL(int, pclose, (FILE * f))
{
    bool on = mr_enter();
    int fd = on && f ? fileno(f) : -1;
    if (on && f)
        mr_stream_closing(f);
    if (fd >= 0)
        mr_file_set(fd, 0);
    uint64_t t0 = mr_stamp();
    int r = real_pclose(f);
    uint64_t t1 = mr_stamp();
    if (on)
        mr_put(t0, t1, CALL(pclose), 0, fd >= 0 ? mr_fd1(fd) : 0, NONE, r == -1 ? -errno : r);
    return r;
}

MR_REAL(int, system, (path c), (c))
MR_SYMBOL(int, system, (path c))
{
    bool on = mr_enter();
    struct injected i = environ_begin();
    uint64_t t0 = mr_stamp();
    int r = real_system(c);
    uint64_t t1 = mr_stamp();
    int keep = errno;
    environ_end(&i);
    errno = keep;
    if (on)
        mr_put(t0, t1, CALL(system), 0, 0, NONE, r == -1 ? -errno : r);
    errno = keep;
    return r;
}

/* ---- fork ---- */

MR_WRAP(pid_t, fork, (void), (), if (r) mr_put(t0, t1, CALL(fork), 0, 0, NONE, r == -1 ? -errno : r))
MR_ALIAS(__fork, fork)

#if defined(__x86_64__)
/* A C function cannot wrap vfork: the child would return through the parent's frame. The return address is kept in a
 * register over the system call, as the C library does, and the child is marked in the thread's state, which parent and
 * child share; the parent runs again only after the child has gone, and unmarks. */
MR_HIDDEN void mr_vfork_child(void);
MR_HIDDEN void mr_vfork_parent(int pid);
static __thread uint64_t vfork_start __attribute__((tls_model("initial-exec")));
void mr_vfork_child(void)
{
    vfork_start = mr_stamp();
    mr_tls.vforked++;
}
void mr_vfork_parent(int pid)
{
    int keep = errno;
    if (mr_tls.vforked)
        mr_tls.vforked--;
    if (vfork_exec.on) {
        put_exec(&vfork_exec, mr_stamp(), 0);
        vfork_exec.on = false;
    }
    if (mr_enter() && !mr_tls.vforked)
        mr_put(vfork_start, mr_stamp(), CALL(vfork), 0, 0, NONE, pid);
    errno = keep;
}
__asm__(".text\n"
        ".globl vfork, __vfork\n"
        ".type vfork, @function\n"
        ".type __vfork, @function\n"
        "__vfork:\n"
        "vfork:\n"
        "    popq %rdi\n"
        "    movl $58, %eax\n" /* SYS_vfork */
        "    syscall\n"
        "    pushq %rdi\n"
        "    cmpl $-4095, %eax\n"
        "    jae 2f\n"
        "    pushq %rax\n"
        "    testl %eax, %eax\n"
        "    jnz 1f\n"
        "    call mr_vfork_child\n"
        "    popq %rax\n"
        "    ret\n"
        "1:  movl %eax, %edi\n"
        "    call mr_vfork_parent\n"
        "    popq %rax\n"
        "    ret\n"
        "2:  pushq %rax\n"
        "    call __errno_location@PLT\n"
        "    popq %rcx\n"
        "    negl %ecx\n"
        "    movl %ecx, (%rax)\n"
        "    movl $-1, %eax\n"
        "    ret\n"
        ".size vfork, .-vfork\n");
#endif

/* ---- other users and places ---- */

/* After these a process may not be able to make its ring (a daemon's child that gives up root): it gets it before.
 * Nothing is recorded. */
#define MR_RING_FIRST(name, params, args)                                                                              \
    MR_REAL(int, name, params, args)                                                                                   \
    MR_SYMBOL(int, name, params)                                                                                       \
    {                                                                                                                  \
        mr_enter();                                                                                                    \
        return real_##name args;                                                                                       \
    }
MR_RING_FIRST(setuid, (uid_t u), (u))
MR_RING_FIRST(setgid, (gid_t g), (g))
MR_RING_FIRST(seteuid, (uid_t u), (u))
MR_RING_FIRST(setegid, (gid_t g), (g))
MR_RING_FIRST(setreuid, (uid_t r, uid_t e), (r, e))
MR_RING_FIRST(setregid, (gid_t r, gid_t e), (r, e))
MR_RING_FIRST(setresuid, (uid_t r, uid_t e, uid_t s), (r, e, s))
MR_RING_FIRST(setresgid, (gid_t r, gid_t e, gid_t s), (r, e, s))
MR_RING_FIRST(setns, (int fd, int type), (fd, type))

/* A user or mount namespace comes with file system information of one's own. */
static void note_unshare(long flags)
{
    const long with_own_directory = 0x200 | 0x20000 | 0x10000000; /* CLONE_FS, CLONE_NEWNS, CLONE_NEWUSER */
    if (flags & with_own_directory)
        mr_cwd_unshared();
    if (flags & 0x400) /* CLONE_FILES */
        mr_files_unshared();
}
MR_REAL(int, unshare, (int flags), (flags))
MR_SYMBOL(int, unshare, (int flags))
{
    mr_enter();
    note_unshare(flags);
    return real_unshare(flags);
}

/* ---- exit ---- */

/* Everything that ends the process without its exit handlers. */
void mr_leaving(void)
{
    if (!own_memory())
        return;
    if (mr_rings_last_look)
        mr_rings_last_look();
    mr_before_exit();
}

#define MR_LEAVES(name)                                                                                                \
    static void boot_##name(int code);                                                                                 \
    static void (*real_##name)(int) = boot_##name;                                                                     \
    static void boot_##name(int code)                                                                                  \
    {                                                                                                                  \
        *(void **)&real_##name = mr_next(#name);                                                                       \
        real_##name(code);                                                                                             \
    }                                                                                                                  \
    MR_EXPORT _Noreturn void w_##name(int code) __asm__(#name);                                                        \
    _Noreturn void w_##name(int code)                                                                                  \
    {                                                                                                                  \
        mr_leaving();                                                                                                  \
        real_##name(code);                                                                                             \
        __builtin_unreachable();                                                                                       \
    }
MR_LEAVES(_exit)
MR_LEAVES(_Exit)
MR_LEAVES(quick_exit)

/* Its first process ends inside the C library. */
MR_REAL(int, daemon, (int a, int b), (a, b))
MR_SYMBOL(int, daemon, (int a, int b))
{
    mr_leaving();
    return real_daemon(a, b);
}

static void boot_abort(void);
static void (*real_abort)(void) = boot_abort;
static void boot_abort(void)
{
    *(void **)&real_abort = mr_next("abort");
    real_abort();
}
MR_EXPORT _Noreturn void w_abort(void) __asm__("abort");
_Noreturn void w_abort(void)
{
    mr_leaving();
    real_abort();
    __builtin_unreachable();
}

/* What must not go to the kernel as it is, by syscall(2); false if the number is another one. */
bool mr_process_call(long number, const long *a, long *r)
{
    if (number == SYS_execve)
        *r = w_execve((path)a[0], (char *const *)a[1], (char *const *)a[2]);
    else if (number == SYS_execveat)
        *r = w_execveat((int)a[0], (path)a[1], (char *const *)a[2], (char *const *)a[3], (int)a[4]);
    else if (number == SYS_mlockall)
        *r = mlockall((int)a[0]);
    else if (number == SYS_exit_group)
        mr_leaving();
    else if (number == SYS_unshare)
        note_unshare(a[0]);
    else if (number == SYS_seccomp && (a[0] == 0 || a[0] == 1)) /* SECCOMP_SET_MODE_STRICT, _FILTER */
        mr_before_confine(a[0] + 1, (const void *)a[2]);
    else if (number == SYS_prctl && a[0] == PR_SET_SECCOMP)
        mr_before_confine(a[1], (const void *)a[2]);
    else if (number == SYS_prctl && a[0] == 59) /* PR_SET_SYSCALL_USER_DISPATCH, as in wrap_signal.c */
        mr_never_direct();
    return number == SYS_execve || number == SYS_execveat || number == SYS_mlockall;
}

/* A program built with an address sanitizer in a shared library wants that library to be the first one loaded. The
 * sanitizer asks this function, which the program may define itself; then `millrace trace` has set the option in its
 * environment. */
MR_EXPORT const char *asan_options(void) __asm__("__asan_default_options");
const char *asan_options(void)
{
    return "verify_asan_link_order=0";
}
