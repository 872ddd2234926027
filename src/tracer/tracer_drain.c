/* Draining in the traced process: when nobody else does it, when the collector is too slow, and at the end. Blocks are
 * appended to <dir>/<pid>.<key>.mrt; the file is opened for each write, because a program may close any descriptor. */
#include "event/mounts.h"
#include "event/start.h"
#include "tracer/tracer_internal.h"
#include "tracer/tracer_sys.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define YIELDS 16u   /* in vain, before a thread that waits for a lock sleeps */
#define DOUBLINGS 8u /* of the first nap: hundreds of threads must not keep the CPUs busy by waking up */

/* With many threads on few CPUs the one that holds the lock is the last to run if all others only yield. */
void mr_wait_turn(unsigned n)
{
    if (n < YIELDS) {
        mr_yield();
    } else {
        const struct timespec nap = {.tv_nsec = 50000L << (n - YIELDS < DOUBLINGS ? n - YIELDS : DOUBLINGS)};
        mr_sys2(SYS_nanosleep, &nap, NULL);
    }
}

/* A file that passes the program's own limit would end it by SIGXFSZ. */
static bool within_limit(long fd, size_t n)
{
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
    mr_sys4(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &limit);
    if (limit.rlim_cur == RLIM_INFINITY)
        return true;
    long size = mr_sys3(SYS_lseek, fd, 0, SEEK_END);
    return size >= 0 && (uint64_t)size + n <= limit.rlim_cur;
}

static bool write_all(long fd, const uint8_t *p, size_t n)
{
    if (!within_limit(fd, n)) {
        mr_stop_tracing("the trace would pass the limit of file sizes", 0);
        return false;
    }
    while (n) {
        long r = mr_sys3(SYS_write, fd, p, n);
        if (r == -EINTR)
            continue;
        if (r <= 0) {
            mr_stop_tracing("cannot write the trace", r);
            return false;
        }
        p += r;
        n -= (size_t)r;
    }
    return true;
}

static long open_own(void)
{
    static char path[MR_PATH_BYTES]; /* of whoever holds encode_lock; stacks may be small */
    mr_own_path(path, -1);
    long fd = mr_open(AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND);
    if (fd >= 0 && !mr_process.header_written)
        mr_sys2(SYS_fchmod, fd, 0600);                  /* whatever the umask */
    bool other_user = fd == -EACCES && mr_process.late; /* at the end, the ring is left to `millrace recover` */
    if (fd < 0 && fd != -EMFILE && fd != -ENFILE && fd != -ENOMEM && !other_user) /* those may pass; the ring waits */
        mr_stop_tracing("cannot open the trace file", fd);
    return fd;
}

/* The mounts of this machine; a forked child's are its parent's. Without memory or /proc there are none. */
static bool write_mounts(long fd)
{
    struct mr_ring_header *h = mr_process.segment[0];
    const uint32_t flags = *(const uint32_t *)(const void *)((const uint8_t *)h + MR_RING_PROCESS_AT + 44);
    struct mr_mrt_block b = {.type = MR_MRT_MOUNTS, .key = mr_process.key, .first_ns = h->mono0, .last_ns = h->mono0};
    char *text = flags & MR_PROCESS_FORKED ? NULL : mr_map_pages(MR_MOUNTS_TEXT);
    if (!text)
        return true;
    uint32_t n = mr_read_small_file("/proc/self/mountinfo", text, MR_MOUNTS_TEXT);
    b.payload_bytes = (uint32_t)mr_mounts_encode(text, n, mr_process.out + MR_MRT_HEADER, MR_MOUNTS_TEXT, &b.count);
    mr_sys2(SYS_munmap, text, MR_MOUNTS_TEXT);
    return !b.count || write_all(fd, mr_process.out, mr_mrt_seal(mr_process.out, &b));
}

