/* Reader of DFTracer's .pfw, every flavour: one JSON object per line, with or without brackets and commas; phases as
 * letters or numbers; numbers plain or quoted; hashes decimal or hex; file names inline (fname) or by hash (FH lines).
 * A line that is no whole object is skipped and counted. Unescaped control bytes, which DFTracer writes, are accepted.
 *
 * This file finds the lines and hands what was read over to a trace; pfw_internal.h says where the rest is. */
#include "import/pfw_internal.h"
#include "base/common.h"
#include "base/rng.h"
#include "base/strbuf.h"
#include "import/trace_internal.h"

#include <errno.h>
#include <stdlib.h>

/* True if the line has more than one object, as compact JSON has; braces in strings may look like it. */
static bool has_several(const char *p, const char *stop)
{
    while ((p = memchr(p, '}', (size_t)(stop - p)))) {
        for (p++; p < stop && (*p == ',' || *p == ' '); p++) {
        }
        if (p < stop && *p == '{')
            return true;
    }
    return false;
}

const char *mr_pfw_object_end(const char *p, const char *stop)
{
    unsigned depth = 0;
    for (; p < stop; p++) {
        if (*p == '"') {
            for (p++; p < stop && *p != '"'; p++)
                p += *p == '\\';
        } else if (*p == '{' || *p == '[') {
            depth++;
        } else if ((*p == '}' || *p == ']') && --depth == 0) {
            return p + 1;
        }
    }
    return stop;
}

static const char *skip_between(const char *p, const char *stop)
{
    while (p < stop && (*p == '[' || *p == ']' || *p == ' ' || *p == ',' || *p == '\r'))
        p++;
    return p;
}

/* A line with several objects, one after the other. */
static int add_objects(struct mr_pfw *im, const char *p, const char *stop)
{
    struct pfw_line l;
    int rc = 0;
    while ((p = skip_between(p, stop)) < stop && rc == 0) {
        const char *end = *p == '{' ? mr_pfw_object_end(p, stop) : stop;
        if (*p == '{' && mr_pfw_parse_line(p, end, &l))
            rc = mr_pfw_add_line(im, &l);
        else if (!(*p == '}' && skip_between(p + 1, stop) == stop)) /* of {"traceEvents":[ ... ]} */
            im->skipped_lines++;
        p = end;
    }
    return rc;
}

/* Chrome's wrapping of a list of events. */
static const char *skip_wrapping(const char *p, const char *end)
{
    static const char word[] = "\"traceEvents\"";
    const char *q = mr_pfw_skip_space(p, end);
    if (q == end || *q != '{')
        return p;
    q = mr_pfw_skip_space(q + 1, end);
    if ((size_t)(end - q) < sizeof(word) || memcmp(q, word, sizeof(word) - 1) != 0)
        return p;
    q = mr_pfw_skip_space(q + sizeof(word) - 1, end);
    return q < end && *q == ':' ? q + 1 : p;
}

/* `salt` is per file: names belong to a file, so processes do, too. */
static int lane_to_chunk(struct mr_trace *t, uint64_t salt, struct mr_pfw *im, struct pfw_lane *l, struct mr_error *err)
{
    struct mr_trace_chunk *c;
    uint32_t index, node;
    int rc = mr_trace_process_get(t, mr_mix64(l->key ^ salt), &index, err);
    rc = rc ? rc : mr_trace_chunk_add(t, &c, err);
    if (rc != 0)
        return rc;
    uint64_t host = mr_map_get(&im->host_of, l->key);
    const struct mr_trace_string *h = host ? &im->string.item[host] : NULL;
    *c = (struct mr_trace_chunk){.process = index,
                                 .tid = l->tid,
                                 .count = l->n,
                                 .args = l->args,
                                 .first_ns = l->first,
                                 .last_ns = l->last,
                                 .column = l->c,
                                 .imported = true,
                                 .sequence = t->chunks};
    rc = mr_trace_node_get(t, h ? h->text : "unknown", h ? h->len : 7, &node, err);
    if (rc < 0)
        return rc;
    struct mr_trace_process *p = &t->process[index];
    if (!p->known) {
        p->pid = l->process;
        p->node = node;
        p->known = true;
        p->start_ns = l->first;
        uint64_t rank = mr_map_get(&im->rank_of, l->key);
        if (!rank) /* of a line without a host */
            rank = mr_map_get(&im->rank_of, mr_pfw_process_key(0, l->process));
        if (rank) {
            p->rank = (int32_t)(rank - 1);
            p->world = im->world ? im->world : p->world;
        }
    }
    p->string = im->string.item;
    p->strings = (uint32_t)im->string.n;
    p->borrowed = true;
    if (l->folded && !p->skipped)
        p->skipped = mr_arena_alloc(&t->arena, MR_CALL_COUNT * sizeof(*p->skipped));
    for (unsigned call = 0; l->folded && p->skipped && call < MR_CALL_COUNT; call++)
        p->skipped[call] += l->folded[call];
    return 0;
}

