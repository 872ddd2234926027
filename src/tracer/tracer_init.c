/* The beginning of a traced process: the description of it, the session, the first ring; the same again in a forked
 * child. */
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
#include <sys/utsname.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static uint32_t tsc_is_invariant(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    if (__get_cpuid(0x80000007, &a, &b, &c, &d))
        return d >> 8 & 1;
#endif
    return 0;
}

static int32_t first_env(const char *const *names)
{
    for (; *names; names++) {
        int64_t v = mr_env_number(*names);
        if (v >= 0)
            return (int32_t)v;
    }
    return -1;
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
    uint32_t cmd = mr_read_small_file("/proc/self/cmdline", text, sizeof(text));
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
    uint32_t room = cmd > 2048 && mr_populate(to, MR_RING_PROCESS_BYTES) ? MR_RING_PROCESS_BYTES : MR_PROCESS_PRESENT;
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
    mr_core.file_of = mr_map_pages(n * sizeof(uint32_t));
    mr_core.files = mr_core.file_of ? (uint32_t)n : 0;
}

static void on_signal(int number)
{
    (void)number;
    if (mr_live.alive)
        /* NOLINTNEXTLINE(bugprone-signal-handler): it only stores, what it looks up was found when the tracer began */
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
    if (rc) { /* reported once by the command at the end, instead of by every process on the program's stderr */
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