/* How it was started; of a forked child its parent's says it. The command line is in the process block. */
static bool write_start(long fd)
{
    struct mr_ring_header *h = mr_process.segment[0];
    const uint32_t flags = *(const uint32_t *)(const void *)((const uint8_t *)h + MR_RING_PROCESS_AT + 44);
    struct mr_mrt_block b = {.type = MR_MRT_START, .key = mr_process.key, .first_ns = h->mono0, .last_ns = h->mono0};
    char *text = flags & MR_PROCESS_FORKED ? NULL : mr_map_pages(2 * (size_t)MR_START_TEXT);
    if (!text)
        return true;
    uint32_t n = mr_read_small_file("/proc/self/environ", text, MR_START_TEXT);
    long len = mr_sys4(SYS_readlinkat, AT_FDCWD, "/proc/self/cwd", text + MR_START_TEXT, MR_START_TEXT);
    const struct mr_start s = {
        .folder = {.text = len > 0 ? text + MR_START_TEXT : NULL, .len = len > 0 ? (size_t)len : 0},
        .environment = {.text = text, .len = n < MR_START_TEXT ? n : 0}};
    b.payload_bytes = (uint32_t)mr_start_encode(&s, mr_process.out + MR_MRT_HEADER, MR_START_PAYLOAD, &b.count);
    mr_sys2(SYS_munmap, text, 2 * (size_t)MR_START_TEXT);
    return !b.count || write_all(fd, mr_process.out, mr_mrt_seal(mr_process.out, &b));
}

static bool write_header(long fd)
{
    struct mr_ring_header *h = mr_process.segment[0];
    uint8_t *out = mr_process.out, id[16] = {0};
    if (mr_process.header_written)
        return true;
    memcpy(id, &mr_process.key, 8);
    mr_mrt_file_header(h->real0, id, out);
    const struct mr_mrt_block b = {.type = MR_MRT_PROCESS,
                                   .key = mr_process.key,
                                   .count = 1,
                                   .first_ns = h->mono0,
                                   .last_ns = h->mono0,
                                   .payload_bytes = h->process_bytes};
    memcpy(out + MR_MRT_HEADER + MR_MRT_HEADER, (uint8_t *)h + MR_RING_PROCESS_AT, h->process_bytes);
    size_t n = mr_mrt_seal(out + MR_MRT_HEADER, &b);
    mr_process.header_written = write_all(fd, out, MR_MRT_HEADER + n) && write_mounts(fd) && write_start(fd);
    return mr_process.header_written;
}

static bool write_strings(long fd)
{
    struct mr_ring_header *h = mr_process.segment[0];
    uint64_t used = atomic_load_explicit(&h->strings_used, memory_order_acquire);
    while (mr_process.strings_bytes < used) {
        uint64_t bytes;
        uint32_t count;
        const uint8_t *from = (uint8_t *)h + MR_RING_STRINGS_AT + mr_process.strings_bytes;
        size_t n = mr_mrt_encode_strings(mr_process.workspace, from, used - mr_process.strings_bytes, mr_process.key,
                                         mr_process.strings + 1, mr_process.out, MR_MRT_EVENTS_MAX, &bytes, &count);
        if (!count || !write_all(fd, mr_process.out, n))
            return count != 0;
        mr_process.strings_bytes += bytes;
        mr_process.strings += count;
    }
    return true;
}

static bool get_buffers(void)
{
    if (!mr_process.workspace && (mr_process.workspace = mr_map_pages(mr_mrt_workspace_bytes())) &&
        mr_config.max_bytes / MR_LIMIT_PARTS < MR_BLOCK_EVENTS &&
        mr_config.max_bytes) /* a block is a small part of the limit */
        mr_mrt_workspace_block(mr_process.workspace,
                               (uint32_t)MR_MAX(mr_config.max_bytes / MR_LIMIT_PARTS, (uint64_t)256));
    if (!mr_process.out)
        mr_process.out = mr_map_pages(MR_MRT_EVENTS_MAX + 4096);
    return mr_process.workspace && mr_process.out;
}

/* Size limit, of a process's own file as of the collector's: two files of half the size take turns. True if a block of
 * n bytes belongs in the next one; a file whose names alone fill it gets one block all the same. */
static bool is_full(long fd, size_t n)
{
    long size = mr_config.max_bytes && mr_process.has_events ? mr_sys3(SYS_lseek, fd, 0, SEEK_END) : -1;
    return size >= 0 && (uint64_t)size + n > mr_config.max_bytes / 2;
}

