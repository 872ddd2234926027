/* Room in an SSD folder: what the folder takes is counted with the folder locked, reserved by allocating it in the file
 * that is appended to, and so seen by everybody who counts after us. What nobody holds goes first: files of other data
 * sets that no job uses, longest unused first, then samples of this one from earlier runs, least recently used first.
 */
#include "cache/ssd_io.h"
#include "cache/ssd_parts.h"

#include "base/clock.h"
#include "base/common.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define REFUSE_NS (100 * MR_NS_PER_MS)

static uint64_t count_taken(struct mr_ssd *s)
{
    uint64_t taken = mr_ssd_folder_bytes(&s->folder);
    pthread_mutex_lock(&s->lock);
    s->stats.folder_bytes = taken;
    pthread_mutex_unlock(&s->lock);
    return taken + s->slack;
}

uint64_t mr_ssd_usable(struct mr_ssd *s)
{
    struct mr_ssd_stats now;
    struct statvfs v;
    mr_ssd_stats(s, &now);
    if (s->read_only)
        return MR_MIN(now.bytes, s->capacity);
    if (fstatvfs(s->folder.dir, &v) != 0)
        return s->capacity;
    uint64_t there = now.folder_bytes + (uint64_t)v.f_bavail * v.f_frsize;
    return MR_MIN(there, s->capacity);
}

static uint64_t room_left(struct mr_ssd *s)
{
    uint64_t taken = count_taken(s);
    return taken < s->capacity ? s->capacity - taken : 0;
}

/* ---- other data sets ---- */

static uint64_t remove_files(struct mr_ssd *s, const char *key, uint64_t wanted)
{
    struct mr_ssd_pair *pairs = NULL;
    unsigned n = 0;
    uint64_t freed = 0;
    int set = mr_ssd_set_open(&s->folder, key);
    if (set < 0)
        return 0;
    if (!mr_ssd_set_pairs(set, &pairs, &n))
        for (unsigned i = 0; i < n && freed < wanted; i++)
            (void)mr_ssd_pair_remove(set, &pairs[i], &freed);
    free(pairs);
    close(set);
    mr_ssd_set_remove_empty(&s->folder, key);
    return freed;
}

static uint64_t remove_others(struct mr_ssd *s, uint64_t wanted)
{
    struct mr_ssd_set *sets = NULL;
    unsigned n = 0;
    uint64_t freed = 0;
    if (mr_ssd_folder_sets(&s->folder, &sets, &n, NULL))
        return 0;
    for (unsigned i = 0; i < n && freed < wanted; i++)
        if (memcmp(sets[i].key, s->key, sizeof s->key) != 0)
            freed += remove_files(s, sets[i].key, wanted - freed);
    free(sets);
    return freed;
}

/* ---- samples of this one ---- */

struct victim {
    struct mr_ssd_record r;
    uint32_t file;
};
#define VICTIMS 64

static bool may_take(struct mr_ssd_file *f)
{
    if (!f->asked) {
        f->asked = true;
        f->alone = mr_ssd_file_alone(f);
    }
    return f->alone;
}

/* The next ones that nobody holds, out of the map. */
static unsigned choose(struct mr_ssd *s, uint64_t wanted, struct victim *v)
{
    unsigned n = 0;
    uint64_t bytes = 0;
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = s->oldest, next; i != MR_SSD_NONE && n < VICTIMS && bytes < wanted; i = next) {
        struct mr_ssd_entry *e = &s->entries.item[i];
        next = e->newer;
        if (e->readers || e->flags & MR_SSD_UNFLUSHED || !may_take(s->files[e->file]))
            continue;
        (void)mr_ssd_entry_take_out(s, i, &v[n].r, &v[n].file);
        bytes += mr_ssd_blocks(v[n++].r.length) * MR_SSD_BLOCK;
        s->stats.evicted++;
    }
    pthread_mutex_unlock(&s->lock);
    return n;
}

