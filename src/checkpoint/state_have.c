/* See the header. */
#include "checkpoint/state_have.h"

#include "base/clock.h"
#include "base/common.h"
#include "base/vec.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define FILE_PATH (MR_CHECKPOINT_PATH + 256)
#define PREFIX ".have-"
#define TEXT_MAX (64 * MR_MIB)
#define PAUSE_NS (20 * 1000 * 1000ull)

void mr_state_tier_folder(const char *tier, uint32_t rank, char out[MR_CHECKPOINT_PATH])
{
    snprintf(out, MR_CHECKPOINT_PATH, "%.*s/rank-%05u", MR_CHECKPOINT_FOLDER_MAX, tier, rank);
}

static int by_step(const void *a, const void *b)
{
    const struct mr_state_had *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return x->save < y->save ? -1 : x->save > y->save;
}

static int add(struct mr_state_have *h, struct mr_state_had what)
{
    if (mr_vec_reserve(&h->item, &h->cap, h->n + 1, sizeof(*h->item)) < 0)
        return -ENOMEM;
    h->item[h->n++] = what;
    return 0;
}

uint64_t mr_state_save_hash(const char *id)
{
    return XXH3_64bits(id, strlen(id));
}

static bool has(const struct mr_state_have *h, struct mr_state_had what)
{
    return h->n && bsearch(&what, h->item, h->n, sizeof(what), by_step);
}

bool mr_state_have_step(const struct mr_state_have *h, uint64_t step, const char *id)
{
    return has(h, (struct mr_state_had){step, mr_state_save_hash(id)});
}

void mr_state_have_done(struct mr_state_have *h)
{
    free(h->item);
    *h = (struct mr_state_have){0};
}

static int look_at(const struct mr_save_place *tier, const struct mr_checkpoint_dir *d, struct mr_state_have *h)
{
    char dir[MR_CHECKPOINT_PATH];
    struct mr_checkpoint_list l;
    mr_checkpoint_dir_path(tier->at.folder, d->step, d->kind, dir);
    if (mr_checkpoint_read_list(&tier->at, dir, &l, NULL))
        return 0; /* damaged: as if it were not there */
    int rc = add(h, (struct mr_state_had){d->step, mr_state_save_hash(l.save)});
    mr_checkpoint_list_done(&l);
    return rc;
}

/* What this rank has, in any tier. */
static int look(const struct mr_save_place *const *tier, size_t tiers, struct mr_state_have *h)
{
    int rc = 0;
    for (size_t i = 0; i < tiers; i++) {
        struct mr_checkpoint_dirs d = {0};
        if (mr_checkpoint_dirs_read(tier[i]->at.store, tier[i]->at.folder, &d, NULL))
            continue; /* nothing there yet */
        for (size_t k = 0; k < d.n && !rc; k++)
            if (mr_checkpoint_dirs_usable(&d, k))
                rc = look_at(tier[i], &d.item[k], h);
        mr_checkpoint_dirs_done(&d);
    }
    if (h->n)
        qsort(h->item, h->n, sizeof(*h->item), by_step);
    size_t n = 0;
    for (size_t i = 0; i < h->n; i++)
        if (!n || by_step(&h->item[n - 1], &h->item[i]) != 0)
            h->item[n++] = h->item[i];
    h->n = n;
    return rc;
}

static void file_of(const char *dir, uint32_t rank, char out[FILE_PATH])
{
    snprintf(out, FILE_PATH, "%s/rank-%05u", dir, rank);
}

static int say(const struct mr_save_place *final, const char *dir, const struct mr_state_have *h, struct mr_error *err)
{
    char path[FILE_PATH];
    size_t cap = h->n * 48 + 1, len = 0;
    char *text = malloc(cap);
    if (!text)
        return mr_error_set(err, -ENOMEM, "cannot list checkpoints");
    text[0] = '\0';
    for (size_t i = 0; i < h->n; i++)
        len +=
            (size_t)snprintf(text + len, cap - len, "%" PRIu64 " %016" PRIx64 "\n", h->item[i].step, h->item[i].save);
    file_of(dir, final->rank, path);
    int rc = mr_store_mkdirs(final->at.store, dir, err);
    if (!rc)
        rc = mr_store_write_file(final->at.store, path, text, len, err);
    free(text);
    return rc;
}

/* Keeps what that text has, too. */
static void keep_common(struct mr_state_have *h, char *text)
{
    struct mr_state_have theirs = {0};
    char *save = NULL;
    size_t n = 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *rest;
        struct mr_state_had what = {.step = strtoull(line, &rest, 10)};
        what.save = strtoull(rest, NULL, 16);
        if (add(&theirs, what))
            theirs.n = 0; /* without memory nothing is common */
    }
    for (size_t i = 0; i < h->n; i++)
        if (has(&theirs, h->item[i]))
            h->item[n++] = h->item[i];
    h->n = n;
    free(theirs.item);
}

static int hear(const struct mr_save_place *final, const char *dir, uint32_t rank, uint64_t until_ns,
                struct mr_state_have *h, struct mr_error *err)
{
    char path[FILE_PATH];
    void *text;
    size_t len;
    file_of(dir, rank, path);
    for (;;) {
        int rc = mr_store_read_file(final->at.store, path, TEXT_MAX, &text, &len, err);
        if (!rc) {
            keep_common(h, text);
            free(text);
        }
        if (rc != -ENOENT)
            return rc;
        if (atomic_load(final->stop))
            return mr_error_plain(err, MR_E_INTERRUPTED, "stopped while rank %u was asked what it has", rank);
        if (mr_now_ns() > until_ns)
            return mr_error_plain(err, MR_E_TIMEOUT, "rank %u did not say in time which checkpoints it has", rank);
        mr_clock_sleep_until(mr_clock_real(), mr_now_ns() + PAUSE_NS, final->stop);
    }
}

int mr_state_have_common(const struct mr_save_place *final, const struct mr_save_place *const *tier, size_t tiers,
                         const char *job, const char *what, struct mr_state_have *out, struct mr_error *err)
{
    struct mr_state_have h = {0};
    char dir[MR_CHECKPOINT_PATH];
    uint64_t until = mr_now_ns() + final->timeout_ns;
    int rc = look(tier, tiers, &h) ? mr_error_set(err, -ENOMEM, "cannot list checkpoints") : 0;
    snprintf(dir, sizeof dir, "%.*s/" PREFIX "%s-%s", MR_CHECKPOINT_FOLDER_MAX, final->at.folder, what, job);
    if (!rc && final->world > 1)
        rc = say(final, dir, &h, err);
    for (uint32_t r = 0; r < final->world && !rc && final->world > 1; r++)
        rc = hear(final, dir, r, until, &h, err);
    if (rc)
        mr_state_have_done(&h);
    *out = h;
    return rc;
}

struct forgetting {
    const struct mr_save_place *final;
    const char *job;
};

static int forget_one(void *user, const char *name, bool is_dir, struct mr_error *err)
{
    const struct forgetting *f = user;
    char path[FILE_PATH];
    (void)err;
    if (!is_dir || strncmp(name, PREFIX, strlen(PREFIX)) != 0 || strstr(name, f->job))
        return 0;
    snprintf(path, sizeof path, "%s/%s", f->final->at.folder, name);
    mr_checkpoint_dir_remove(f->final->at.store, path, NULL);
    return 0;
}

void mr_state_have_forget(const struct mr_save_place *final, const char *job)
{
    struct forgetting f = {final, job};
    final->at.store->ops->list(final->at.store, final->at.folder, forget_one, &f, NULL);
}
