/* See the header. */
#include "checkpoint/state_have.h"

#include "base/common.h"
#include "base/strbuf.h"
#include "base/vec.h"
#include "checkpoint/checkpoint_guard.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX (64 * MR_MIB)

struct mr_path mr_state_tier_folder(const char *tier, uint32_t share)
{
    return share == MR_STATE_ALL_SHARES ? mr_path("%s", tier) : mr_path("%s/rank-%05u", tier, share);
}

int mr_state_tier_open(const struct mr_saver_tier *of, uint32_t rank, struct mr_events *events,
                       struct mr_checkpoint_place *out, struct mr_error *err)
{
    if (!of->folder || !*of->folder)
        return mr_error_plain(err, MR_E_USAGE, "a tier needs a folder");
    struct mr_path folder = mr_state_tier_folder(of->folder, rank);
    int rc = mr_checkpoint_place_open(folder.text, of->store, rank, events, out, err);
    if (rc)
        return rc;
    if (out->by_list)
        return mr_error_plain(err, MR_E_USAGE, "'%s' is in object storage: a tier is a folder before it", of->folder);
    out->base = strdup(of->folder);
    return out->base && !mr_store_confine(out->store, of->folder, true) /* C7 */
               ? 0
               : mr_error_set(err, -ENOMEM, "cannot open a tier");
}

static int by_save(const void *a, const void *b)
{
    const struct mr_state_had *x = a, *y = b;
    int order = MR_ORDER(x->tier, y->tier);
    order = order ? order : MR_ORDER(x->step, y->step);
    order = order ? order : strcmp(x->id, y->id);
    return order ? order : MR_ORDER(x->share, y->share);
}

static int add(struct mr_state_have *h, const struct mr_state_had *what)
{
    struct mr_state_had *new = MR_VEC_ADD(h);
    if (!new)
        return -ENOMEM;
    *new = *what;
    return 0;
}

static void sort(struct mr_state_have *h)
{
    if (h->n)
        qsort(h->item, h->n, sizeof(*h->item), by_save);
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
    const struct mr_save_place *final;
    const struct mr_checkpoint_place *tier;
    size_t number;
    struct mr_state_have *out;
};

/* The checkpoint in `dir`. False without a readable list. */
static bool look_closely(const struct mr_checkpoint_place *at, const char *dir, struct mr_state_had *out)
{
    struct mr_checkpoint_list l;
    struct mr_store_stat st = {0};
    *out = (struct mr_state_had){.step = mr_checkpoint_step_of(dir)};
    if (mr_checkpoint_read_list(at, dir, &l, NULL))
        return false;
    at->store->ops->stat(at->store, mr_path("%s/" MR_CHECKPOINT_LIST_NAME, dir).text, &st, NULL);
    snprintf(out->id, sizeof out->id, "%s", *l.save ? l.save : "-");
    out->world = l.world;
    out->fsync = l.fsync;
    out->time_ns = st.mtime_ns;
    for (size_t i = 0; i < l.n; i++)
        out->bytes += l.items[i].bytes;
    mr_checkpoint_list_done(&l);
    return true;
}

int mr_state_have_in(const struct mr_checkpoint_place *at, uint64_t step, struct mr_state_had *out,
                     struct mr_error *err)
{
    struct mr_path dir;
    struct mr_error why;
    int rc = mr_checkpoint_find(at->store, at->folder, step, &dir, &why);
    if (!rc)
        look_closely(at, dir.text, out); /* damaged: its load says so */
    else if (rc != MR_E_INCOMPLETE && err)
        *err = why;
    return rc == MR_E_INCOMPLETE ? 0 : rc ? rc : 1;
}

static int look_at(struct looking *l, const char *dir, uint32_t share)
{
    struct mr_state_had h;
    bool usable = look_closely(l->tier, dir, &h); /* damaged: as if it were not there */
    for (const char *c = h.id; *c; c++)
        usable = usable && (unsigned char)*c >= ' '; /* a line of its own for the others to read */
    h.share = share;
    h.tier = l->number;
    h.world = share == MR_STATE_ALL_SHARES ? 1 : h.world;
    return usable ? add(l->out, &h) : 0;
}

