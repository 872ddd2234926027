/* Steps of a rank as they end. Where waits for data are seen, a step lies between the begins of two of them; else
 * between two steps of the optimiser. A loader with optimiser steps in its loop trains, the others evaluate. */
#include "base/common.h"
#include "watch/watch_internal.h"

#include <string.h>

#define TOGETHER_NS 2000000u /* between the waits of one step for several loaders */

static void sum_turn(struct watch_sum *s)
{
    s->before = s->now;
    s->now = 0;
}

void mr_watch_turn(struct mr_watch *w)
{
    if (!w->window_ns)
        w->window_ns = w->before_ns = w->last_ns;
    if (w->last_ns < w->window_ns + WINDOW_NS)
        return;
    w->before_ns = w->window_ns;
    w->window_ns = w->last_ns;
    for (size_t i = 0; i < w->rows; i++) {
        struct watch_row *r = &w->row[i];
        for (unsigned p = 0; p < PARTS; p++)
            sum_turn(&r->sum[p]);
        sum_turn(&r->n);
        sum_turn(&r->read_bytes);
        for (unsigned k = 0; k < r->workers; k++) {
            sum_turn(&r->worker[k].batches);
            sum_turn(&r->worker[k].ns);
        }
    }
    for (unsigned i = 0; i < w->mounts; i++) {
        struct watch_mount *m = &w->mount[i];
        struct watch_sum *all[] = {&m->read_bytes, &m->written_bytes, &m->opens, &m->calls, &m->ns};
        for (unsigned k = 0; k < MR_ARRAY_LEN(all); k++)
            sum_turn(all[k]);
    }
}

/* What a span adds to those before it on its thread. */
static uint64_t adds(struct watch_union *u, const struct watch_at *at)
{
    uint64_t ns = at->end - MR_MIN(at->start, at->end), had = 0;
    if (at->start <= u->from && at->end >= u->to)
        had = u->ns; /* the last ones lie inside */
    else if (at->start < u->to)
        had = u->to - at->start;
    bool around = at->start <= u->from && at->end >= u->to;
    *u = (struct watch_union){around || at->start >= u->to ? at->start : u->from, MR_MAX(at->end, u->to),
                              around               ? ns
                              : at->start >= u->to ? ns
                                                   : u->ns + ns - MR_MIN(had, ns)};
    return ns - MR_MIN(had, ns);
}

/* ---- loaders and epochs ---- */

static unsigned loader_of(struct watch_row *r, uint64_t id)
{
    for (unsigned i = 0; i < r->loaders; i++)
        if (r->loader[i].id == id)
            return i;
    if (r->loaders == LOADERS_MOST) { /* made anew again and again: the oldest is over */
        memmove(&r->loader[0], &r->loader[1], (LOADERS_MOST - 1) * sizeof(r->loader[0]));
        r->loaders--;
    }
    r->loader[r->loaders] = (struct watch_loader){.id = id};
    return r->loaders++;
}

static void count_in_epoch(struct watch_row *r, uint64_t loader, uint64_t epoch)
{
    if (r->in_any_epoch && (r->epoch_loader != loader || r->epoch_number != epoch)) {
        r->epochs_done++;
        r->epoch_steps = r->in_epoch;
        r->in_epoch = 0;
    }
    r->in_any_epoch = true;
    r->epoch_loader = loader;
    r->epoch_number = epoch;
    r->in_epoch++;
}

/* ---- steps ---- */

static void add_step(struct watch_row *r, uint64_t start, uint64_t end, const uint64_t part[PARTS], bool trains)
{
    r->first_ns = r->first_ns ? r->first_ns : start;
    r->last_ns = MR_MAX(r->last_ns, end);
    if (!trains) {
        r->evaluated++;
        return;
    }
    r->steps++;
    r->n.now += 1;
    r->sum[PART_STEP].now += (double)(end - MR_MIN(start, end));
    for (unsigned p = PART_STALL; p < PARTS; p++)
        r->sum[p].now += (double)part[p];
}

