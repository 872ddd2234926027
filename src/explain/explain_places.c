/* What is needed to change a program and to start it again: how it was started (the block of the process that one would
 * start), and the calls by which it makes its loaders and writes its checkpoints, with file and line. Places are those of
 * the process that trains, of the first rank. A loader that is made anew at one line, with the same arguments, is one. */
#include "base/common.h"
#include "event/start.h"
#include "explain/explain_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PLACES_MOST 64u /* that are shown */

/* ---- how it was started ---- */

static const char **texts_of(struct explain_job *j, const struct mr_trace_start *s, unsigned kind, bool *failed)
{
    const uint8_t *at = s->entries;
    struct mr_start_entry e;
    size_t n = 0;
    while (mr_start_next(&at, s->end, &e))
        n += e.kind == kind;
    const char **list = mr_arena_alloc(&j->x->arena, (n + 1) * sizeof(*list));
    *failed |= !list;
    n = 0;
    for (at = s->entries; list && mr_start_next(&at, s->end, &e);)
        if (e.kind == kind) {
            list[n] = mr_arena_strndup(&j->x->arena, e.text, strnlen(e.text, e.len));
            *failed |= !list[n++];
        }
    if (list)
        list[n] = NULL;
    return list;
}

/* The block of the process that one would start, else the first one: it is of its collector. */
static int place_start(struct explain_job *j)
{
    const struct mr_trace *t = j->t;
    const struct mr_trace_start *s = t->starts ? &t->start[0] : NULL;
    for (size_t i = 0; i < t->starts && t->processes; i++)
        if (t->start[i].key == t->process[j->root].key) {
            s = &t->start[i];
            break;
        }
    struct mr_explain_start *out = s ? mr_arena_alloc(&j->x->arena, sizeof(*out)) : NULL;
    bool failed = s && !out;
    if (!out)
        return failed ? -ENOMEM : 0;
    *out = (struct mr_explain_start){.command = texts_of(j, s, MR_START_WORD, &failed),
                                     .launcher = texts_of(j, s, MR_START_LAUNCHER, &failed),
                                     .environment = texts_of(j, s, MR_START_ENVIRONMENT, &failed)};
    const char **folder = texts_of(j, s, MR_START_FOLDER, &failed);
    out->folder = failed ? NULL : folder[0];
    j->x->start = failed ? NULL : out;
    return failed ? -ENOMEM : 0;
}

/* ---- places ---- */

static int in_order(const void *a, const void *b)
{
    const struct explain_place *x = a, *y = b;
    return x->place < y->place ? -1 : x->place > y->place;
}

static double number(uint64_t v)
{
    return v == UNKNOWN ? NAN : (double)v;
}

