/* The life of a traced process: reading the settings, creating the ring file, describing the process, starting again in
 * a forked child, ending. */
#include "tracer/tracer_internal.h"
#include "tracer/tracer_strays.h"
#include "tracer/tracer_sys.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

struct mr_config mr_config;

long mr_write_quietly(long fd, const struct iovec *parts, unsigned n)
{
    const uint64_t raised = 1ull << (SIGPIPE - 1) | 1ull << (SIGXFSZ - 1);
    const struct timespec now = {0};
    uint64_t before = mr_signals_block();
    long r = mr_sys3(SYS_writev, fd, parts, n);
    if (r == -EPIPE || r == -EFBIG) /* the signal waits: it is taken away again */
        mr_sys4(SYS_rt_sigtimedwait, &raised, NULL, &now, sizeof(raised));
    mr_signals_restore(before);
    return r;
}

static void say_line(const char *line, size_t n)
{
    mr_write_quietly(2, &(struct iovec){(void *)line, n}, 1);
}

/* The usual ones; the C library's texts are not for us, as it may allocate memory for them. */
static const char *error_text(long error)
{
    switch (error) {
    case EACCES: return "permission denied";
    case EPERM: return "operation not permitted";
    case ENOENT: return "no such folder";
    case ENOTDIR: return "not a folder";
    case EROFS: return "read-only file system";
    case ENOSPC: return "no space left";
    case EDQUOT: return "disk quota exceeded";
    case ENOMEM: return "out of memory";
    case EMFILE:
    case ENFILE: return "too many open files";
    case EFBIG: return "file too large";
    default: return NULL;
    }
}

void mr_say(const char *what, long error)
{
    char line[512];
    size_t n = mr_copy_text(line, sizeof(line) - 96, "millrace trace: ");
    n += mr_copy_text(line + n, sizeof(line) - 96 - n, what);
    if (error) {
        error = error < 0 ? -error : error;
        const char *text = error_text(error);
        n += mr_copy_text(line + n, sizeof(line) - n, text ? ": " : ", errno ");
        n += text ? mr_copy_text(line + n, sizeof(line) - n, text) : mr_decimal(line + n, (uint64_t)error);
    }
    n += mr_copy_text(line + n, sizeof(line) - n, "; the program goes on untraced\n");
    say_line(line, n);
}

void mr_say_plain(const char *what)
{
    char line[512];
    size_t n = mr_copy_text(line, sizeof(line) - 2, "millrace trace: ");
    n += mr_copy_text(line + n, sizeof(line) - 2 - n, what);
    line[n++] = '\n';
    say_line(line, n);
}

void mr_stop_tracing(const char *why, long error)
{
    if (!mr_live.alive)
        return;
    atomic_store(&mr_off, 1);
    mr_set_active(false);
    mr_live.alive = 0;
    mr_say(why, error);
}

size_t mr_copy_text(char *to, size_t cap, const char *from)
{
    size_t n = strlen(from);
    if (n >= cap)
        n = cap ? cap - 1 : 0;
    memcpy(to, from, n);
    if (cap)
        to[n] = 0;
    return n;
}

size_t mr_decimal(char *to, uint64_t v)
{
    char digits[24];
    size_t n = 0;
    do
        digits[n++] = (char)('0' + v % 10);
    while (v /= 10);
    for (size_t i = 0; i < n; i++)
        to[i] = digits[n - 1 - i];
    return n;
}

size_t mr_hex(char *to, uint64_t v)
{
    for (int i = 0; i < 16; i++)
        to[i] = "0123456789abcdef"[v >> (60 - 4 * i) & 15];
    return 16;
}