/* Hands the columns over to the trace; frees them without a trace, or when it cannot keep them. */
static int keep_lane(struct mr_trace *t, struct pfw_lane *l, struct mr_error *err)
{
    void *all[] = {l->c.start_ns, l->c.end_ns,    l->c.offset,  l->c.result,   l->c.file,     l->c.call,
                   l->c.fd,       l->c.arg_event, l->c.arg_key, l->c.arg_type, l->c.arg_value};
    int rc = 0;
    for (size_t i = 0; i < MR_ARRAY_LEN(all); i++) {
        int one = t && all[i] ? mr_trace_keep(t, all[i], err) : 0;
        if (one < 0 || !t)
            free(all[i]);
        rc = one < 0 ? one : rc;
    }
    return rc;
}

/* Skips the byte order mark that some editors put before UTF-8. */
static const char *skip_mark(const char *p, const char *end)
{
    return end - p >= 3 && !memcmp(p, "\xef\xbb\xbf", 3) ? p + 3 : p;
}

bool mr_pfw_is(const char *data, size_t len)
{
    const char *p = skip_mark(data, data + len);
    len -= (size_t)(p - data);
    data = p;
    for (size_t i = 0; i < MR_MIN(len, (size_t)4096); i++)
        if (data[i] != ' ' && data[i] != '\t' && data[i] != '\n' && data[i] != '\r')
            return data[i] == '[' || data[i] == '{';
    return false;
}

#define INDENTED_MAX 65536u
#define INDENTED_TRIES 64 /* failed attempts: then the lone braces have another reason */

/* An object over several lines, as tools that indent JSON write it (jq): its brace is alone in its line. Returns what
 * is behind it, NULL if it is none. */
static const char *read_indented(struct mr_pfw *im, const char *p, const char *stop, const char *end,
                                 struct pfw_line *l)
{
    if (*p != '{' || mr_pfw_skip_space(p + 1, stop) != stop)
        return NULL;
    const char *close = mr_pfw_object_end(p, p + MR_MIN((size_t)(end - p), (size_t)INDENTED_MAX));
    size_t n = (size_t)(close - p);
    char *copy = close > stop && close[-1] == '}' ? mr_arena_alloc(&im->arena, n) : NULL;
    for (size_t i = 0; copy && i < n; i++)
        copy[i] = p[i] == '\n' || p[i] == '\r' ? ' ' : p[i];
    return copy && mr_pfw_parse_line(copy, copy + n, l) ? close : NULL;
}

static int parse_text(struct mr_pfw *im, const char *data, size_t len)
{
    struct pfw_line l;
    unsigned tries = INDENTED_TRIES;
    int rc = 0;
    for (const char *end = data + len, *p = skip_wrapping(skip_mark(data, end), end); p < end && rc == 0;) {
        const char *eol = memchr(p, '\n', (size_t)(end - p));
        const char *stop = eol ? eol : end;
        p = skip_between(mr_pfw_skip_space(p, stop), stop);
        if (p < stop) {
            bool room = (size_t)(end - stop) >= PFW_SLACK; /* to look a little behind the line */
            const struct pfw_line *known = room ? mr_pfw_read_by_shape(im, p, stop) : NULL;
            if (known) {
                rc = mr_pfw_add_line(im, known);
            } else if (has_several(p, stop)) {
                rc = add_objects(im, p, stop);
            } else if (*p == '{' && mr_pfw_parse_line(p, stop, &l)) {
                rc = mr_pfw_add_line(im, &l);
                if (room)
                    mr_pfw_learn_shape(im, p, stop);
            } else {
                const char *behind = tries ? read_indented(im, p, stop, end, &l) : NULL;
                if (behind)
                    rc = mr_pfw_add_line(im, &l);
                im->skipped_lines += !behind;
                im->cut_bytes += !behind && !eol ? (uint64_t)(stop - p) : 0;
                tries -= !behind && tries;
                stop = behind ? behind : stop;
            }
        }
        p = stop + 1;
    }
    return rc;
}

void mr_pfw_end_text(struct mr_pfw *im)
{
    mr_pfw_forget_shapes(im);
    im->last_host = im->last_file = im->last_site = (struct pfw_memo){0};
    mr_map_done(&im->lane_of);
    mr_map_done(&im->text_string);
}

void mr_pfw_free(struct mr_pfw *im)
{
    if (!im)
        return;
    mr_pfw_end_text(im);
    mr_map_done(&im->hash_string);
    mr_map_done(&im->host_of);
    mr_map_done(&im->rank_of);
    for (size_t i = 0; i < im->lane.n; i++) {
        free(im->lane.item[i].folded);
        free(im->lane.item[i].id);
        mr_map_done(&im->lane.item[i].seen);
        keep_lane(NULL, &im->lane.item[i], NULL);
    }
    free(im->lane.item);
    free(im->string.item);
    mr_arena_done(&im->arena);
    free(im);
}

struct mr_pfw *mr_pfw_create(void)
{
    struct mr_pfw *im = calloc(1, sizeof(*im));
    if (!im)
        return NULL;
    im->fact_id = -1;
    im->no_host = mr_pfw_new_string(im, MR_STR_TEXT, (struct pfw_text){.p = "unknown", .n = 7, .quoted = true});
    return im;
}

