/* Page faults as events: per process and thread a list, encoded into blocks of faults.mrt in the spool folder, which
 * the collector joins to the trace. All processes share the table of names of the first one. */
#include "launch/fault_writer.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/rng.h"
#include "base/map.h"
#include "base/vec.h"
#include "event/calls.h"
#include "event/mrt_file.h"
#include "event/path_glob.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

struct lane { /* the events of one thread that are not written yet */
    uint32_t tid;
    struct mr_raw *event;
    uint32_t n;
    size_t cap;
    uint64_t written;
};

struct mr_fault_process {
    uint32_t pid, index; /* the one with index 0 owns the names */
    uint32_t exe;        /* number of a file, for when /proc has forgotten the process */
    bool described;
    struct lane *lane;
    uint32_t lanes;
    size_t lane_cap;
};

struct mr_fault_writer {
    struct mr_fault_filter filter;
    struct mr_fault_process **process;
    size_t processes, process_cap;
    struct mr_map file_of; /* by hash of a path: its number + 1; 1: filtered out */
    uint8_t *arena;
    size_t arena_used, arena_cap, arena_written;
    uint32_t strings, strings_written;
    struct mr_mrt_writer *writer;
    void *workspace;
    uint8_t *out;
    struct mr_calibration cal;
    uint64_t key, lost;
    long page;
    int rc; /* the first failure to write; nothing is written after it */
    struct mr_error error;
};

/* ---- names ---- */

static bool passes_filter(const struct mr_fault_writer *f, const char *path)
{
    size_t n = strlen(f->filter.spool);
    if (path[0] != '/' || path[1] == '/' || !strncmp(path, "/dev/zero", 9) || !strncmp(path, "/SYSV", 5) ||
        (!strncmp(path, f->filter.spool, n) && path[n] == '/'))
        return false;
    return (!f->filter.include[0] || mr_globs_match(f->filter.include, path)) &&
           !mr_globs_match(f->filter.exclude, path);
}

static uint32_t append_name(struct mr_fault_writer *f, const char *path, size_t len)
{
    size_t bytes = MR_ARENA_STRING_BYTES(len);
    if (mr_vec_reserve(&f->arena, &f->arena_cap, f->arena_used + bytes, 1) < 0)
        return 0;
    struct mr_arena_string *a = (void *)(f->arena + f->arena_used);
    memset(a, 0, bytes);
    a->len = (uint32_t)len;
    a->kind = MR_STR_PATH;
    memcpy(a->text, path, len);
    f->arena_used += bytes;
    return ++f->strings;
}

static const struct mr_arena_string *name_text(const struct mr_fault_writer *f, uint32_t id)
{
    for (size_t at = 0; id && at < f->arena_used;) {
        const struct mr_arena_string *a = (const void *)(f->arena + at);
        if (!--id)
            return a;
        at += MR_ARENA_STRING_BYTES(a->len);
    }
    return NULL;
}

/* Paths are identified by a 64-bit hash. */
uint32_t mr_fault_writer_file(struct mr_fault_writer *f, const char *path)
{
    size_t len = strlen(path);
    uint64_t *at = mr_map_put(&f->file_of, mr_hash_bytes(path, len, 0));
    if (at && !*at)
        *at = 1u + (passes_filter(f, path) ? append_name(f, path, len) : 0);
    return at ? (uint32_t)*at - 1 : 0;
}

/* ---- writing ---- */

static void append(struct mr_fault_writer *f, size_t bytes)
{
    if (f->rc == 0 && bytes)
        f->rc = mr_mrt_writer_append(f->writer, f->out, bytes, &f->error);
}

static uint64_t key_of(const struct mr_fault_writer *f, const struct mr_fault_process *p)
{
    return p->index ? mr_mix64(f->key + p->index) : f->key;
}

static uint32_t read_proc(uint32_t pid, const char *what, char *out, size_t cap)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%u/%s", pid, what);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, cap);
    if (fd >= 0)
        close(fd);
    return n > 0 ? (uint32_t)n : 0;
}

