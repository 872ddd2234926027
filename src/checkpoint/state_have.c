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

#define FILE_PATH (MR_CHECKPOINT_PATH + 256)
#define PREFIX ".have-"
#define TEXT_MAX (64 * MR_MIB)
#define PAUSE_NS (20 * 1000 * 1000ull)

void mr_state_tier_folder(const char *tier, uint32_t rank, char out[MR_CHECKPOINT_PATH])
{
    snprintf(out, MR_CHECKPOINT_PATH, "%.*s/rank-%05u", MR_CHECKPOINT_FOLDER_MAX, tier, rank);
}

static int by_size(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static int add(struct mr_state_have *h, uint64_t step)
{
    if (mr_vec_reserve(&h->step, &h->cap, h->n + 1, sizeof(*h->step)) < 0)
        return -ENOMEM;
    h->step[h->n++] = step;
    return 0;
}

bool mr_state_have_step(const struct mr_state_have *h, uint64_t step)
{
    return h->n && bsearch(&step, h->step, h->n, sizeof(step), by_size);
}

void mr_state_have_done(struct mr_state_have *h)
{
    free(h->step);
    *h = (struct mr_state_have){0};
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
                rc = add(h, d.item[k].step);
        mr_checkpoint_dirs_done(&d);
    }
    if (h->n)
        qsort(h->step, h->n, sizeof(*h->step), by_size);
    size_t n = 0;
    for (size_t i = 0; i < h->n; i++)
        if (!n || h->step[n - 1] != h->step[i])
            h->step[n++] = h->step[i];
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
    size_t cap = h->n * 24 + 1, len = 0;
    char *text = malloc(cap);
    if (!text)
        return mr_error_set(err, -ENOMEM, "cannot list checkpoints");
    text[0] = '\0';
    for (size_t i = 0; i < h->n; i++)
        len += (size_t)snprintf(text + len, cap - len, "%" PRIu64 "\n", h->step[i]);
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
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        if (add(&theirs, strtoull(line, NULL, 10)))
            theirs.n = 0; /* without memory nothing is common */
    for (size_t i = 0; i < h->n; i++)
        if (mr_state_have_step(&theirs, h->step[i]))
            h->step[n++] = h->step[i];
    h->n = n;
    free(theirs.step);
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
