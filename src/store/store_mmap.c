/* The mmap backend: objects are mapped when opened and a read copies from the map, so pages really are touched and page
 * faults really happen in the reading thread. Writes and everything about paths are posix.
 *
 * A mapped file that shrinks delivers SIGBUS. A handler, in place while a mmap store is open, jumps out of the copy
 * when the faulting address lies in the range this thread is copying, and passes every other SIGBUS on to whoever had
 * the signal before. We chose that over process_vm_readv(2), which is safe without a handler but copies through the
 * kernel, so that no fault of ours would be the kind a mapping loader has. The tail of the last page reads as zeros
 * without a signal; therefore every read checks the file's size afterwards. Both become MR_E_CHANGED.
 *
 * Bytes beyond the length at open (the file has grown) are read with pread.
 *
 * Invariants
 *  1. guard (thread-local) is non-NULL only inside copy_guarded.
 *  2. handler_users counts open stores under handler_lock; the handler is installed while it is > 0. */
#include "base/common.h"
#include "base/log.h"
#include "store/store_internal.h"
#include "store/store_posix.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct mmap_object {
    struct mr_object base;
    struct mr_object *file; /* the posix object */
    const char *map;        /* NULL when empty or not open for reading */
    size_t map_bytes;
};

#define FILE_OF(o) (((struct mmap_object *)(o))->file)

/* ---- surviving SIGBUS ---- */

struct guard {
    sigjmp_buf env;
    const char *from, *to;
};
static _Thread_local struct guard *volatile guard;

static pthread_mutex_t handler_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned handler_users;
static struct sigaction previous;

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
    struct guard *g = guard;
    const char *at = info->si_addr;
    if (g && at >= g->from && at < g->to)
        siglongjmp(g->env, 1);
    if (previous.sa_flags & SA_SIGINFO)
        previous.sa_sigaction(sig, info, context);
    else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN)
        previous.sa_handler(sig);
    else
        sigaction(SIGBUS, &previous,
                  NULL); /* the faulting instruction runs again and ends the program as it would have */
}

static int handler_acquire(void)
{
    int rc = 0;
    pthread_mutex_lock(&handler_lock);
    if (handler_users == 0) {
        struct sigaction sa = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_ONSTACK};
        sigemptyset(&sa.sa_mask);
        if (sigaction(SIGBUS, &sa, &previous) != 0)
            rc = -errno;
    }
    if (rc == 0)
        handler_users++;
    pthread_mutex_unlock(&handler_lock);
    return rc;
}

static void handler_release(void)
{
    pthread_mutex_lock(&handler_lock);
    struct sigaction now;
    if (--handler_users == 0 && sigaction(SIGBUS, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) &&
        now.sa_sigaction == on_sigbus)
        sigaction(SIGBUS, &previous, NULL); /* somebody who came after us keeps the signal */
    pthread_mutex_unlock(&handler_lock);
}

/* False when a page of the source is gone. */
static bool copy_guarded(char *to, const char *from, size_t len)
{
    struct guard g = {.from = from, .to = from + len};
    if (sigsetjmp(g.env, 0) != 0) { /* saving the mask would cost every read a system call */
        guard = NULL;
        sigset_t bus;
        sigemptyset(&bus);
        sigaddset(&bus, SIGBUS);
        pthread_sigmask(SIG_UNBLOCK, &bus, NULL);
        return false;
    }
    assert(!guard); /* copies do not nest: the handler knows one */
    guard = &g;
    __asm__ volatile("" ::: "memory"); /* the copy stays between the two stores */
    memcpy(to, from, len);
    __asm__ volatile("" ::: "memory");
    guard = NULL;
    return true;
}

/* ---- objects ---- */

