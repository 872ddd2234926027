/* Whose time is explained: which process belongs to which rank; and what the ranks amount to together: means and the
 * worst one. */
#include "base/common.h"
#include "explain/explain_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- ranks of processes ---- */

static uint64_t pid_key(uint32_t node, uint32_t pid)
{
    return (uint64_t)node << 32 | pid;
}

/* The process that started this one; NO_INDEX: not in the trace. */
static uint32_t parent_of(const struct explain_job *j, const struct mr_map *by_pid, uint32_t p)
{
    const struct mr_trace_process *r = &j->t->process[p];
    uint64_t at = mr_map_get(by_pid, pid_key(r->node, r->ppid));
    return at && at - 1 != p ? (uint32_t)at - 1 : NO_INDEX;
}

static bool trains(unsigned role)
{
    return role == MR_ROLE_WAIT || role == MR_ROLE_COMPUTE || role == MR_ROLE_COMPUTE_LOOP || role == MR_ROLE_STEP ||
           role == MR_ROLE_OPTIMIZER;
}

/* Processes that wait for batches, and have no ancestor that does. */
static void find_consumers(const struct explain_job *j, const struct mr_map *by_pid, bool *consumer)
{
    for (size_t i = 0; i < j->span.n; i++) {
        unsigned role = j->span.item[i].role;
        if (trains(role) && role != MR_ROLE_OPTIMIZER)
            consumer[j->lane[j->span.item[i].lane].process] = true;
    }
    bool any = false;
    for (uint32_t p = 0; p < j->t->processes; p++)
        any |= consumer[p];
    for (size_t i = 0; i < j->span.n && !any; i++) /* without a loader: those that train */
        if (j->span.item[i].role == MR_ROLE_OPTIMIZER)
            consumer[j->lane[j->span.item[i].lane].process] = true;
    for (uint32_t p = 0; p < j->t->processes; p++) {
        uint32_t up = parent_of(j, by_pid, p);
        for (unsigned depth = 0; consumer[p] && up != NO_INDEX && depth < 64; depth++) {
            if (consumer[up] && up < p)
                consumer[p] = false;
            up = parent_of(j, by_pid, up);
        }
    }
}

/* Without ranks everything is one, unless several processes train at once: each is one then. */
static int ranks_by_consumer(struct explain_job *j, const struct mr_map *by_pid)
{
    bool *consumer = calloc(j->t->processes + 1, sizeof(*consumer));
    uint32_t n = 0;
    if (!consumer)
        return -ENOMEM;
    find_consumers(j, by_pid, consumer);
    for (uint32_t p = 0; p < j->t->processes; p++)
        n += consumer[p];
    for (uint32_t p = 0, next = 0; p < j->t->processes; p++)
        j->rank_of[p] = n < 2 ? 0 : consumer[p] ? next++ : NO_INDEX;
    j->ranks = MR_MAX(n, 1u);
    free(consumer);
    return 0;
}

static void follow_parents(struct explain_job *j, const struct mr_map *by_pid)
{
    for (uint32_t p = 0; p < j->t->processes; p++) {
        uint32_t up = p;
        for (unsigned depth = 0; up != NO_INDEX && j->rank_of[up] == NO_INDEX && depth < 64; depth++)
            up = parent_of(j, by_pid, up);
        if (up != NO_INDEX)
            j->rank_of[p] = j->rank_of[up];
    }
}