void *mr_map(size_t bytes)
{
    long p =
        mr_sys6(SYS_mmap, 0, (long)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p < 0 && p > -4096 ? NULL : (void *)p;
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

bool mr_populate(const void *at, size_t bytes)
{
    uintptr_t from = (uintptr_t)at & ~(uintptr_t)4095, to = ((uintptr_t)at + bytes + 4095) & ~(uintptr_t)4095;
    long rc;
    do
        rc = mr_sys3(SYS_madvise, from, to - from, MADV_POPULATE_WRITE);
    while (rc == -EINTR || rc == -EAGAIN);
    return rc == 0 || rc == -EINVAL;
}

void mr_own_path(char out[MR_PATH_BYTES], int segment)
{
    size_t n = mr_copy_text(out, MR_PATH_BYTES - 64, mr_config.dir);
    out[n++] = '/';
    n += mr_decimal(out + n, mr_process.pid);
    out[n++] = '.';
    n += mr_hex(out + n, mr_process.key);
    if (segment >= 0) {
        out[n++] = '.';
        n += mr_decimal(out + n, (uint64_t)segment);
    }
    mr_copy_text(out + n, 8, segment >= 0 ? ".ring" : ".mrt");
}

void mr_calibrate(uint64_t *tick, uint64_t *mono, uint64_t *real)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 4; i++) {
        uint64_t a = mr_stamp(), m = mr_clock_stamp(), b = mr_stamp();
        if (b - a < best) {
            best = b - a;
            *tick = mr_core.use_tsc ? a + (b - a) / 2 : m;
            *mono = m;
        }
    }
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t now = mr_clock_stamp();
    *real = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec - (now - *mono);
}

static uint32_t tsc_is_invariant(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    if (__get_cpuid(0x80000007, &a, &b, &c, &d))
        return d >> 8 & 1;
#endif
    return 0;
}

/* ---- settings ---- */

static size_t env_text(const char *name, char *out, size_t cap)
{
    const char *v = getenv(name);
    out[0] = 0;
    return v ? mr_copy_text(out, cap, v) : 0;
}

static void env_globs(const char *name, char out[MR_GLOBS_BYTES], const char *complaint)
{
    const char *v = getenv(name);
    if (!mr_globs_read(v ? v : "", out, MR_GLOBS_BYTES))
        mr_say_plain(complaint);
}

static int64_t env_number(const char *name)
{
    const char *v = getenv(name);
    int64_t n = 0;
    if (!v || *v < '0' || *v > '9')
        return -1;
    for (; *v >= '0' && *v <= '9' && n < INT32_MAX; v++)
        n = n * 10 + (*v - '0');
    return n;
}

/* 0 where nothing is said, and with one line where it is no number or too large. */
static int64_t env_option(const char *name, int64_t most, const char *complaint)
{
    const char *v = getenv(name);
    if (!v || !*v)
        return 0;
    if (!v[strspn(v, "0123456789")] && env_number(name) <= most)
        return env_number(name);
    mr_say_plain(complaint);
    return 0;
}

/* A switch: `otherwise` where nothing is said, and with one line where it is neither on nor off. */
static bool env_switch(const char *name, bool otherwise, const char *complaint)
{
    static const char *const words[] = {"false", "true", "0", "1", "no", "yes", "off", "on"};
    const char *v = getenv(name);
    for (size_t i = 0; v && i < MR_ARRAY_LEN(words); i++)
        if (!strcasecmp(v, words[i]))
            return i % 2;
    if (v && *v)
        mr_say_plain(complaint);
    return otherwise;
}

/* A size as the command takes it, but whole numbers only. False: it is none. */
static bool env_bytes(const char *name, uint64_t *out)
{
    static const struct {
        char name[4];
        uint64_t factor;
    } units[] = {{"", 1},           {"B", 1},        {"K", MR_KIB},      {"M", MR_MIB},           {"G", MR_GIB},
                 {"T", 1ull << 40}, {"KiB", MR_KIB}, {"MiB", MR_MIB},    {"GiB", MR_GIB},         {"TiB", 1ull << 40},
                 {"KB", 1000},      {"MB", 1000000}, {"GB", 1000000000}, {"TB", 1000000000000ull}};
    const char *v = getenv(name);
    uint64_t n = 0;
    *out = 0;
    if (!v || !*v)
        return true;
    bool ok = *v >= '0' && *v <= '9';
    for (; (*v >= '0' && *v <= '9') || *v == '_'; v++)
        if (*v != '_')
            ok = ok && !__builtin_mul_overflow(n, 10, &n) && !__builtin_add_overflow(n, (uint64_t)(*v - '0'), &n);
    v += strspn(v, " ");
    for (size_t i = 0; ok && i < MR_ARRAY_LEN(units); i++)
        if (!strncasecmp(v, units[i].name, sizeof(units[i].name)))
            return !__builtin_mul_overflow(n, units[i].factor, out);
    return false;
}