/* The older file goes. Names are written again into the new one. */
static bool turn_over(long *fd)
{
    static char path[MR_PATH_BYTES], old[MR_PATH_BYTES]; /* of whoever holds encode_lock */
    mr_own_path(path, -1);
    size_t n = mr_copy_text(old, sizeof(old) - 8, path) - 4; /* ".mrt" */
    mr_copy_text(old + n, 12, ".1.mrt");
    long rc = mr_sys6(SYS_renameat2, AT_FDCWD, (long)path, AT_FDCWD, (long)old, 0, 0);
    if (rc < 0) {
        mr_stop_tracing("cannot rename the trace file", rc);
        return false;
    }
    mr_process.has_events = mr_process.header_written = false;
    mr_process.strings = 0;
    mr_process.strings_bytes = 0;
    long fresh = open_own();
    if (fresh < 0)
        return false;
    mr_sys1(SYS_close, *fd);
    *fd = fresh;
    return write_header(fresh) && write_strings(fresh);
}

static bool write_cells(long *fd, struct mr_slot *s, unsigned index, const uint64_t *cell, uint64_t mask, uint64_t to,
                        struct mr_carry *carry)
{
    struct mr_ring_header *h = mr_process.segment[0];
    struct mr_calibration cal = {.tick0 = h->tick0, .mono0 = h->mono0, .real0 = h->real0};
    struct mr_mrt_block b;
    const struct mr_carry before = *carry;
    uint64_t real, sequence = (uint64_t)index << 48 | carry->at;
    mr_calibrate(&cal.tick1, &cal.mono1, &real);
    for (;;) {
        *carry = before;
        size_t n = mr_mrt_encode_events(mr_process.workspace, cell, mask, to, carry, &cal, mr_process.key, s->tid,
                                        sequence, atomic_load(&s->lost), mr_process.out, &b);
        if (!b.count || !is_full(*fd, n)) {
            mr_process.events += b.count;
            mr_process.has_events |= b.count > 0;
            return !b.count || write_all(*fd, mr_process.out, n);
        }
        if (!turn_over(fd))
            return false;
    }
}

/* Encoding needs more stack than a signal handler may have: it has one of its own, of whoever holds encode_lock (with
 * signals blocked). */
static _Alignas(16) char own_stack[64 * MR_KIB];

static void on_own_stack(void (*run)(void *), void *arg)
{
#if defined(__x86_64__)
    __asm__ volatile("movq %%rsp, %%rbx\n"
                     "movq %[top], %%rsp\n"
                     "call *%[run]\n"
                     "movq %%rbx, %%rsp\n"
                     : "+D"(arg)
                     : [top] "r"(own_stack + sizeof(own_stack)), [run] "r"(run)
                     : "rax", "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2", "xmm3",
                       "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
                       "xmm15", "memory", "cc");
#else
    (void)own_stack;
    run(arg);
#endif
}

struct drain {
    struct mr_slot *slot;
    unsigned index;
    bool whole_only, with_exec, ok;
};

/* R9: if the exec fails, the next block has the same sequence and takes this one's place. */
static bool write_exec(long *fd, struct mr_slot *s, unsigned index)
{
    struct mr_carry carry = {.at = atomic_load(&s->written)};
    uint64_t cell[MR_RECORD_CELLS];
    for (unsigned i = 0; i < MR_RECORD_CELLS; i++)
        cell[(carry.at + i) % MR_RECORD_CELLS] = s->exec.word[i];
    return write_strings(*fd) &&
           write_cells(fd, s, index, cell, MR_RECORD_CELLS - 1, carry.at + MR_RECORD_CELLS, &carry);
}

