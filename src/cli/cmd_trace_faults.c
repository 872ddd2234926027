/* Page faults by perf events. Per CPU there is one ring; two events, minor and major faults, write into it, together
 * with records of mappings, forks and execs. Records of different CPUs are put in the order of time before they are
 * used, so a fault is always looked up in the mappings of its moment. A forked process begins with its parent's
 * mappings, exec with none; a new mapping replaces what it covers. The kernel says nothing of mremap: the tracer in the
 * program does (struct mr_moved). Events are written as images of the processes with a table of names of their own. */
#include "cli/cmd_trace_faults.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/rng.h"
#include "event/calls.h"
#include "event/mrt_file.h"
#include "event/path_glob.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define RING_PAGES 128u               /* with the header page what an unprivileged user may lock per CPU */
#define SETTLE_NS (20 * MR_NS_PER_MS) /* a record is in its ring long before this has passed */

struct cpu {
    struct perf_event_mmap_page *head;
    int fd, fd_major;
    uint64_t id_major;
};

#define RECORD_MOVED 0x10000u /* not the kernel's: from the file `moved` */

/* A record of the kernel, as far as it matters. */
struct record {
    uint64_t time, from, len, offset; /* sample: from is the address; moved: offset is the new one */
    uint32_t type, pid, tid, file;    /* fork: file is the parent's pid */
    bool major;
};

struct mapping {
    uint64_t from, to, offset;
    uint32_t file; /* 0: not a file, or not wanted */
};

struct lane {
    uint32_t tid;
    struct mr_raw *event;
    uint32_t n, cap;
    uint64_t written;
};

struct process {
    uint32_t pid, index; /* the one with index 0 owns the names */
    uint32_t exe;        /* file that was mapped first */
    bool described;
    struct mapping *map;
    size_t maps, map_cap;
    struct lane *lane;
    uint32_t lanes;
};

struct name {
    uint64_t hash;
    uint32_t id; /* 0 with a hash: not wanted */
};

struct mr_faults {
    struct mr_faults_options opt;
    struct cpu *cpu;
    unsigned cpus;
    struct record *pending;
    size_t pendings, pending_cap;
    struct process **process;
    size_t processes, process_cap;
    struct name *name;
    size_t name_slots, names;
    uint8_t *arena;
    size_t arena_used, arena_cap, arena_written;
    uint32_t strings, strings_written;
    struct mr_mrt_writer *writer;
    void *workspace;
    uint8_t *out;
    struct mr_calibration cal;
    uint64_t key, lost;
    long page;
    int moved; /* the file `moved` */
    int rc;
    struct mr_error error;
};

/* ---- names ---- */

static bool wanted(const struct mr_faults *f, const char *path)
{
    size_t n = strlen(f->opt.spool);
    if (path[0] != '/' || path[1] == '/' || !strncmp(path, "/dev/zero", 9) || !strncmp(path, "/SYSV", 5) ||
        (!strncmp(path, f->opt.spool, n) && path[n] == '/'))
        return false;
    return (!f->opt.include[0] || mr_globs_match(f->opt.include, path)) && !mr_globs_match(f->opt.exclude, path);
}

static int grow_names(struct mr_faults *f)
{
    size_t slots = f->name_slots ? f->name_slots * 2 : 1024;
    struct name *bigger = calloc(slots, sizeof(*bigger));
    if (!bigger)
        return -ENOMEM;
    for (size_t i = 0; i < f->name_slots; i++)
        if (f->name[i].hash) {
            size_t k = f->name[i].hash & (slots - 1);
            while (bigger[k].hash)
                k = (k + 1) & (slots - 1);
            bigger[k] = f->name[i];
        }
    free(f->name);
    f->name = bigger;
    f->name_slots = slots;
    return 0;
}

