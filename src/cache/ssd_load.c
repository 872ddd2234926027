/* What lies in the folder of a data set: reading the indexes, and cleaning up behind jobs that were killed. */
#include "cache/ssd_io.h"
#include "cache/ssd_parts.h"

#include "base/common.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* A record of file `file`: a sample is here, or not any more. Later records win within a file, earlier files win
 * otherwise; *useless: it is in another file already, or its bytes are not there. */
static int apply(struct mr_ssd *s, const struct mr_ssd_record *r, uint32_t file, uint64_t seg_bytes, bool *useless)
{
    struct mr_ssd_file *f = s->files[file];
    struct mr_ssd_record what;
    uint32_t n, of;
    uint64_t at = (uint64_t)r->block * MR_SSD_BLOCK, room = mr_ssd_blocks(r->length) * MR_SSD_BLOCK;
    struct mr_ssd_entry *e = mr_ssd_entry_of(s, r->id, &n);
    f->end = MR_MAX(f->end, at + room);
    *useless = r->length && at + room > seg_bytes;
    if (*useless)
        return 0;
    if (e && e->file == file && r->length && e->r.block == r->block && e->r.hash == r->hash)
        return 0; /* known */
    if (e && e->file == file && (r->length || e->r.block == r->block))
        (void)mr_ssd_entry_take_out(s, n, &what, &of); /* its blocks are given back by who wrote that, or cleaned */
    else if (e && r->length)
        return *useless = true, 0;
    if (!r->length)
        return 0;
    return mr_ssd_entry_add(s, r, file, 0, &n) ? 0 : -ENOMEM;
}

/* Records that are not needed are taken back where nobody else uses the file: else they would stand for something
 * later, when their blocks have gone. */
static int read_news(struct mr_ssd *s, uint32_t file, bool alone)
{
    struct mr_ssd_record r[256];
    struct mr_ssd_file *f = s->files[file];
    struct stat st;
    uint64_t torn = 0;
    int n = mr_ssd_stat(f->seg, &st);
    while (n >= 0 && (n = mr_ssd_file_records(f, r, MR_ARRAY_LEN(r), &torn)) > 0)
        for (int i = 0; i < n; i++) {
            bool useless;
            pthread_mutex_lock(&s->lock);
            int rc = apply(s, &r[i], file, (uint64_t)st.st_size, &useless);
            pthread_mutex_unlock(&s->lock);
            if (rc)
                return rc;
            if (useless && alone)
                (void)mr_ssd_file_forget(f, &r[i]);
        }
    return n;
}

int mr_ssd_file_news(struct mr_ssd *s, uint32_t file)
{
    return read_news(s, file, false);
}

bool mr_ssd_take_over(struct mr_ssd *s, uint32_t file)
{
    struct mr_ssd_file *f = s->files[file];
    if (!mr_ssd_file_own(f))
        return false;
    if (mr_ssd_file_news(s, file) >= 0)
        return true;
    mr_ssd_file_disown(f);
    return false;
}

static bool is_open(const struct mr_ssd *s, uint32_t number)
{
    for (uint32_t i = 0; i < s->n_files; i++)
        if (s->files[i]->number == number && !s->files[i]->gone)
            return true;
    return false;
}

int mr_ssd_keep_file(struct mr_ssd *s, struct mr_ssd_file *f, uint32_t *number)
{
    if (s->n_files == MR_SSD_FILES)
        return -ENFILE;
    pthread_mutex_lock(&s->lock);
    *number = s->n_files++;
    s->files[*number] = f;
    s->stats.direct = f->direct;
    pthread_mutex_unlock(&s->lock);
    return 0;
}

static int add_file(struct mr_ssd *s, const struct mr_ssd_pair *p)
{
    struct mr_ssd_file *f;
    int rc = mr_ssd_file_open(s->set, p->number, s->data_set, !s->read_only, s->want_direct, &f);
    if (rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE)
        return rc;
    if (rc == MR_E_FORMAT && !s->read_only)
        (void)mr_ssd_pair_remove(s->set, p, NULL);
    if (rc)
        return 0; /* what cannot be read is not here */
    uint32_t file;
    rc = mr_ssd_keep_file(s, f, &file);
    if (rc) {
        mr_ssd_file_close(f);
        return rc;
    }
    bool alone = mr_ssd_file_alone(f);
    rc = read_news(s, file, alone);
    if (alone)
        mr_ssd_file_share(f);
    return rc == -ENOMEM ? rc : 0;
}

