/* A folder as a storage class: opening, finding, reading, dropping. See ssd.h and ssd_parts.h. */
#include "cache/ssd.h"

#include "base/clock.h"
#include "base/common.h"
#include "base/log.h"
#include "cache/ssd_hash.h"
#include "cache/ssd_io.h"
#include "cache/ssd_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GONE 1 /* value of an id in the map that was here */
#define REFRESH_NS MR_NS_PER_S
#define BOUNCES_KEPT 16

/* ---- entries ---- */

static void unlist(struct mr_ssd *s, uint32_t n)
{
    struct mr_ssd_entry *all = s->entries.item, *e = &all[n];
    if (!(e->flags & MR_SSD_LISTED))
        return;
    *(e->older == MR_SSD_NONE ? &s->oldest : &all[e->older].newer) = e->newer;
    *(e->newer == MR_SSD_NONE ? &s->newest : &all[e->newer].older) = e->older;
    e->flags &= (uint8_t)~MR_SSD_LISTED;
    s->files[e->file]->listed--;
}

static void list_newest(struct mr_ssd *s, uint32_t n)
{
    struct mr_ssd_entry *all = s->entries.item, *e = &all[n];
    unlist(s, n);
    e->older = s->newest;
    e->newer = MR_SSD_NONE;
    *(s->newest == MR_SSD_NONE ? &s->oldest : &all[s->newest].newer) = n;
    s->newest = n;
    e->flags |= MR_SSD_LISTED;
    s->files[e->file]->listed++;
}

struct mr_ssd_entry *mr_ssd_entry_of(struct mr_ssd *s, uint64_t id, uint32_t *number)
{
    uint64_t v = mr_map_get(&s->map, id);
    if (v < 2)
        return NULL;
    *number = (uint32_t)(v - 2);
    return &s->entries.item[*number];
}

struct mr_ssd_entry *mr_ssd_entry_add(struct mr_ssd *s, const struct mr_ssd_record *r, uint32_t file, unsigned flags,
                                      uint32_t *number)
{
    uint32_t n = s->free_entry;
    uint64_t *v = mr_map_put(&s->map, r->id);
    if (!v)
        return NULL;
    if (n != MR_SSD_NONE)
        s->free_entry = s->entries.item[n].newer;
    else if (s->entries.n < MR_SSD_NONE && !MR_VEC_RESERVE(&s->entries, s->entries.n + 1))
        n = (uint32_t)s->entries.n++;
    else
        return NULL; /* an id without a value is not entered */
    struct mr_ssd_entry *e = &s->entries.item[n];
    *e = (struct mr_ssd_entry){.r = *r, .file = file, .flags = (uint8_t)flags};
    *v = (uint64_t)n + 2;
    if (!(flags & MR_SSD_HELD))
        list_newest(s, n);
    s->files[file]->live++;
    s->files[file]->live_blocks += mr_ssd_blocks(r->length);
    s->stats.samples++;
    s->stats.bytes += r->length;
    *number = n;
    return e;
}

static bool settle(struct mr_ssd *s, uint32_t n, struct mr_ssd_record *what, uint32_t *file)
{
    struct mr_ssd_entry *e = &s->entries.item[n];
    if (e->readers || e->flags & MR_SSD_UNFLUSHED) {
        e->flags |= MR_SSD_DOOMED;
        return false;
    }
    *what = e->r;
    *file = e->file;
    s->files[e->file]->live--;
    s->files[e->file]->live_blocks -= mr_ssd_blocks(e->r.length);
    e->flags = 0;
    e->newer = s->free_entry;
    s->free_entry = n;
    return true;
}

bool mr_ssd_entry_take_out(struct mr_ssd *s, uint32_t number, struct mr_ssd_record *what, uint32_t *file)
{
    struct mr_ssd_entry *e = &s->entries.item[number];
    unlist(s, number);
    *mr_map_put(&s->map, e->r.id) = GONE; /* the key is there: nothing is allocated */
    s->stats.samples--;
    s->stats.bytes -= e->r.length;
    return settle(s, number, what, file);
}

