/* Names of a trace, made global once: what every site means, which arguments count, which file a path is and what kind
 * of thing it is; and the threads. */
#include "base/common.h"
#include "explain/explain_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *const key_text[KEYS_ALL] = {
#define EXPLAIN_KEY_TEXT(name, text) [KEY_##name] = text,
    EXPLAIN_KEYS(EXPLAIN_KEY_TEXT) EXPLAIN_PLACE_KEYS(EXPLAIN_KEY_TEXT)
#undef EXPLAIN_KEY_TEXT
};

static uint8_t key_of(const struct mr_trace_string *s)
{
    for (unsigned k = 0; k < KEYS_ALL; k++)
        if (s->len == strlen(key_text[k]) && !memcmp(s->text, key_text[k], s->len))
            return (uint8_t)(k + 1);
    return 0;
}

static bool ends(const struct mr_trace_string *s, const char *suffix)
{
    size_t len = strlen(suffix);
    return s->len >= len && !memcmp(s->text + s->len - len, suffix, len);
}

static bool begins(const struct mr_trace_string *s, const char *prefix)
{
    size_t len = strlen(prefix);
    return s->len >= len && !memcmp(s->text, prefix, len);
}

static bool is_code(const struct mr_trace_string *s)
{
    return begins(s, "/proc/") || begins(s, "/sys/") || ends(s, ".py") || ends(s, ".pyc") || ends(s, ".so") ||
           memmem(s->text, s->len, ".so.", 4);
}

/* Equal paths of different machines are one file: data sets lie on shared file systems. */
static int file_number(struct explain_job *j, uint32_t node, const struct mr_trace_string *s, uint32_t *out)
{
    uint64_t *at = mr_map_put(&j->paths, mr_hash_bytes(s->text, s->len, 1));
    if (!at)
        return -ENOMEM;
    if (!*at) {
        struct explain_file *f = MR_VEC_ADD(&j->file);
        if (!f)
            return -ENOMEM;
        *f = (struct explain_file){.path = s->text, .len = s->len, .fs = mr_trace_fs_of(j->t, node, s->text, s->len)};
        f->kind = (uint8_t)mr_fd_class_of(s->text, s->len, f->fs);
        f->code = is_code(s);
        *at = j->file.n;
    }
    *out = (uint32_t)*at;
    return 0;
}

static int process_names(struct explain_job *j, size_t p)
{
    const struct mr_trace_process *r = &j->t->process[p];
    size_t n = (size_t)r->strings + 1;
    int rc = 0;
    j->owns[p] = true;
    j->site[p] = calloc(n, sizeof(**j->site));
    j->key[p] = calloc(n, 1);
    j->file_of[p] = calloc(n, sizeof(**j->file_of));
    j->snippet_of[p] = calloc(n, sizeof(**j->snippet_of));
    if (!j->snippet_of[p] || !j->site[p] || !j->key[p] || !j->file_of[p])
        return -ENOMEM;
    for (uint32_t s = 1; s < r->strings && !rc; s++) {
        struct mr_trace_string category, name;
        if (!r->string[s].text)
            continue;
        if (r->string[s].kind == MR_STR_KEY) {
            j->key[p][s] = key_of(&r->string[s]);
        } else if (r->string[s].kind == MR_STR_PATH) {
            rc = file_number(j, r->node, &r->string[s], &j->file_of[p][s]);
        } else if (r->string[s].kind == MR_STR_SITE) {
            mr_trace_label(r, MR_CALL_region, s, &category, &name);
            j->site[p][s] = mr_region_classify(category.text, category.len, name.text, name.len);
            j->kept[p] |= mr_role_places(j->site[p][s].role);
            rc = mr_explain_number_snippet(j, p, s, &category, &name);
        }
    }
    return rc;
}

int mr_explain_gather_names(struct explain_job *j)
{
    size_t n = j->t->processes + 1;
    struct mr_map owner = {0}; /* of a table of strings: process + 1 */
    int rc = 0;
    for (unsigned c = 0; c < MR_CALL_COUNT; c++) {
        j->call_kind[c] = (uint8_t)mr_call_get(c)->kind;
        j->call_layer[c] = (uint8_t)mr_call_get(c)->layer;
    }
    j->site = calloc(n, sizeof(*j->site));
    j->key = calloc(n, sizeof(*j->key));
    j->file_of = calloc(n, sizeof(*j->file_of));
    j->snippet_of = calloc(n, sizeof(*j->snippet_of));
    j->owns = calloc(n, sizeof(*j->owns));
    j->kept = calloc(n, sizeof(*j->kept));
    if (!j->snippet_of || !j->site || !j->key || !j->file_of || !j->owns || !j->kept)
        return -ENOMEM;
    for (size_t p = 0; p < j->t->processes && !rc; p++) {
        const struct mr_trace_process *r = &j->t->process[p];
        uint64_t *at = r->string ? mr_map_put(&owner, (uint64_t)(uintptr_t)r->string) : NULL;
        if (r->string && !at)
            rc = -ENOMEM;
        else if (at && *at) {
            size_t o = (size_t)*at - 1;
            j->site[p] = j->site[o];
            j->key[p] = j->key[o];
            j->file_of[p] = j->file_of[o];
            j->snippet_of[p] = j->snippet_of[o];
            j->kept[p] = j->kept[o];
        } else {
            if (at)
                *at = p + 1;
            rc = process_names(j, p);
        }
    }
    mr_map_done(&owner);
    return rc;
}

/* Chunks are sorted by process, thread and time. */
int mr_explain_gather_lanes(struct explain_job *j)
{
    const struct mr_trace *t = j->t;
    j->lane_of = calloc(t->chunks + 1, sizeof(*j->lane_of));
    j->lane = calloc(t->chunks + 1, sizeof(*j->lane));
    if (!j->lane_of || !j->lane)
        return -ENOMEM;
    for (size_t i = 0; i < t->chunks; i++) {
        const struct mr_trace_chunk *c = &t->chunk[i];
        struct explain_lane *l = j->lanes ? &j->lane[j->lanes - 1] : NULL;
        if (!l || l->process != c->process || l->tid != c->tid) {
            l = &j->lane[j->lanes++];
            *l = (struct explain_lane){.process = c->process,
                                       .tid = c->tid,
                                       .chunk = i,
                                       .first_ns = c->first_ns,
                                       .rank = NO_INDEX,
                                       .worker = NO_INDEX};
        }
        l->chunks++;
        l->first_ns = MR_MIN(l->first_ns, c->first_ns);
        l->last_ns = MR_MAX(l->last_ns, c->last_ns);
        j->lane_of[i] = j->lanes - 1;
    }
    return 0;
}