static void close_step(struct watch_row *r, uint64_t end)
{
    struct watch_loader *l = &r->loader[r->at];
    l->steps++;
    add_step(r, r->start_ns, end, r->part, l->optimised);
    if (l->optimised) {
        count_in_epoch(r, l->id, r->epoch_arg);
        r->batches = l->batches;
    }
    memset(r->part, 0, sizeof r->part);
}

void mr_watch_wait(struct watch_row *r, const struct watch_at *at)
{
    uint64_t ns = at->end - MR_MIN(at->start, at->end);
    bool around = r->open && at->start <= r->start_ns && at->end >= r->wait_end_ns; /* of a wrapper */
    bool with = r->open && !around && at->start <= r->wait_end_ns + TOGETHER_NS && at->loader != UINT64_MAX &&
                r->loader[r->at].id != at->loader && !r->part[PART_SAVE];
    r->waits = true;
    if (r->open && !around && !with)
        close_step(r, at->start);
    if (!with) {
        r->at = loader_of(r, at->loader);
        r->epoch_arg = at->epoch;
        r->start_ns = at->start;
        r->part[PART_STALL] = r->over_ns = 0;
    }
    r->part[PART_STALL] += ns;
    r->wait_end_ns = at->end;
    r->open = true;
}

void mr_watch_gap(struct watch_row *r)
{
    r->open = false;
    r->start_ns = 0;
    memset(r->part, 0, sizeof r->part);
}

void mr_watch_last(struct watch_row *r, uint64_t end)
{
    if (r->open)
        close_step(r, MR_MAX(r->wait_end_ns, MR_MIN(end, r->over_ns ? r->over_ns : end)));
    r->open = false;
}

void mr_watch_optimiser(struct watch_row *r, const struct watch_at *at)
{
    if (!r->waits) { /* nothing else marks the steps */
        if (r->start_ns)
            add_step(r, r->start_ns, at->end, r->part, true);
        memset(r->part, 0, sizeof r->part);
        r->start_ns = at->end;
        return;
    }
    struct watch_loader *l = &r->loader[r->at];
    if (!r->open || l->optimised)
        return;
    l->optimised = true; /* its steps so far, where gradients were only gathered, were training, too */
    r->steps += l->steps;
    r->evaluated -= MR_MIN(l->steps, r->evaluated);
}

void mr_watch_part(struct watch_row *r, enum watch_part part, const struct watch_at *at)
{
    struct watch_union *u = part == PART_BARRIER ? &r->barrier : &r->save;
    r->idles |= part == PART_IDLE;
    r->part[part] += part == PART_IDLE ? at->end - MR_MIN(at->start, at->end) : adds(u, at);
}

void mr_watch_own_step(struct watch_row *r, const struct watch_at *at, const uint64_t part[PARTS], bool trains)
{
    if (!r->own) /* its waits, which come a step earlier, are not counted beside its steps */
        *r = (struct watch_row){.rank = r->rank, .process = r->process, .tid = r->tid, .steps_set = r->steps_set};
    r->own = r->waits = true;
    add_step(r, at->start, at->end, part, trains);
    if (trains)
        count_in_epoch(r, 0, at->epoch);
}

void mr_watch_loader(struct watch_row *r, uint64_t loader, uint64_t batches)
{
    r->loader[loader_of(r, loader)].batches = batches;
}

void mr_watch_fetch(struct watch_row *r, int64_t worker, uint64_t ns)
{
    unsigned k = 0;
    while (k < r->workers && r->worker[k].number != worker)
        k++;
    if (k == WORKERS_MOST)
        return;
    if (k == r->workers)
        r->worker[r->workers++] = (struct watch_worker){.number = worker};
    r->worker[k].batches.now += 1;
    r->worker[k].ns.now += (double)ns;
}
