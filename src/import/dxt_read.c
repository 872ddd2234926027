/* Reader of the text that darshan-dxt-parser prints. Comment lines carry the file, rank and host of the segments that
 * follow; a heading names the columns, which differ between Darshan versions. Times are seconds since the start of the
 * job. */
#include "import/trace_read.h"
#include "base/common.h"
#include "base/rng.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MODULE, RANK, OP, OFFSET, LENGTH, START, END, FIELDS };

struct dxt {
    struct mr_trace *t;
    uint64_t job_ns;
    uint64_t salt; /* logs of programs without MPI are all of rank 0: each file has its own processes */
    char file[4096], host[256];
    size_t file_len, host_len;
    int64_t rank;
    int column[FIELDS];
    /* segments of the current file and rank */
    struct mr_columns c;
    uint32_t n, cap;
    uint64_t announced; /* segments that the heading of the file and rank counts */
    size_t tail;        /* bytes of a last line without its end */
    bool any;           /* a segment was read */
    struct mr_trace_chunk base;
    struct mr_error *err;
};

bool mr_dxt_is(const char *data, size_t len)
{
    while (len && (*data == '\n' || *data == '\r' || *data == ' '))
        data++, len--;
    size_t n = MR_MIN(len, (size_t)8192);
    return n > 2 && data[0] == '#' && (memmem(data, n, "DXT", 3) || memmem(data, n, "darshan log version", 19));
}

static bool starts(const char *line, size_t len, const char *word)
{
    size_t n = strlen(word);
    return len >= n && !memcmp(line, word, n);
}

/* Value behind "name: " in a comment; NULL if it is not there. */
static const char *after(const char *line, size_t len, const char *name, size_t *out_len)
{
    const char *p = memmem(line, len, name, strlen(name));
    if (!p)
        return NULL;
    p += strlen(name);
    while (p < line + len && *p == ' ')
        p++;
    *out_len = (size_t)(line + len - p);
    return p;
}

static uint64_t seconds_to_ns(const char *text)
{
    double s = strtod(text, NULL);
    return s > 0 && s < 9e9 ? (uint64_t)(s * 1e9 + 0.5) : 0;
}

static void heading(struct dxt *d, const char *line, size_t len)
{
    static const char *const names[FIELDS] = {"Module", "Rank", "Wt/Rd", "Offset", "Length", "Start(s)", "End(s)"};
    int column = 0;
    for (int i = 0; i < FIELDS; i++)
        d->column[i] = -1;
    for (size_t i = 1; i < len;) {
        while (i < len && (line[i] == ' ' || line[i] == '\t'))
            i++;
        size_t start = i;
        while (i < len && line[i] != ' ' && line[i] != '\t')
            i++;
        for (int k = 0; k < FIELDS; k++)
            if (i > start && strlen(names[k]) <= i - start && !memcmp(line + start, names[k], strlen(names[k])) &&
                d->column[k] < 0) {
                d->column[k] = column;
                break;
            }
        column += i > start;
    }
}

static int resize(void *array, size_t each, size_t n)
{
    void **at = array;
    void *bigger = realloc(*at, each * n);
    if (!bigger)
        return -ENOMEM;
    *at = bigger;
    return 0;
}

static int flush_segments(struct dxt *d, struct mr_error *err)
{
    struct mr_trace_chunk *c;
    struct mr_columns col = d->c;
    uint32_t index, node, id, n = d->n;
    if (!n)
        return 0;
    d->c = (struct mr_columns){0};
    d->n = d->cap = 0;
    void *all[] = {col.start_ns, col.end_ns, col.offset, col.result, col.file, col.call, col.fd};
    int rc = 0;
    for (size_t i = 0; i < MR_ARRAY_LEN(all); i++) {
        int one = mr_trace_keep(d->t, all[i], err);
        if (one < 0) {
            free(all[i]);
            rc = one;
        }
    }
    char *path = mr_arena_strndup(&d->t->arena, d->file, d->file_len);
    if (!path)
        rc = mr_error_set(err, -ENOMEM, "cannot import");
    rc = rc ? rc : mr_trace_process_get(d->t, mr_mix64((uint64_t)d->rank + 0xd47) ^ d->salt, &index, err);
    rc =
        rc ? rc : mr_trace_node_get(d->t, d->host_len ? d->host : "unknown", d->host_len ? d->host_len : 7, &node, err);
    if (rc < 0)
        return rc;
    struct mr_trace_process *p = &d->t->process[index];
    id = p->strings ? p->strings : 1;
    rc = mr_trace_string_set(d->t, p, id, MR_STR_PATH, path, (uint32_t)d->file_len, err);
    rc = rc ? rc : mr_trace_chunk_add(d->t, &c, err);
    if (rc < 0)
        return rc;
    p->known = true;
    p->recorded += MR_MAX(d->announced, n);
    d->announced = 0;
    p->rank = (int32_t)d->rank;
    p->pid = (uint32_t)d->rank;
    p->node = node;
    uint64_t first = UINT64_MAX, last = 0;
    for (uint32_t i = 0; i < n; i++) {
        col.file[i] = id;
        first = MR_MIN(first, col.start_ns[i]);
        last = MR_MAX(last, col.end_ns[i]);
    }
    *c = (struct mr_trace_chunk){.process = index,
                                 .tid = (uint32_t)d->rank,
                                 .count = n,
                                 .first_ns = first,
                                 .last_ns = last,
                                 .column = col,
                                 .imported = true,
                                 .sequence = d->t->chunks};
    return 0;
}

