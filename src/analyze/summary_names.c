/* Names of a trace, made global once: every call and every site is a function with a number, every path a file. */
#include "analyze/region_rules.h"
#include "analyze/summary_internal.h"
#include "base/common.h"
#include "event/fd_class.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { HASH_PATH = 1, HASH_SITE = 2 };

static uint8_t region_class(const struct mr_trace_string *category, const struct mr_trace_string *name)
{
    static const uint8_t set[] = {
        [MR_REGION_NONE] = MR_CLASS_NONE, [MR_REGION_APP_IO] = MR_CLASS_A, [MR_REGION_COMPUTE] = MR_CLASS_C};
    return set[mr_region_classify(category->text, category->len, name->text, name->len).set];
}

static uint8_t call_class(unsigned call)
{
    const struct mr_call_info *i = mr_call_get(call);
    if (i->layer == MR_LAYER_APP || i->kind == MR_EV_PROCESS || i->kind == MR_EV_WAIT || mr_call_on_socket(call))
        return MR_CLASS_NONE; /* waiting for another process or machine is no I/O */
    return i->layer == MR_LAYER_HDF5 || i->layer == MR_LAYER_MPIIO ? MR_CLASS_A : MR_CLASS_P;
}

static int add_function(struct summary_job *j, const char *category, size_t clen, const char *name, size_t nlen,
                        unsigned call, uint8_t klass, uint32_t *index)
{
    struct mr_function *f = MR_VEC_ADD(&j->function);
    uint8_t *k = f ? MR_VEC_ADD(&j->function_class) : NULL;
    if (!k)
        return -ENOMEM;
    memset(f, 0, sizeof(*f));
    f->category = mr_arena_strndup(j->arena, category, clen);
    f->name = mr_arena_strndup(j->arena, name, nlen);
    f->call = call;
    *k = klass;
    *index = (uint32_t)j->function.n - 1;
    return f->category && f->name ? 0 : -ENOMEM;
}

static int site_function(struct summary_job *j, const struct mr_trace_process *p, uint32_t id, uint32_t *index)
{
    struct mr_trace_string category, name;
    const struct mr_trace_string *s = mr_trace_string(p, id);
    uint64_t *at = mr_map_put(&j->names, mr_hash_bytes(s->text, s->len, HASH_SITE));
    if (!at)
        return -ENOMEM;
    if (*at) {
        *index = (uint32_t)*at - 1;
        return 0;
    }
    mr_trace_label(p, MR_CALL_region, id, &category, &name);
    int rc =
        add_function(j, category.text, category.len, name.text, name.len, 0, region_class(&category, &name), index);
    *at = *index + 1;
    return rc;
}

/* I/O is with storage: what a call does on a pipe, a socket or a terminal is waiting for somebody else. */
static bool is_apart(const struct mr_trace_string *s)
{
    return !mr_fd_class_stores(mr_fd_class_of(s->text, s->len, NULL));
}

static int path_file(struct summary_job *j, const struct mr_trace_string *s, uint32_t *out)
{
    uint64_t *at = mr_map_put(&j->names, mr_hash_bytes(s->text, s->len, HASH_PATH));
    if (!at)
        return -ENOMEM;
    if (!*at) {
        struct mr_file_row *f = MR_VEC_ADD(&j->file);
        uint8_t *apart = f ? MR_VEC_ADD(&j->file_apart) : NULL;
        if (!apart)
            return -ENOMEM;
        *apart = is_apart(s);
        *f = (struct mr_file_row){.path = s->text, .path_len = s->len};
        *at = j->file.n;
    }
    *out = (uint32_t)*at;
    return 0;
}

struct owner {
    const struct mr_trace_string *string;
    uint32_t process;
};

static int by_strings(const void *a, const void *b)
{
    const struct owner *x = a, *y = b;
    return x->string != y->string    ? (x->string < y->string ? -1 : 1)
           : x->process < y->process ? -1
                                     : x->process > y->process;
}

/* Processes can share one list of strings (ranks of a simulation, imported files): the first of them makes the tables
 * for all. */
static int find_owners(struct summary_job *j)
{
    size_t n = j->t->processes;
    struct owner *o = malloc((n + 1) * sizeof(*o));
    j->owner = malloc((n + 1) * sizeof(*j->owner));
    if (!o || !j->owner) {
        free(o);
        return -ENOMEM;
    }
    for (size_t p = 0; p < n; p++)
        o[p] = (struct owner){j->t->process[p].string, (uint32_t)p};
    qsort(o, n, sizeof(*o), by_strings);
    for (size_t i = 0; i < n; i++)
        j->owner[o[i].process] =
            i && o[i].string && o[i].string == o[i - 1].string ? j->owner[o[i - 1].process] : o[i].process;
    free(o);
    return 0;
}

/* Functions of all calls first: their index is their number; then sites and files of every process. */
int mr_summary_gather_names(struct summary_job *j)
{
    uint32_t index;
    int rc = 0;
    for (unsigned c = 0; c < MR_CALL_COUNT && rc == 0; c++) {
        const struct mr_call_info *i = mr_call_get(c);
        const char *layer = mr_layer_name(i->layer);
        j->call_kind[c] = i->kind;
        j->call_on_file[c] = mr_call_on_file(c);
        rc = add_function(j, layer, strlen(layer), i->name, strlen(i->name), c, call_class(c), &index);
    }
    j->site_of = calloc(j->t->processes + 1, sizeof(*j->site_of));
    j->file_of = calloc(j->t->processes + 1, sizeof(*j->file_of));
    if (!j->site_of || !j->file_of || find_owners(j) < 0)
        return -ENOMEM;
    size_t most = 0; /* strings of one process: most of them are different */
    for (size_t p = 0; p < j->t->processes; p++)
        most = MR_MAX(most, (size_t)j->t->process[p].strings);
    if (!mr_map_reserve(&j->names, most))
        return -ENOMEM;
    for (size_t p = 0; p < j->t->processes && rc == 0; p++) {
        const struct mr_trace_process *r = &j->t->process[p];
        if (j->owner[p] != p) {
            j->site_of[p] = j->site_of[j->owner[p]];
            j->file_of[p] = j->file_of[j->owner[p]];
            continue;
        }
        j->site_of[p] = calloc((size_t)r->strings + 1, sizeof(uint32_t));
        j->file_of[p] = calloc((size_t)r->strings + 1, sizeof(uint32_t));
        if (!j->site_of[p] || !j->file_of[p])
            return -ENOMEM;
        for (uint32_t s = 1; s < r->strings && rc == 0; s++) {
            if (!r->string[s].text)
                continue;
            if (r->string[s].kind == MR_STR_SITE)
                rc = site_function(j, r, s, &j->site_of[p][s]);
            else if (r->string[s].kind == MR_STR_PATH)
                rc = path_file(j, &r->string[s], &j->file_of[p][s]);
        }
    }
    return rc;
}