int mr_pfw_parse(const char *data, size_t len, const char *name, struct mr_pfw **out, struct mr_error *err)
{
    struct mr_pfw *im = mr_pfw_create();
    int rc = -ENOMEM;
    if (im) {
        im->sees = MR_SEES_DATA | MR_SEES_METADATA;
        rc = parse_text(im, data, len);
        mr_pfw_end_text(im);
    }
    if (rc < 0) {
        mr_pfw_free(im);
        return mr_error_set(err, rc, "cannot import '%s'", name);
    }
    *out = im;
    return 0;
}

/* A clock that was set: no thread of the process has an event in the gap, and the file is in order otherwise. */
static bool jumps_ahead(const struct mr_pfw *im, const struct pfw_lane *l)
{
    if (!l->ahead || l->ahead > MR_MAX(l->n / 50, 1u))
        return false;
    for (size_t i = 0; i < im->lane.n; i++) {
        const struct pfw_lane *o = &im->lane.item[i];
        bool meets = o->key == l->key && o->first < l->gap_to && o->last > l->gap_from;
        for (uint32_t e = 0; meets && e < o->n; e++)
            if (o->c.start_ns[e] < l->gap_to && o->c.end_ns[e] > l->gap_from)
                return false;
    }
    return true;
}

static void shift_id(uint32_t *id, uint32_t by)
{
    *id += *id ? by : 0;
}

/* Another file of a process that the trace has: its names come behind those that are known. */
static int join_names(struct mr_trace *t, struct mr_pfw *im, uint64_t salt)
{
    const struct mr_trace_process *p =
        im->lane.n ? mr_trace_find_process(t, mr_mix64(im->lane.item[0].key ^ salt)) : NULL;
    if (!p || !p->strings || !im->string.n)
        return 0;
    uint32_t by = p->strings - 1;
    struct mr_trace_string *all = malloc((by + im->string.n) * sizeof(*all));
    if (!all)
        return -ENOMEM;
    memcpy(all, p->string, p->strings * sizeof(*all));
    memcpy(all + p->strings, im->string.item + 1, (im->string.n - 1) * sizeof(*all));
    free(im->string.item);
    im->string.item = all;
    im->string.n += by;
    for (size_t i = 0; i < im->lane.n; i++) {
        struct pfw_lane *l = &im->lane.item[i];
        for (uint32_t e = 0; e < l->n; e++)
            shift_id(&l->c.file[e], by);
        for (uint32_t a = 0; a < l->args; a++) {
            shift_id(&l->c.arg_key[a], by);
            if (l->c.arg_type[a] == MR_MORE_TEXT || l->c.arg_type[a] == MR_MORE_FILE2)
                l->c.arg_value[a] += l->c.arg_value[a] ? by : 0;
        }
    }
    return 0;
}

/* What the trust block has to know of the file. */
static int say_limits(struct mr_trace *t, const struct mr_pfw *im, struct mr_error *err)
{
    char count[MR_HUMAN_LEN];
    t->sees |= im->sees;
    t->skipped_lines += im->skipped_lines;
    t->skipped_bytes += im->cut_bytes;
    for (size_t i = 0; i < im->lane.n; i++) {
        const struct pfw_lane *l = &im->lane.item[i];
        t->clock_jumps += l->back && l->back <= MR_MAX(l->n / 50, 1u) ? l->back : 0; /* many: the file is in no order */
        t->clock_jumps += jumps_ahead(im, l);
    }
    int rc = im->note ? mr_trace_note(t, false, err, "%s", im->note) : 0;
    if (rc == 0 && im->repeated)
        rc = mr_trace_note(t, false, err, "%s events that a forked process wrote again are counted once",
                           mr_human_count(im->repeated, count));
    return rc;
}

int mr_pfw_join(struct mr_trace *t, struct mr_pfw *im, struct mr_error *err)
{
    const uint64_t salt = im->joins ? im->joins : mr_mix64(t->processes + 1);
    int rc = say_limits(t, im, err);
    if (rc == 0 && im->joins && join_names(t, im, salt) < 0)
        rc = mr_error_set(err, -ENOMEM, "cannot load names");
    for (size_t i = 0; i < im->lane.n; i++) {
        struct pfw_lane *l = &im->lane.item[i];
        int kept = keep_lane(t, l, err);
        rc = rc ? rc : kept;
        if (rc == 0)
            rc = lane_to_chunk(t, salt, im, l, err);
        l->c = (struct mr_columns){0};
    }
    int kept = im->string.item ? mr_trace_keep(t, im->string.item, err) : 0;
    if (kept == 0) {
        kept = mr_pfw_keep_names(t, im, err);
        im->string.item = NULL; /* the trace's */
    }
    mr_arena_join(&t->arena, &im->arena);
    mr_pfw_free(im);
    return rc ? rc : kept;
}

int mr_pfw_import(struct mr_trace *t, const char *data, size_t len, const char *name, struct mr_error *err)
{
    struct mr_pfw *im;
    int rc = mr_pfw_parse(data, len, name, &im, err);
    return rc ? rc : mr_pfw_join(t, im, err);
}
