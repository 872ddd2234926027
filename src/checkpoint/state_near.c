/* Which checkpoint a restart loads, and from where: see mr_state_nearest in <millrace/state.h>. */
#include "base/clock.h"
#include "base/common.h"
#include "checkpoint/checkpoint_guard.h"
#include "checkpoint/state_have.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define TIMEOUT_DEFAULT_S 600

struct near {
    struct mr_save_place final, tier[MR_SAVER_TIERS];
    const struct mr_save_place *at[MR_SAVER_TIERS];
    const char *base[MR_SAVER_TIERS];
    size_t n;
    atomic_bool stop;
    char job[32];
};

static void close_all(struct near *r)
{
    for (size_t i = 0; i < r->n; i++)
        mr_checkpoint_place_close(&r->tier[i].at);
    mr_checkpoint_place_close(&r->final.at);
}

static int open_all(const struct mr_saver_params *p, struct near *r, struct mr_error *err)
{
    if (p->tiers > MR_SAVER_TIERS || !p->folder || p->world < 1 || p->rank >= p->world)
        return mr_error_plain(err, MR_E_USAGE, "a folder, a rank of the job's and at most %d tiers", MR_SAVER_TIERS);
    if (p->world > 1 && (!p->job || !*p->job))
        return mr_error_plain(err, MR_E_USAGE, "%u ranks need a common `job`: a text that no other job has", p->world);
    r->final = (struct mr_save_place){.rank = p->rank, .world = p->world, .stop = &r->stop};
    r->final.timeout_ns = (uint64_t)(p->commit_timeout_s ? p->commit_timeout_s : TIMEOUT_DEFAULT_S) * MR_NS_PER_S;
    const char *job = p->job ? p->job : "";
    snprintf(r->job, sizeof r->job, "%016" PRIx64, XXH3_64bits(job, strlen(job)));
    int rc = mr_checkpoint_place_open(p->folder, p->store, p->rank, NULL, &r->final.at, err);
    for (size_t i = 0; i < p->tiers && !rc; i++) {
        struct mr_path folder = mr_state_tier_folder(p->tier[i].folder, p->rank);
        r->base[r->n] = p->tier[i].folder;
        r->at[r->n] = &r->tier[r->n];
        struct mr_checkpoint_place *at = &r->tier[r->n++].at;
        rc = mr_checkpoint_place_open(folder.text, p->tier[i].store, p->rank, NULL, at, err);
        if (!rc && mr_store_confine(at->store, p->tier[i].folder, true))
            rc = mr_error_set(err, -ENOMEM, "cannot look at a tier");
        if (!rc && at->shared)
            rc = mr_checkpoint_claim(p->tier[i].folder, p->folder, true, err);
    }
    return rc;
}

/* The newest usable one there, if any. */
static bool newest_in(const struct mr_checkpoint_place *at, struct mr_state_had *out)
{
    struct mr_path dir;
    struct mr_checkpoint_list l;
    if (mr_checkpoint_find(at->store, at->folder, UINT64_MAX, &dir, NULL))
        return false;
    out->step = mr_checkpoint_step_of(dir.text);
    out->id[0] = '\0'; /* damaged: its load says so */
    if (mr_checkpoint_read_list(at, dir.text, &l, NULL))
        return true;
    snprintf(out->id, sizeof out->id, "%s", l.save);
    mr_checkpoint_list_done(&l);
    return true;
}

static bool has(const struct mr_checkpoint_place *at, const struct mr_state_had *what)
{
    struct mr_path dir;
    return mr_checkpoint_find(at->store, at->folder, what->step, &dir, NULL) == 0 &&
           mr_checkpoint_is_of(at, dir.text, what->id);
}

/* Of a step that is in the folder and, of another save, in the tiers, those have the later one: it is not drained. */
static int choose(struct near *r, const struct mr_state_have *common, uint64_t *step, size_t *place,
                  struct mr_error *err)
{
    struct mr_state_had newest;
    bool there = newest_in(&r->final.at, &newest);
    for (size_t i = common->n; i-- > 0;) {
        const struct mr_state_had *h = &common->item[i];
        if (h->world != r->final.world)
            continue; /* of a job of another size: its shares are not this one's */
        if (!there || h->step > newest.step ||
            (h->step == newest.step && !mr_state_have_find(common, newest.step, newest.id)))
            newest = *h;
        there = true;
        break;
    }
    if (!there)
        return mr_error_plain(err, MR_E_INCOMPLETE, "there is no complete checkpoint in '%s' or the tiers before it",
                              r->final.at.folder);
    *step = newest.step;
    for (*place = 0; *place < r->n && !has(&r->tier[*place].at, &newest); ++*place)
        ;
    return 0;
}

int mr_state_nearest(const struct mr_saver_params *params, uint64_t *step, size_t *place, struct mr_error *err)
{
    struct mr_saver_params p = {0};
    struct near r = {0};
    struct mr_state_have common = {0};
    memcpy(&p, params, MR_MIN(params->size, sizeof p));
    int rc = open_all(&p, &r, err);
    if (!rc)
        rc = mr_state_have_common(&r.final, r.at, r.base, r.n, r.job, "load", NULL, &common, err);
    if (!rc)
        rc = choose(&r, &common, step, place, err);
    mr_state_have_done(&common);
    close_all(&r);
    return rc;
}
