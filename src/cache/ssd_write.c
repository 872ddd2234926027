/* Writing to an SSD folder: samples are copied one behind the other into a buffer; a full one is written in one piece,
 * by the thread that filled it, while others fill the second. Samples larger than a buffer go by themselves. */
#include "cache/ssd_hash.h"
#include "cache/ssd_io.h"
#include "cache/ssd_parts.h"

#include "base/common.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Where room could not be reserved it is counted again, with the folder locked, before bytes go out. */
static int put(struct mr_ssd *s, struct mr_ssd_file *f, const void *bytes, uint64_t n, uint64_t at)
{
    if (!s->no_allocate)
        return mr_ssd_file_put(f, bytes, n, at);
    int rc = mr_ssd_folder_lock(&s->folder, NULL);
    if (rc)
        return rc;
    rc = mr_ssd_folder_bytes(&s->folder) + n > s->capacity ? -ENOSPC : mr_ssd_file_put(f, bytes, n, at);
    mr_ssd_folder_unlock(&s->folder);
    return rc;
}

/* ---- buffers ---- */

static void begin_flush(struct mr_ssd *s)
{
    while (s->flushing)
        pthread_cond_wait(&s->flushed, &s->write);
    s->flushing = true;
}

static void end_flush(struct mr_ssd *s)
{
    s->flushing = false;
    pthread_cond_broadcast(&s->flushed);
}

/* Bytes, then records. */
static int write_out(struct mr_ssd *s, const struct mr_ssd_buffer *b)
{
    unsigned n = (unsigned)b->entries.n;
    struct mr_ssd_record *r = malloc((n + 1) * sizeof *r);
    if (!r)
        return -ENOMEM;
    pthread_mutex_lock(&s->lock);
    struct mr_ssd_file *f = s->files[b->file];
    for (unsigned i = 0; i < n; i++)
        r[i] = s->entries.item[b->entries.item[i]].r;
    pthread_mutex_unlock(&s->lock);
    int rc = put(s, f, b->data, b->used, b->at);
    if (!rc)
        rc = mr_ssd_file_add(f, r, n);
    free(r);
    return rc;
}

/* The buffer's samples are in their file now, or lost. */
static void settle(struct mr_ssd *s, struct mr_ssd_buffer *b, int code)
{
    for (size_t i = 0; i < b->entries.n; i++) {
        uint32_t n = b->entries.item[i], file;
        struct mr_ssd_record what;
        pthread_mutex_lock(&s->lock);
        struct mr_ssd_entry *e = &s->entries.item[n];
        bool doomed = e->flags & MR_SSD_DOOMED;
        e->flags &= (uint8_t)~MR_SSD_UNFLUSHED;
        bool back =
            doomed ? mr_ssd_entry_release(s, n, &what, &file) : code && mr_ssd_entry_take_out(s, n, &what, &file);
        s->stats.refused += code && !doomed;
        s->stats.writes -= code && !doomed;
        s->stats.written_bytes -= code && !doomed ? e->r.length : 0;
        pthread_mutex_unlock(&s->lock);
        if (back)
            mr_ssd_give_back(s, &what, file, false);
    }
    b->entries.n = 0;
    b->used = 0;
}

int mr_ssd_flush(struct mr_ssd *s)
{
    begin_flush(s);
    struct mr_ssd_buffer *b = &s->buffer[s->filling];
    int rc = 0;
    if (b->used) {
        s->filling ^= 1; /* the other one is empty: only one is written at a time */
        pthread_mutex_unlock(&s->write);
        rc = write_out(s, b);
        pthread_mutex_lock(&s->write);
        settle(s, b, rc);
    }
    end_flush(s);
    return rc;
}

static int have_buffers(struct mr_ssd *s)
{
    for (unsigned i = 0; i < 2; i++)
        if (!s->buffer[i].data && !(s->buffer[i].data = mr_ssd_aligned(MR_SSD_BUFFER)))
            return -ENOMEM;
    return 0;
}

/* ---- a sample ---- */

static int enter(struct mr_ssd *s, const struct mr_ssd_record *r, uint32_t file, unsigned flags, uint32_t *n)
{
    pthread_mutex_lock(&s->lock);
    struct mr_ssd_entry *e = mr_ssd_entry_add(s, r, file, flags, n);
    if (e) {
        s->stats.writes++;
        s->stats.written_bytes += r->length;
    }
    pthread_mutex_unlock(&s->lock);
    return e ? 0 : -ENOMEM;
}

static int buffer_sample(struct mr_ssd *s, struct mr_ssd_record *r, const void *bytes)
{
    struct mr_ssd_buffer *b = &s->buffer[s->filling];
    struct mr_ssd_file *f = s->files[s->current];
    size_t room = mr_ssd_blocks(r->length) * MR_SSD_BLOCK;
    if (!b->used) {
        b->at = f->end;
        b->file = s->current;
    }
    r->block = (uint32_t)(f->end / MR_SSD_BLOCK);
    if (MR_VEC_RESERVE(&b->entries, b->entries.n + 1))
        return -ENOMEM;
    int rc = enter(s, r, s->current, MR_SSD_HELD | MR_SSD_UNFLUSHED, &b->entries.item[b->entries.n]);
    if (rc)
        return rc;
    b->entries.n++;
    memcpy(b->data + b->used, bytes, r->length);
    memset(b->data + b->used + r->length, 0, room - r->length);
    b->used += room;
    f->end += room;
    return 0;
}