static void remove_unused_files(struct mr_ssd *s)
{
    for (uint32_t i = 0; i < s->n_files; i++) {
        struct mr_ssd_file *f = s->files[i];
        pthread_mutex_lock(&s->lock);
        bool empty = !f->live;
        pthread_mutex_unlock(&s->lock);
        if (!empty || f->gone || f->own || !may_take(f) || mr_ssd_file_news(s, i) < 0)
            continue;
        pthread_mutex_lock(&s->lock);
        empty = !f->live;
        pthread_mutex_unlock(&s->lock);
        if (empty)
            mr_ssd_file_remove(f, s->set);
    }
}

/* A file system that cannot give blocks back one by one: the next file that nobody holds anything of. False: there is
 * none. */
static bool remove_oldest_file(struct mr_ssd *s, uint64_t *freed)
{
    struct mr_ssd_file *f = NULL;
    struct mr_ssd_record unused;
    uint32_t file = 0;
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = s->oldest, next; i != MR_SSD_NONE; i = next) {
        const struct mr_ssd_entry *e = &s->entries.item[i];
        struct mr_ssd_file *of = s->files[e->file];
        next = e->newer;
        if (!f && !of->own && of->listed == of->live && !e->readers && may_take(of))
            f = of;
        if (f != of || e->readers)
            continue;
        *freed += mr_ssd_blocks(e->r.length) * MR_SSD_BLOCK;
        s->stats.evicted += mr_ssd_entry_take_out(s, i, &unused, &file);
    }
    bool empty = f && !f->live;
    pthread_mutex_unlock(&s->lock);
    if (empty)
        mr_ssd_file_remove(f, s->set);
    return empty && f->gone;
}

static void remove_oldest(struct mr_ssd *s, uint64_t wanted)
{
    struct victim v[VICTIMS];
    uint64_t freed = 0;
    unsigned n;
    while (s->no_punch && freed < wanted && remove_oldest_file(s, &freed))
        ;
    while (!s->no_punch && freed < wanted && (n = choose(s, wanted - freed, v)) > 0)
        for (unsigned i = 0; i < n; i++) {
            mr_ssd_give_back(s, &v[i].r, v[i].file, true);
            freed += mr_ssd_blocks(v[i].r.length) * MR_SSD_BLOCK;
        }
    remove_unused_files(s);
    for (uint32_t i = 0; i < s->n_files; i++) {
        struct mr_ssd_file *f = s->files[i];
        if (f->alone && !f->gone)
            mr_ssd_file_share(f);
        f->alone = f->asked = false;
    }
}

void mr_ssd_make_room(struct mr_ssd *s, uint64_t wanted)
{
    uint64_t taken = count_taken(s), over = taken > s->capacity ? taken - s->capacity : 0;
    uint64_t left = over ? 0 : s->capacity - taken;
    if (!over && left >= wanted)
        return;
    uint64_t goal = over + wanted - left;
    uint64_t freed = remove_others(s, goal);
    bool could_punch = !s->no_punch;
    if (freed < goal)
        remove_oldest(s, goal - freed);
    if (could_punch && s->no_punch) /* only now it turned out that nothing came of it */
        remove_oldest(s, goal - freed);
}

/* ---- the file that is appended to ---- */

static int new_file(struct mr_ssd *s)
{
    struct mr_ssd_pair *pairs = NULL;
    struct mr_ssd_file *f;
    unsigned n = 0;
    int rc = mr_ssd_set_pairs(s->set, &pairs, &n);
    if (rc)
        return rc;
    uint32_t number = n ? pairs[n - 1].number + 1 : 1;
    free(pairs);
    mr_ssd_make_room(s, 2 * (uint64_t)MR_SSD_BLOCK);
    if (room_left(s) < 2 * (uint64_t)MR_SSD_BLOCK)
        return -ENOSPC;
    rc = mr_ssd_file_create(s->set, number, s->data_set, s->want_direct, &f);
    if (!rc && (rc = mr_ssd_keep_file(s, f, &s->current)) != 0)
        mr_ssd_file_close(f);
    return rc;
}