static void say_of(const char *before, const char *what, size_t len, const char *after)
{
    char line[256];
    size_t n = mr_copy_text(line, sizeof(line), before), m = MR_MIN(len, (size_t)80);
    memcpy(line + n, what, m);
    mr_copy_text(line + n + m, sizeof(line) - n - m, after);
    mr_say_plain(line);
}

/* A variable that looks like one of ours but is none is a misspelling. */
static void check_variables(void)
{
    static const char *const known[] = {"OUT",    "INCLUDE", "EXCLUDE",  "GROUPS", "START",  "SIGNAL",      "SAMPLE",
                                        "STRAYS", "MMAP",    "MAX_SIZE", "LINGER", "PYTHON", "PYTHON_SKIP", NULL};
    const size_t prefix = sizeof("MILLRACE_TRACE_") - 1;
    for (char **e = environ; *e; e++) {
        const char *name = *e + prefix;
        bool ours = !strncmp(*e, "MILLRACE_TRACE_", prefix);
        for (const char *const *k = known; ours && *k; k++)
            ours = strlen(*k) != strcspn(name, "=") || strncmp(*k, name, strlen(*k));
        if (ours)
            say_of("environment variable '", *e, strcspn(*e, "="), "' is none of the tracer's");
    }
}

/* Globs are for absolute paths: one that begins with a name matches none. */
static void check_globs(const char *globs)
{
    for (const char *p = globs; *p;) {
        size_t n = strcspn(p, "\n");
        if (n && !strchr("/*?[", *p))
            say_of("the glob '", p, n, "' matches no file: it is compared with absolute paths");
        p += n + (p[n] != 0);
    }
}

/* What the command does where there is one. */
static void read_for_library(void)
{
    check_variables();
    check_globs(mr_config.include);
    check_globs(mr_config.exclude);
    if (env_switch("MILLRACE_TRACE_MMAP", false,
                   "MILLRACE_TRACE_MMAP: neither true nor false; page faults are not recorded"))
        mr_say_plain("MILLRACE_TRACE_MMAP: the library alone does not record page faults; run the program by 'millrace "
                     "trace --mmap'");
    if (!env_bytes("MILLRACE_TRACE_MAX_SIZE", &mr_config.max_bytes))
        mr_say_plain("MILLRACE_TRACE_MAX_SIZE: not a size in bytes (4096, 256KiB, 100MB); everything is kept");
}

static bool word_in(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; *p;) {
        size_t k = strcspn(p, ",: ");
        if (k == n && !strncasecmp(p, word, n))
            return true;
        p += k + (p[k] != 0);
    }
    return false;
}

static void check_groups(const char *list)
{
    for (const char *p = list; *p;) {
        size_t k = strcspn(p, ",: ");
        if (k && !mr_call_group_known(p, k))
            say_of("MILLRACE_TRACE_GROUPS: there is no group or call '", p, k, "'");
        p += k + (p[k] != 0);
    }
}

/* Groups are layers (posix, stdio, uring, mpiio, hdf5, app), kinds (open, read, stat ...) or names of calls. */
static void read_groups(void)
{
    const char *list = getenv("MILLRACE_TRACE_GROUPS");
    bool all = !list || !*list || word_in(list, "all");
    if (!all)
        check_groups(list);
    for (unsigned c = 1; c < MR_CALL_COUNT; c++) {
        const struct mr_call_info *i = mr_call_get(c);
        mr_core.call_on[c] = all || word_in(list, mr_layer_name(i->layer)) || word_in(list, mr_kind_name(i->kind)) ||
                             word_in(list, i->name);
    }
    mr_core.call_on[MR_CALL_more] = 1;
    for (unsigned c = MR_CALL_metadata + 1; c < MR_CALL_COUNT && mr_core.sample > 1; c++)
        if (mr_core.call_on[c] && mr_call_get(c)->kind != MR_EV_PROCESS)
            mr_core.call_on[c] = 2;
    mr_core.choosy = !all || mr_core.sample > 1;
}