bool mr_ssd_entry_release(struct mr_ssd *s, uint32_t number, struct mr_ssd_record *what, uint32_t *file)
{
    return s->entries.item[number].flags & MR_SSD_DOOMED ? settle(s, number, what, file) : false;
}

/* In a file that somebody else appends to it is only forgotten here. */
static void forget(struct mr_ssd *s, uint32_t file, const struct mr_ssd_record *what)
{
    struct mr_ssd_file *f = s->files[file];
    int rc = -EROFS;
    if (f->own || f->alone)
        rc = mr_ssd_file_forget(f, what);
    else if (mr_ssd_take_over(s, file)) {
        rc = mr_ssd_file_forget(f, what);
        mr_ssd_file_disown(f);
    }
    if (rc == -EOPNOTSUPP)
        s->no_punch = true;
}

void mr_ssd_give_back(struct mr_ssd *s, const struct mr_ssd_record *what, uint32_t file, bool folder_locked)
{
    struct mr_ssd_file *f = s->files[file];
    bool lock = !f->own && !folder_locked;
    if (f->gone || s->read_only || (lock && mr_ssd_folder_lock(&s->folder, NULL) != 0))
        return;
    forget(s, file, what);
    atomic_fetch_add(&s->freed, 1);
    if (lock)
        mr_ssd_folder_unlock(&s->folder);
}

/* ---- open ---- */

static void set_sizes(struct mr_ssd *s, uint64_t capacity)
{
    s->capacity = capacity;
    s->slack = MR_MIN(128 * MR_KIB + capacity / 256, MR_GIB);
    s->step = MR_MIN(MR_MAX(capacity / 64, 64 * MR_KIB), 64 * MR_MIB) / MR_SSD_BLOCK * MR_SSD_BLOCK;
    s->segment_bytes = MR_MIN(MR_MAX(capacity / 32, MR_MIB), 64 * MR_GIB) / MR_SSD_BLOCK * MR_SSD_BLOCK;
}

static struct mr_ssd *make(const struct mr_ssd_params *p)
{
    struct mr_ssd *s = calloc(1, sizeof *s);
    if (!s || !(s->files = calloc(MR_SSD_FILES, sizeof(struct mr_ssd_file *)))) {
        free(s);
        return NULL;
    }
    memcpy(s->data_set, p->data_set, sizeof s->data_set);
    mr_ssd_key_text(p->data_set, s->key);
    snprintf(s->about.name, sizeof s->about.name, "%s", p->name ? p->name : "");
    s->tell_about = p->name != NULL;
    s->about.samples = p->samples;
    set_sizes(s, p->capacity);
    s->want_direct = !p->buffered;
    s->set = s->folder.dir = s->folder.lock_fd = -1;
    s->free_entry = s->oldest = s->newest = s->current = MR_SSD_NONE;
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->write, NULL);
    pthread_cond_init(&s->flushed, NULL);
    return s;
}

static void destroy(struct mr_ssd *s)
{
    for (uint32_t i = 0; i < s->n_files; i++)
        mr_ssd_file_close(s->files[i]);
    for (size_t i = 0; i < s->bounces.n; i++)
        free(s->bounces.item[i]);
    for (unsigned i = 0; i < 2; i++) {
        free(s->buffer[i].data);
        free(s->buffer[i].entries.item);
    }
    free(s->files);
    free(s->bounces.item);
    free(s->entries.item);
    mr_map_done(&s->map);
    if (s->set >= 0)
        close(s->set);
    if (s->folder.path)
        mr_ssd_folder_close(&s->folder);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->write);
    pthread_cond_destroy(&s->flushed);
    free(s);
}