static uint32_t append_name(struct mr_faults *f, const char *path, size_t len)
{
    size_t bytes = MR_ARENA_STRING_BYTES(len);
    if (f->arena_used + bytes > f->arena_cap) {
        size_t cap = (f->arena_cap + bytes) * 2;
        uint8_t *bigger = realloc(f->arena, cap);
        if (!bigger)
            return 0;
        f->arena = bigger;
        f->arena_cap = cap;
    }
    struct mr_arena_string *a = (void *)(f->arena + f->arena_used);
    memset(a, 0, bytes);
    a->len = (uint32_t)len;
    a->kind = MR_STR_PATH;
    memcpy(a->text, path, len);
    f->arena_used += bytes;
    return ++f->strings;
}

static const struct mr_arena_string *name_text(const struct mr_faults *f, uint32_t id)
{
    for (size_t at = 0; id && at < f->arena_used;) {
        const struct mr_arena_string *a = (const void *)(f->arena + at);
        if (!--id)
            return a;
        at += MR_ARENA_STRING_BYTES(a->len);
    }
    return NULL;
}

/* The number of a path, 0 if its faults are not wanted. Paths are told apart by a 64-bit hash. */
static uint32_t name_of(struct mr_faults *f, const char *path)
{
    size_t len = strlen(path);
    uint64_t hash = len + 1;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (uint8_t)path[i]) * 0x100000001b3ull;
    hash = mr_mix64(hash) | 1;
    if (f->names * 2 >= f->name_slots && grow_names(f) < 0)
        return 0;
    size_t i = hash & (f->name_slots - 1);
    for (; f->name[i].hash; i = (i + 1) & (f->name_slots - 1))
        if (f->name[i].hash == hash)
            return f->name[i].id;
    f->name[i] = (struct name){.hash = hash, .id = wanted(f, path) ? append_name(f, path, len) : 0};
    f->names++;
    return f->name[i].id;
}

/* ---- processes and their mappings ---- */

static struct process *process_of(struct mr_faults *f, uint32_t pid)
{
    for (size_t i = f->processes; i-- > 0;)
        if (f->process[i]->pid == pid)
            return f->process[i];
    if (f->processes == f->process_cap) {
        size_t cap = f->process_cap ? f->process_cap * 2 : 32;
        struct process **bigger = realloc(f->process, cap * sizeof(struct process *));
        if (!bigger)
            return NULL;
        f->process = bigger;
        f->process_cap = cap;
    }
    struct process *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->pid = pid;
    p->index = (uint32_t)f->processes;
    f->process[f->processes++] = p;
    return p;
}

/* Room for two more; a mapping can cut another in two. */
static int map_room(struct process *p)
{
    if (p->maps + 2 <= p->map_cap)
        return 0;
    size_t cap = p->map_cap ? p->map_cap * 2 : 64;
    struct mapping *bigger = realloc(p->map, cap * sizeof(*bigger));
    if (!bigger)
        return -ENOMEM;
    p->map = bigger;
    p->map_cap = cap;
    return 0;
}

