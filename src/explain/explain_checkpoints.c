/* Checkpoints: of our own trainer as it told them, of other programs from spans that save or load; what they wrote and
 * where is added from the calls inside them. */
#include "base/common.h"
#include "explain/explain_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HAND_NS 20000000u      /* between a save and what is written by hand beside it */
#define SAVE_GAP_NS 500000000u /* between two parts of a checkpoint: more is other work of the program */

static int add_save(struct explain_job *j, const struct explain_span *s)
{
    struct explain_save *c = MR_VEC_ADD(&j->checkpoint);
    if (!c)
        return -ENOMEM;
    *c = (struct explain_save){
        .lane = s->lane,
        .file = NO_INDEX,
        .c = {.rank = s->rank,
              .start_ns = s->start,
              .end_ns = s->end,
              .drain_start_ns = UNKNOWN,
              .drain_end_ns = UNKNOWN,
              .bytes = s->arg[KEY_BYTES] != UNKNOWN ? s->arg[KEY_BYTES] : 0,
              .is_load = s->role == MR_ROLE_RESTORE,
              .beside = !j->run && j->rank[s->rank].consumer != NO_INDEX && j->rank[s->rank].consumer != s->lane}};
    return 0;
}

static int by_lane(const void *a, const void *b)
{
    const struct explain_save *x = a, *y = b;
    if (x->lane != y->lane)
        return x->lane < y->lane ? -1 : 1;
    return x->c.start_ns < y->c.start_ns ? -1 : x->c.start_ns > y->c.start_ns;
}

/* A save and the sync, or the second file, that follows it at once are one checkpoint; what lies between them (flushing
 * a buffer) belongs to it. A step between them tells them apart. */
bool mr_explain_same_save(const struct explain_job *j, const struct explain_span *a, const struct explain_span *b)
{
    uint64_t gap = explain_span_ns(a->end, b->start), longest = MR_MAX(a->end - a->start, b->end - b->start);
    if (a->role != MR_ROLE_SAVE || b->role != MR_ROLE_SAVE || a->rank != b->rank || a->lane != b->lane ||
        gap > MR_MIN(longest, SAVE_GAP_NS))
        return false;
    for (const struct explain_span *s = b; s-- > j->span.item && s->rank == a->rank && s->start >= a->start;)
        if (s->lane == a->lane && (s->role == MR_ROLE_WAIT || s->role == MR_ROLE_OPTIMIZER || s->role == MR_ROLE_STEP ||
                                   s->role == MR_ROLE_COMPUTE || s->role == MR_ROLE_COMPUTE_LOOP))
            return false;
    return true;
}

/* Lengthens the checkpoint that the saves before this one have made so far. */
static bool joins_save(struct explain_job *j, const struct explain_span *s, const struct explain_span *before)
{
    if (!before || !mr_explain_same_save(j, before, s))
        return false;
    struct mr_explain_checkpoint *c = &j->checkpoint.item[j->checkpoint.n - 1].c;
    c->end_ns = MR_MAX(c->end_ns, s->end);
    return true;
}

/* Checkpoints that the training thread writes by hand. */
static int add_states(struct explain_job *j)
{
    int rc = 0;
    for (uint32_t r = 0; r < j->ranks && !rc; r++)
        for (size_t i = 0; i < j->rank[r].state.n && !rc; i++) {
            struct explain_span s = {.start = j->rank[r].state.item[i].start,
                                     .end = j->rank[r].state.item[i].end,
                                     .lane = j->rank[r].consumer,
                                     .rank = r,
                                     .role = MR_ROLE_SAVE};
            s.arg[KEY_BYTES] = UNKNOWN;
            rc = s.lane != NO_INDEX && s.start >= j->rank[r].from && s.start < j->rank[r].to ? add_save(j, &s) : 0;
        }
    return rc;
}

/* What is written by hand right behind a save, or before it, is a part of it. */
static bool is_part(const struct explain_save *last, const struct explain_save *s)
{
    return !last->c.is_load && !s->c.is_load && s->c.start_ns < last->c.end_ns + HAND_NS;
}

