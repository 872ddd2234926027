/* What each field of the samples cost. Our own loader records it: in our runs as figures of a rank, in other programs as
 * events with sums so far (loader.field), of which the last of each loader counts. */
#include "base/common.h"
#include "explain/explain_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIELDS_MOST 256u
#define OF_A_RANK "field:" /* bench/rank_figures.h */

static uint64_t *measure_of(struct mr_explain_field *f, const char *name, size_t len)
{
    const struct {
        const char *name;
        uint64_t *value;
    } measures[] = {{"samples", &f->samples},
                    {"stored_bytes", &f->stored_bytes},
                    {"bytes", &f->bytes},
                    {"decode_ns", &f->decode_ns},
                    {"transform_ns", &f->transform_ns}};
    for (unsigned i = 0; i < MR_ARRAY_LEN(measures); i++)
        if (strlen(measures[i].name) == len && !memcmp(measures[i].name, name, len))
            return measures[i].value;
    return NULL;
}

static struct mr_explain_field *field_of(struct mr_explanation *x, const char *name, size_t len)
{
    for (size_t i = 0; i < x->fields; i++)
        if (strlen(x->field[i].name) == len && !memcmp(x->field[i].name, name, len))
            return &x->field[i];
    char *copy = x->fields < FIELDS_MOST ? mr_arena_strndup(&x->arena, name, len) : NULL;
    if (!copy)
        return NULL;
    x->field[x->fields] = (struct mr_explain_field){.name = copy};
    return &x->field[x->fields++];
}

/* "NAME:MEASURE"; names may have colons. */
static void add(struct mr_explanation *x, const char *text, size_t len, uint64_t value)
{
    const char *colon = memrchr(text, ':', len);
    struct mr_explain_field any = {0};
    if (!colon || !measure_of(&any, colon + 1, len - (size_t)(colon + 1 - text)))
        return;
    struct mr_explain_field *f = field_of(x, text, (size_t)(colon - text));
    uint64_t *to = f ? measure_of(f, colon + 1, len - (size_t)(colon + 1 - text)) : NULL;
    if (to)
        *to += value;
}

static void add_figures(struct explain_job *j)
{
    for (uint32_t r = 0; r < j->run->world; r++) {
        const struct mr_run_figures *f = &j->run->rank[r].figures;
        for (size_t i = 0; i < f->n; i++)
            if (!strncmp(f->item[i].name, OF_A_RANK, sizeof OF_A_RANK - 1) && f->item[i].value > 0)
                add(j->x, f->item[i].name + sizeof OF_A_RANK - 1, strlen(f->item[i].name) + 1 - sizeof OF_A_RANK,
                    (uint64_t)f->item[i].value);
    }
}

static int by_loader(const void *a, const void *b)
{
    const struct explain_cost *x = a, *y = b;
    if (x->process != y->process)
        return x->process < y->process ? -1 : 1;
    if (x->loader != y->loader)
        return x->loader < y->loader ? -1 : 1;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

static int add_events(struct explain_job *j)
{
    size_t n = 0, all = 0;
    for (unsigned w = 0; w < j->workers; w++)
        all += j->worker[w].cost.n;
    struct explain_cost *c = malloc((all + 1) * sizeof(*c));
    if (!c)
        return -ENOMEM;
    for (unsigned w = 0; w < j->workers; w++)
        for (size_t i = 0; i < j->worker[w].cost.n; i++) {
            c[n] = j->worker[w].cost.item[i];
            c[n].process = j->lane[c[n].process].process;
            n++;
        }
    if (n)
        qsort(c, n, sizeof(*c), by_loader);
    for (size_t i = 0; i < n; i++) {
        bool last = i + 1 == n || c[i].process != c[i + 1].process || c[i].loader != c[i + 1].loader ||
                    c[i].key != c[i + 1].key;
        const struct mr_trace_string *s = &j->t->process[c[i].process].string[c[i].key];
        if (last && s->text)
            add(j->x, s->text, s->len, c[i].value);
    }
    free(c);
    return 0;
}

static int by_cost(const void *a, const void *b)
{
    const struct mr_explain_field *x = a, *y = b;
    uint64_t p = x->decode_ns + x->transform_ns, q = y->decode_ns + y->transform_ns;
    if (p != q)
        return p < q ? 1 : -1;
    return x->stored_bytes != y->stored_bytes ? (x->stored_bytes < y->stored_bytes ? 1 : -1) : strcmp(x->name, y->name);
}

int mr_explain_fields(struct explain_job *j)
{
    struct mr_explanation *x = j->x;
    x->field = mr_arena_alloc(&x->arena, FIELDS_MOST * sizeof(*x->field));
    if (!x->field)
        return -ENOMEM;
    if (j->run)
        add_figures(j);
    int rc = j->run ? 0 : add_events(j);
    if (x->fields)
        qsort(x->field, x->fields, sizeof(*x->field), by_cost);
    for (size_t i = 0; i < x->fields && !rc; i++) {
        x->field[i].name = mr_explain_clean_name(&x->arena, x->field[i].name, strlen(x->field[i].name));
        rc = x->field[i].name ? 0 : -ENOMEM;
    }
    return rc;
}