static void drain_slot(void *arg)
{
    struct drain *d = arg;
    struct mr_slot *s = d->slot;
    long fd = get_buffers() ? open_own() : -1;
    if (fd < 0)
        return;
    d->ok = write_header(fd);
    bool whole_only = d->whole_only && !mr_config.max_bytes; /* with a limit, blocks are small */
    for (;;) {
        uint64_t from = atomic_load(&s->written), head = atomic_load_explicit(&s->head, memory_order_acquire);
        if (!d->ok || head == from || (whole_only && head - from - mr_slot_gap(s, from, head) < MR_BLOCK_CELLS))
            break;
        /* Strings after head was read, events after strings: R5. */
        struct mr_carry carry = mr_slot_carry(s);
        d->ok = write_strings(fd) && write_cells(&fd, s, d->index, s->cell, MR_RING_CELLS - 1, head, &carry);
        if (d->ok) {
            mr_slot_carry_set(s, &carry);
            atomic_store_explicit(&s->written, carry.at, memory_order_release);
            atomic_store_explicit(&s->tail, carry.at, memory_order_release);
        }
    }
    if (d->ok && d->with_exec)
        d->ok = write_exec(&fd, s, d->index);
    mr_sys1(SYS_close, fd);
}

static bool drain(struct mr_slot *s, unsigned index, bool whole_only, bool with_exec)
{
    uint32_t free_lock = 0;
    struct drain d = {.slot = s, .index = index, .whole_only = whole_only, .with_exec = with_exec};
    uint64_t signals = mr_signals_block();
    if (!mr_live.alive || !atomic_compare_exchange_strong(&s->drain_lock, &free_lock, 1)) {
        mr_signals_restore(signals);
        return false;
    }
    mr_spin_lock(&mr_process.encode_lock);
    on_own_stack(drain_slot, &d);
    mr_spin_unlock(&mr_process.encode_lock);
    atomic_store_explicit(&s->drain_lock, 0, memory_order_release);
    mr_signals_restore(signals);
    return d.ok;
}

bool mr_slot_drain(struct mr_slot *s, unsigned index, bool whole_only)
{
    return drain(s, index, whole_only, false);
}

static void write_end(enum mr_mrt_how how, uint32_t threads, uint64_t lost, const uint64_t *skipped)
{
    uint64_t signals = mr_signals_block();
    mr_spin_lock(&mr_process.encode_lock);
    long fd = get_buffers() ? open_own() : -1;
    if (fd >= 0) {
        bool ok = write_header(fd);
        size_t n = mr_mrt_encode_end(mr_process.key, how, threads, mr_process.events, lost, mr_clock_stamp(), skipped,
                                     mr_process.out);
        if (ok)
            write_all(fd, mr_process.out, n);
        mr_sys1(SYS_close, fd);
    }
    mr_spin_unlock(&mr_process.encode_lock);
    mr_signals_restore(signals);
}

bool mr_drain_all(enum mr_mrt_how how)
{
    static uint64_t skipped[MR_SLOT_CALLS]; /* one thread ends a process */
    uint64_t lost = atomic_load(&mr_process.segment[0]->lost);
    memset(skipped, 0, sizeof(skipped));
    uint32_t threads = 0;
    bool ok = true;
    for (uint32_t g = 0; g < mr_process.segments; g++)
        for (unsigned i = 0; i < mr_ring_slots(mr_process.segment[g]); i++) {
            struct mr_slot *s = mr_ring_slot(mr_process.segment[g], i);
            if (!s->tid)
                break; /* nobody has claimed it yet */
            threads++;
            lost += atomic_load(&s->lost);
            for (unsigned c = 0; mr_core.sample && c < MR_SLOT_CALLS; c++)
                skipped[c] += atomic_load_explicit(&s->skipped[c], memory_order_relaxed);
            bool with_exec = how == MR_HOW_EXEC && atomic_load(&s->exec_set);
            if (atomic_load(&s->head) != atomic_load(&s->written) || with_exec)
                ok = drain(s, g * MR_RING_SLOTS + i, false, with_exec) && ok;
        }
    if (!ok)
        return false; /* the ring file stays for `millrace recover` */
    write_end(how, threads, lost, skipped);
    for (uint32_t g = 0; g < mr_process.segments; g++) {
        static char path[MR_PATH_BYTES];
        mr_own_path(path, (int)g);
        mr_sys3(SYS_unlinkat, AT_FDCWD, path, 0);
    }
    return true;
}
