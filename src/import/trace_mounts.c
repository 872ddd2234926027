/* Mount tables of a trace: one per machine, gathered from the blocks of its processes, and asked by path. */
#include "base/common.h"
#include "event/mounts.h"
#include "import/trace_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MOUNTS_MAX 8192u /* of a machine; a damaged file may claim any number */

static bool same(const char *text, const char *other, size_t len)
{
    return strlen(text) == len && !memcmp(text, other, len);
}

static bool has_mount(const struct mr_trace_node *n, const struct mr_mount_entry *e)
{
    for (uint32_t i = 0; i < n->mounts; i++)
        if (same(n->mount[i].path, e->path, e->path_len) && same(n->mount[i].type, e->type, e->type_len) &&
            same(n->mount[i].source, e->source, e->source_len))
            return true;
    return false;
}

static int add_mount(struct mr_trace *t, struct mr_trace_node *n, const struct mr_mount_entry *e)
{
    if (n->mounts == n->mount_cap) {
        uint32_t cap = n->mount_cap ? n->mount_cap * 2 : 32;
        struct mr_trace_mount *bigger = mr_arena_alloc(&t->arena, cap * sizeof(*bigger));
        if (!bigger)
            return -ENOMEM;
        if (n->mounts)
            memcpy(bigger, n->mount, n->mounts * sizeof(*bigger));
        n->mount = bigger;
        n->mount_cap = cap;
    }
    struct mr_trace_mount *m = &n->mount[n->mounts];
    m->path = mr_arena_strndup(&t->arena, e->path, e->path_len);
    m->type = mr_arena_strndup(&t->arena, e->type, e->type_len);
    m->source = mr_arena_strndup(&t->arena, e->source, e->source_len);
    m->path_len = m->path ? (uint32_t)strlen(m->path) : 0;
    if (!m->path || !m->type || !m->source)
        return -ENOMEM;
    n->mounts++;
    return 0;
}

int mr_trace_add_mounts(struct mr_trace *t, const struct mr_mrt_view *v, struct mr_error *err)
{
    const uint8_t *at = v->payload, *end = at + v->head.payload_bytes;
    const struct mr_trace_process *p = mr_trace_find_process(t, v->head.key);
    struct mr_mount_entry e;
    if (!p || !p->known || p->node >= t->nodes)
        return 0; /* nobody says which machine it is of */
    for (uint32_t i = 0; i < v->head.count && t->node[p->node].mounts < MOUNTS_MAX && mr_mounts_next(&at, end, &e); i++)
        if (!has_mount(&t->node[p->node], &e) && add_mount(t, &t->node[p->node], &e) < 0)
            return mr_error_set(err, -ENOMEM, "cannot load the trace");
    return 0;
}

const struct mr_trace_mount *mr_trace_mount_of(const struct mr_trace *t, uint32_t node, const char *path, size_t len)
{
    const struct mr_trace_mount *best = NULL;
    if (node >= t->nodes || !len || path[0] != '/')
        return NULL;
    for (uint32_t i = 0; i < t->node[node].mounts; i++) {
        const struct mr_trace_mount *m = &t->node[node].mount[i];
        size_t n = m->path_len > 1 ? m->path_len : 0; /* "/" leads to every path */
        if (n > len || memcmp(m->path, path, n) != 0 || (n < len && path[n] != '/'))
            continue;
        if (!best || m->path_len >= best->path_len)
            best = m;
    }
    return best;
}

const char *mr_trace_fs_of(const struct mr_trace *t, uint32_t node, const char *path, size_t len)
{
    const struct mr_trace_mount *m = mr_trace_mount_of(t, node, path, len);
    return m ? m->type : NULL;
}