/* "DXT, key: ...": the file, or the rank and host, of the segments that follow. Names come last in their lines, and may
 * have anything in them. */
static int about_segments(struct dxt *d, const char *line, size_t len, struct mr_error *err)
{
    const char *comma = memchr(line, ',', len), *v;
    size_t n;
    if (!comma)
        return 0;
    len -= (size_t)(comma + 1 - line);
    line = comma + 1;
    while (len && *line == ' ')
        line++, len--;
    if ((starts(line, len, "file_id:") || starts(line, len, "file_name:")) &&
        (v = after(line, len, "file_name:", &n))) {
        int rc = flush_segments(d, err);
        d->file_len = MR_MIN(n, sizeof(d->file) - 1);
        memcpy(d->file, v, d->file_len);
        d->host_len = 0;
        return rc;
    }
    if (starts(line, len, "write_count:")) {
        v = after(line, len, "read_count:", &n);
        d->announced = strtoull(line + strlen("write_count:"), NULL, 10) + (v ? strtoull(v, NULL, 10) : 0);
        return 0;
    }
    if (!starts(line, len, "rank:"))
        return 0;
    int rc = flush_segments(d, err);
    d->rank = strtoll(line + strlen("rank:"), NULL, 10);
    v = after(line, len, "hostname:", &n);
    d->host_len = v ? MR_MIN(n, sizeof(d->host) - 1) : 0;
    if (v)
        memcpy(d->host, v, d->host_len);
    return rc;
}

/* The first line of a log: several may stand one after the other, each of its own job. */
static int next_log(struct dxt *d, struct mr_error *err)
{
    int rc = flush_segments(d, err);
    d->job_ns = 0;
    d->rank = 0;
    d->file_len = d->host_len = 0;
    d->salt = mr_mix64(d->t->processes + 1);
    return rc;
}

static int comment(struct dxt *d, const char *line, size_t len, struct mr_error *err)
{
    const char *body = line + 1;
    size_t n;
    for (len--; len && (*body == ' ' || *body == '\t'); len--)
        body++;
    if (starts(body, len, "darshan log version"))
        return next_log(d, err);
    if (starts(body, len, "start_time:") || starts(body, len, "start_time(s):"))
        d->job_ns = seconds_to_ns(after(body, len, ":", &n));
    else if (starts(body, len, "DX"))
        return about_segments(d, body, len, err);
    else if (starts(body, len, "Module"))
        heading(d, line, strlen(line));
    return 0;
}

/* A word of a line that is a number; false if it is none. */
static bool number(const char *const *words, const size_t *lens, int n, int column, char out[64])
{
    char *end;
    if (column < 0 || column >= n || lens[column] > 63)
        return false;
    memcpy(out, words[column], lens[column]);
    out[lens[column]] = 0;
    strtod(out, &end);
    return end != out && !*end;
}

/* What a module's segments are; false for other lines, as darshan-parser's counters are. */
static bool call_of(const char *module, size_t module_len, char op, uint16_t *call)
{
    bool writes = op == 'w' || op == 'W';
    if (!module_len || *module != 'X' || (!writes && op != 'r' && op != 'R'))
        return false;
    if (memmem(module, module_len, "MPI", 3))
        *call = writes ? MR_CALL_MPI_File_write_at : MR_CALL_MPI_File_read_at;
    else if (memmem(module, module_len, "STDIO", 5))
        *call = writes ? MR_CALL_fwrite : MR_CALL_fread;
    else
        *call = writes ? MR_CALL_pwrite : MR_CALL_pread;
    return true;
}