int mr_ssd_load(struct mr_ssd *s, struct mr_error *err)
{
    struct mr_ssd_pair *pairs = NULL;
    unsigned n = 0;
    int rc = mr_ssd_set_pairs(s->set, &pairs, &n);
    uint32_t known = s->n_files;
    for (uint32_t i = 0; !rc && i < known; i++)
        if (!s->files[i]->own && !s->files[i]->gone)
            rc = MR_MIN(mr_ssd_file_news(s, i), 0) == -ENOMEM ? -ENOMEM : 0;
    for (unsigned i = 0; !rc && i < n; i++)
        if (pairs[i].seg && pairs[i].idx && !is_open(s, pairs[i].number))
            rc = add_file(s, &pairs[i]);
    free(pairs);
    return rc ? mr_error_set(err, rc, "cannot read the cache '%s/%s'", s->folder.path, s->key) : 0;
}

/* ---- leftovers ---- */

static int by_block(const void *a, const void *b)
{
    const struct mr_ssd_record *x = a, *y = b;
    return x->block < y->block ? -1 : x->block > y->block;
}

/* Gives back the blocks between the samples of a file, and behind the last. */
static void punch_gaps(struct mr_ssd_file *f, struct mr_ssd_record *r, size_t n)
{
    uint64_t at = 0;
    qsort(r, n, sizeof *r, by_block);
    for (size_t i = 0; i < n; i++) {
        uint64_t begins = (uint64_t)r[i].block * MR_SSD_BLOCK;
        if (begins > at)
            (void)mr_ssd_punch(f->seg, at, begins - at);
        at = MR_MAX(at, begins + mr_ssd_blocks(r[i].length) * MR_SSD_BLOCK);
    }
    (void)mr_ssd_truncate(f->seg, at);
}

static bool has_leftovers(const struct mr_ssd_file *f)
{
    struct stat st;
    uint64_t live = f->live_blocks * MR_SSD_BLOCK;
    /* the file system's own blocks are among them, where a file lies in many pieces */
    return !mr_ssd_stat(f->seg, &st) && (uint64_t)st.st_blocks * 512 > live + live / 256 + 64 * MR_KIB;
}

static void clean_file(struct mr_ssd *s, uint32_t file)
{
    struct mr_ssd_file *f = s->files[file];
    struct mr_ssd_record *live = has_leftovers(f) ? malloc((f->live + 1) * sizeof *live) : NULL;
    size_t n = 0;
    const struct mr_map_slot *slot;
    pthread_mutex_lock(&s->lock);
    for (size_t at = 0; live && (slot = mr_map_next(&s->map, &at));)
        if (slot->value >= 2 && s->entries.item[slot->value - 2].file == file)
            live[n++] = s->entries.item[slot->value - 2].r;
    pthread_mutex_unlock(&s->lock);
    if (live && n)
        punch_gaps(f, live, n);
    free(live);
}

void mr_ssd_clean(struct mr_ssd *s)
{
    struct mr_ssd_pair *pairs = NULL;
    unsigned n = 0;
    if (!mr_ssd_set_pairs(s->set, &pairs, &n))
        for (unsigned i = 0; i < n; i++)
            if (!pairs[i].seg || !pairs[i].idx)
                (void)mr_ssd_pair_remove(s->set, &pairs[i], NULL);
    free(pairs);
    mr_ssd_about_clean(s->set);
    for (uint32_t i = 0; i < s->n_files; i++)
        if (mr_ssd_file_alone(s->files[i])) {
            /* who used it may have written since it was read */
            if (read_news(s, i, true) >= 0 && !s->files[i]->live)
                mr_ssd_file_remove(s->files[i], s->set);
            else
                clean_file(s, i);
            if (!s->files[i]->gone)
                mr_ssd_file_share(s->files[i]);
        }
}