static int map_object(struct mmap_object *o, unsigned flags, struct mr_error *err)
{
    uint64_t size;
    int rc = mr_posix_object_size(o->file, &size, err);
    if (rc < 0 || size == 0 || !(flags & MR_OBJ_READ))
        return rc;
    if (size > SIZE_MAX / 2)
        return mr_store_fail_path(err, -EFBIG, "map", o->base.path);
    void *map = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, ((struct mr_posix_object *)o->file)->fd, 0);
    if (map == MAP_FAILED)
        return mr_store_fail_path(err, -errno, "map", o->base.path);
    if (flags & MR_OBJ_RANDOM)
        (void)madvise(map, (size_t)size, MADV_RANDOM); /* advice only */
    o->map = map;
    o->map_bytes = (size_t)size;
    return 0;
}

static int mmap_object_open(struct mr_store *s, const char *path, unsigned flags, struct mr_object **out,
                            struct mr_error *err)
{
    struct mmap_object *o = calloc(1, sizeof(*o));
    if (!o)
        return mr_error_set(err, -ENOMEM, "cannot open '%s'", path);
    if (flags & MR_OBJ_DIRECT) {
        struct mr_posix_store *p = (struct mr_posix_store *)s;
        if (!atomic_exchange(&p->noted_no_direct, true))
            mr_log(MR_LOG_NOTE, "store 'mmap' always uses the page cache; direct I/O was asked for '%s'", path);
    }
    int rc = mr_posix_object_open(s, path, flags & ~(unsigned)MR_OBJ_DIRECT, &o->file, err);
    if (rc < 0) {
        free(o);
        return rc;
    }
    o->base = (struct mr_object){.store = s, .path = o->file->path};
    rc = map_object(o, flags, err);
    if (rc < 0) {
        mr_posix_object_close(o->file, NULL);
        free(o);
        return rc;
    }
    *out = &o->base;
    return 0;
}

static int mmap_object_close(struct mr_object *base, struct mr_error *err)
{
    struct mmap_object *o = (struct mmap_object *)base;
    if (o->map)
        munmap((void *)(uintptr_t)o->map, o->map_bytes);
    int rc = mr_posix_object_close(o->file, err);
    free(o);
    return rc;
}

static int mmap_object_size(struct mr_object *o, uint64_t *bytes, struct mr_error *err)
{
    return mr_posix_object_size(FILE_OF(o), bytes, err);
}

static int64_t mmap_read(struct mr_object *base, void *buf, size_t len, uint64_t offset, struct mr_error *err)
{
    struct mmap_object *o = (struct mmap_object *)base;
    if (len == 0)
        return 0;
    if (offset >= o->map_bytes)
        return mr_posix_read(o->file, buf, len, offset, err);
    size_t n = MR_MIN(len, o->map_bytes - (size_t)offset);
    bool copied = copy_guarded(buf, o->map + offset, n);
    uint64_t size;
    int rc = mr_posix_object_size(o->file, &size, err);
    if (rc < 0)
        return rc;
    if (size < offset + n) {
        mr_error_plain(
            err, MR_E_CHANGED,
            "cannot read '%s': it shrank while it was mapped (want %zu bytes at %llu, file had %zu, now %llu)",
            base->path, n, (unsigned long long)offset, o->map_bytes, (unsigned long long)size);
        mr_error_hint(err, "nothing may write to a data set in use; check it with 'millrace verify'");
        return MR_E_CHANGED;
    }
    if (!copied) /* the size is right, so the device could not deliver the page */
        return mr_store_fail_range(err, -EIO, "read", base->path, n, offset, 0);
    return (int64_t)n;
}

static int64_t mmap_write(struct mr_object *o, const void *buf, size_t len, uint64_t offset, struct mr_error *err)
{
    return mr_posix_write(FILE_OF(o), buf, len, offset, err);
}

static int mmap_fsync(struct mr_object *o, struct mr_error *err)
{
    return mr_posix_fsync(FILE_OF(o), err);
}

static int mmap_allocate(struct mr_object *o, uint64_t bytes, struct mr_error *err)
{
    return mr_posix_allocate(FILE_OF(o), bytes, err);
}

static int mmap_truncate(struct mr_object *o, uint64_t bytes, struct mr_error *err)
{
    return mr_posix_truncate(FILE_OF(o), bytes, err);
}