static int open_set(struct mr_ssd *s, struct mr_error *err)
{
    s->set = mr_ssd_set_open(&s->folder, s->key);
    if (s->set == -ENOENT && s->read_only)
        return 0; /* nothing is here and nothing will be */
    if (s->set == -ENOENT) {
        int rc = mr_ssd_mkdirat(s->folder.dir, s->key, 0700);
        s->set = rc ? rc : mr_ssd_set_open(&s->folder, s->key);
        s->read_only = s->set == -EROFS || s->set == -EACCES || s->set == -ENOSPC || s->set == -EDQUOT;
        if (s->read_only) {
            s->refuse_code = s->set == -EACCES ? -EROFS : s->set;
            return 0;
        }
    }
    if (s->set < 0)
        return mr_error_set(err, s->set, "cannot open '%s/%s'", s->folder.path, s->key);
    if (s->read_only)
        return mr_ssd_load(s, err);
    /* a full device: no name for people, which is no reason to fail */
    if (s->tell_about)
        (void)mr_ssd_about_write(s->set, &s->about);
    int rc = mr_ssd_load(s, err);
    if (rc)
        return rc;
    mr_ssd_clean(s);
    mr_ssd_make_room(s, 0);
    return 0;
}

int mr_ssd_open(const struct mr_ssd_params *p, struct mr_ssd **out, struct mr_error *err)
{
    struct mr_ssd *s = make(p);
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot open the cache '%s'", p->folder);
    int rc = mr_ssd_folder_open(p->folder, !p->look, &s->folder, err);
    if (!rc)
        rc = mr_ssd_folder_lock(&s->folder, err);
    if (!rc) {
        s->read_only = s->folder.read_only || p->look;
        s->refuse_code = -EROFS;
        rc = open_set(s, err);
        mr_ssd_folder_unlock(&s->folder);
    }
    if (rc) {
        destroy(s);
        return rc;
    }
    s->stats.capacity = p->capacity;
    s->stats.folder_bytes = mr_ssd_folder_bytes(&s->folder);
    *out = s;
    return 0;
}

void mr_ssd_close(struct mr_ssd *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->write);
    int rc = mr_ssd_flush(s);
    int done = mr_ssd_finish_current(s);
    for (uint32_t i = 0; i < s->n_files; i++) {
        int synced = mr_ssd_file_sync(s->files[i]);
        done = done ? done : synced;
    }
    pthread_mutex_unlock(&s->write);
    if (rc || done)
        mr_log(MR_LOG_WARN, "not everything was written to the cache '%s': %s", s->folder.path,
               strerror(-(rc ? rc : done)));
    if (!s->read_only && !mr_ssd_folder_lock(&s->folder, NULL)) {
        if (s->tell_about)
            (void)mr_ssd_about_write(s->set, &s->about);
        (void)mr_ssd_sync(s->set);
        mr_ssd_folder_unlock(&s->folder);
    }
    destroy(s);
}

/* ---- look-up ---- */

/* What another job has written since; not more often than once a second, because it asks the file system, and without
 * waiting, unless it is needed now. */
static void refresh(struct mr_ssd *s, bool now)
{
    uint64_t t = mr_now_ns();
    pthread_mutex_lock(&s->lock);
    bool due = now || t - s->refreshed_ns >= REFRESH_NS;
    if (due)
        s->refreshed_ns = t;
    pthread_mutex_unlock(&s->lock);
    if (!due || s->set < 0 || (now ? mr_ssd_folder_lock(&s->folder, NULL) != 0 : !mr_ssd_folder_try(&s->folder)))
        return;
    (void)mr_ssd_load(s, NULL);
    mr_ssd_folder_unlock(&s->folder);
}

static uint64_t length_of(struct mr_ssd *s, uint64_t id)
{
    uint32_t n;
    pthread_mutex_lock(&s->lock);
    struct mr_ssd_entry *e = mr_ssd_entry_of(s, id, &n);
    uint64_t length = e ? e->r.length : 0;
    pthread_mutex_unlock(&s->lock);
    return length;
}

uint64_t mr_ssd_find(struct mr_ssd *s, uint64_t id)
{
    uint64_t length = length_of(s, id);
    if (length)
        return length;
    refresh(s, false);
    return length_of(s, id);
}

void mr_ssd_hold(struct mr_ssd *s, uint64_t id, bool held)
{
    uint32_t n;
    pthread_mutex_lock(&s->lock);
    struct mr_ssd_entry *e = mr_ssd_entry_of(s, id, &n);
    if (e && held) {
        unlist(s, n);
        e->flags |= MR_SSD_HELD;
    } else if (e && e->flags & MR_SSD_HELD) {
        e->flags &= (uint8_t)~MR_SSD_HELD;
        list_newest(s, n);
        atomic_fetch_add(&s->freed, 1);
    }
    pthread_mutex_unlock(&s->lock);
}

