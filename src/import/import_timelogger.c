/* Reader of the CSV that TimeLogger (NERSC) and `millrace export -f timelogger` write: a line per snippet of a program.
 *
 *   node,epoch,start,end,duration,pid,thread,name
 *
 * The first line names the columns; they may come in any order, others are ignored. A snippet needs a start, an end or
 * a duration, and a name; times are seconds since 1970 or since the start of the program, or whole numbers in the unit
 * that their size reveals. Threads may have names instead of numbers. Every snippet becomes a span of category "time";
 * "category" as one more column gives it another. */
#include "base/common.h"
#include "import/pfw_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <strings.h>

enum { NODE, EPOCH, START, END, DURATION, PID, THREAD, NAME, CATEGORY, STEP, RANK, COLUMNS };
#define WORDS 64
#define HEAD_BYTES 4096u

struct logger {
    struct mr_pfw *im;
    int column[COLUMNS]; /* -1: not in the file */
    double unit_ns;      /* of the times; 0 until the first is read */
    const char *end;     /* of the file: a line that stops there has no line end */
};

static struct pfw_text word(const char *text)
{
    return (struct pfw_text){.p = text, .n = (uint32_t)strlen(text), .quoted = true};
}

/* Takes one line apart; a field in quotes has them doubled inside, as plain_name undoes it. */
static int split(const char *p, const char *stop, struct pfw_text out[WORDS])
{
    int n = 0;
    while (n < WORDS) {
        while (p < stop && (*p == ' ' || *p == '\t'))
            p++;
        const char *start = p, *end;
        if (p < stop && *p == '"') {
            start = ++p;
            while (p < stop && (*p != '"' || (p + 1 < stop && p[1] == '"')))
                p += *p == '"' ? 2 : 1;
            p = MR_MIN(p, stop);
            end = p;
            while (p < stop && *p != ',')
                p++;
        } else {
            while (p < stop && *p != ',')
                p++;
            end = p;
            while (end > start && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
                end--;
        }
        out[n++] = (struct pfw_text){.p = start, .n = (uint32_t)(end - start), .quoted = true};
        if (p >= stop)
            break;
        p++;
    }
    return n;
}

static bool named(const struct pfw_text *t, const char *name)
{
    return t->n == strlen(name) && !strncasecmp(t->p, name, t->n);
}

/* The columns of the first line; false if it does not name what a snippet needs. */
static bool read_heading(const char *p, const char *stop, int column[COLUMNS])
{
    static const struct {
        const char *name;
        int column;
    } known[] = {{"node", NODE},         {"host", NODE},        {"hostname", NODE},       {"epoch", EPOCH},
                 {"start", START},       {"start_time", START}, {"start_s", START},       {"begin", START},
                 {"end", END},           {"end_time", END},     {"end_s", END},           {"stop", END},
                 {"duration", DURATION}, {"dur", DURATION},     {"duration_s", DURATION}, {"pid", PID},
                 {"process", PID},       {"thread", THREAD},    {"tid", THREAD},          {"thread_id", THREAD},
                 {"name", NAME},         {"snippet", NAME},     {"label", NAME},          {"function", NAME},
                 {"category", CATEGORY}, {"cat", CATEGORY},     {"step", STEP},           {"rank", RANK}};
    struct pfw_text w[WORDS];
    int n = split(p, stop, w);
    for (int i = 0; i < COLUMNS; i++)
        column[i] = -1;
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < MR_ARRAY_LEN(known); k++)
            if (named(&w[i], known[k].name) && column[known[k].column] < 0)
                column[known[k].column] = i;
    return column[START] >= 0 && (column[END] >= 0 || column[DURATION] >= 0) && column[NAME] >= 0;
}

static const char *line_end(const char *p, const char *end)
{
    const char *eol = memchr(p, '\n', (size_t)(end - p));
    return eol ? eol : end;
}

static const char *skip_mark(const char *p, const char *end)
{
    return end - p >= 3 && !memcmp(p, "\xef\xbb\xbf", 3) ? p + 3 : p;
}

bool mr_timelogger_is(const char *data, size_t len)
{
    int column[COLUMNS];
    const char *end = data + MR_MIN(len, (size_t)HEAD_BYTES), *p = skip_mark(data, end);
    return read_heading(p, line_end(p, end), column);
}

/* ---- lines ---- */

static const struct pfw_text *field(const struct logger *g, const struct pfw_text *w, int n, int what)
{
    int at = g->column[what];
    return at >= 0 && at < n && w[at].n ? &w[at] : NULL;
}

/* Seconds when it has a fraction; else by its size. */
static bool to_ns(struct logger *g, const struct pfw_text *t, uint64_t *out)
{
    double x;
    if (!t || !mr_pfw_double(t, &x) || !(x >= 0))
        return false;
    if (!g->unit_ns)
        g->unit_ns = x < 1e11 ? 1e9 : x < 1e14 ? 1e6 : x < 1e17 ? 1e3 : 1;
    *out = mr_pfw_ns(t, g->unit_ns);
    return true;
}