/* The rank of a process that still runs, from its environment. */
static int32_t rank_of(uint32_t pid)
{
    static const char *const names[] = {"RANK=", "OMPI_COMM_WORLD_RANK=", "PMIX_RANK=", "PMI_RANK=", "SLURM_PROCID="};
    static char text[128 << 10];
    uint32_t n = read_proc(pid, "environ", text, sizeof(text) - 1);
    text[n] = 0;
    for (size_t k = 0; k < MR_ARRAY_LEN(names); k++)
        for (const char *p = text; p < text + n; p += strlen(p) + 1)
            if (!strncmp(p, names[k], strlen(names[k])))
                return (int32_t)strtol(p + strlen(names[k]), NULL, 10);
    return -1;
}

static void describe(struct mr_fault_writer *f, struct mr_fault_process *p)
{
    char host[256] = "unknown", exe[4096], words[4096], link[64];
    struct mr_process_info i = {.key = key_of(f, p),
                                .pid = p->pid,
                                .start_ns = f->cal.mono0,
                                .start_real_ns = f->cal.real0,
                                .rank = rank_of(p->pid),
                                .world = -1,
                                .local_rank = -1,
                                .local_world = -1,
                                .uid = (uint32_t)getuid(),
                                .host = host,
                                .exe = exe,
                                .cmdline = words,
                                .names_key = f->key,
                                .flags = p->index ? MR_PROCESS_SHARES_NAMES : 0};
    if (p->described)
        return;
    gethostname(host, sizeof(host) - 1);
    snprintf(link, sizeof(link), "/proc/%u/exe", p->pid);
    ssize_t n = readlink(link, exe, sizeof(exe));
    i.host_len = (uint32_t)strlen(host);
    i.exe_len = n > 0 ? (uint32_t)n : 0;
    if (!i.exe_len) { /* it has ended */
        const struct mr_arena_string *a = name_text(f, p->exe);
        i.exe_len = a ? MR_MIN(a->len, (uint32_t)sizeof(exe)) : 0;
        memcpy(exe, a ? a->text : "", i.exe_len);
    }
    i.cmdline_len = read_proc(p->pid, "cmdline", words, sizeof(words));
    i.cmdline_len -= i.cmdline_len > 0;
    struct mr_mrt_block b = {
        .type = MR_MRT_PROCESS, .key = i.key, .count = 1, .first_ns = f->cal.mono0, .last_ns = f->cal.mono0};
    b.payload_bytes = (uint32_t)mr_mrt_encode_process(&i, f->out + MR_MRT_HEADER, MR_RING_PROCESS_BYTES);
    append(f, mr_mrt_seal(f->out, &b));
    p->described = true;
}

static void write_names(struct mr_fault_writer *f)
{
    while (f->arena_written < f->arena_used && f->rc == 0) {
        uint64_t bytes;
        uint32_t count;
        size_t n = mr_mrt_encode_strings(f->workspace, f->arena + f->arena_written, f->arena_used - f->arena_written,
                                         f->key, f->strings_written + 1, f->out, MR_MRT_EVENTS_MAX, &bytes, &count);
        if (!count)
            break;
        append(f, n);
        f->arena_written += bytes;
        f->strings_written += count;
    }
}

static void write_lane(struct mr_fault_writer *f, struct mr_fault_process *p, uint32_t index)
{
    struct lane *l = &p->lane[index];
    describe(f, f->process[0]);
    describe(f, p);
    write_names(f);
    f->cal.tick1 = f->cal.mono1 = mr_now_ns() + 1;
    for (uint32_t at = 0, taken; at < l->n && f->rc == 0; at += taken) {
        struct mr_mrt_block b;
        size_t n = mr_mrt_encode_records(f->workspace, l->event + at, l->n - at, &f->cal, key_of(f, p), l->tid,
                                         ((uint64_t)index & 0xffff) << 48 | (l->written + at), p->index ? 0 : f->lost,
                                         f->out, &taken, &b);
        append(f, n);
    }
    l->written += l->n;
    l->n = 0;
}

static struct lane *lane_of(struct mr_fault_process *p, uint32_t tid)
{
    uint32_t i = 0;
    while (i < p->lanes && p->lane[i].tid != tid)
        i++;
    if (i == p->lanes) {
        if (mr_vec_reserve(&p->lane, &p->lane_cap, i + 1, sizeof(*p->lane)) < 0)
            return NULL;
        p->lane[p->lanes++] = (struct lane){.tid = tid};
    }
    struct lane *l = &p->lane[i];
    return mr_vec_reserve(&l->event, &l->cap, l->n + 2, sizeof(*l->event)) < 0 ? NULL : l;
}

