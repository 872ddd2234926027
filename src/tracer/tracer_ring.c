/* The ring files of a process: creating and mapping segments, and bringing removed ones back. Pages are made present
 * before they are used: touching an unbacked page of a full file system raises SIGBUS. */
#include "tracer/tracer_internal.h"
#include "tracer/tracer_sys.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

void *mr_map_pages(size_t bytes)
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

/* Inside a container our pid may be another process's for the collector. */
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

/* Growing a file beyond the size limit raises SIGXFSZ: the limit is raised for that moment, if permitted. *before
 * restores it. */
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

/* Maps a ring. Under mlockall(MCL_FUTURE) the kernel would populate all of it: so one page is mapped, unlocked and then
 * extended, which leaves the rest unlocked as well. */
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
    if (!h || !mr_populate(h, index ? 4096 : MR_RING_PROCESS_AT + MR_PROCESS_PRESENT)) {
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

/* Copies a slot: its header, and the records that are nowhere else. */
static bool copy_slot(long fd, const struct mr_ring_header *h, unsigned i)
{
    struct mr_slot *s = mr_ring_slot((struct mr_ring_header *)h, i);
    uint64_t at = (uint64_t)((const char *)s - (const char *)h), from = atomic_load(&s->written),
             to = atomic_load(&s->head);
    s->populated = MR_MIN(s->populated, to / MR_PAGE_CELLS * MR_PAGE_CELLS);
    atomic_store(&s->freed, to); /* as if freed: what follows takes new memory */
    bool ok = write_at(fd, s, offsetof(struct mr_slot, cell), at);
    for (uint64_t end; ok && from < to; from = end) {
        end = MR_MIN(to, (from / MR_RING_CELLS + 1) * MR_RING_CELLS);
        const uint64_t *cell = &s->cell[from & (MR_RING_CELLS - 1)];
        ok = write_at(fd, cell, (end - from) * sizeof(*cell), (uint64_t)((const char *)cell - (const char *)h));
    }
    return ok;
}

int mr_segment_again(uint32_t index)
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

uint32_t mr_read_small_file(const char *path, char *out, uint32_t cap)
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