static int mmap_drop_cache(struct mr_object *base, struct mr_error *err)
{
    struct mmap_object *o = (struct mmap_object *)base;
    /* Pages in somebody's page table stay in the cache, so let go of ours first. */
    if (o->map && madvise((void *)(uintptr_t)o->map, o->map_bytes, MADV_DONTNEED) != 0)
        return mr_store_fail_path(err, -errno, "drop the mapped pages of", base->path);
    return mr_posix_drop_cache(o->file, err);
}

static int mmap_resident(struct mr_object *o, uint64_t *resident_bytes, uint64_t *total_bytes, struct mr_error *err)
{
    return mr_posix_resident(FILE_OF(o), resident_bytes, total_bytes, err);
}

/* ---- the store ---- */

struct mmap_options {
    int64_t threads;
    bool timing;
};

#define ROW(key, field, type, def, ...) MR_OPTION(mmap_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option mmap_rows[] = {
    ROW("threads", threads, INT, "0", .min = 0, .max = 256,
        .doc =
            "Threads that serve I/O queues; 0 chooses four per CPU, at least 8 and at most 32. Direct calls use none."),
    MR_STORE_TIMING_OPTION(struct mmap_options),
    MR_OPTION_END,
};

static void mmap_close(struct mr_store *base)
{
    struct mr_posix_store *s = (struct mr_posix_store *)base;
    mr_posix_done(s); /* joins the threads, so no copy of ours is running when the handler goes */
    handler_release();
    free(s);
}

static int mmap_open(const void *options, struct mr_store *lower, struct mr_store **out, struct mr_error *err)
{
    (void)lower;
    const struct mmap_options *opt = options;
    struct mr_posix_store *s = calloc(1, sizeof(*s));
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot open store 'mmap'");
    int rc = handler_acquire();
    if (rc < 0) {
        free(s);
        return mr_error_set(err, rc, "cannot open store 'mmap': no handler for SIGBUS");
    }
    const struct mr_posix_options posix = {.threads = opt->threads, .timing = opt->timing};
    rc = mr_posix_init(s, &mr_store_mmap_ops, &posix, mr_io_exec_generic, err);
    if (rc < 0) {
        handler_release();
        free(s);
        return rc;
    }
    *out = &s->base;
    return 0;
}

const struct mr_store_ops mr_store_mmap_ops = {
    .abi = MR_STORE_ABI,
    .size = sizeof(struct mr_store_ops),
    .name = "mmap",
    .doc = "Files read through memory maps: page faults instead of read calls. Writes are ordinary ones.",
    .caps = MR_STORE_CAP_WRITE | MR_STORE_CAP_PERSISTENT | MR_STORE_CAP_CONTENT | MR_STORE_CAP_RENAME |
            MR_STORE_CAP_OFFSET_WRITE | MR_STORE_CAP_APPEND,
    .options = {.section = "mmap",
                .doc = "Files read through memory maps",
                .options = mmap_rows,
                .struct_bytes = sizeof(struct mmap_options)},
    .open = mmap_open,
    .close = mmap_close,
    .object_open = mmap_object_open,
    .object_close = mmap_object_close,
    .object_size = mmap_object_size,
    .read = mmap_read,
    .write = mmap_write,
    .fsync = mmap_fsync,
    .allocate = mmap_allocate,
    .truncate = mmap_truncate,
    .stat = mr_posix_stat,
    .list = mr_posix_list,
    .mkdir = mr_posix_mkdir,
    .unlink = mr_posix_unlink,
    .rename = mr_posix_rename,
    .sync_dir = mr_posix_sync_dir,
    .free_space = mr_posix_free_space,
    .drop_cache = mmap_drop_cache,
    .resident = mmap_resident,
    .ioq_create = mr_posix_ioq_create,
    .ioq_free = mr_workq_free,
    .ioq_submit = mr_workq_submit,
    .ioq_reap = mr_workq_reap,
    .ioq_register = mr_workq_register,
};
