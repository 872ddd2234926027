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

#define PREFIX ".have-"
#define TEXT_MAX (64 * MR_MIB)
#define PAUSE_NS (20 * 1000 * 1000ull)

struct mr_path mr_state_tier_folder(const char *tier, uint32_t share)
{
    return share == MR_STATE_ALL_SHARES ? mr_path("%s", tier) : mr_path("%s/rank-%05u", tier, share);
}

static int by_save(const void *a, const void *b)
{
    const struct mr_state_had *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    int id = strcmp(x->id, y->id);
    if (id)
        return id;
    return x->share < y->share ? -1 : x->share > y->share;
}

static int add(struct mr_state_have *h, const struct mr_state_had *what)
{
    if (mr_vec_reserve(&h->item, &h->cap, h->n + 1, sizeof(*h->item)) < 0)
        return -ENOMEM;
    h->item[h->n++] = *what;
    return 0;
}

const struct mr_state_had *mr_state_have_find(const struct mr_state_have *h, uint64_t step, const char *id)
{
    for (size_t i = 0; i < h->n; i++)
        if (h->item[i].step == step && strcmp(h->item[i].id, id) == 0)
            return &h->item[i];
    return NULL;
}

void mr_state_have_done(struct mr_state_have *h)
{
    free(h->item);
    *h = (struct mr_state_have){0};
}

/* ---- what this rank finds ---- */

struct looking {
    const struct mr_save_place *final, *tier;
    const char *base;
    size_t number;
    struct mr_state_have *out;
    int rc;
};

static int look_at(struct looking *l, const char *dir, uint64_t step, uint32_t share)
{
    struct mr_checkpoint_list list;
    struct mr_store_stat st = {0};
    if (mr_checkpoint_read_list(&l->tier->at, dir, &list, NULL))
        return 0; /* damaged: as if it were not there */
    struct mr_state_had h = {.step = step, .share = share, .world = list.world, .tier = l->number};
    snprintf(h.id, sizeof h.id, "%s", *list.save ? list.save : "-");
    l->tier->at.store->ops->stat(l->tier->at.store, mr_path("%s/" MR_CHECKPOINT_LIST_NAME, dir).text, &st, NULL);
    h.time_ns = st.mtime_ns;
    for (size_t i = 0; i < list.n; i++)
        h.bytes += list.items[i].bytes;
    mr_checkpoint_list_done(&list);
    if (share == MR_STATE_ALL_SHARES)
        h.world = 1;
    for (const char *c = h.id; *c; c++)
        if ((unsigned char)*c < ' ')
            return 0; /* a line of its own for the others to read */
    return add(l->out, &h);
}

static int look_in(struct looking *l, uint32_t share)
{
    struct mr_path folder = mr_state_tier_folder(l->base, share);
    struct mr_checkpoint_dirs d = {0};
    struct mr_store *s = l->tier->at.store;
    int rc = 0;
    if (strcmp(l->final->at.folder, folder.text) == 0 || mr_checkpoint_dirs_read(s, folder.text, &d, NULL))
        return 0; /* nothing there yet */
    for (size_t k = 0; k < d.n && !rc; k++)
        if (mr_checkpoint_dirs_usable(&d, k)) {
            struct mr_path dir = mr_checkpoint_dir_path(folder.text, d.item[k].step, d.item[k].kind);
            rc = look_at(l, dir.text, d.item[k].step, share);
        }
    mr_checkpoint_dirs_done(&d);
    return rc;
}

static int look_at_share(void *user, const char *name, bool is_dir, struct mr_error *err)
{
    struct looking *l = user;
    uint32_t rank = l->final->rank, world = l->final->at.shared ? l->final->world : UINT32_MAX;
    char *rest;
    (void)err;
    if (!is_dir || strncmp(name, "rank-", 5) != 0 || strspn(name + 5, "0123456789") < 5)
        return 0;
    unsigned long share = strtoul(name + 5, &rest, 10);
    if (*rest == '\0' && share < UINT32_MAX && share % world == rank && !l->rc)
        l->rc = look_in(l, (uint32_t)share);
    return 0;
}

/* The shares of this rank in all tiers. */
static int look(const struct mr_save_place *final, const struct mr_save_place *const *tier, const char *const *base,
                size_t tiers, struct mr_state_have *h)
{
    int rc = 0;
    for (size_t i = 0; i < tiers && !rc; i++) {
        struct looking l = {final, tier[i], base[i], i, h, 0};
        struct mr_store *s = tier[i]->at.store;
        s->ops->list(s, base[i], look_at_share, &l, NULL); /* nothing there: nothing is found */
        rc = l.rc;
        if (!rc && final->at.lead)
            rc = look_in(&l, MR_STATE_ALL_SHARES);
    }
    return rc;
}

/* ---- what all find ---- */

static int say(const struct mr_save_place *final, const char *dir, const struct mr_state_have *h, struct mr_error *err)
{
    size_t cap = h->n * 192 + 1, len = 0;
    char *text = malloc(cap);
    if (!text)
        return mr_error_set(err, -ENOMEM, "cannot list checkpoints");
    text[0] = '\0';
    for (size_t i = 0; i < h->n; i++)
        len +=
            (size_t)snprintf(text + len, cap - len, "%" PRIu64 " %u %u %" PRIu64 " %" PRIu64 " %s\n", h->item[i].step,
                             h->item[i].share, h->item[i].world, h->item[i].time_ns, h->item[i].bytes, h->item[i].id);
    int rc = mr_store_mkdirs(final->at.store, dir, err);
    if (!rc)
        rc = mr_store_write_file(final->at.store, mr_path("%s/rank-%05u", dir, final->rank).text, text, len, err);
    free(text);
    return rc;
}