void mr_config_read(void)
{
    struct mr_config *c = &mr_config;
    c->collected = env_text("MILLRACE_SPOOL", c->dir, sizeof(c->dir)) > 0;
    if (!c->collected && !env_text("MILLRACE_TRACE_OUT", c->dir, sizeof(c->dir)))
        mr_copy_text(c->dir, sizeof(c->dir), "millrace-trace");
    if (c->dir[0] != '/') {
        char name[MR_PATH_BYTES];
        mr_copy_text(name, sizeof(name), c->dir);
        long n = mr_sys2(SYS_getcwd, c->dir, sizeof(c->dir) - 1);
        n = n > 0 ? n - 1 : 0;
        c->dir[n] = '/';
        mr_copy_text(c->dir + n + 1, sizeof(c->dir) - (size_t)n - 1, name);
    }
    if (!c->collected)
        mr_copy_text(c->out + mr_copy_text(c->out, sizeof(c->out), "MILLRACE_TRACE_OUT="), MR_PATH_BYTES, c->dir);
    env_globs("MILLRACE_TRACE_INCLUDE", c->include, "MILLRACE_TRACE_INCLUDE: too long; every file is recorded");
    env_globs("MILLRACE_TRACE_EXCLUDE", c->exclude, "MILLRACE_TRACE_EXCLUDE: too long; no file is left out");
    c->start = env_switch("MILLRACE_TRACE_START", true, "MILLRACE_TRACE_START: neither true nor false; it starts");
    c->strays = env_switch("MILLRACE_TRACE_STRAYS", false,
                           "MILLRACE_TRACE_STRAYS: neither true nor false; they are not recorded");
    int64_t signal_number =
        env_option("MILLRACE_TRACE_SIGNAL", 64, "MILLRACE_TRACE_SIGNAL: not a signal's number; there is none");
    int64_t sample = env_option("MILLRACE_TRACE_SAMPLE", 1000000000,
                                "MILLRACE_TRACE_SAMPLE: not a number up to 1000000000; every call is kept");
    c->signal = mr_signal_can_switch(signal_number) ? (int)signal_number : 0;
    if (signal_number && !c->signal)
        mr_say_plain("MILLRACE_TRACE_SIGNAL: no program can handle this signal; there is none");
    mr_core.sample = sample > 1 ? (uint32_t)sample : 0;
    read_groups();
    if (env_switch("MILLRACE_TRACE_PYTHON", false,
                   "MILLRACE_TRACE_PYTHON: neither true nor false; Python is not instrumented"))
        mr_python_begin();
    if (!c->collected)
        read_for_library();
}

bool mr_path_wanted(const char *path)
{
    if (mr_config.include[0] && !mr_globs_match(mr_config.include, path))
        return false;
    return !mr_config.exclude[0] || !mr_globs_match(mr_config.exclude, path);
}

/* ---- the ring file ---- */

/* Inside a container our pid may mean another process to the collector. */
static uint64_t pid_space(void)
{
    char text[64];
    uint64_t v = 0;
    long n = mr_sys4(SYS_readlinkat, AT_FDCWD, "/proc/self/ns/pid", text, sizeof(text));
    for (long i = 0; i < n; i++)
        if (text[i] >= '0' && text[i] <= '9')
            v = v * 10 + (uint64_t)(text[i] - '0');
    return v;
}

