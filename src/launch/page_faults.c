/* Page faults from perf events. Each CPU has one ring; two events, minor and major faults, write into it, together with
 * records of mappings, forks and execs. Records of different CPUs are sorted by time before they are used, so a fault
 * is always looked up in the mappings of its moment. A forked process starts with its parent's mappings, exec with
 * none. The kernel does not report mremap: the tracer in the program does (struct mr_moved). */
#include "launch/page_faults.h"
#include "launch/address_map.h"
#include "launch/fault_writer.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/vec.h"
#include "event/raw.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
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

struct process {
    uint32_t pid;
    uint32_t exe; /* the file that was mapped first */
    struct mr_address_map map;
    struct mr_fault_process *events; /* NULL: no fault so far */
};

struct mr_faults {
    struct mr_fault_writer *writer;
    const char *spool;
    struct cpu *cpu;
    unsigned cpus;
    struct record *pending;
    size_t pendings, pending_cap;
    struct process *process;
    size_t processes, process_cap;
    long page;
    int moved; /* the file `moved` */
};

static struct process *process_of(struct mr_faults *f, uint32_t pid)
{
    for (size_t i = f->processes; i-- > 0;)
        if (f->process[i].pid == pid)
            return &f->process[i];
    if (mr_vec_reserve(&f->process, &f->process_cap, f->processes + 1, sizeof(*f->process)) < 0)
        return NULL;
    f->process[f->processes] = (struct process){.pid = pid};
    return &f->process[f->processes++];
}

static void put_fault(struct mr_faults *f, struct process *p, const struct record *r)
{
    const struct mr_mapping *m = mr_address_map_find(&p->map, r->from);
    if (!m || !m->file)
        return;
    if (!p->events)
        p->events = mr_fault_writer_process(f->writer, r->pid);
    if (!p->events)
        mr_fault_writer_lost(f->writer, 1);
    else
        mr_fault_writer_put(f->writer, p->events,
                            &(struct mr_fault){.tid = r->tid,
                                               .file = m->file,
                                               .exe = p->exe,
                                               .offset = m->offset + (r->from - m->from),
                                               .time_ns = r->time,
                                               .major = r->major});
}

static void copy_maps(struct mr_faults *f, uint32_t from, uint32_t to)
{
    if (!process_of(f, to) || !process_of(f, from))
        return; /* both looked up before either pointer is used: adding one moves the others */
    mr_address_map_copy(&process_of(f, to)->map, &process_of(f, from)->map);
}

/* ---- records ---- */

static struct record *pending_new(struct mr_faults *f)
{
    if (mr_vec_reserve(&f->pending, &f->pending_cap, f->pendings + 1, sizeof(*f->pending)) < 0) {
        mr_fault_writer_lost(f->writer, 1);
        return NULL;
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
        mr_fault_writer_lost(f->writer, mr_load_le64(p + 16));
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
        r.file = mr_fault_writer_file(f->writer, (const char *)p + 72);
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
        mr_fault_writer_lost(f->writer, 1);
    } else if (r->type == PERF_RECORD_SAMPLE) {
        put_fault(f, p, r);
    } else if (r->type == RECORD_MOVED) {
        mr_address_map_move(&p->map, r->from, r->offset, r->len);
    } else if (r->type == PERF_RECORD_MMAP2) {
        if (!p->map.n)
            p->exe = r->file;
        mr_address_map_add(&p->map, (struct mr_mapping){r->from, r->from + r->len, r->offset, r->file});
    } else { /* exec */
        p->map.n = 0;
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
    snprintf(out, 4096, "%.4000s/moved", f->spool);
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
    for (size_t i = 0; i < f->processes; i++)
        mr_address_map_done(&f->process[i].map);
    free(f->process);
    free(f->pending);
    free(f->cpu);
    free(f);
}

static int open_moved(struct mr_faults *f, struct mr_error *err)
{
    char path[4096];
    moved_path(f, path);
    f->moved = open(path, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return f->moved < 0 ? mr_error_set(err, -errno, "cannot record page faults: '%s'", path) : 0;
}

int mr_faults_open(pid_t child, const struct mr_fault_filter *filter, struct mr_faults **out, struct mr_error *err)
{
    struct mr_faults *f = calloc(1, sizeof(*f));
    long cpus = sysconf(_SC_NPROCESSORS_CONF);
    if (!f)
        return mr_error_set(err, -ENOMEM, "cannot record page faults");
    f->spool = filter->spool;
    f->moved = -1;
    f->page = sysconf(_SC_PAGESIZE);
    f->cpus = cpus > 0 ? (unsigned)cpus : 1;
    f->cpu = calloc(f->cpus, sizeof(*f->cpu));
    for (unsigned i = 0; f->cpu && i < f->cpus; i++)
        f->cpu[i] = (struct cpu){.fd = -1, .fd_major = -1};
    int rc = f->cpu ? open_cpus(f, child) : -ENOMEM;
    if (rc < 0)
        mr_error_set(err, rc, "cannot open perf events");
    rc = rc ? rc : open_moved(f, err);
    rc = rc ? rc : mr_fault_writer_open(filter, &f->writer, err);
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
    int rc = mr_fault_writer_close(f->writer, lost, err);
    faults_free(f);
    return rc;
}
