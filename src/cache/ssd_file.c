/* A pair of files of an SSD folder: see ssd_file.h. */
#include "cache/ssd_file.h"

#include "base/clock.h"
#include "base/common.h"
#include "base/log.h"
#include "base/rng.h"
#include "store/store_posix.h"
#include "cache/ssd_folder.h"
#include "cache/ssd_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* ---- open, close ---- */

static void note_no_direct(void)
{
    static atomic_bool noted;
    if (!atomic_exchange(&noted, true))
        mr_log(MR_LOG_NOTE, "direct I/O is not possible in the cache folder; its files go through the page cache");
}

static void set_direct(struct mr_ssd_file *f, bool on)
{
    int flags = fcntl(f->seg, F_GETFL);
    bool done = flags >= 0 && fcntl(f->seg, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
    atomic_store(&f->direct, on && done);
}

static void try_direct(struct mr_ssd_file *f)
{
    unsigned offset_align;
    mr_posix_ask_alignment(f->seg, &f->mem_align, &offset_align);
    if (offset_align)
        set_direct(f, true);
    if (!f->direct)
        note_no_direct();
}

static struct mr_ssd_file *file_new(uint32_t number)
{
    struct mr_ssd_file *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->number = number;
    f->seg = f->idx = -1;
    pthread_mutex_init(&f->append, NULL);
    return f;
}

void mr_ssd_file_close(struct mr_ssd_file *f)
{
    if (!f)
        return;
    if (f->seg >= 0)
        close(f->seg);
    if (f->idx >= 0)
        close(f->idx);
    pthread_mutex_destroy(&f->append);
    free(f);
}

static int open_both(struct mr_ssd_file *f, int set, int seg_flags, int idx_flags)
{
    char seg[32], idx[32];
    mr_ssd_pair_name(f->number, "seg", seg);
    mr_ssd_pair_name(f->number, "idx", idx);
    f->seg = mr_ssd_openat(set, seg, seg_flags, 0600);
    f->idx = f->seg < 0 ? -1 : mr_ssd_openat(set, idx, idx_flags, 0600);
    if (f->seg >= 0 && f->idx < 0 && (seg_flags & O_EXCL))
        (void)mr_ssd_unlinkat(set, seg, false);
    return f->seg < 0 ? f->seg : f->idx < 0 ? f->idx : 0;
}

static int read_header(struct mr_ssd_file *f, const uint8_t data_set[16])
{
    uint8_t bytes[MR_SSD_HEADER];
    struct mr_ssd_header h;
    uint32_t version;
    size_t got;
    int rc = mr_ssd_pread(f->idx, bytes, sizeof bytes, 0, &got);
    if (rc)
        return rc;
    if (!mr_ssd_header_read(bytes, got, &h, &version) || h.number != f->number || memcmp(h.data_set, data_set, 16) != 0)
        return MR_E_FORMAT;
    f->salt = h.salt;
    f->parsed = MR_SSD_HEADER;
    return 0;
}

int mr_ssd_file_open(int set, uint32_t number, const uint8_t data_set[16], bool writable, bool direct,
                     struct mr_ssd_file **out)
{
    struct mr_ssd_file *f = file_new(number);
    if (!f)
        return -ENOMEM;
    int how = writable ? O_RDWR : O_RDONLY;
    f->writable = writable;
    int rc = open_both(f, set, how, how | (writable ? O_APPEND : 0));
    if (!rc)
        rc = mr_ssd_lock(f->idx, LOCK_SH);
    if (!rc)
        rc = read_header(f, data_set);
    if (rc) {
        mr_ssd_file_close(f);
        return rc;
    }
    if (direct)
        try_direct(f);
    *out = f;
    return 0;
}

int mr_ssd_file_create(int set, uint32_t number, const uint8_t data_set[16], bool direct, struct mr_ssd_file **out)
{
    struct mr_ssd_file *f = file_new(number);
    struct mr_ssd_header h = {.number = number};
    uint8_t bytes[MR_SSD_HEADER];
    if (!f)
        return -ENOMEM;
    memcpy(h.data_set, data_set, sizeof h.data_set);
    f->salt = h.salt = mr_mix64(mr_wall_ns() ^ (uint64_t)getpid() << 32 ^ mr_mix64(number));
    f->writable = true;
    int rc = open_both(f, set, O_RDWR | O_CREAT | O_EXCL, O_RDWR | O_CREAT | O_EXCL | O_APPEND);
    bool made = !rc;
    if (!rc)
        rc = mr_ssd_lock(f->seg, LOCK_EX);
    if (!rc)
        rc = mr_ssd_lock(f->idx, LOCK_SH);
    mr_ssd_header_write(&h, bytes);
    if (!rc)
        rc = mr_ssd_append(f->idx, bytes, sizeof bytes);
    if (rc) {
        if (made) {
            const struct mr_ssd_pair pair = {.number = number, .seg = true, .idx = true};
            (void)flock(f->seg, LOCK_UN);
            (void)flock(f->idx, LOCK_UN);
            (void)mr_ssd_pair_remove(set, &pair, NULL);
        }
        mr_ssd_file_close(f);
        return rc;
    }
    f->parsed = MR_SSD_HEADER;
    f->own = true;
    if (direct)
        try_direct(f);
    *out = f;
    return 0;
}

/* ---- who uses it ---- */

bool mr_ssd_file_own(struct mr_ssd_file *f)
{
    struct stat st;
    if (f->own)
        return true;
    if (!f->writable || f->gone || mr_ssd_lock(f->seg, LOCK_EX))
        return false;
    int rc = mr_ssd_stat(f->idx, &st);
    /* Somebody who was killed may have left half a record. */
    uint64_t torn = rc ? 0 : ((uint64_t)st.st_size - MR_SSD_HEADER) % MR_SSD_RECORD;
    if (!rc && torn)
        rc = mr_ssd_truncate(f->idx, (uint64_t)st.st_size - torn);
    if (rc)
        (void)flock(f->seg, LOCK_UN);
    else
        f->own = true;
    return !rc;
}

void mr_ssd_file_disown(struct mr_ssd_file *f)
{
    struct stat st;
    if (!fstat(f->idx, &st) && (uint64_t)st.st_size > f->parsed)
        f->parsed = (uint64_t)st.st_size;
    f->own = false;
    (void)flock(f->seg, LOCK_UN);
}

int mr_ssd_file_sync(struct mr_ssd_file *f)
{
    if (f->gone || !atomic_exchange(&f->unsynced, false))
        return 0;
    int rc = mr_ssd_sync(f->seg), listed = mr_ssd_sync(f->idx);
    return rc ? rc : listed;
}

bool mr_ssd_file_alone(struct mr_ssd_file *f)
{
    if (!f->writable || f->gone)
        return false;
    if (!f->own && mr_ssd_lock(f->seg, LOCK_EX))
        return false;
    if (!mr_ssd_lock(f->idx, LOCK_EX))
        return true;
    mr_ssd_file_share(f);
    return false;
}

void mr_ssd_file_share(struct mr_ssd_file *f)
{
    (void)flock(f->idx, LOCK_SH | LOCK_NB); /* nobody takes it alone meanwhile: the folder is locked */
    if (!f->own)
        (void)flock(f->seg, LOCK_UN);
}

void mr_ssd_file_remove(struct mr_ssd_file *f, int set)
{
    const struct mr_ssd_pair p = {.number = f->number, .seg = true, .idx = true};
    char idx[32];
    mr_ssd_pair_name(f->number, "idx", idx);
    if (mr_ssd_unlinkat(set, idx, false))
        return;
    (void)mr_ssd_truncate(f->seg, 0); /* it stays open: its blocks go now */
    f->gone = true;
    f->own = false;
    (void)flock(f->idx, LOCK_UN);
    (void)flock(f->seg, LOCK_UN);
    (void)mr_ssd_pair_remove(set, &p, NULL);
}

/* ---- the index ---- */

int mr_ssd_file_records(struct mr_ssd_file *f, struct mr_ssd_record *out, unsigned cap, uint64_t *torn)
{
    uint8_t bytes[256 * MR_SSD_RECORD];
    size_t got;
    unsigned n = 0;
    cap = MR_MIN(cap, 256u);
    while (!n) {
        int rc = mr_ssd_pread(f->idx, bytes, (size_t)cap * MR_SSD_RECORD, f->parsed, &got);
        if (rc)
            return rc;
        size_t whole = got / MR_SSD_RECORD;
        if (!whole)
            return 0;
        for (size_t i = 0; i < whole; i++)
            if (mr_ssd_record_read(bytes + i * MR_SSD_RECORD, f->salt, &out[n]))
                n++;
            else
                ++*torn;
        f->parsed += whole * MR_SSD_RECORD;
    }
    return (int)n;
}

int mr_ssd_file_add(struct mr_ssd_file *f, const struct mr_ssd_record *r, unsigned n)
{
    uint8_t few[64 * MR_SSD_RECORD], *bytes = few;
    struct stat st;
    if (n > 64 && !(bytes = malloc((size_t)n * MR_SSD_RECORD)))
        return -ENOMEM;
    for (unsigned i = 0; i < n; i++)
        mr_ssd_record_write(&r[i], f->salt, bytes + (size_t)i * MR_SSD_RECORD);
    f->unsynced = true;
    pthread_mutex_lock(&f->append);
    int rc = mr_ssd_stat(f->idx, &st);
    if (!rc) {
        rc = mr_ssd_append(f->idx, bytes, (size_t)n * MR_SSD_RECORD);
        /* half of it may be there now: later records must begin at a multiple of their size */
        if (rc && ftruncate(f->idx, st.st_size) != 0)
            f->writable = false;
    }
    pthread_mutex_unlock(&f->append);
    if (bytes != few)
        free(bytes);
    return rc;
}

/* ---- bytes ---- */

/* Without direct I/O: nothing of it stays in the page cache. */
static void let_go(struct mr_ssd_file *f, uint64_t at, uint64_t n, bool written)
{
    if (written)
        (void)sync_file_range(f->seg, (off_t)at, (off_t)n,
                              SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    (void)posix_fadvise(f->seg, (off_t)at, (off_t)n, POSIX_FADV_DONTNEED);
}

int mr_ssd_file_put(struct mr_ssd_file *f, const void *bytes, uint64_t n, uint64_t at)
{
    bool direct = f->direct;
    int rc = mr_ssd_pwrite(f->seg, bytes, n, at);
    if (rc == -EINVAL && direct) { /* accepted at open, refused here */
        set_direct(f, false);
        note_no_direct();
        direct = false;
        rc = mr_ssd_pwrite(f->seg, bytes, n, at);
    }
    if (!rc && !direct)
        let_go(f, at, n, true);
    return rc;
}

bool mr_ssd_file_reads_into(const struct mr_ssd_file *f, const void *to)
{
    return !f->direct || (uintptr_t)to % f->mem_align == 0;
}

int mr_ssd_file_get(struct mr_ssd_file *f, void *to, uint64_t n, uint64_t at, void *bounce, uint64_t *got)
{
    size_t came = 0;
    bool direct = f->direct;
    int rc;
    if (!direct)
        rc = mr_ssd_pread(f->seg, to, n, at, &came);
    else if (!bounce)
        rc = mr_ssd_pread_blocks(f->seg, to, n, at, &came);
    else {
        rc = mr_ssd_pread(f->seg, bounce, mr_ssd_blocks(n) * MR_SSD_BLOCK, at, &came);
        came = MR_MIN(came, n);
        memcpy(to, bounce, rc ? 0 : came);
    }
    if (rc == -EINVAL && direct) {
        set_direct(f, false);
        note_no_direct();
        rc = mr_ssd_pread(f->seg, to, n, at, &came);
    }
    if (!f->direct && !rc)
        let_go(f, at, n, false);
    *got = came;
    return rc;
}

int mr_ssd_file_forget(struct mr_ssd_file *f, const struct mr_ssd_record *r)
{
    const struct mr_ssd_record gone = {.id = r->id, .block = r->block};
    if (!f->writable)
        return -EROFS;
    int rc = mr_ssd_file_add(f, &gone, 1);
    return rc ? rc : mr_ssd_punch(f->seg, (uint64_t)r->block * MR_SSD_BLOCK, mr_ssd_blocks(r->length) * MR_SSD_BLOCK);
}