long mr_open(long folder, const char *path, int flags)
{
    struct rlimit before, more;
    long fd = mr_sys4(SYS_openat, folder, path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd != -EMFILE || mr_sys4(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &before) || before.rlim_cur >= before.rlim_max)
        return fd;
    more = before;
    more.rlim_cur = MR_MIN(before.rlim_cur + 16, before.rlim_max);
    if (mr_sys4(SYS_prlimit64, 0, RLIMIT_NOFILE, &more, NULL))
        return fd;
    fd = mr_sys4(SYS_openat, folder, path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    mr_sys4(SYS_prlimit64, 0, RLIMIT_NOFILE, &before, NULL);
    return fd;
}

/* A file that grows to this size would end the program by SIGXFSZ where its limit is lower: it is raised for that
 * moment, if it may be. *before takes it back. */
static bool raise_file_limit(uint64_t bytes, struct rlimit *before)
{
    *before = (struct rlimit){RLIM_INFINITY, RLIM_INFINITY};
    mr_sys4(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, before);
    const struct rlimit more = {.rlim_cur = bytes, .rlim_max = MR_MAX(before->rlim_max, (rlim_t)bytes)};
    return before->rlim_cur >= bytes || mr_sys4(SYS_prlimit64, 0, RLIMIT_FSIZE, &more, NULL) == 0;
}

static void restore_file_limit(uint64_t bytes, const struct rlimit *before)
{
    if (before->rlim_cur < bytes)
        mr_sys4(SYS_prlimit64, 0, RLIMIT_FSIZE, before, NULL);
}

static long set_size(long fd, uint64_t bytes)
{
    struct rlimit before;
    if (!raise_file_limit(bytes, &before))
        return -EFBIG;
    long rc = mr_sys2(SYS_ftruncate, fd, bytes);
    restore_file_limit(bytes, &before);
    return rc;
}

/* A ring. Where the kernel locks what is mapped, and with it makes all of it exist, the first page is unlocked, and
 * grows: the rest is as the first is. */
static long map_ring(long fd, size_t bytes)
{
    size_t first = mr_future_locked ? 4096 : bytes;
    long p = mr_sys6(SYS_mmap, 0, (long)first, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (!mr_future_locked || (p < 0 && p > -4096))
        return p;
    mr_sys2(SYS_munlock, p, first);
    long whole = mr_sys4(SYS_mremap, p, first, bytes, MREMAP_MAYMOVE);
    if (whole < 0 && whole > -4096)
        mr_sys2(SYS_munmap, p, first);
    return whole;
}

#define PROCESS_PRESENT 8192u /* bytes of a process's description that are there from the start */

int mr_segment_open(uint32_t index)
{
    static char path[MR_PATH_BYTES]; /* of whoever holds claim_lock, or begins the process; stacks may be small */
    size_t bytes = MR_RING_SEGMENT_BYTES(index);
    mr_own_path(path, (int)index);
    long fd = mr_open(AT_FDCWD, path, O_RDWR | O_CREAT | O_EXCL);
    if (fd < 0)
        return (int)fd;
    mr_sys2(SYS_fchmod, fd, 0600); /* whatever the umask */
    long rc = set_size(fd, bytes);
    long p = rc ? rc : map_ring(fd, bytes);
    if (p > 0) /* in a folder on a disk: a page that is touched is needed, those behind it are not to be read ahead */
        mr_sys3(SYS_madvise, p, bytes, MADV_RANDOM);
    mr_sys1(SYS_close, fd);
    if (p < 0 && p > -4096) {
        mr_sys3(SYS_unlinkat, AT_FDCWD, path, 0);
        return (int)p;
    }
    struct mr_ring_header *h = (void *)p;
    if (!mr_populate(h, index ? 4096 : MR_RING_PROCESS_AT + PROCESS_PRESENT)) {
        mr_sys2(SYS_munmap, h, bytes);
        mr_sys3(SYS_unlinkat, AT_FDCWD, path, 0);
        return -ENOSPC;
    }
    h->version = MR_RING_VERSION;
    h->segment = index;
    h->key = mr_process.key;
    h->pid = mr_process.pid;
    h->pid_space = pid_space();
    h->tick_is_tsc = mr_core.use_tsc;
    mr_calibrate(&h->tick0, &h->mono0, &h->real0);
    atomic_store(&h->state, MR_RING_RUNNING);
    mr_process.segment[index] = h;
    mr_process.segments = index + 1;
    atomic_store(&mr_process.segment[0]->segments, index + 1);
    if (index)
        __atomic_store_n(&h->magic, MR_RING_MAGIC, __ATOMIC_RELEASE);
    return 0; /* segment 0 becomes valid when the process is described */
}

static bool write_at(long fd, const void *from, uint64_t bytes, uint64_t at)
{
    while (bytes) {
        long n = mr_sys4(SYS_pwrite64, fd, from, bytes, at);
        if (n <= 0 && n != -EINTR)
            return false;
        n = n > 0 ? n : 0;
        from = (const char *)from + n;
        bytes -= (uint64_t)n;
        at += (uint64_t)n;
    }
    return true;
}

/* Of a slot: what describes it, and the records that are nowhere else. */
static bool copy_slot(long fd, const struct mr_ring_header *h, unsigned i)
{
    struct mr_slot *s = mr_ring_slot((struct mr_ring_header *)h, i);
    uint64_t at = (uint64_t)((const char *)s - (const char *)h), from = atomic_load(&s->written),
             to = atomic_load(&s->head);
    s->populated = MR_MIN(s->populated, to / MR_PAGE_CELLS * MR_PAGE_CELLS);
    atomic_store(&s->freed, to); /* as if given back: memory for what comes is taken anew */
    bool ok = write_at(fd, s, offsetof(struct mr_slot, cell), at);
    for (uint64_t end; ok && from < to; from = end) {
        end = MR_MIN(to, (from / MR_RING_CELLS + 1) * MR_RING_CELLS);
        const uint64_t *cell = &s->cell[from & (MR_RING_CELLS - 1)];
        ok = write_at(fd, cell, (end - from) * sizeof(*cell), (uint64_t)((const char *)cell - (const char *)h));
    }
    return ok;
}

/* The file of a segment has been removed and is needed after all: one with the same content takes its name and its
 * place in memory. */
static int segment_again(uint32_t index)
{
    static char path[MR_PATH_BYTES];
    struct mr_ring_header *h = mr_process.segment[index];
    uint64_t bytes = MR_RING_SEGMENT_BYTES(index), first = index ? sizeof(*h) : MR_RING_STRINGS_AT + mr_names_present();
    struct rlimit before;
    mr_own_path(path, (int)index);
    long fd = mr_open(AT_FDCWD, path, O_RDWR | O_CREAT | O_EXCL);
    if (fd < 0)
        return (int)fd;
    mr_sys2(SYS_fchmod, fd, 0600);
    bool raised = raise_file_limit(bytes, &before),
         ok = raised && mr_sys2(SYS_ftruncate, fd, bytes) == 0 && write_at(fd, h, first, 0);
    for (unsigned i = 0; ok && i < h->slots_present; i++)
        ok = copy_slot(fd, h, i);
    if (raised)
        restore_file_limit(bytes, &before);
    long p = ok ? mr_sys6(SYS_mmap, (long)h, (long)bytes, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0)
                : -ENOSPC;
    mr_sys1(SYS_close, fd);
    if (p < 0 && p > -4096) {
        mr_sys3(SYS_unlinkat, AT_FDCWD, path, 0);
        return (int)p;
    }
    mr_sys3(SYS_madvise, h, bytes, MADV_RANDOM);
    return 0;
}

static int32_t first_env(const char *const *names)
{
    for (; *names; names++) {
        int64_t v = env_number(*names);
        if (v >= 0)
            return (int32_t)v;
    }
    return -1;
}

static uint32_t read_small_file(const char *path, char *out, uint32_t cap)
{
    uint32_t n = 0;
    long fd = mr_open(AT_FDCWD, path, O_RDONLY);
    if (fd < 0)
        return 0;
    for (long r; n < cap && (r = mr_sys3(SYS_read, fd, out + n, cap - n)) > 0;)
        n += (uint32_t)r;
    mr_sys1(SYS_close, fd);
    return n;
}

void mr_process_describe(bool forked)
{
    static const char *const rank[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", NULL};
    static const char *const world[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", NULL};
    static const char *const lrank[] = {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID",
                                        NULL};
    static const char *const lworld[] = {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", NULL};
    static char text[MR_RING_PROCESS_BYTES];
    struct mr_ring_header *h = mr_process.segment[0];
    struct utsname u;
    static char exe[MR_PATH_BYTES];
    memset(&u, 0, sizeof(u));
    mr_sys1(SYS_uname, &u);
    long n = mr_sys4(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", exe, sizeof(exe));
    uint32_t cmd = read_small_file("/proc/self/cmdline", text, sizeof(text));
    const struct mr_process_info p = {
        .key = mr_process.key,
        .pid = mr_process.pid,
        .ppid = (uint32_t)mr_sys0(SYS_getppid),
        .start_ns = h->mono0,
        .start_real_ns = h->real0,
        .rank = first_env(rank),
        .world = first_env(world),
        .local_rank = first_env(lrank),
        .local_world = first_env(lworld),
        .uid = (uint32_t)mr_sys0(SYS_getuid),
        .flags = (forked ? MR_PROCESS_FORKED : 0) | (mr_core.use_tsc ? MR_PROCESS_TSC : 0),
        .host = u.nodename,
        .host_len = (uint32_t)strlen(u.nodename),
        .exe = exe,
        .exe_len = n > 0 ? (uint32_t)n : 0,
        .cmdline = text,
        .cmdline_len = cmd ? cmd - 1 : 0,
    };
    uint8_t *to = (uint8_t *)h + MR_RING_PROCESS_AT;
    uint32_t room = cmd > 2048 && mr_populate(to, MR_RING_PROCESS_BYTES) ? MR_RING_PROCESS_BYTES : PROCESS_PRESENT;
    h->process_bytes = (uint32_t)mr_mrt_encode_process(&p, to, room);
    __atomic_store_n(&h->magic, MR_RING_MAGIC, __ATOMIC_RELEASE);
}

static void map_session(void)
{
    static char path[MR_PATH_BYTES];
    size_t n = mr_copy_text(path, sizeof(path) - 16, mr_config.dir);
    mr_copy_text(path + n, 16, "/session");
    long fd = mr_open(AT_FDCWD, path, O_RDONLY);
    if (fd < 0)
        return;
    long p = mr_sys6(SYS_mmap, 0, 4096, PROT_READ, MAP_SHARED, fd, 0);
    mr_sys1(SYS_close, fd);
    if (p > 0 || p < -4095)
        mr_process.session = (void *)p;
    if (mr_process.session && mr_process.session->magic != MR_SESSION_MAGIC)
        mr_process.session = NULL;
}

enum mr_trace_mode mr_mode(void)
{
    const struct mr_session *s = mr_process.session;
    if (!s || mr_process.late)
        return MR_MODE_SELF;
    uint32_t state = atomic_load_explicit(&s->collecting, memory_order_relaxed);
    return state == MR_SESSION_OFF ? MR_MODE_OFF : state ? MR_MODE_COLLECTED : MR_MODE_SELF;
}

static void make_file_table(void)
{
    struct rlimit limit = {.rlim_max = 4096};
    mr_sys4(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &limit);
    uint64_t n = MR_MIN((uint64_t)limit.rlim_max, (uint64_t)1 << 20);
    mr_core.file_of = mr_map(n * sizeof(uint32_t));
    mr_core.files = mr_core.file_of ? (uint32_t)n : 0;
}

static void on_signal(int number)
{
    (void)number;
    if (mr_live.alive)
        mr_switch(!mr_live.active);
}

/* With the folders above it. */
static void make_folder(char *path)
{
    for (char *p = path + 1; *p; p++)
        if (*p == '/') {
            *p = 0;
            mr_sys3(SYS_mkdirat, AT_FDCWD, path, 0777);
            *p = '/';
        }
    if (mr_sys3(SYS_mkdirat, AT_FDCWD, path, 0700) == 0)
        mr_sys3(SYS_fchmodat, AT_FDCWD, path, 0700); /* whatever the umask */
}

/* pthread_atfork as glibc has it; weak, because a program of musl must come as far as to start itself without us. */
extern int __register_atfork(void (*before)(void), void (*parent)(void), void (*child)(void), void *library)
    __attribute__((weak));
extern MR_HIDDEN void *__dso_handle;

static void first_begin(void)
{
    mr_core.use_tsc = tsc_is_invariant();
    mr_config_read();
    make_file_table();
    if (!mr_config.collected)
        make_folder(mr_config.dir);
    mr_sys3(SYS_madvise, &mr_live, sizeof(mr_live), MADV_WIPEONFORK);
    mr_names_begin();
    if (__register_atfork)
        __register_atfork(NULL, NULL, mr_after_fork, &__dso_handle);
    mr_core.switched_on = mr_config.start;
    if (mr_config.signal)
        signal(mr_config.signal, on_signal);
    if (mr_config.strays)
        mr_strays_begin();
}

static void say_no_ring(int rc)
{
    char line[384];
    size_t n = mr_copy_text(line, sizeof(line), "cannot create a ring file in the trace folder '");
    n += mr_copy_text(line + n, sizeof(line) - n - 1, mr_config.dir);
    mr_copy_text(line + n, sizeof(line) - n, "'");
    mr_say(line, rc);
}

bool mr_process_begin(bool forked)
{
    if (!forked)
        first_begin();
    else
        mr_files_forget();
    /* The parent's rings stay mapped in a child and are never touched again. */
    memset(&mr_process, 0, sizeof(mr_process));
    mr_process.pid = (uint32_t)mr_sys0(SYS_getpid);
    if (mr_sys3(SYS_getrandom, &mr_process.key, sizeof(mr_process.key), 0) != sizeof(mr_process.key))
        mr_process.key = mr_stamp() * 0x9e3779b97f4a7c15ull + mr_process.pid;
    mr_names_reset();
    mr_core.epoch++;
    if (mr_config.collected)
        map_session();
    int rc = mr_segment_open(0);
    if (rc) { /* told by the command at the end, rather than by every process into the program's stderr */
        if (!mr_config.collected || !mr_note_self('r'))
            say_no_ring(rc);
        return false;
    }
    mr_process_describe(forked);
    if (!forked && !mr_config.strays)
        mr_note_own_calls();
    mr_live.alive = 1;
    mr_set_active(mr_core.switched_on);
    return true;
}

/* ---- ending ---- */

/* Whether a thread runs, wants to run or waits for a disk, not for something that may never come. */
static bool is_busy(uint32_t tid)
{
    char path[64], text[256];
    size_t n = mr_copy_text(path, sizeof(path), "/proc/self/task/");
    n += mr_decimal(path + n, tid);
    mr_copy_text(path + n, sizeof(path) - n, "/stat");
    uint32_t len = read_small_file(path, text, sizeof(text) - 1);
    text[len] = 0;
    const char *state = strrchr(text, ')');
    return state && state[1] == ' ' && (state[2] == 'R' || state[2] == 'D');
}

/* How many other threads have rings, what they have recorded so far, and how many of them are busy if that is asked
 * for. */
static unsigned others(uint64_t *records, unsigned *busy)
{
    unsigned n = 0;
    *records = 0;
    for (uint32_t g = 0; g < mr_process.segments; g++)
        for (unsigned i = 0; i < mr_ring_slots(mr_process.segment[g]); i++) {
            struct mr_slot *s = mr_ring_slot(mr_process.segment[g], i);
            if (s == mr_tls.slot || atomic_load(&s->state) != MR_SLOT_LIVE)
                continue;
            *records += atomic_load(&s->head);
            if (busy)
                *busy += is_busy(s->tid);
            n++;
        }
    return n;
}

/* Whether other threads are at work. They will be until the process has gone: their rings must stay, for `millrace
 * recover`. */
static bool others_record(void)
{
    uint64_t before, after;
    unsigned busy = 0;
    return others(&before, &busy) && (busy || (others(&after, NULL) && before != after));
}

void mr_before_exit(void)
{
    if (!mr_live.alive || mr_tls.vforked)
        return;
    if (mr_mode() != MR_MODE_SELF || (!mr_process.late && others_record())) {
        atomic_store(&mr_process.segment[0]->state, MR_RING_EXITED);
        return;
    }
    int keep = errno;
    uint32_t busy = mr_tls.busy;
    uint64_t signals = mr_signals_block(); /* nobody would store what a handler parks */
    mr_tls.busy = 1;
    mr_process.late = true;
    mr_tls.limit = 0;
    mr_drain_all(MR_HOW_EXIT);
    mr_tls.busy = busy;
    mr_signals_restore(signals);
    errno = keep;
}

static bool drained_for_exec;

void mr_before_exec(void)
{
    if (!mr_live.alive || mr_tls.vforked)
        return;
    uint64_t ignored;
    drained_for_exec = mr_mode() == MR_MODE_SELF && !others(&ignored, NULL); /* they go on if exec fails */
    if (drained_for_exec) {
        uint32_t busy = mr_tls.busy;
        uint64_t signals = mr_signals_block();
        mr_tls.busy = 1;
        drained_for_exec = mr_drain_all(MR_HOW_EXEC);
        mr_tls.busy = busy;
        mr_signals_restore(signals);
    }
    atomic_store(&mr_process.segment[0]->state, MR_RING_EXEC);
}

/* The rings are written and removed: they come back, for the process goes on. */
static void rings_again(void)
{
    int rc = 0;
    uint32_t busy = mr_tls.busy;
    uint64_t signals = mr_signals_block();
    mr_tls.busy = 1;
    mr_spin_lock(&mr_process.claim_lock);
    for (uint32_t g = 0; g < mr_process.segments && !rc; g++)
        rc = segment_again(g);
    mr_spin_unlock(&mr_process.claim_lock);
    mr_tls.limit = 0; /* memory that was there is not */
    mr_tls.busy = busy;
    mr_signals_restore(signals);
    if (rc)
        mr_stop_tracing("cannot create the ring file in the trace folder", rc);
}

void mr_after_exec(void)
{
    if (!mr_live.alive || mr_tls.vforked)
        return;
    bool counted = mr_exec_withdraw() && drained_for_exec;
    mr_process.events -= counted;
    atomic_store(&mr_process.segment[0]->state, MR_RING_RUNNING);
    if (drained_for_exec && !mr_process.late) /* at the end of the program every event is written at once */
        rings_again();
}
