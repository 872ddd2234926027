/* Listing, verifying and dropping data sets of a cache folder: see cache_admin.h. */
#include "cache/cache_admin.h"
#include "base/common.h"
#include "base/progress.h"
#include "base/vec.h"
#include "base/workers.h"
#include "cache/ssd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int open_set(const char *folder, const char *key, bool look, struct mr_ssd **out, struct mr_error *err)
{
    struct mr_ssd_params p = {.folder = folder, .capacity = UINT64_MAX, .look = look};
    (void)mr_ssd_key_parse(key, p.data_set);
    return mr_ssd_open(&p, out, err);
}

/* ---- list ---- */

static bool is_meant(const char *which, const struct mr_cache_set *s)
{
    return !*which || !strcmp(which, s->about.name) || (strlen(which) >= 4 && !strncmp(which, s->key, strlen(which)));
}

static bool is_in_use(int set)
{
    struct mr_ssd_pair *pairs = NULL;
    unsigned n = 0;
    bool in_use = false;
    if (!mr_ssd_set_pairs(set, &pairs, &n))
        for (unsigned i = 0; i < n && !in_use; i++)
            in_use = mr_ssd_pair_in_use(set, &pairs[i]);
    free(pairs);
    return in_use;
}

static void describe(const struct mr_ssd_folder *f, struct mr_cache_set *s)
{
    int set = mr_ssd_set_open(f, s->key);
    if (set < 0)
        return;
    (void)mr_ssd_about_read(set, &s->about);
    s->in_use = is_in_use(set);
    close(set);
}

static int list_sets(struct mr_ssd_folder *f, const char *which, struct mr_cache_list *out, struct mr_error *err)
{
    struct mr_ssd_set *sets = NULL;
    unsigned n = 0;
    int rc = mr_ssd_folder_lock(f, err);
    if (rc)
        return rc;
    rc = mr_ssd_folder_sets(f, &sets, &n, err);
    if (!rc && n && !(out->set = calloc(n, sizeof(*out->set))))
        rc = mr_error_set(err, -ENOMEM, "cannot list '%s'", f->path);
    for (unsigned i = n; !rc && i-- > 0;) {
        struct mr_cache_set s = {.used_s = sets[i].used_s};
        memcpy(s.key, sets[i].key, sizeof s.key);
        describe(f, &s);
        if (is_meant(which, &s))
            out->set[out->n++] = s;
    }
    free(sets);
    mr_ssd_folder_unlock(f);
    return rc;
}

int mr_cache_list(const char *folder, const char *which, struct mr_cache_list *out, struct mr_error *err)
{
    struct mr_ssd_folder f;
    *out = (struct mr_cache_list){0};
    int rc = mr_ssd_folder_open(folder, false, &f, err);
    if (rc)
        return rc;
    rc = list_sets(&f, which, out, err);
    mr_ssd_folder_close(&f);
    if (!rc && !out->n && *which) {
        mr_error_plain(err, MR_E_USAGE, "there is no data set '%s' in '%s'", which, folder);
        return mr_error_hint(err, "'millrace cache ls %s' shows keys and names", folder), MR_E_USAGE;
    }
    return rc;
}

int mr_cache_count(const char *folder, struct mr_cache_list *l, uint64_t *folder_bytes, struct mr_error *err)
{
    struct mr_ssd_folder f;
    int rc = mr_ssd_folder_open(folder, false, &f, err);
    if (rc)
        return rc;
    *folder_bytes = mr_ssd_folder_bytes(&f);
    mr_ssd_folder_close(&f);
    for (size_t i = 0; !rc && i < l->n; i++) {
        struct mr_ssd *s;
        struct mr_ssd_stats st;
        if ((rc = open_set(folder, l->set[i].key, true, &s, err)))
            break;
        mr_ssd_stats(s, &st);
        mr_ssd_close(s);
        l->set[i].samples = st.samples;
        l->set[i].bytes = st.bytes;
    }
    return rc;
}

void mr_cache_list_done(struct mr_cache_list *l)
{
    free(l->set);
    *l = (struct mr_cache_list){0};
}

/* ---- verify ---- */

struct checking {
    struct mr_ssd *s;
    struct mr_progress *progress;
    MR_VEC(uint64_t) ids;
    uint64_t biggest;
    atomic_uint_fast64_t samples, bytes, corrupt, unreadable;
    bool no_memory;
    void **buffer; /* one per thread */
    void (*bad)(void *user, const char *message);
    void *user;
};