void mr_ssd_drop(struct mr_ssd *s, uint64_t id)
{
    struct mr_ssd_record what;
    uint32_t n, file;
    pthread_mutex_lock(&s->lock);
    bool back = mr_ssd_entry_of(s, id, &n) && mr_ssd_entry_take_out(s, n, &what, &file);
    pthread_mutex_unlock(&s->lock);
    if (back)
        mr_ssd_give_back(s, &what, file, false);
}

struct known {
    uint64_t id, bytes;
};

void mr_ssd_each(struct mr_ssd *s, void (*each)(void *user, uint64_t id, uint64_t bytes), void *user)
{
    refresh(s, true);
    pthread_mutex_lock(&s->lock);
    size_t n = 0;
    struct known *all = malloc((s->stats.samples + 1) * sizeof *all);
    const struct mr_map_slot *slot;
    for (size_t at = 0; all && (slot = mr_map_next(&s->map, &at));)
        if (slot->value > GONE)
            all[n++] = (struct known){slot->key, s->entries.item[slot->value - 2].r.length};
    pthread_mutex_unlock(&s->lock);
    for (size_t i = 0; i < n; i++)
        each(user, all[i].id, all[i].bytes);
    free(all);
}

const char *mr_ssd_path(const struct mr_ssd *s)
{
    return s->folder.path;
}

void mr_ssd_stats(struct mr_ssd *s, struct mr_ssd_stats *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->stats;
    pthread_mutex_unlock(&s->lock);
}

/* ---- reading ---- */

static void *bounce_take(struct mr_ssd *s, uint64_t bytes)
{
    void *b = NULL;
    if (bytes > MR_SSD_BUFFER)
        return mr_ssd_aligned(bytes);
    pthread_mutex_lock(&s->lock);
    if (s->bounces.n)
        b = s->bounces.item[--s->bounces.n];
    pthread_mutex_unlock(&s->lock);
    return b ? b : mr_ssd_aligned(MR_SSD_BUFFER);
}

static void bounce_give(struct mr_ssd *s, void *b, uint64_t bytes)
{
    pthread_mutex_lock(&s->lock);
    void **place = bytes <= MR_SSD_BUFFER && s->bounces.n < BOUNCES_KEPT ? MR_VEC_ADD(&s->bounces) : NULL;
    if (place)
        *place = b;
    pthread_mutex_unlock(&s->lock);
    if (!place)
        free(b);
}

static int read_file(struct mr_ssd *s, struct mr_ssd_file *f, const struct mr_ssd_record *r, void *to, uint64_t *got)
{
    void *bounce = NULL;
    if (!mr_ssd_file_reads_into(f, to) && !(bounce = bounce_take(s, r->length)))
        return -ENOMEM;
    int rc = mr_ssd_file_get(f, to, r->length, (uint64_t)r->block * MR_SSD_BLOCK, bounce, got);
    if (bounce)
        bounce_give(s, bounce, r->length);
    return rc;
}

/* Its bytes may still lie in a buffer: then they are copied from there. True: done. */
static bool read_buffer(struct mr_ssd *s, uint64_t id, void *to, uint64_t bytes)
{
    uint32_t n;
    bool done = false;
    pthread_mutex_lock(&s->write);
    pthread_mutex_lock(&s->lock);
    struct mr_ssd_entry *e = mr_ssd_entry_of(s, id, &n);
    for (unsigned i = 0; e && e->flags & MR_SSD_UNFLUSHED && e->r.length == bytes && i < 2; i++) {
        const struct mr_ssd_buffer *b = &s->buffer[i];
        uint64_t at = (uint64_t)e->r.block * MR_SSD_BLOCK;
        if (!b->used || b->file != e->file || at < b->at || at >= b->at + b->used)
            continue;
        memcpy(to, b->data + (at - b->at), bytes);
        s->stats.reads++;
        s->stats.read_bytes += bytes;
        done = true;
    }
    pthread_mutex_unlock(&s->lock);
    pthread_mutex_unlock(&s->write);
    return done;
}