/* Adds the lines of another rank. */
static int take_lines(struct mr_state_have *all, char *text)
{
    char *save = NULL;
    int rc = 0;
    for (char *line = strtok_r(text, "\n", &save); line && !rc; line = strtok_r(NULL, "\n", &save)) {
        struct mr_state_had what = {.step = strtoull(line, &line, 10)};
        what.share = (uint32_t)strtoul(line, &line, 10);
        what.world = (uint32_t)strtoul(line, &line, 10);
        what.time_ns = strtoull(line, &line, 10);
        what.bytes = strtoull(line, &line, 10);
        snprintf(what.id, sizeof what.id, "%s", *line ? line + 1 : "");
        rc = add(all, &what);
    }
    return rc;
}

/* Keeps the checkpoints of which every share is there, one item each. */
static void keep_whole(struct mr_state_have *h)
{
    size_t n = 0;
    if (h->n)
        qsort(h->item, h->n, sizeof(*h->item), by_save);
    for (size_t i = 0, end; i < h->n; i = end) {
        struct mr_state_had whole = h->item[i];
        uint32_t shares = 0, last = 0;
        for (end = i; end < h->n && h->item[end].step == whole.step && strcmp(h->item[end].id, whole.id) == 0; end++) {
            const struct mr_state_had *x = &h->item[end];
            bool other = shares == 0 || x->share != last; /* a share may be in two tiers */
            whole.bytes += end > i && other ? x->bytes : 0;
            shares += other;
            last = x->share;
            whole.time_ns = MR_MAX(whole.time_ns, x->time_ns);
        }
        if (shares == whole.world)
            h->item[n++] = whole;
    }
    h->n = n;
}

static int hear(const struct mr_save_place *final, const char *dir, uint32_t rank, uint64_t until_ns,
                struct mr_state_have *h, struct mr_error *err)
{
    struct mr_path path = mr_path("%s/rank-%05u", dir, rank);
    void *text;
    size_t len;
    for (;;) {
        int rc = mr_store_read_file(final->at.store, path.text, TEXT_MAX, &text, &len, err);
        if (!rc) {
            rc = take_lines(h, text) ? mr_error_set(err, -ENOMEM, "cannot list checkpoints") : 0;
            free(text);
            return rc;
        }
        if (rc != -ENOENT)
            return rc;
        if (mr_save_stopped(final))
            return mr_error_plain(err, MR_E_INTERRUPTED, "stopped before the list of rank %u was there", rank);
        if (mr_now_ns() > until_ns)
            return mr_error_plain(err, MR_E_TIMEOUT, "the list of rank %u did not come in time", rank);
        mr_clock_sleep_until(mr_clock_real(), mr_now_ns() + PAUSE_NS, final->stop);
    }
}

int mr_state_have_common(const struct mr_save_place *final, const struct mr_save_place *const *tier,
                         const char *const *base, size_t tiers, const char *job, const char *what,
                         struct mr_state_have *mine, struct mr_state_have *common, struct mr_error *err)
{
    struct mr_state_have own = {0}, all = {0};
    struct mr_path dir = mr_path("%s/" PREFIX "%s-%s", final->at.folder, what, job);
    uint64_t until = mr_now_ns() + final->timeout_ns;
    bool alone = final->world == 1 || !final->at.shared;
    int rc = look(final, tier, base, tiers, &own) ? mr_error_set(err, -ENOMEM, "cannot list checkpoints") : 0;
    if (!rc && !alone)
        rc = say(final, dir.text, &own, err);
    for (uint32_t r = 0; r < final->world && !rc && !alone; r++)
        rc = hear(final, dir.text, r, until, &all, err);
    for (size_t i = 0; i < own.n && !rc && alone; i++) {
        rc = add(&all, &own.item[i]) ? mr_error_set(err, -ENOMEM, "cannot list checkpoints") : 0;
        if (!final->at.shared)
            all.item[all.n - 1].world = 1; /* each rank's is whole by itself */
    }
    if (rc)
        all.n = 0;
    keep_whole(&all);
    *common = all;
    if (mine)
        *mine = own;
    else
        mr_state_have_done(&own);
    return rc;
}

struct forgetting {
    const struct mr_save_place *final;
    const char *job;
};

static int forget_one(void *user, const char *name, bool is_dir, struct mr_error *err)
{
    const struct forgetting *f = user;
    (void)err;
    if (is_dir && strncmp(name, PREFIX, strlen(PREFIX)) == 0 && !strstr(name, f->job))
        mr_checkpoint_dir_remove(f->final->at.store, mr_path("%s/%s", f->final->at.folder, name).text, NULL);
    return 0;
}

void mr_state_have_forget(const struct mr_save_place *final, const char *job)
{
    struct forgetting f = {final, job};
    final->at.store->ops->list(final->at.store, final->at.folder, forget_one, &f, NULL);
}