static int by_number(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

/* Numbers that the launcher gave; else those that processes were told later on (torch's init_process_group). */
static int number_processes(struct explain_job *j)
{
    j->number = malloc((j->t->processes + 1) * sizeof(*j->number));
    if (!j->number)
        return -ENOMEM;
    for (size_t p = 0; p < j->t->processes; p++) {
        j->number[p] = j->t->process[p].rank;
        j->world = MR_MAX(j->world, j->t->process[p].world);
    }
    for (size_t i = 0; i < j->span.n; i++) {
        const struct explain_span *s = &j->span.item[i];
        uint32_t p = j->lane[s->lane].process;
        if (s->role != MR_ROLE_RANK || j->number[p] >= 0 || s->arg[KEY_RANK] > INT32_MAX)
            continue;
        j->number[p] = (int32_t)s->arg[KEY_RANK];
        if (s->arg[KEY_WORLD] <= INT32_MAX)
            j->world = MR_MAX(j->world, (int32_t)s->arg[KEY_WORLD]);
    }
    return 0;
}

/* Some frameworks put the variables of a launcher into their own environment, so that only what they start later has a
 * number. Numbers count if anybody who has one, or got it from whom started it, trains; or if nobody trains at all. */
static void check_numbers(struct explain_job *j, const struct mr_map *by_pid)
{
    bool numbered = false, any = false;
    for (size_t i = 0; i < j->span.n && !numbered; i++) {
        uint32_t p = j->lane[j->span.item[i].lane].process;
        if (!trains(j->span.item[i].role))
            continue;
        any = true;
        for (unsigned depth = 0; p != NO_INDEX && depth < 64 && !numbered; depth++) {
            numbered = j->number[p] >= 0;
            p = parent_of(j, by_pid, p);
        }
    }
    for (size_t p = 0; p < j->t->processes && any && !numbered; p++)
        j->number[p] = -1;
}

/* Ranks by these numbers, in their order. */
static int ranks_by_number(struct explain_job *j, int32_t **number)
{
    size_t n = 0;
    *number = calloc(j->t->processes + 1, sizeof(**number));
    if (!*number)
        return -ENOMEM;
    for (size_t p = 0; p < j->t->processes; p++)
        if (j->number[p] >= 0)
            (*number)[n++] = j->number[p];
    if (n)
        qsort(*number, n, sizeof(**number), by_number);
    for (size_t i = 0; i < n; i++)
        if (!j->ranks || (*number)[j->ranks - 1] != (*number)[i])
            (*number)[j->ranks++] = (*number)[i];
    for (size_t p = 0; p < j->t->processes; p++) {
        const int32_t *at =
            j->number[p] >= 0 ? bsearch(&j->number[p], *number, j->ranks, sizeof(**number), by_number) : NULL;
        j->rank_of[p] = at ? (uint32_t)(at - *number) : NO_INDEX;
    }
    return 0;
}

static void describe_ranks(struct explain_job *j, const int32_t *number, bool given)
{
    for (uint32_t r = 0; r < j->ranks; r++) {
        j->x->rank[r].rank = given ? number[r] : j->ranks > 1 ? (int32_t)r : -1;
        j->rank[r] = (struct explain_rank){.from = 0, .to = UINT64_MAX, .consumer = NO_INDEX};
    }
    for (size_t p = 0; p < j->t->processes; p++) {
        const struct mr_trace_process *s = &j->t->process[p];
        if (j->rank_of[p] == NO_INDEX)
            continue;
        struct mr_explain_rank *r = &j->x->rank[j->rank_of[p]];
        if (!r->host && s->node < j->t->nodes)
            r->host = mr_arena_strdup(&j->x->arena, j->t->node[s->node].name);
        r->ended = r->ended || s->how == MR_HOW_EXIT || s->how == MR_HOW_EXEC;
    }
    for (uint32_t l = 0; l < j->lanes; l++)
        j->lane[l].rank = j->rank_of[j->lane[l].process];
}

/* Only the wanted rank stays. */
static void choose_rank(struct explain_job *j, int32_t *number)
{
    uint32_t keep = NO_INDEX;
    if (j->opt->rank < 0)
        return;
    for (uint32_t r = 0; r < j->ranks; r++)
        if (number[r] == j->opt->rank)
            keep = r;
    for (size_t p = 0; p < j->t->processes; p++)
        j->rank_of[p] = keep != NO_INDEX && j->rank_of[p] == keep ? 0 : NO_INDEX;
    number[0] = keep == NO_INDEX ? -1 : number[keep];
    j->ranks = keep == NO_INDEX ? 0 : 1;
}

static int span_order(const void *a, const void *b)
{
    const struct explain_span *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    if (x->end != y->end)
        return x->end > y->end ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

static void sort_spans(struct explain_job *j)
{
    for (size_t i = 0; i < j->span.n; i++)
        j->span.item[i].rank = j->lane[j->span.item[i].lane].rank;
    if (j->span.n)
        qsort(j->span.item, j->span.n, sizeof(*j->span.item), span_order);
    for (uint32_t i = 0; i < j->span.n; i++) {
        if (j->span.item[i].rank == NO_INDEX)
            break; /* they come last */
        struct explain_rank *r = &j->rank[j->span.item[i].rank];
        r->span = r->spans ? r->span : i;
        r->spans++;
    }
}

/* What the program's machine has, where the program told. */
static void take_machine(struct explain_job *j)
{
    struct mr_explain_facts *f = &j->x->facts;
    for (size_t i = 0; i < j->span.n; i++) {
        const struct explain_span *s = &j->span.item[i];
        if (s->role != MR_ROLE_MACHINE || s->arg[KEY_CPUS] == UNKNOWN || !s->arg[KEY_CPUS])
            continue;
        f->cpus_per_node = (double)s->arg[KEY_CPUS];
        if (s->arg[KEY_LOCAL_FREE] != UNKNOWN && s->arg[KEY_LOCAL_FREE])
            f->local_free_bytes = (double)s->arg[KEY_LOCAL_FREE];
        if (s->arg[KEY_MEMORY] != UNKNOWN && s->arg[KEY_MEMORY_FREE] != UNKNOWN && s->arg[KEY_MEMORY]) {
            f->memory_bytes = (double)s->arg[KEY_MEMORY];
            f->memory_free_bytes = (double)s->arg[KEY_MEMORY_FREE];
        }
        return;
    }
}

int mr_explain_assign_ranks(struct explain_job *j)
{
    struct mr_map by_pid = {0};
    int32_t *number = NULL;
    int rc = 0;
    j->rank_of = calloc(j->t->processes + 1, sizeof(*j->rank_of));
    if (!j->rank_of)
        return -ENOMEM;
    for (size_t p = 0; p < j->t->processes && !rc; p++) {
        uint64_t *at = mr_map_put(&by_pid, pid_key(j->t->process[p].node, j->t->process[p].pid));
        if (!at)
            rc = -ENOMEM;
        else if (!*at)
            *at = p + 1;
    }
    rc = rc ? rc : number_processes(j);
    if (!rc)
        check_numbers(j, &by_pid);
    rc = rc ? rc : ranks_by_number(j, &number);
    bool given = j->ranks > 0;
    if (!rc && !given)
        rc = ranks_by_consumer(j, &by_pid);
    if (!rc)
        follow_parents(j, &by_pid);
    if (!rc && given)
        choose_rank(j, number);
    j->rank = rc ? NULL : calloc(j->ranks + 1, sizeof(*j->rank));
    j->x->rank = rc ? NULL : mr_arena_alloc(&j->x->arena, (j->ranks + 1) * sizeof(*j->x->rank));
    if (!rc && (!j->rank || !j->x->rank))
        rc = -ENOMEM;
    if (!rc) {
        j->x->ranks = j->ranks;
        take_machine(j);
        describe_ranks(j, number, given);
        sort_spans(j);
    }
    free(number);
    mr_map_done(&by_pid);
    return rc;
}

/* ---- all ranks together ---- */

static void add_means(struct mr_explanation *x)
{
    double n = (double)x->ranks;
    for (unsigned c = 0; c < MR_TIME_CLASS_COUNT; c++) {
        double sum = 0;
        for (size_t r = 0; r < x->ranks; r++)
            sum += (double)x->rank[r].ns[c];
        x->ns[c] = (uint64_t)(sum / n + 0.5);
    }
    for (unsigned c = 0; c < MR_WAIT_CLASS_COUNT; c++) {
        double sum = 0;
        for (size_t r = 0; r < x->ranks; r++)
            sum += (double)x->rank[r].wait[c];
        x->wait[c] = (uint64_t)(sum / n + 0.5);
    }
    double train = 0, after = 0, behind = 0, first = 0;
    for (size_t i = 0; i < x->steps; i++)
        first += x->step[i].step == 0 ? (double)x->step[i].ns[MR_TIME_STALL] : 0;
    x->first_ns = (uint64_t)(first / n + 0.5);
    for (size_t r = 0; r < x->ranks; r++) {
        train += (double)x->rank[r].train_ns;
        after += (double)x->rank[r].after_ns;
        behind += (double)x->rank[r].behind_ns;
        if (x->rank[r].ns[MR_TIME_STALL] > x->rank[x->worst_rank].ns[MR_TIME_STALL])
            x->worst_rank = (uint32_t)r;
    }
    x->train_ns = (uint64_t)(train / n + 0.5);
    x->after_ns = (uint64_t)(after / n + 0.5);
    x->behind_ns = (uint64_t)(behind / n + 0.5);
}

/* Rounded so that the causes still add up to the stall (X2). */
static void add_causes(struct mr_explanation *x)
{
    uint64_t sum = 0;
    unsigned largest = 0;
    for (unsigned c = 0; c < MR_STALL_CAUSE_COUNT; c++) {
        double all = 0;
        for (size_t r = 0; r < x->ranks; r++)
            all += (double)x->rank[r].stall[c];
        x->stall[c] = (uint64_t)(all / (double)x->ranks);
        sum += x->stall[c];
        largest = x->stall[c] > x->stall[largest] ? c : largest;
    }
    if (sum <= x->ns[MR_TIME_STALL])
        x->stall[largest] += x->ns[MR_TIME_STALL] - sum;
    else
        x->stall[largest] -= MR_MIN(x->stall[largest], sum - x->ns[MR_TIME_STALL]);
}

int mr_explain_finish_ranks(struct explain_job *j)
{
    if (!j->x->ranks)
        return 0;
    add_means(j->x);
    add_causes(j->x);
    return mr_explain_find_culprits(j);
}