static int segment(struct dxt *d, const char *line, size_t len)
{
    const char *word[16];
    size_t lens[16];
    int n = 0;
    for (size_t i = 0; i < len && n < 16;) {
        while (i < len && (line[i] == ' ' || line[i] == '\t'))
            i++;
        size_t start = i;
        while (i < len && line[i] != ' ' && line[i] != '\t')
            i++;
        if (i > start) {
            word[n] = line + start;
            lens[n++] = i - start;
        }
    }
    if (!n)
        return 0;
    char offset[64] = "-1", length[64], start[64], end[64];
    int module = d->column[MODULE], op = d->column[OP];
    uint16_t call;
    if (module < 0 || module >= n || op < 0 || op >= n || !call_of(word[module], lens[module], *word[op], &call) ||
        (d->column[OFFSET] >= 0 && !number(word, lens, n, d->column[OFFSET], offset)) ||
        !number(word, lens, n, d->column[LENGTH], length) || !number(word, lens, n, d->column[START], start) ||
        !number(word, lens, n, d->column[END], end)) {
        d->t->skipped_lines++;
        return 0;
    }
    if (d->n == d->cap) {
        uint32_t cap = d->cap ? d->cap * 2 : 64;
        if (resize(&d->c.start_ns, 8, cap) || resize(&d->c.end_ns, 8, cap) || resize(&d->c.offset, 8, cap) ||
            resize(&d->c.result, 8, cap) || resize(&d->c.file, 4, cap) || resize(&d->c.call, 2, cap) ||
            resize(&d->c.fd, 2, cap))
            return -ENOMEM;
        d->cap = cap;
    }
    uint64_t from = seconds_to_ns(start), to = seconds_to_ns(end);
    uint32_t i = d->n++;
    d->any = true;
    d->c.start_ns[i] = d->job_ns + from;
    d->c.end_ns[i] = d->job_ns + MR_MAX(from, to);
    d->c.offset[i] = (uint64_t)strtoll(offset, NULL, 10);
    d->c.result[i] = strtoll(length, NULL, 10);
    d->c.file[i] = 0;
    d->c.fd[i] = 0;
    d->c.call[i] = call;
    return 0;
}

int mr_dxt_import(struct mr_trace *t, const char *data, size_t len, const char *name, struct mr_error *err)
{
    struct dxt d = {.t = t, .err = err, .column = {0, 1, 2, 4, 5, 6, 7}, .salt = mr_mix64(t->processes + 1)};
    int rc = 0;
    for (const char *p = data, *end = data + len; p < end && rc == 0;) {
        const char *eol = memchr(p, '\n', (size_t)(end - p));
        const char *stop = eol ? eol : end;
        size_t n = (size_t)(stop - p);
        char line[8192]; /* terminated, so that the number parsers stop */
        n = MR_MIN(n, sizeof(line) - 1);
        memcpy(line, p, n);
        line[n] = 0;
        n = strlen(line);
        if (n && line[n - 1] == '\r')
            line[--n] = 0;
        if (n && line[0] == '#')
            rc = comment(&d, line, n, err);
        else if (n && !mr_darshan_is_counter(line, n) && segment(&d, line, n) < 0)
            rc = mr_error_set(err, -ENOMEM, "cannot import '%s'", name);
        d.tail = eol ? 0 : n;
        p = stop + 1;
    }
    if (d.announced > d.n) /* the last file and rank have fewer segments than their heading counts */
        t->skipped_bytes += MR_MAX(d.tail, (size_t)1);
    int last = flush_segments(&d, rc ? NULL : err);
    void *left[] = {d.c.start_ns, d.c.end_ns, d.c.offset, d.c.result, d.c.file, d.c.call, d.c.fd};
    for (size_t i = 0; i < MR_ARRAY_LEN(left); i++)
        free(left[i]);
    t->sees |= d.any ? MR_SEES_DATA : 0;
    if (!rc && !last && d.any)
        last =
            mr_trace_note(t, false, err,
                          "Darshan DXT has reads and writes only: no opens and stats, no spans of the program, so no "
                          "stall can be computed");
    return rc ? rc : last;
}