static void note_id(void *user, uint64_t id, uint64_t bytes)
{
    struct checking *c = user;
    uint64_t *place = MR_VEC_ADD(&c->ids);
    if (place)
        *place = id;
    else
        c->no_memory = true;
    c->biggest = MR_MAX(c->biggest, bytes);
}

static int check_one(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct checking *c = ctx->user;
    struct mr_error why;
    uint64_t id = c->ids.item[index], bytes = mr_ssd_find(c->s, id);
    (void)err;
    int rc = bytes && bytes <= c->biggest ? mr_ssd_read(c->s, id, c->buffer[ctx->thread], bytes, &why) : -ENOENT;
    if (rc == -ENOENT) /* another job has dropped it */
        return 0;
    if (rc)
        c->bad(c->user, why.message);
    atomic_fetch_add(rc == MR_E_CORRUPT ? &c->corrupt : rc ? &c->unreadable : &c->samples, 1);
    atomic_fetch_add(&c->bytes, rc ? 0 : bytes);
    mr_progress_add(c->progress, 1, bytes);
    return 0;
}

static int check_set(struct checking *c, const char *folder, const struct mr_cache_work *how, struct mr_error *err)
{
    struct mr_ssd_stats st;
    c->biggest = 0;
    c->ids.n = 0;
    mr_ssd_each(c->s, note_id, c);
    mr_ssd_stats(c->s, &st);
    c->buffer = calloc(how->threads, sizeof(void *));
    for (unsigned i = 0; c->buffer && i < how->threads; i++)
        c->no_memory |= posix_memalign(&c->buffer[i], 4096, MR_ALIGN_UP(c->biggest + 1, 4096)) != 0;
    const struct mr_progress_options po = {.verb = "verifying",
                                           .unit = "samples",
                                           .total = c->ids.n,
                                           .total_bytes = st.bytes,
                                           .stream = how->progress,
                                           .force_tty = -1};
    int rc = c->no_memory || !c->buffer ? mr_error_set(err, -ENOMEM, "cannot verify '%s'", folder) : 0;
    if (!rc)
        rc = mr_progress_start(&po, &c->progress, err);
    if (rc >= 0)
        rc = mr_workers_run(how->threads, c->ids.n, 1, check_one, c, how->stop, err);
    mr_progress_stop(c->progress);
    c->progress = NULL;
    for (unsigned i = 0; c->buffer && i < how->threads; i++)
        free(c->buffer[i]);
    free(c->buffer);
    return rc;
}

int mr_cache_verify(const char *folder, const struct mr_cache_list *l, const struct mr_cache_work *how,
                    void (*bad)(void *user, const char *message), void *user, struct mr_cache_verified *out,
                    struct mr_error *err)
{
    struct checking c = {.bad = bad, .user = user};
    int rc = 0;
    for (size_t i = 0; !rc && i < l->n; i++) {
        if ((rc = open_set(folder, l->set[i].key, false, &c.s, err)))
            break;
        rc = check_set(&c, folder, how, err);
        mr_ssd_close(c.s);
    }
    free(c.ids.item);
    if (!rc)
        *out = (struct mr_cache_verified){
            .samples = c.samples, .bytes = c.bytes, .corrupt = c.corrupt, .unreadable = c.unreadable};
    return rc;
}

/* ---- drop ---- */

static void drop_set(struct mr_ssd_folder *f, const char *key, uint64_t *freed, unsigned *kept)
{
    struct mr_ssd_pair *pairs = NULL;
    unsigned n = 0;
    int set = mr_ssd_set_open(f, key);
    if (set < 0)
        return;
    if (!mr_ssd_set_pairs(set, &pairs, &n))
        for (unsigned i = 0; i < n; i++)
            *kept += !mr_ssd_pair_remove(set, &pairs[i], freed);
    free(pairs);
    close(set);
    mr_ssd_set_remove_empty(f, key);
}

int mr_cache_drop(const char *folder, const struct mr_cache_list *l, uint64_t *freed, unsigned *kept,
                  struct mr_error *err)
{
    struct mr_ssd_folder f;
    *freed = 0;
    *kept = 0;
    int rc = mr_ssd_folder_open(folder, false, &f, err);
    if (rc)
        return rc;
    rc = mr_ssd_folder_lock(&f, err);
    for (size_t i = 0; !rc && i < l->n; i++)
        drop_set(&f, l->set[i].key, freed, kept);
    if (!rc)
        mr_ssd_folder_unlock(&f);
    mr_ssd_folder_close(&f);
    return rc;
}