/* Pins the entry and says where it lies. 1: it lies in a buffer. */
static int pin(struct mr_ssd *s, uint64_t id, uint64_t bytes, uint32_t *n, struct mr_ssd_record *r,
               struct mr_ssd_file **f, struct mr_error *err)
{
    int rc = 0;
    pthread_mutex_lock(&s->lock);
    struct mr_ssd_entry *e = mr_ssd_entry_of(s, id, n);
    if (!e)
        rc = -ENOENT;
    else if (e->r.length != bytes)
        rc = -EINVAL;
    else if (e->flags & MR_SSD_UNFLUSHED)
        rc = 1;
    else {
        *r = e->r;
        *f = s->files[e->file];
        e->readers++;
        if (e->flags & MR_SSD_LISTED)
            list_newest(s, *n);
    }
    pthread_mutex_unlock(&s->lock);
    return rc >= 0 ? rc
                   : mr_error_plain(err, rc, "sample %" PRIu64 " is not in the cache '%s' with %" PRIu64 " bytes", id,
                                    s->folder.path, bytes);
}

static void unpin(struct mr_ssd *s, uint32_t n, bool good, uint64_t bytes)
{
    struct mr_ssd_record what;
    uint32_t file;
    pthread_mutex_lock(&s->lock);
    s->entries.item[n].readers--;
    s->stats.reads += good;
    s->stats.read_bytes += good ? bytes : 0;
    bool back = mr_ssd_entry_release(s, n, &what, &file);
    pthread_mutex_unlock(&s->lock);
    if (back)
        mr_ssd_give_back(s, &what, file, false);
}

/* The bytes are wrong. Another job may have dropped it meanwhile: then it is not here. Else it is corrupt, and goes. */
static int is_wrong(struct mr_ssd *s, const struct mr_ssd_record *r, const struct mr_ssd_file *f, struct mr_error *err)
{
    struct mr_ssd_record what;
    uint32_t n, file;
    bool back = false;
    if (!f->own)
        refresh(s, true);
    pthread_mutex_lock(&s->lock);
    struct mr_ssd_entry *e = mr_ssd_entry_of(s, r->id, &n);
    bool here = e && e->r.block == r->block && s->files[e->file] == f;
    if (here) {
        s->stats.corrupt++;
        back = mr_ssd_entry_take_out(s, n, &what, &file);
    }
    pthread_mutex_unlock(&s->lock);
    if (back)
        mr_ssd_give_back(s, &what, file, false);
    if (!here)
        return mr_error_plain(err, -ENOENT, "sample %" PRIu64 " has left the cache '%s'", r->id, s->folder.path);
    mr_error_plain(err, MR_E_CORRUPT,
                   "sample %" PRIu64 " in '%s/%s/%04" PRIu32 ".seg' at offset %" PRIu64
                   " does not have its checksum: dropped from the cache",
                   r->id, s->folder.path, s->key, f->number, (uint64_t)r->block * MR_SSD_BLOCK);
    return mr_error_hint(err, "'millrace cache verify' looks for more"), MR_E_CORRUPT;
}

int mr_ssd_read(struct mr_ssd *s, uint64_t id, void *to, uint64_t bytes, struct mr_error *err)
{
    struct mr_ssd_record r = {0};
    struct mr_ssd_file *f = NULL;
    uint64_t got = 0;
    uint32_t n = 0;
    int rc;
    while ((rc = pin(s, id, bytes, &n, &r, &f, err)) == 1)
        if (read_buffer(s, id, to, bytes))
            return 0;
    if (rc)
        return rc;
    rc = read_file(s, f, &r, to, &got);
    bool good = !rc && got == r.length && mr_ssd_hash(to, r.length) == r.hash;
    unpin(s, n, good, bytes);
    if (rc)
        return mr_error_set(err, rc, "cannot read sample %" PRIu64 " from '%s/%s/%04" PRIu32 ".seg'", id,
                            s->folder.path, s->key, f->number);
    return good ? 0 : is_wrong(s, &r, f, err);
}