/* A number, or any text as a number of its own. */
static struct pfw_text as_number(const struct pfw_text *t)
{
    int64_t v = 0;
    if (t && !mr_pfw_int(t, &v))
        v = (int64_t)(mr_hash_bytes(t->p, t->n, 5) & 0x3fffffff);
    return (struct pfw_text){.p = "0", .n = 1, .whole = true, .number = v};
}

static void add_argument(struct pfw_line *l, const char *key, const struct pfw_text *value)
{
    int64_t v;
    if (!value || !mr_pfw_int(value, &v))
        return;
    l->f.key[l->f.n] = word(key);
    l->f.value[l->f.n] = (struct pfw_text){.p = value->p, .n = value->n};
    l->f.meant[l->f.n++] = false;
}

/* The text of a field as it was before it was written as CSV. Names are read like those of JSON: a backslash that is
 * one has to be written twice. */
static struct pfw_text plain_name(struct logger *g, struct pfw_text t)
{
    if (!memchr(t.p, '"', t.n) && !memchr(t.p, '\\', t.n))
        return t;
    char *to = mr_arena_alloc(&g->im->arena, 2 * (size_t)t.n + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; to && i < t.n; i++) {
        if (t.p[i] == '"' || t.p[i] == '\\')
            to[n++] = '\\';
        to[n++] = t.p[i];
        i += t.p[i] == '"' && i + 1 < t.n && t.p[i + 1] == '"';
    }
    return to ? (struct pfw_text){.p = to, .n = n, .quoted = true} : t;
}

static int set_rank(struct logger *g, const struct pfw_line *l, const struct pfw_text *rank)
{
    int64_t r;
    if (!rank || !mr_pfw_int(rank, &r) || r < 0 || r >= INT32_MAX)
        return 0;
    uint64_t host = l->f.host.p ? mr_hash_bytes(l->f.host.p, l->f.host.n, 3) : 0;
    uint64_t *at = mr_map_put(&g->im->rank_of, mr_pfw_process_key(host, l->pid.number));
    if (!at)
        return -ENOMEM;
    *at = (uint64_t)r + 1;
    return 0;
}

static int add_line(struct logger *g, const char *p, const char *stop)
{
    struct pfw_text w[WORDS];
    int n = split(p, stop, w);
    uint64_t start, end, dur = 0;
    const struct pfw_text *name = field(g, w, n, NAME), *category = field(g, w, n, CATEGORY);
    bool from = to_ns(g, field(g, w, n, START), &start);
    bool to = from && to_ns(g, field(g, w, n, END), &end);
    bool lasts = from && to_ns(g, field(g, w, n, DURATION), &dur);
    if (!name || !from || (!to && !lasts)) {
        g->im->skipped_lines += n > 1 || w[0].n;
        g->im->cut_bytes += stop == g->end && (n > 1 || w[0].n) ? (uint64_t)(stop - p) : 0;
        return 0;
    }
    dur = to ? end - MR_MIN(start, end) : dur;
    struct pfw_line l = {.name = plain_name(g, *name), .ph = word("X")};
    l.cat = category ? plain_name(g, *category) : word("time");
    l.pid = as_number(field(g, w, n, PID));
    l.tid = as_number(field(g, w, n, THREAD));
    l.ts = (struct pfw_text){.p = "0", .n = 1, .whole = true, .number = (int64_t)MR_MIN(start, PFW_TIME_MAX)};
    l.dur = (struct pfw_text){.p = "0", .n = 1, .whole = true, .number = (int64_t)MR_MIN(dur, PFW_TIME_MAX)};
    if (field(g, w, n, NODE))
        l.f.host = *field(g, w, n, NODE);
    add_argument(&l, "epoch", field(g, w, n, EPOCH));
    add_argument(&l, "step", field(g, w, n, STEP));
    int rc = set_rank(g, &l, field(g, w, n, RANK));
    return rc ? rc : mr_pfw_add_line(g->im, &l);
}

int mr_timelogger_parse(const char *data, size_t len, const char *name, struct mr_pfw **out, struct mr_error *err)
{
    struct logger g = {.im = mr_pfw_create()};
    const char *end = data + len, *p = skip_mark(data, end);
    int rc = g.im ? 0 : -ENOMEM;
    if (!rc && !read_heading(p, line_end(p, end), g.column))
        rc = MR_E_FORMAT;
    if (!rc) {
        g.im->unit_ns = 1; /* of the lines that are made here */
        g.end = end;
        g.im->note =
            "TimeLogger has the snippets that the program named: waits and steps are known only by their names";
        for (p = line_end(p, end); p < end && !rc; p = line_end(p + 1, end))
            if (p + 1 < end)
                rc = add_line(&g, p + 1, line_end(p + 1, end));
        mr_pfw_end_text(g.im);
    }
    if (rc) {
        mr_pfw_free(g.im);
        return mr_error_set(err, rc, "cannot import '%s'", name);
    }
    *out = g.im;
    return 0;
}