void mr_fault_writer_put(struct mr_fault_writer *f, struct mr_fault_process *p, const struct mr_fault *fault)
{
    struct lane *l = lane_of(p, fault->tid);
    if (!l) {
        f->lost++;
        return;
    }
    p->exe = fault->exe;
    uint64_t page = (uint64_t)f->page, offset = fault->offset / page * page;
    unsigned call = fault->major ? MR_CALL_major_fault : MR_CALL_minor_fault;
    l->event[l->n++] = (struct mr_raw){{offset << 16 | call, (uint64_t)fault->file << 32, fault->time_ns, page << 16}};
    if (l->n >= MR_BLOCK_EVENTS)
        write_lane(f, p, (uint32_t)(l - p->lane));
}

void mr_fault_writer_lost(struct mr_fault_writer *f, uint64_t events)
{
    f->lost += events;
}

struct mr_fault_process *mr_fault_writer_process(struct mr_fault_writer *f, uint32_t pid)
{
    if (mr_vec_reserve(&f->process, &f->process_cap, f->processes + 1, sizeof(*f->process)) < 0)
        return NULL;
    struct mr_fault_process *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    *p = (struct mr_fault_process){.pid = pid, .index = (uint32_t)f->processes};
    f->process[f->processes++] = p;
    return p;
}

/* ---- opening and closing ---- */

static void writer_free(struct mr_fault_writer *f)
{
    for (size_t i = 0; i < f->processes; i++) {
        for (uint32_t l = 0; l < f->process[i]->lanes; l++)
            free(f->process[i]->lane[l].event);
        free(f->process[i]->lane);
        free(f->process[i]);
    }
    free(f->process);
    mr_map_done(&f->file_of);
    free(f->arena);
    free(f->workspace);
    free(f->out);
    free(f);
}

static int writer_prepare(struct mr_fault_writer *f, struct mr_error *err)
{
    char path[4096];
    struct timespec real;
    if (getrandom(&f->key, sizeof(f->key), 0) != sizeof(f->key))
        f->key = mr_mix64(mr_now_ns() ^ (uint64_t)getpid() << 32);
    clock_gettime(CLOCK_REALTIME, &real);
    f->cal.tick0 = f->cal.mono0 = mr_now_ns();
    f->cal.real0 = (uint64_t)real.tv_sec * MR_NS_PER_S + (uint64_t)real.tv_nsec;
    f->page = sysconf(_SC_PAGESIZE);
    f->workspace = aligned_alloc(64, MR_ALIGN_UP(mr_mrt_workspace_bytes(), 64));
    f->out = aligned_alloc(64, MR_MRT_EVENTS_MAX + 4096);
    if (!f->workspace || !f->out)
        return mr_error_set(err, -ENOMEM, "cannot record page faults");
    memset(f->workspace, 0, mr_mrt_workspace_bytes());
    snprintf(path, sizeof(path), "%.4000s/faults.mrt", f->filter.spool);
    return mr_mrt_writer_open(path, false, &f->writer, err);
}

int mr_fault_writer_open(const struct mr_fault_filter *filter, struct mr_fault_writer **out, struct mr_error *err)
{
    struct mr_fault_writer *f = calloc(1, sizeof(*f));
    if (!f)
        return mr_error_set(err, -ENOMEM, "cannot record page faults");
    f->filter = *filter;
    int rc = writer_prepare(f, err);
    if (rc < 0) {
        writer_free(f);
        return rc;
    }
    *out = f;
    return 0;
}

int mr_fault_writer_close(struct mr_fault_writer *f, uint64_t *lost, struct mr_error *err)
{
    if (!f)
        return 0;
    for (size_t i = 0; i < f->processes; i++)
        for (uint32_t l = 0; l < f->process[i]->lanes; l++)
            write_lane(f, f->process[i], l);
    int rc = f->rc, closed = mr_mrt_writer_close(f->writer, rc ? &f->error : err);
    if (rc && err)
        *err = f->error;
    *lost = f->lost;
    writer_free(f);
    return rc ? rc : closed;
}