static int look_in(struct looking *l, uint32_t share)
{
    struct mr_path folder = mr_state_tier_folder(l->tier->base, share);
    struct mr_checkpoint_dirs d = {0};
    struct mr_store *s = l->tier->store;
    int rc = 0;
    if (strcmp(l->final->at.folder, folder.text) == 0 || mr_checkpoint_dirs_read(s, folder.text, &d, NULL))
        return 0; /* nothing there yet */
    for (size_t k = 0; k < d.n && !rc; k++)
        if (d.item[k].usable) {
            struct mr_path dir = mr_checkpoint_dir_path(folder.text, d.item[k].step, d.item[k].kind);
            rc = look_at(l, dir.text, share);
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
    return *rest == '\0' && share < UINT32_MAX && share % world == rank ? look_in(l, (uint32_t)share) : 0;
}

/* The shares of this rank in all tiers. */
static int look(const struct mr_save_place *final, const struct mr_checkpoint_place *const *tier, size_t tiers,
                struct mr_state_have *h)
{
    int rc = 0;
    for (size_t i = 0; i < tiers && !rc; i++) {
        struct looking l = {final, tier[i], i, h};
        rc = tier[i]->store->ops->list(tier[i]->store, tier[i]->base, look_at_share, &l, NULL);
        rc = rc == -ENOMEM ? rc : 0; /* nothing there: nothing is found */
        if (!rc && final->at.lead)
            rc = look_in(&l, MR_STATE_ALL_SHARES);
    }
    sort(h);
    return rc;
}

/* ---- what all find ---- */

static int say(const struct mr_save_place *final, const char *dir, const struct mr_state_have *h, struct mr_error *err)
{
    struct mr_strbuf text = {0};
    mr_strbuf_puts(&text, "");
    for (const struct mr_state_had *x = h->item; x < h->item + h->n; x++)
        mr_strbuf_printf(&text, "%" PRIu64 " %u %u %" PRIu64 " %" PRIu64 " %s\n", x->step, x->share, x->world,
                         x->time_ns, x->bytes, x->id);
    int rc = text.failed ? mr_error_set(err, -ENOMEM, "cannot list checkpoints")
                         : mr_store_mkdirs(final->at.store, dir, err);
    if (!rc)
        rc = mr_store_write_file(final->at.store, mr_path("%s/rank-%05u", dir, final->rank).text, text.text, text.len,
                                 err);
    mr_strbuf_done(&text);
    return rc;
}

/* Adds the lines of another rank. */
static int take_lines(struct mr_state_have *all, char *text)
{
    char *save = NULL;
    int rc = 0;
    for (char *line = strtok_r(text, "\n", &save); line && !rc; line = strtok_r(NULL, "\n", &save)) {
        struct mr_state_had x = {0};
        if (sscanf(line, "%" SCNu64 " %u %u %" SCNu64 " %" SCNu64 " %63[^\n]", &x.step, &x.share, &x.world, &x.time_ns,
                   &x.bytes, x.id) == 6)
            rc = add(all, &x);
    }
    return rc;
}

/* Keeps the checkpoints of which every share is there, one item each. */
static void keep_whole(struct mr_state_have *h)
{
    size_t n = 0;
    sort(h);
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

static int hear(const struct mr_save_place *final, const char *dir, uint32_t rank, struct mr_save_wait *w,
                struct mr_state_have *h, struct mr_error *err)
{
    struct mr_path path = mr_path("%s/rank-%05u", dir, rank);
    void *text;
    size_t len;
    int rc;
    while ((rc = mr_store_read_file(final->at.store, path.text, TEXT_MAX, &text, &len, err)) == -ENOENT)
        if ((rc = mr_save_wait(final, w, rank, "list its checkpoints", err)))
            return rc;
    if (rc)
        return rc;
    rc = take_lines(h, text) ? mr_error_set(err, -ENOMEM, "cannot list checkpoints") : 0;
    free(text);
    return rc;
}

int mr_state_have_common(const struct mr_save_place *final, const struct mr_checkpoint_place *const *tier, size_t tiers,
                         const char *what, struct mr_state_have *mine, struct mr_state_have *common,
                         struct mr_error *err)
{
    struct mr_state_have all = {0};
    struct mr_path dir = mr_path("%s/" MR_SAVE_HAVE "%s-%s", final->at.folder, what, final->job);
    struct mr_save_wait w = mr_save_wait_for(final, 0);
    bool alone = final->world == 1 || !final->at.shared;
    int rc = look(final, tier, tiers, mine);
    for (size_t i = 0; i < mine->n && !rc && alone; i++) {
        struct mr_state_had h = mine->item[i];
        h.tier = 0;
        h.world = final->at.shared ? h.world : 1; /* else each rank's is whole by itself */
        rc = add(&all, &h);
    }
    if (rc)
        mr_error_set(err, rc, "cannot list checkpoints");
    else if (!alone)
        rc = say(final, dir.text, mine, err);
    for (uint32_t r = 0; r < final->world && !rc && !alone; r++)
        rc = hear(final, dir.text, r, &w, &all, err);
    all.n = rc ? 0 : all.n;
    keep_whole(&all);
    *common = all;
    return rc;
}

/* ---- which one a restart loads, and from where: mr_state_nearest in <millrace/state.h> ---- */

struct near {
    struct mr_save_place final;
    struct mr_checkpoint_place tier[MR_SAVER_TIERS];
    const struct mr_checkpoint_place *at[MR_SAVER_TIERS];
    size_t n;
    atomic_bool stop;
};

/* Of a step that is in the folder and, of another save, in the tiers, those have the later one: it is not drained. */
static int choose(struct near *r, const struct mr_state_have *common, uint64_t *step, size_t *place,
                  struct mr_error *err)
{
    struct mr_state_had newest = {0}, here;
    int there = mr_state_have_in(&r->final.at, UINT64_MAX, &newest, err);
    if (there < 0)
        return there;
    for (size_t i = common->n; i-- > 0;) {
        const struct mr_state_had *h = &common->item[i];
        if (h->world != r->final.world)
            continue; /* of a job of another size: its shares are not this one's */
        if (!there || h->step > newest.step ||
            (h->step == newest.step && !mr_state_have_find(common, newest.step, newest.id)))
            newest = *h;
        there = 1;
        break;
    }
    if (!there)
        return mr_error_plain(err, MR_E_INCOMPLETE, "there is no complete checkpoint in '%s' or the tiers before it",
                              r->final.at.folder);
    *step = newest.step;
    for (*place = 0; *place < r->n; ++*place)
        if (mr_state_have_in(&r->tier[*place], newest.step, &here, NULL) > 0 && strcmp(here.id, newest.id) == 0)
            break;
    return 0;
}

int mr_state_nearest(const struct mr_saver_params *params, uint64_t *step, size_t *place, struct mr_error *err)
{
    struct mr_saver_params p = {0};
    struct near r = {0};
    struct mr_state_have mine = {0}, common = {0};
    memcpy(&p, params, MR_MIN(params->size, sizeof p));
    int rc = mr_save_place_open(&p, &(struct mr_saver_hooks){0}, &r.stop, &r.final, err);
    while (r.n < p.tiers && !rc) {
        const struct mr_saver_tier *of = &p.tier[r.n];
        struct mr_checkpoint_place *at = &r.tier[r.n];
        r.at[r.n++] = at;
        rc = mr_state_tier_open(of, p.rank, NULL, at, err);
        if (!rc && at->shared)
            rc = mr_checkpoint_claim(at->base, p.folder, true, err);
    }
    rc = rc ? rc : mr_state_have_common(&r.final, r.at, r.n, "load", &mine, &common, err);
    rc = rc ? rc : choose(&r, &common, step, place, err);
    mr_state_have_done(&mine);
    mr_state_have_done(&common);
    for (size_t i = 0; i < r.n; i++)
        mr_checkpoint_place_close(&r.tier[i]);
    mr_checkpoint_place_close(&r.final.at);
    return rc;
}