static int write_pieces(struct mr_ssd *s, struct mr_ssd_file *f, const uint8_t *bytes, uint64_t n, uint64_t at)
{
    uint8_t *piece = mr_ssd_aligned(MR_SSD_BUFFER);
    int rc = piece ? 0 : -ENOMEM;
    for (uint64_t done = 0; !rc && done < n; done += MR_SSD_BUFFER) {
        size_t part = MR_MIN(n - done, MR_SSD_BUFFER), room = mr_ssd_blocks(part) * MR_SSD_BLOCK;
        memcpy(piece, bytes + done, part);
        memset(piece + part, 0, room - part);
        rc = put(s, f, piece, room, at + done);
    }
    free(piece);
    return rc;
}

/* Between buffers: what was filled before is written before, what is filled meanwhile lies behind. 1: the place has
 * gone while it waited. */
static int write_large(struct mr_ssd *s, struct mr_ssd_record *r, const void *bytes)
{
    uint64_t room = mr_ssd_blocks(r->length) * MR_SSD_BLOCK;
    begin_flush(s);
    if (!mr_ssd_has_place(s, room)) {
        end_flush(s);
        return 1;
    }
    uint32_t file = s->current, n;
    struct mr_ssd_file *f = s->files[file];
    uint64_t at = f->end;
    r->block = (uint32_t)(at / MR_SSD_BLOCK);
    f->end += room;
    pthread_mutex_unlock(&s->write);
    int rc = write_pieces(s, f, bytes, r->length, at);
    if (!rc)
        rc = mr_ssd_file_add(f, r, 1);
    else
        (void)mr_ssd_punch(f->seg, at, room);
    pthread_mutex_lock(&s->write);
    if (!rc)
        rc = enter(s, r, file, MR_SSD_HELD, &n);
    end_flush(s);
    return rc;
}

static bool is_here(struct mr_ssd *s, uint64_t id)
{
    uint32_t n;
    pthread_mutex_lock(&s->lock);
    bool here = mr_ssd_entry_of(s, id, &n) != NULL;
    pthread_mutex_unlock(&s->lock);
    return here;
}

/* The buffer that is filled can take it: there is room, and it goes on where the file ends. */
static bool fits(const struct mr_ssd *s, uint64_t room)
{
    const struct mr_ssd_buffer *b = &s->buffer[s->filling];
    return !b->used ||
           (b->used + room <= MR_SSD_BUFFER && b->file == s->current && b->at + b->used == s->files[s->current]->end);
}

static int write_locked(struct mr_ssd *s, struct mr_ssd_record *r, const void *bytes, struct mr_error *err)
{
    uint64_t room = mr_ssd_blocks(r->length) * MR_SSD_BLOCK;
    bool large = room > MR_SSD_BUFFER;
    int rc = s->read_only ? s->refuse_code : have_buffers(s);
    /* Making place and flushing open the lock: others may come between. */
    while (rc >= 0 && !is_here(s, r->id)) {
        if (!mr_ssd_has_place(s, room))
            rc = mr_ssd_place(s, room, err);
        else if (large) {
            rc = write_large(s, r, bytes);
            if (rc <= 0)
                return rc;
        } else if (!fits(s, room))
            rc = mr_ssd_flush(s);
        else
            return buffer_sample(s, r, bytes);
    }
    return rc < 0 ? rc : -EEXIST;
}

int mr_ssd_write(struct mr_ssd *s, uint64_t id, const void *bytes, uint64_t n, struct mr_error *err)
{
    if (!n || n > UINT32_MAX - MR_SSD_BLOCK)
        return mr_error_set(err, n ? -EFBIG : -EINVAL, "cannot keep sample %" PRIu64 " of %" PRIu64 " bytes", id, n);
    struct mr_ssd_record r = {.id = id, .length = (uint32_t)n, .hash = mr_ssd_hash(bytes, n)};
    pthread_mutex_lock(&s->write);
    int rc = write_locked(s, &r, bytes, err);
    pthread_mutex_unlock(&s->write);
    if (!rc)
        return 0;
    if (rc != -EEXIST) {
        pthread_mutex_lock(&s->lock);
        s->stats.refused++;
        pthread_mutex_unlock(&s->lock);
    }
    return rc == -EEXIST
               ? mr_error_plain(err, rc, "sample %" PRIu64 " is in the cache '%s' already", id, s->folder.path)
               : mr_error_set(err, rc, "cannot write sample %" PRIu64 " to the cache '%s'", id, s->folder.path);
}