/* Index of the first mapping that ends behind `at`. */
static size_t map_find(const struct process *p, uint64_t at)
{
    size_t low = 0, high = p->maps;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (p->map[mid].to <= at)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void map_insert(struct process *p, size_t at, struct mapping m)
{
    memmove(&p->map[at + 1], &p->map[at], (p->maps - at) * sizeof(m));
    p->map[at] = m;
    p->maps++;
}

static void map_add(struct process *p, struct mapping m)
{
    if (map_room(p) < 0)
        return;
    size_t i = map_find(p, m.from);
    if (i < p->maps && p->map[i].from < m.from) { /* its head stays */
        struct mapping tail = p->map[i];
        p->map[i].to = m.from;
        i++;
        if (tail.to > m.to) {
            tail.offset += m.to - tail.from;
            tail.from = m.to;
            map_insert(p, i, tail);
        }
    }
    size_t end = i;
    while (end < p->maps && p->map[end].to <= m.to)
        end++;
    if (end < p->maps && p->map[end].from < m.to) { /* its tail stays */
        p->map[end].offset += m.to - p->map[end].from;
        p->map[end].from = m.to;
    }
    memmove(&p->map[i], &p->map[end], (p->maps - end) * sizeof(m));
    p->maps -= end - i;
    map_insert(p, i, m);
}

/* mremap: what was at `from` is at `to`, and what is new behind it belongs to the same file. */
static void map_move(struct process *p, uint64_t from, uint64_t to, uint64_t len)
{
    size_t i = map_find(p, from);
    if (i == p->maps || p->map[i].from > from)
        return;
    struct mapping m = p->map[i];
    map_add(p, (struct mapping){to, to + len, m.offset + (from - m.from), m.file});
}

static void copy_maps(struct mr_faults *f, uint32_t from, uint32_t to)
{
    struct process *child = process_of(f, to), *parent = child ? process_of(f, from) : NULL;
    if (!parent)
        return;
    child->maps = 0;
    for (size_t i = 0; i < parent->maps && map_room(child) == 0; i++)
        child->map[child->maps++] = parent->map[i];
}

/* ---- writing ---- */

static void append(struct mr_faults *f, size_t bytes)
{
    if (f->rc == 0 && bytes)
        f->rc = mr_mrt_writer_append(f->writer, f->out, bytes, &f->error);
}

static uint64_t key_of(const struct mr_faults *f, const struct process *p)
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

static void describe(struct mr_faults *f, struct process *p)
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
    if (!i.exe_len) { /* it has gone */
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

static void write_names(struct mr_faults *f)
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

static void write_lane(struct mr_faults *f, struct process *p, uint32_t index)
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

static struct lane *lane_of(struct process *p, uint32_t tid)
{
    uint32_t i = 0;
    while (i < p->lanes && p->lane[i].tid != tid)
        i++;
    if (i == p->lanes) {
        struct lane *bigger = realloc(p->lane, (i + 1) * sizeof(*bigger));
        if (!bigger)
            return NULL;
        p->lane = bigger;
        p->lane[p->lanes++] = (struct lane){.tid = tid};
    }
    struct lane *l = &p->lane[i];
    if (l->n + 2 > l->cap) {
        uint32_t cap = l->cap ? l->cap * 2 : 256;
        struct mr_raw *bigger = realloc(l->event, cap * sizeof(*bigger));
        if (!bigger)
            return NULL;
        l->event = bigger;
        l->cap = cap;
    }
    return l;
}

static void put_fault(struct mr_faults *f, struct process *p, const struct record *r)
{
    size_t i = map_find(p, r->from);
    if (i == p->maps || p->map[i].from > r->from || !p->map[i].file)
        return;
    struct lane *l = lane_of(p, r->tid);
    if (!l) {
        f->lost++;
        return;
    }
    const struct mapping *m = &p->map[i];
    uint64_t offset = m->offset + (r->from - m->from) / (uint64_t)f->page * (uint64_t)f->page;
    unsigned call = r->major ? MR_CALL_major_fault : MR_CALL_minor_fault;
    l->event[l->n++] =
        (struct mr_raw){{offset << 16 | call, (uint64_t)m->file << 32, r->time, (uint64_t)f->page << 16}};
    if (l->n >= MR_BLOCK_EVENTS)
        write_lane(f, p, (uint32_t)(l - p->lane));
}

/* ---- records ---- */

static struct record *pending_new(struct mr_faults *f)
{
    if (f->pendings == f->pending_cap) {
        size_t cap = f->pending_cap ? f->pending_cap * 2 : 4096;
        struct record *bigger = realloc(f->pending, cap * sizeof(*bigger));
        if (!bigger) {
            f->lost++;
            return NULL;
        }
        f->pending = bigger;
        f->pending_cap = cap;
    }
    struct record *r = &f->pending[f->pendings++];
    memset(r, 0, sizeof(*r));
    return r;
}

/* One record of a ring, at `p` in one piece. The fields and their order follow from the attributes in open_event. */
static void take(struct mr_faults *f, const struct cpu *c, const uint8_t *p)
{
    struct perf_event_header h;
    memcpy(&h, p, sizeof(h));
    if (h.type == PERF_RECORD_LOST && h.size >= 24) {
        f->lost += mr_load_le64(p + 16);
        return;
    }
    if (h.size < 8 + 24)
        return;
    struct record r = {
        .type = h.type, .time = mr_load_le64(p + h.size - 16), .pid = mr_load_le32(p + 8), .tid = mr_load_le32(p + 12)};
    if (h.type == PERF_RECORD_SAMPLE && h.size >= 40) { /* id, pid, tid, time, address */
        r.major = mr_load_le64(p + 8) == c->id_major;
        r.pid = mr_load_le32(p + 16);
        r.tid = mr_load_le32(p + 20);
        r.time = mr_load_le64(p + 24);
        r.from = mr_load_le64(p + 32);
    } else if (h.type == PERF_RECORD_MMAP2 &&
               h.size > 72 + 24) { /* pid, tid, address, length, offset, inode (24), protection, flags, name */
        r.from = mr_load_le64(p + 16);
        r.len = mr_load_le64(p + 24);
        r.offset = mr_load_le64(p + 32);
        r.file = name_of(f, (const char *)p + 72);
    } else if (h.type == PERF_RECORD_FORK && h.size >= 24 + 24) { /* pid, parent, tid, parent's tid */
        r.file = r.tid;
    } else if (h.type != PERF_RECORD_COMM || !(h.misc & PERF_RECORD_MISC_COMM_EXEC)) {
        return;
    }
    struct record *kept = pending_new(f);
    if (kept)
        *kept = r;
}

static void drain_cpu(struct mr_faults *f, struct cpu *c)
{
    static uint8_t whole[65536];
    uint64_t size = (uint64_t)RING_PAGES * (uint64_t)f->page;
    const uint8_t *data = (const uint8_t *)c->head + f->page;
    uint64_t head = __atomic_load_n(&c->head->data_head, __ATOMIC_ACQUIRE), tail = c->head->data_tail;
    while (tail < head) {
        struct perf_event_header h;
        const uint8_t *p = data + tail % size;
        memcpy(&h, p, sizeof(h)); /* records are multiples of 8 and so never cut inside the header */
        if (h.size < sizeof(h))
            break;
        uint64_t first = MR_MIN((uint64_t)h.size, size - tail % size);
        if (first < h.size) {
            memcpy(whole, p, first);
            memcpy(whole + first, data, h.size - first);
            p = whole;
        }
        take(f, c, p);
        tail += h.size;
    }
    __atomic_store_n(&c->head->data_tail, head, __ATOMIC_RELEASE);
}

static void drain_moved(struct mr_faults *f)
{
    struct mr_moved m;
    while (f->moved >= 0 && read(f->moved, &m, sizeof(m)) == sizeof(m)) {
        struct record *r = pending_new(f);
        if (r)
            *r = (struct record){
                .type = RECORD_MOVED, .time = m.time_ns, .pid = m.pid, .from = m.from, .offset = m.to, .len = m.len};
    }
}

static int by_time(const void *a, const void *b)
{
    const struct record *x = a, *y = b;
    return x->time < y->time ? -1 : x->time > y->time;
}

static void use(struct mr_faults *f, const struct record *r)
{
    struct process *p;
    if (r->type == PERF_RECORD_FORK) {
        if (r->pid != r->file) /* otherwise a thread */
            copy_maps(f, r->file, r->pid);
    } else if ((p = process_of(f, r->pid)) == NULL) {
        f->lost++;
    } else if (r->type == PERF_RECORD_SAMPLE) {
        put_fault(f, p, r);
    } else if (r->type == RECORD_MOVED) {
        map_move(p, r->from, r->offset, r->len);
    } else if (r->type == PERF_RECORD_MMAP2) {
        if (!p->maps)
            p->exe = r->file;
        map_add(p, (struct mapping){r->from, r->from + r->len, r->offset, r->file});
    } else {
        p->maps = 0;
    }
}

static void use_until(struct mr_faults *f, uint64_t until)
{
    size_t n = 0;
    qsort(f->pending, f->pendings, sizeof(*f->pending), by_time);
    while (n < f->pendings && f->pending[n].time <= until)
        use(f, &f->pending[n++]);
    if (n)
        memmove(f->pending, f->pending + n, (f->pendings - n) * sizeof(*f->pending));
    f->pendings -= n;
}

void mr_faults_poll(struct mr_faults *f)
{
    uint64_t now = mr_now_ns();
    drain_moved(f);
    for (unsigned i = 0; i < f->cpus; i++)
        if (f->cpu[i].head)
            drain_cpu(f, &f->cpu[i]);
    if (f->pendings)
        use_until(f, now - SETTLE_NS);
}

/* ---- opening and closing ---- */

static int open_event(pid_t child, unsigned cpu, bool major, bool with_kernel)
{
    struct perf_event_attr a = {
        .type = PERF_TYPE_SOFTWARE,
        .size = sizeof(a),
        .config = major ? PERF_COUNT_SW_PAGE_FAULTS_MAJ : PERF_COUNT_SW_PAGE_FAULTS_MIN,
        .sample_period = 1,
        .sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR,
        .disabled = 1,
        .inherit = 1,
        .enable_on_exec = 1,
        .exclude_kernel = !with_kernel,
        .exclude_hv = 1,
        .sample_id_all = 1,
        .use_clockid = 1,
        .clockid = CLOCK_MONOTONIC,
    };
    if (!major) { /* once is enough */
        a.mmap = a.mmap_data = a.mmap2 = 1;
        a.comm = a.comm_exec = 1;
        a.task = 1;
    }
    int fd = (int)syscall(SYS_perf_event_open, &a, child, (int)cpu, -1, PERF_FLAG_FD_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int open_cpu(struct mr_faults *f, pid_t child, unsigned cpu, bool with_kernel)
{
    struct cpu *c = &f->cpu[cpu];
    int fd = open_event(child, cpu, false, with_kernel), rc = 0;
    if (fd < 0)
        return fd;
    void *p = mmap(NULL, (1 + RING_PAGES) * (size_t)f->page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        rc = -errno;
        close(fd);
        return rc;
    }
    c->head = p;
    c->fd = fd;
    c->fd_major = open_event(child, cpu, true, with_kernel);
    if (c->fd_major < 0)
        return c->fd_major;
    return ioctl(c->fd_major, PERF_EVENT_IOC_SET_OUTPUT, fd) < 0 ||
                   ioctl(c->fd_major, PERF_EVENT_IOC_ID, &c->id_major) < 0
               ? -errno
               : 0;
}

static void close_cpus(struct mr_faults *f)
{
    for (unsigned i = 0; i < f->cpus; i++) {
        struct cpu *c = &f->cpu[i];
        if (c->head)
            munmap(c->head, (1 + RING_PAGES) * (size_t)f->page);
        if (c->fd >= 0)
            close(c->fd);
        if (c->fd_major >= 0)
            close(c->fd_major);
        *c = (struct cpu){.fd = -1, .fd_major = -1};
    }
}

/* All CPUs; faults inside system calls too where that is permitted. */
static int open_cpus(struct mr_faults *f, pid_t child)
{
    int rc = -ENODEV;
    for (int kernel = 1; kernel >= 0; kernel--) {
        unsigned opened = 0;
        for (unsigned i = 0; i < f->cpus; i++) {
            int one = open_cpu(f, child, i, kernel);
            if (one == -ENODEV) /* switched off */
                continue;
            rc = one;
            if (rc < 0)
                break;
            opened++;
        }
        if (opened && rc == 0)
            return 0;
        close_cpus(f);
    }
    return rc;
}

static void moved_path(const struct mr_faults *f, char out[4096])
{
    snprintf(out, 4096, "%.4000s/moved", f->opt.spool);
}

static void faults_free(struct mr_faults *f)
{
    char path[4096];
    close_cpus(f);
    if (f->moved >= 0) {
        moved_path(f, path);
        unlink(path);
        close(f->moved);
    }
    for (size_t i = 0; i < f->processes; i++) {
        for (uint32_t l = 0; l < f->process[i]->lanes; l++)
            free(f->process[i]->lane[l].event);
        free(f->process[i]->lane);
        free(f->process[i]->map);
        free(f->process[i]);
    }
    free(f->process);
    free(f->pending);
    free(f->name);
    free(f->arena);
    free(f->workspace);
    free(f->out);
    free(f->cpu);
    free(f);
}

static int faults_prepare(struct mr_faults *f, struct mr_error *err)
{
    char path[4096];
    struct timespec real;
    if (getrandom(&f->key, sizeof(f->key), 0) != sizeof(f->key))
        f->key = mr_mix64(mr_now_ns() ^ (uint64_t)getpid() << 32);
    clock_gettime(CLOCK_REALTIME, &real);
    f->cal.tick0 = f->cal.mono0 = mr_now_ns();
    f->cal.real0 = (uint64_t)real.tv_sec * MR_NS_PER_S + (uint64_t)real.tv_nsec;
    f->workspace = aligned_alloc(64, MR_ALIGN_UP(mr_mrt_workspace_bytes(), 64));
    f->out = aligned_alloc(64, MR_MRT_EVENTS_MAX + 4096);
    if (!f->workspace || !f->out)
        return mr_error_set(err, -ENOMEM, "cannot watch page faults");
    memset(f->workspace, 0, mr_mrt_workspace_bytes());
    moved_path(f, path);
    f->moved = open(path, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (f->moved < 0)
        return mr_error_set(err, -errno, "cannot watch page faults: '%s'", path);
    snprintf(path, sizeof(path), "%.4000s/faults.mrt", f->opt.spool);
    return mr_mrt_writer_open(path, false, &f->writer, err);
}

int mr_faults_open(pid_t child, const struct mr_faults_options *opt, struct mr_faults **out, struct mr_error *err)
{
    struct mr_faults *f = calloc(1, sizeof(*f));
    long cpus = sysconf(_SC_NPROCESSORS_CONF);
    if (!f)
        return mr_error_set(err, -ENOMEM, "cannot watch page faults");
    f->opt = *opt;
    f->moved = -1;
    f->page = sysconf(_SC_PAGESIZE);
    f->cpus = cpus > 0 ? (unsigned)cpus : 1;
    f->cpu = calloc(f->cpus, sizeof(*f->cpu));
    for (unsigned i = 0; f->cpu && i < f->cpus; i++)
        f->cpu[i] = (struct cpu){.fd = -1, .fd_major = -1};
    int rc = f->cpu ? open_cpus(f, child) : -ENOMEM;
    if (rc < 0)
        mr_error_set(err, rc, "cannot open perf events");
    rc = rc ? rc : faults_prepare(f, err);
    if (rc < 0) {
        faults_free(f);
        return rc;
    }
    *out = f;
    return 0;
}

int mr_faults_close(struct mr_faults *f, uint64_t *lost, struct mr_error *err)
{
    if (!f)
        return 0;
    mr_faults_poll(f);
    use_until(f, UINT64_MAX);
    for (size_t i = 0; i < f->processes; i++)
        for (uint32_t l = 0; l < f->process[i]->lanes; l++)
            write_lane(f, f->process[i], l);
    int rc = f->rc, closed = mr_mrt_writer_close(f->writer, rc ? &f->error : err);
    if (rc)
        *err = f->error;
    *lost = f->lost;
    faults_free(f);
    return rc ? rc : closed;
}