static const char *text_of(struct explain_job *j, const struct mr_trace_process *p, uint64_t id)
{
    const struct mr_trace_string *s = id < p->strings ? mr_trace_string(p, (uint32_t)id) : NULL;
    return s && s->text && s->len ? mr_arena_strndup(&j->x->arena, s->text, strnlen(s->text, s->len)) : NULL;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

static bool same_number(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static bool is_same(const struct mr_explain_place *a, const struct mr_explain_place *b)
{
    return same_text(a->call, b->call) && same_text(a->file, b->file) && a->line == b->line &&
           same_text(a->by, b->by) && same_text(a->data_set, b->data_set) && same_number(a->workers, b->workers) &&
           same_number(a->prefetch_factor, b->prefetch_factor) && same_number(a->batch, b->batch) &&
           same_number(a->persistent, b->persistent) && same_number(a->pinned, b->pinned) &&
           isnan(a->loader) == isnan(b->loader);
}

/* What the batches of a loader were for. */
static void tell_use(const struct explain_job *j, uint64_t loader, struct mr_explain_place *p)
{
    const struct explain_rank *r = &j->rank[0];
    for (uint32_t i = r->wait; i < r->wait + r->waits && !(p->trains && p->evaluates); i++) {
        const struct explain_wait *w = &j->wait.item[i];
        if (w->loader != loader || w->step == NO_INDEX)
            continue;
        bool evaluates = j->step.item[w->step].phase == MR_EXPLAIN_EVAL;
        p->evaluates |= evaluates;
        p->trains |= !evaluates;
    }
}

static struct mr_explain_place read_place(struct explain_job *j, const struct explain_place *s)
{
    const struct mr_trace_process *p = &j->t->process[j->lane[s->lane].process];
    struct mr_trace_string category, name;
    mr_trace_label(p, MR_CALL_region, s->site, &category, &name);
    struct mr_explain_place out = {.call = mr_arena_strndup(&j->x->arena, name.text ? name.text : "", name.len),
                                   .file = text_of(j, p, s->arg[KEY_FILE]),
                                   .by = text_of(j, p, s->arg[KEY_BY]),
                                   .data_set = text_of(j, p, s->arg[KEY_DATA_SET]),
                                   .line = s->arg[KEY_LINE] < UINT32_MAX ? (unsigned)s->arg[KEY_LINE] : 0,
                                   .loader = number(s->arg[KEY_LOADER]),
                                   .workers = number(s->arg[KEY_WORKERS]),
                                   .prefetch_factor = number(s->arg[KEY_FACTOR]),
                                   .batch = number(s->arg[KEY_BATCH_SIZE]),
                                   .persistent = number(s->arg[KEY_PERSISTENT]),
                                   .pinned = number(s->arg[KEY_PINNED])};
    if (s->arg[KEY_LOADER] != UNKNOWN)
        tell_use(j, s->arg[KEY_LOADER], &out);
    return out;
}

/* The thread that trains may not be the one that makes loaders or writes checkpoints; its process is. */
static bool is_first_rank(const struct explain_job *j, const struct explain_place *s)
{
    const struct explain_rank *r = &j->rank[0];
    uint32_t trains = r->passer != NO_INDEX ? r->passer : r->consumer;
    return trains != NO_INDEX && j->lane[s->lane].process == j->lane[trains].process;
}

static int list_places(struct explain_job *j)
{
    struct mr_explanation *x = j->x;
    x->place = j->ranks && j->place.n ? mr_arena_alloc(&x->arena, PLACES_MOST * sizeof(*x->place)) : NULL;
    if (j->place.n)
        qsort(j->place.item, j->place.n, sizeof(*j->place.item), in_order);
    for (size_t i = 0; i < j->place.n && x->place && x->places < PLACES_MOST; i++) {
        if (!is_first_rank(j, &j->place.item[i]))
            continue;
        struct mr_explain_place p = read_place(j, &j->place.item[i]);
        size_t k = 0;
        while (k < x->places && !is_same(&x->place[k], &p))
            k++;
        if (k < x->places) {
            x->place[k].trains |= p.trains;
            x->place[k].evaluates |= p.evaluates;
            x->place[k].times++;
            continue;
        }
        p.times = 1;
        if (!p.call)
            return -ENOMEM;
        x->place[x->places++] = p;
    }
    return j->ranks && j->place.n && !x->place ? -ENOMEM : 0;
}

int mr_explain_places(struct explain_job *j)
{
    int rc = place_start(j);
    return rc ? rc : list_places(j);
}

const struct mr_explain_place *mr_explain_place_of(const struct mr_explanation *x, const char *call, bool evaluates)
{
    const struct mr_explain_place *found = NULL;
    for (size_t i = 0; i < x->places; i++) {
        const struct mr_explain_place *p = &x->place[i];
        bool loads = !isnan(p->loader);
        if (strcmp(p->call, call) != 0 || (loads && !(evaluates ? p->evaluates && !p->trains : p->trains)))
            continue;
        if (found) /* which of them, a change does not say */
            return NULL;
        found = p;
    }
    return found;
}