/* A save inside a save is a part of it. */
int mr_explain_find_checkpoints(struct explain_job *j)
{
    const struct explain_span *before = NULL; /* the last one */
    int rc = 0;
    for (size_t i = 0; i < j->span.n && !rc && !j->run; i++) {
        const struct explain_span *s = &j->span.item[i];
        if ((s->role == MR_ROLE_SAVE || s->role == MR_ROLE_RESTORE) && s->rank != NO_INDEX &&
            s->start >= j->rank[s->rank].from && s->start < j->rank[s->rank].to) {
            rc = joins_save(j, s, before) ? 0 : add_save(j, s);
            before = before && before->lane == s->lane && before->end > s->end ? before : s;
        }
    }
    size_t told = j->checkpoint.n;
    rc = rc ? rc : add_states(j);
    bool by_hand = j->checkpoint.n > told;
    if (j->checkpoint.n)
        qsort(j->checkpoint.item, j->checkpoint.n, sizeof(*j->checkpoint.item), by_lane);
    size_t n = 0;
    for (size_t i = 0; i < j->checkpoint.n; i++) {
        struct explain_save *last = n ? &j->checkpoint.item[n - 1] : NULL, *s = &j->checkpoint.item[i];
        if (by_hand && last && last->lane == s->lane && s->lane != NO_INDEX && is_part(last, s))
            last->c.end_ns = MR_MAX(last->c.end_ns, s->c.end_ns);
        else if (!last || s->lane == NO_INDEX || last->lane != s->lane || s->c.start_ns >= last->c.end_ns)
            j->checkpoint.item[n++] = *s;
    }
    j->checkpoint.n = n;
    for (uint32_t i = 0; i < n && j->checkpoint.item[i].lane != NO_INDEX; i++) {
        struct explain_lane *l = &j->lane[j->checkpoint.item[i].lane];
        l->save = l->saves ? l->save : i;
        l->saves++;
    }
    return rc;
}

bool mr_explain_count_save(struct explain_job *j, struct explain_lane *l, unsigned kind, uint64_t start, uint64_t end,
                           uint64_t bytes, uint32_t file)
{
    struct explain_save *s = j->checkpoint.item + l->save;
    while (l->save_at < l->saves && s[l->save_at].c.end_ns <= start)
        l->save_at++;
    s += l->save_at;
    if (l->save_at == l->saves || start < s->c.start_ns)
        return false;
    if (kind == MR_EV_FSYNC)
        s->c.fsync_ns += end - start;
    if (kind != (s->c.is_load ? MR_EV_READ : MR_EV_WRITE))
        return kind == MR_EV_FSYNC;
    s->c.write_ns += end - start;
    s->c.bytes += bytes;
    if (bytes > s->most) {
        s->most = bytes;
        s->file = file;
    }
    return true;
}

static int by_rank(const void *a, const void *b)
{
    const struct mr_explain_checkpoint *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->start_ns < y->start_ns ? -1 : x->start_ns > y->start_ns;
}

static uint64_t since(uint64_t at, uint64_t start)
{
    return at == UNKNOWN ? UNKNOWN : explain_span_ns(start, at);
}

int mr_explain_finish_checkpoints(struct explain_job *j)
{
    struct mr_explanation *x = j->x;
    x->checkpoint = mr_arena_alloc(&x->arena, (j->checkpoint.n + 1) * sizeof(*x->checkpoint));
    if (!x->checkpoint)
        return -ENOMEM;
    for (size_t i = 0; i < j->checkpoint.n; i++) {
        const struct explain_save *s = &j->checkpoint.item[i];
        struct mr_explain_checkpoint *c = &x->checkpoint[x->checkpoints++];
        *c = s->c;
        c->start_ns = since(c->start_ns, x->start_ns);
        c->end_ns = since(c->end_ns, x->start_ns);
        c->drain_start_ns = since(c->drain_start_ns, x->start_ns);
        c->drain_end_ns = since(c->drain_end_ns, x->start_ns);
        if (s->file != NO_INDEX) {
            const struct explain_file *f = &j->file.item[s->file];
            c->path = mr_arena_strndup(&x->arena, f->path, f->len);
            c->fs = f->fs ? mr_arena_strdup(&x->arena, f->fs) : NULL;
        }
    }
    if (x->checkpoints)
        qsort(x->checkpoint, x->checkpoints, sizeof(*x->checkpoint), by_rank);
    x->facts.checkpoints = x->checkpoints > 0;
    return 0;
}