/* The last file that has room and no writer is continued; so there are not more files than capacity and jobs need. */
static int choose_file(struct mr_ssd *s)
{
    for (uint32_t i = s->n_files; i-- > 0;) {
        struct mr_ssd_file *f = s->files[i];
        if (f->gone || f->end > s->segment_bytes / 4 * 3 || !mr_ssd_take_over(s, i))
            continue;
        /* behind the last sample may be room that somebody reserved who was killed */
        if (f->end <= s->segment_bytes / 4 * 3 && !mr_ssd_truncate(f->seg, f->end)) {
            f->allocated = f->end;
            s->current = i;
            return 0;
        }
        mr_ssd_file_disown(f);
    }
    return new_file(s);
}

/* Makes the current file longer by at least what is needed, at best by a step. */
static int extend(struct mr_ssd *s, struct mr_ssd_file *f, uint64_t need)
{
    uint64_t least = f->end + need - f->allocated, most = MR_MAX(least, s->step), left = room_left(s);
    if (left < least) {
        mr_ssd_make_room(s, most);
        left = room_left(s);
    }
    uint64_t more = MR_MIN(most, left / MR_SSD_BLOCK * MR_SSD_BLOCK);
    if (more < least)
        return -ENOSPC;
    int rc = s->no_allocate ? -EOPNOTSUPP : mr_ssd_allocate(f->seg, f->allocated, more);
    if (rc == -ENOSPC && more > least)
        rc = mr_ssd_allocate(f->seg, f->allocated, more = least);
    if (rc == -EOPNOTSUPP || rc == -ENOSYS || rc == -EINVAL) {
        s->no_allocate = true;
        more = least;
        rc = 0;
    }
    f->allocated += rc ? 0 : more;
    return rc;
}

int mr_ssd_finish_current(struct mr_ssd *s)
{
    if (s->current == MR_SSD_NONE)
        return 0;
    struct mr_ssd_file *f = s->files[s->current];
    s->current = MR_SSD_NONE;
    if (f->gone)
        return 0;
    int rc = mr_ssd_truncate(f->seg, f->end); /* nothing stays reserved */
    mr_ssd_file_disown(f);
    return rc;
}

/* A write that is refused costs a walk over the folder: not more often than needed. */
static bool still_refused(const struct mr_ssd *s)
{
    return s->refuse_until_ns && s->refuse_freed == s->freed && mr_now_ns() < s->refuse_until_ns;
}

bool mr_ssd_has_place(const struct mr_ssd *s, uint64_t need)
{
    const struct mr_ssd_file *f = s->current == MR_SSD_NONE ? NULL : s->files[s->current];
    return f && f->end + need <= f->allocated;
}

/* The current file is full. True: it is still being written; that was seen to, ask again. */
static bool leave_full(struct mr_ssd *s, uint64_t need, int *rc)
{
    const struct mr_ssd_file *f = s->current == MR_SSD_NONE ? NULL : s->files[s->current];
    *rc = 0;
    if (!f || !f->end || f->end + need <= s->segment_bytes)
        return false;
    if (s->flushing || s->buffer[s->filling].used) {
        *rc = mr_ssd_flush(s);
        return true;
    }
    *rc = mr_ssd_finish_current(s);
    return false;
}

int mr_ssd_place(struct mr_ssd *s, uint64_t need, struct mr_error *err)
{
    int rc;
    if (still_refused(s))
        return s->refuse_code;
    if (leave_full(s, need, &rc) || rc)
        return rc;
    rc = mr_ssd_folder_lock(&s->folder, err);
    if (rc)
        return rc;
    if (s->current == MR_SSD_NONE)
        rc = choose_file(s);
    if (!rc)
        rc = extend(s, s->files[s->current], need);
    mr_ssd_folder_unlock(&s->folder);
    if (rc == -ENOSPC || rc == -EROFS || rc == -EDQUOT) {
        s->refuse_code = rc;
        s->refuse_freed = s->freed;
        s->refuse_until_ns = mr_now_ns() + REFUSE_NS;
    }
    return rc;
}
