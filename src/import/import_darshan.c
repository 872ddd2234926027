/* Reader of the text that darshan-parser prints, with or without --total: counters per module, rank and file. They
 * become one struct mr_counter_log; there are no events, so nothing can be said about when anything happened.
 *
 *   <module> TAB <rank> TAB <record id> TAB <counter> TAB <value> TAB <file name> TAB <mount pt> TAB <fs type>
 *
 * Lines of one record (module, rank, id) follow each other; a record is added to the sums when the next one begins.
 * Rank -1 is a file that all ranks opened: its counters are sums over them, and the fastest and slowest rank are named.
 */
#include "base/common.h"
#include "import/counters.h"
#include "import/trace_read.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FIELDS 8
enum { MODULE, RANK, RECORD, COUNTER, VALUE, NAME, MOUNT, FS };
#define RANKS_MAX (1u << 22) /* in what a damaged file may claim */
#define LARGEST 1e30
#define SMALL_FILE 1048576.0

struct word {
    const char *p;
    size_t n;
};

struct ost_use {
    uint64_t file; /* index + 1 */
    uint32_t ost;
};

/* Lives as long as the trace: the logs of several files are added up. */
struct mr_darshan {
    struct mr_trace *t;
    struct mr_counter_log *log;
    struct mr_map counter_of; /* by name: enum mr_counter + 1 */
    struct mr_map file_of;    /* by record id: index + 1 */
    struct mr_map fs_of;      /* by text: pointer */
    size_t file_cap;
    /* the record at hand */
    struct word module, record;
    bool posix, lustre, open;
    int64_t rank;
    uint64_t file; /* index + 1, 0 none */
    double value[MR_COUNTER_COUNT];
    double fastest, slowest; /* ranks; -1 unknown */
    /* this log */
    double nprocs, run_s, start_s;
    uint32_t rank_base;               /* ranks of the logs before it */
    double shared_bytes, shared_time; /* of a mean rank */
    bool counted;                     /* it has counters: the text of DXT has the same head and none */
    unsigned lines, lines_before;     /* of the record at hand, and of the one before it in the same module */
    /* all ranks */
    bool records;
    double *rank_bytes, *rank_time; /* own records, and what shared ones had beyond the mean */
    size_t ranks, rank_bytes_cap, rank_time_cap;
    MR_VEC(struct ost_use) ost;
    struct mr_error *err;
};

static const struct {
    const char *name;
    uint8_t how;
} counters[MR_COUNTER_COUNT] = {
#define ROW(name, how) {#name, MR_COUNTER_##how},
    MR_COUNTERS(ROW)
#undef ROW
};

static bool is(struct word w, const char *text)
{
    return w.n == strlen(text) && !memcmp(w.p, text, w.n);
}

static bool starts(struct word w, const char *text)
{
    return w.n >= strlen(text) && !memcmp(w.p, text, strlen(text));
}

static bool same(struct word a, struct word b)
{
    return a.n == b.n && !memcmp(a.p, b.p, a.n);
}

/* A number that is one; counters that could not be watched are -1. */
static double number(struct word w)
{
    char text[64], *end;
    if (!w.n || w.n >= sizeof(text))
        return NAN;
    memcpy(text, w.p, w.n);
    text[w.n] = 0;
    double v = strtod(text, &end);
    return end != text && !*end && fabs(v) < LARGEST ? v : NAN;
}

bool mr_darshan_is_counter(const char *line, size_t len)
{
    static const char *const modules[] = {"POSIX",   "MPI-IO", "STDIO", "LUSTRE", "H5F",     "H5D",
                                          "PNETCDF", "BG/Q",   "MDHIM", "DFS",    "HEATMAP", "APMPI",
                                          "APXC",    "DAOS",   "HDF5",  "NULL",   "PNETCDF_"};
    const char *tab = memchr(line, '\t', MR_MIN(len, (size_t)32));
    struct word w = {line, tab ? (size_t)(tab - line) : 0};
    if (!tab)
        return starts((struct word){line, len}, "total_");
    for (size_t i = 0; i < MR_ARRAY_LEN(modules); i++)
        if (starts(w, modules[i]))
            return true;
    return false;
}

/* ---- files ---- */

static char *copy(struct mr_darshan *d, struct word w)
{
    return mr_arena_strndup(&d->t->arena, w.p, w.n);
}

/* Types of file systems are few: one text each. */
static const char *fs_text(struct mr_darshan *d, struct word w)
{
    if (!w.n || is(w, "UNKNOWN"))
        return NULL;
    uint64_t *at = mr_map_put(&d->fs_of, mr_hash_bytes(w.p, w.n, 1));
    if (at && !*at)
        *at = (uint64_t)(uintptr_t)copy(d, w);
    return at && *at ? (const char *)(uintptr_t)*at : NULL;
}

static struct mr_counter_file *file_at(struct mr_darshan *d)
{
    return d->file ? &d->log->file[d->file - 1] : NULL;
}

static int find_file(struct mr_darshan *d, const struct word *f, size_t n)
{
    uint64_t *at = mr_map_put(&d->file_of, mr_hash_bytes(f[RECORD].p, f[RECORD].n, 0));
    struct word name = n > NAME ? f[NAME] : (struct word){"", 0};
    d->file = 0;
    if (is(name, "<STDIN>") || is(name, "<STDOUT>") || is(name, "<STDERR>"))
        return 0;
    if (!at || mr_vec_reserve(&d->log->file, &d->file_cap, d->log->files + 1, sizeof(*d->log->file)) < 0)
        return -ENOMEM;
    if (!*at) {
        struct mr_counter_file *x = &d->log->file[d->log->files];
        *x = (struct mr_counter_file){.path = copy(d, name),
                                      .fs = n > FS ? fs_text(d, f[FS]) : NULL,
                                      .max_byte_read = -1,
                                      .stripe_count = NAN,
                                      .stripe_bytes = NAN};
        if (!x->path)
            return -ENOMEM;
        *at = ++d->log->files;
    }
    d->file = *at;
    return 0;
}

/* ---- records ---- */

static double known(double x)
{
    return isnan(x) ? 0 : x;
}

static void add(double *to, double x, uint8_t how)
{
    if (isnan(x))
        return;
    *to = isnan(*to) ? x : how == MR_COUNTER_SUM ? *to + x : how == MR_COUNTER_MAX ? fmax(*to, x) : fmin(*to, x);
}

static int rank_room(struct mr_darshan *d, double rank)
{
    if (!(rank >= 0) || rank + d->rank_base >= RANKS_MAX)
        return -ERANGE;
    size_t need = (size_t)rank + d->rank_base + 1;
    if (mr_vec_reserve(&d->rank_bytes, &d->rank_bytes_cap, need, sizeof(double)) < 0 ||
        mr_vec_reserve(&d->rank_time, &d->rank_time_cap, need, sizeof(double)) < 0)
        return -ENOMEM;
    for (; d->ranks < need; d->ranks++)
        d->rank_bytes[d->ranks] = d->rank_time[d->ranks] = 0;
    return 0;
}

static int add_to_rank(struct mr_darshan *d, double rank, double bytes, double time)
{
    int rc = rank_room(d, rank);
    if (rc)
        return rc == -ENOMEM ? rc : 0; /* a rank that cannot be: left out */
    d->rank_bytes[(size_t)rank + d->rank_base] += bytes;
    d->rank_time[(size_t)rank + d->rank_base] += time;
    return 0;
}

/* Bytes and time of each rank: a shared record tells those of its fastest and slowest, the others have the mean. */
static int add_ranks(struct mr_darshan *d, double bytes, double time)
{
    const double *v = d->value;
    if (d->rank >= 0)
        return add_to_rank(d, (double)d->rank, bytes, time);
    double n = fmax(d->nprocs, 1), mean_bytes = bytes / n, mean_time = time / n;
    d->shared_bytes += mean_bytes;
    d->shared_time += mean_time;
    int rc = 0;
    if (d->slowest >= 0 && !isnan(v[MR_POSIX_SLOWEST_RANK_BYTES]))
        rc = add_to_rank(d, d->slowest, v[MR_POSIX_SLOWEST_RANK_BYTES] - mean_bytes,
                         known(v[MR_POSIX_F_SLOWEST_RANK_TIME]) - mean_time);
    if (!rc && d->fastest >= 0 && d->fastest != d->slowest && !isnan(v[MR_POSIX_FASTEST_RANK_BYTES]))
        rc = add_to_rank(d, d->fastest, v[MR_POSIX_FASTEST_RANK_BYTES] - mean_bytes,
                         known(v[MR_POSIX_F_FASTEST_RANK_TIME]) - mean_time);
    return rc;
}

static int add_posix(struct mr_darshan *d, struct mr_counter_file *f)
{
    const double *v = d->value;
    double read = known(v[MR_POSIX_BYTES_READ]), written = known(v[MR_POSIX_BYTES_WRITTEN]);
    double time = known(v[MR_POSIX_F_READ_TIME]) + known(v[MR_POSIX_F_WRITE_TIME]) + known(v[MR_POSIX_F_META_TIME]);
    double ranks = d->rank < 0 ? fmax(d->nprocs, 1) : 1;
    f->read_bytes += read;
    f->written_bytes += written;
    f->reads += known(v[MR_POSIX_READS]);
    f->writes += known(v[MR_POSIX_WRITES]);
    f->opens += known(v[MR_POSIX_OPENS]);
    f->time_s += time;
    f->ranks = (uint32_t)fmin(f->ranks + ranks, UINT32_MAX);
    if (!isnan(v[MR_POSIX_MAX_BYTE_READ]))
        f->max_byte_read = fmax(f->max_byte_read, v[MR_POSIX_MAX_BYTE_READ]);
    return add_ranks(d, read + written, time);
}

static void add_stdio(struct mr_darshan *d, struct mr_counter_file *f)
{
    const double *v = d->value;
    f->read_bytes += known(v[MR_STDIO_BYTES_READ]);
    f->written_bytes += known(v[MR_STDIO_BYTES_WRITTEN]);
    f->reads += known(v[MR_STDIO_READS]);
    f->writes += known(v[MR_STDIO_WRITES]);
    f->opens += known(v[MR_STDIO_OPENS]);
    f->time_s += known(v[MR_STDIO_F_READ_TIME]) + known(v[MR_STDIO_F_WRITE_TIME]) + known(v[MR_STDIO_F_META_TIME]);
    f->ranks = MR_MAX(f->ranks, d->rank < 0 ? (uint32_t)fmin(fmax(d->nprocs, 1), UINT32_MAX) : 1u);
    double bytes = known(v[MR_STDIO_BYTES_READ]) + known(v[MR_STDIO_BYTES_WRITTEN]);
    if (bytes >= SMALL_FILE)
        add(&d->log->total.stdio_data_bytes, bytes, MR_COUNTER_SUM);
}

static int end_record(struct mr_darshan *d)
{
    struct mr_counter_file *f = file_at(d);
    int rc = 0;
    if (!d->open)
        return 0;
    d->open = false;
    bool stdio = is(d->module, "STDIO");
    if (stdio && !f) /* a standard stream: no I/O of the program's data */
        return 0;
    for (int i = 0; i < MR_COUNTER_COUNT; i++)
        add(&d->log->total.value[i], d->value[i], counters[i].how);
    if (f && d->posix)
        rc = add_posix(d, f);
    else if (f && stdio)
        add_stdio(d, f);
    return rc;
}

static int begin_record(struct mr_darshan *d, const struct word *f, size_t n)
{
    int rc = end_record(d);
    d->lines_before = same(d->module, f[MODULE]) ? d->lines : 0;
    d->lines = 0;
    d->module = f[MODULE];
    d->record = f[RECORD];
    d->rank = (int64_t)fmax(-1, fmin(known(number(f[RANK])), RANKS_MAX));
    d->posix = is(f[MODULE], "POSIX");
    d->lustre = is(f[MODULE], "LUSTRE");
    d->open = d->records = d->counted = true;
    d->fastest = d->slowest = -1;
    for (int i = 0; i < MR_COUNTER_COUNT; i++)
        d->value[i] = NAN;
    struct mr_counters *c = &d->log->total;
    c->has_posix |= d->posix;
    c->has_lustre |= d->lustre;
    c->has_mpiio |= is(f[MODULE], "MPI-IO");
    c->has_stdio |= is(f[MODULE], "STDIO");
    c->has_hdf5 |= starts(f[MODULE], "H5") || is(f[MODULE], "HDF5");
    d->file = 0;
    bool counted = d->posix || d->lustre || is(f[MODULE], "MPI-IO") || is(f[MODULE], "STDIO");
    return rc || !counted ? rc : find_file(d, f, n);
}

static int lustre_counter(struct mr_darshan *d, struct word name, double v)
{
    struct mr_counter_file *f = file_at(d);
    bool first = starts(name, "LUSTRE_COMP1_") || starts(name, "LUSTRE_STRIPE_") || starts(name, "LUSTRE_OST_ID_");
    if (is(name, "LUSTRE_OSTS")) {
        add(&d->log->total.ost_count, v, MR_COUNTER_MAX);
        return 0;
    }
    if (!f || !first || v < 0)
        return 0;
    if (is(name, "LUSTRE_STRIPE_WIDTH") || is(name, "LUSTRE_COMP1_STRIPE_COUNT"))
        f->stripe_count = v;
    else if (is(name, "LUSTRE_STRIPE_SIZE") || is(name, "LUSTRE_COMP1_STRIPE_SIZE"))
        f->stripe_bytes = v;
    else if (memmem(name.p, name.n, "OST_ID_", 7) && v < UINT16_MAX) {
        struct ost_use *u = MR_VEC_ADD(&d->ost);
        if (!u)
            return -ENOMEM;
        *u = (struct ost_use){d->file, (uint32_t)v};
    }
    return 0;
}

static int counter_line(struct mr_darshan *d, const struct word *f, size_t n)
{
    int rc = 0;
    double v = number(f[VALUE]);
    if (!d->open || !same(f[MODULE], d->module) || !same(f[RECORD], d->record) ||
        d->rank != (int64_t)fmax(-1, fmin(known(number(f[RANK])), RANKS_MAX)))
        rc = begin_record(d, f, n);
    d->lines++;
    if (rc || isnan(v))
        return rc;
    if (d->lustre)
        return lustre_counter(d, f[COUNTER], v);
    if (is(f[COUNTER], "POSIX_FASTEST_RANK"))
        d->fastest = v;
    else if (is(f[COUNTER], "POSIX_SLOWEST_RANK"))
        d->slowest = v;
    uint64_t at = mr_map_get(&d->counter_of, mr_hash_bytes(f[COUNTER].p, f[COUNTER].n, 0));
    if (at && v >= 0)
        d->value[at - 1] = v;
    return 0;
}

/* "total_POSIX_OPENS: 17" of darshan-parser --total. */
static void total_line(struct mr_darshan *d, struct word line)
{
    struct word name = {line.p + 6, line.n - 6}, value;
    const char *colon = memchr(name.p, ':', name.n);
    if (!colon)
        return;
    value = (struct word){colon + 1, (size_t)(name.p + name.n - colon - 1)};
    while (value.n && *value.p == ' ')
        value.p++, value.n--;
    name.n = (size_t)(colon - name.p);
    double v = number(value);
    uint64_t at = mr_map_get(&d->counter_of, mr_hash_bytes(name.p, name.n, 0));
    struct mr_counters *c = &d->log->total;
    c->has_posix |= starts(name, "POSIX_");
    c->has_mpiio |= starts(name, "MPIIO_");
    c->has_stdio |= starts(name, "STDIO_");
    c->has_hdf5 |= starts(name, "H5");
    d->counted = true;
    if (at && v >= 0)
        add(&c->value[at - 1], v, counters[at - 1].how);
}

/* ---- the log ---- */

static int end_log(struct mr_darshan *d)
{
    struct mr_counter_log *l = d->log;
    int rc = end_record(d);
    if (d->counted && d->nprocs > 0 && d->nprocs < RANKS_MAX) {
        add(&l->total.nprocs, d->nprocs, MR_COUNTER_SUM);
        int room = rc ? rc : rank_room(d, d->nprocs - 1);
        rc = room == -ENOMEM ? room : rc;
        for (size_t r = d->rank_base; r < d->ranks; r++) {
            d->rank_bytes[r] += d->shared_bytes;
            d->rank_time[r] += d->shared_time;
        }
    }
    d->rank_base = (uint32_t)d->ranks;
    if (d->counted && d->start_s > 0 && d->start_s < 9e9 && d->run_s >= 0) {
        uint64_t start = (uint64_t)(d->start_s * 1e9), end = start + (uint64_t)(fmin(d->run_s, 1e9) * 1e9);
        l->start_ns = l->start_ns ? MR_MIN(l->start_ns, start) : start;
        l->end_ns = MR_MAX(l->end_ns, end);
    }
    add(&l->total.run_s, d->counted ? d->run_s : NAN, MR_COUNTER_MAX);
    l->logs += d->counted;
    d->counted = false;
    d->shared_bytes = d->shared_time = d->start_s = 0;
    d->nprocs = d->run_s = NAN;
    return rc;
}

static struct word behind(struct word line, const char *key)
{
    struct word w = {line.p + strlen(key), line.n - strlen(key)};
    while (w.n && (*w.p == ' ' || *w.p == '\t'))
        w.p++, w.n--;
    return w;
}

static int comment(struct mr_darshan *d, struct word line)
{
    int rc = 0;
    if (starts(line, "# darshan log version:")) {
        rc = end_log(d);
    } else if (starts(line, "# nprocs:")) {
        d->nprocs = number(behind(line, "# nprocs:"));
    } else if (starts(line, "# run time:")) {
        d->run_s = number(behind(line, "# run time:"));
    } else if (starts(line, "# start_time:")) {
        d->start_s = known(number(behind(line, "# start_time:")));
    } else if (starts(line, "# exe:") && !d->log->program) {
        d->log->program = copy(d, behind(line, "# exe:"));
    }
    return rc;
}

/* Everything that needs all records. */
static void sum_files(struct mr_darshan *d)
{
    struct mr_counters *c = &d->log->total;
    double weight = 0, stripes = 0, size = 0;
    c->files = (double)d->log->files;
    c->shared_files = c->shared_bytes = c->written_once_files = c->unique_read_bytes = c->rank_reread_bytes = 0;
    for (uint64_t i = 0; i < d->log->files; i++) {
        const struct mr_counter_file *f = &d->log->file[i];
        double all = f->read_bytes + f->written_bytes, end = f->max_byte_read + 1;
        c->written_once_files += all < SMALL_FILE;
        if (f->ranks > 1) {
            c->shared_files++;
            c->shared_bytes += all;
        }
        if (f->max_byte_read >= 0) {
            c->unique_read_bytes += fmin(f->read_bytes, end);
            c->rank_reread_bytes += fmax(0, f->read_bytes - f->ranks * end);
        }
        if (!isnan(f->stripe_count) && all > 0) {
            weight += all;
            stripes += all * f->stripe_count;
            size += all * known(f->stripe_bytes);
        }
    }
    c->stripe_count = weight > 0 ? stripes / weight : NAN;
    c->stripe_size = weight > 0 ? size / weight : NAN;
}

static void sum_ranks(struct mr_darshan *d)
{
    struct mr_counters *c = &d->log->total;
    double bytes = 0, time = 0, most = 0, longest = 0;
    if (!d->ranks)
        return;
    for (size_t r = 0; r < d->ranks; r++) {
        bytes += d->rank_bytes[r];
        time += d->rank_time[r];
        most = fmax(most, d->rank_bytes[r]);
        longest = fmax(longest, d->rank_time[r]);
    }
    c->rank_bytes_mean = bytes / (double)d->ranks;
    c->rank_time_mean = time / (double)d->ranks;
    c->rank_bytes_max = most;
    c->rank_time_max = longest;
}

/* Bytes of a file are taken to lie evenly on its OSTs. */
static int sum_osts(struct mr_darshan *d)
{
    struct mr_counters *c = &d->log->total;
    size_t most = 0;
    for (size_t i = 0; i < d->ost.n; i++)
        most = MR_MAX(most, (size_t)d->ost.item[i].ost + 1);
    size_t n = MR_MAX(most, (size_t)fmin(known(c->ost_count), UINT16_MAX));
    double *bytes = n ? calloc(n, sizeof(*bytes)) : NULL, sum = 0, max = 0;
    if (!n)
        return 0;
    if (!bytes)
        return -ENOMEM;
    for (size_t i = 0, end; i < d->ost.n; i = end) {
        const struct mr_counter_file *f = &d->log->file[d->ost.item[i].file - 1];
        for (end = i; end < d->ost.n && d->ost.item[end].file == d->ost.item[i].file; end++) {
        }
        for (size_t k = i; k < end; k++)
            bytes[d->ost.item[k].ost] += (f->read_bytes + f->written_bytes) / (double)(end - i);
    }
    for (size_t i = 0; i < n; i++) {
        sum += bytes[i];
        max = fmax(max, bytes[i]);
    }
    if (isnan(c->ost_count)) /* newer logs do not say how many there are */
        c->ost_count = (double)most;
    c->ost_bytes_mean = sum / (double)n;
    c->ost_bytes_max = max;
    free(bytes);
    return 0;
}

/* A text that ends in the middle of a record: the last line lacks columns, or its record has fewer counters than the
 * one before it and no times, which come last. What is there of the record would look like zeros. */
static int check_end(struct mr_darshan *d, size_t columns, bool in_line)
{
    bool timed = !d->posix || isnan(d->value[MR_POSIX_OPENS]) || !isnan(d->value[MR_POSIX_F_META_TIME]);
    /* Other programs write such texts, too, and leave counters out: with a line end, fewer of them alone are no sign.
     */
    bool fewer = d->lines < d->lines_before;
    bool cut = d->counted && d->open && (columns < FIELDS || (fewer && (in_line || !timed)));
    if (!cut)
        return 0;
    const struct mr_counter_file *f = file_at(d);
    d->open = false;
    d->t->unfinished = true;
    return mr_trace_note(d->t, true, d->err, "the log is cut off in the record of '%s', which is left out",
                         f ? f->path : "a file");
}

static int read_lines(struct mr_darshan *d, const char *data, size_t len)
{
    size_t columns = FIELDS;
    int rc = 0;
    for (const char *p = data, *end = data + len; p < end && !rc;) {
        const char *eol = memchr(p, '\n', (size_t)(end - p)), *stop = eol ? eol : end;
        struct word line = {p, (size_t)(stop - p)}, f[FIELDS];
        size_t n = 0;
        p = stop + 1;
        if (line.n && line.p[line.n - 1] == '\r')
            line.n--;
        if (line.n && *line.p == '#')
            rc = comment(d, line);
        else if (starts(line, "total_"))
            total_line(d, line);
        else if (mr_darshan_is_counter(line.p, line.n)) {
            for (const char *at = line.p, *last = line.p + line.n; at <= last && n < FIELDS; n++) {
                const char *tab = memchr(at, '\t', (size_t)(last - at));
                f[n] = (struct word){at, (size_t)((tab ? tab : last) - at)};
                at = (tab ? tab : last) + 1;
            }
            if (n > VALUE)
                rc = counter_line(d, f, n);
            else
                d->t->skipped_lines++; /* cut off */
            columns = eol ? FIELDS : n;
        }
    }
    rc = rc ? rc : check_end(d, columns, len && data[len - 1] != '\n');
    return rc ? rc : end_log(d);
}

static int begin(struct mr_darshan *d)
{
    for (int i = 0; i < MR_COUNTER_COUNT; i++) {
        uint64_t *at = mr_map_put(&d->counter_of, mr_hash_bytes(counters[i].name, strlen(counters[i].name), 0));
        if (!at)
            return -ENOMEM;
        *at = (uint64_t)i + 1;
    }
    d->log = mr_arena_alloc(&d->t->arena, sizeof(*d->log));
    if (!d->log)
        return -ENOMEM;
    struct mr_counters *c = &d->log->total;
    double *each = (double *)c->value;
    for (int i = 0; i < MR_COUNTER_COUNT; i++)
        each[i] = NAN;
    c->nprocs = c->run_s = c->files = c->shared_files = c->shared_bytes = c->written_once_files = NAN;
    c->unique_read_bytes = c->rank_reread_bytes = c->stdio_data_bytes = c->stripe_count = c->stripe_size = NAN;
    c->rank_bytes_mean = c->rank_bytes_max = c->rank_time_mean = c->rank_time_max = NAN;
    c->ost_count = c->ost_bytes_mean = c->ost_bytes_max = NAN;
    d->nprocs = d->run_s = NAN;
    return 0;
}

static int finish(struct mr_darshan *d)
{
    struct mr_counters *c = &d->log->total;
    int rc = 0;
    if (!c->has_posix && !c->has_mpiio && !c->has_stdio)
        return 0; /* no counters in it: a text of DXT */
    c->per_file = d->records;
    if (c->per_file) {
        sum_files(d);
        sum_ranks(d);
        rc = sum_osts(d);
        c->stdio_data_bytes = known(c->stdio_data_bytes);
    }
    d->t->counters = d->log;
    return rc;
}

void mr_darshan_free(struct mr_darshan *d)
{
    if (!d)
        return;
    if (d->log)
        free(d->log->file);
    mr_map_done(&d->counter_of);
    mr_map_done(&d->file_of);
    mr_map_done(&d->fs_of);
    free(d->rank_bytes);
    free(d->rank_time);
    free(d->ost.item);
    free(d);
}

int mr_darshan_import(struct mr_trace *t, const char *data, size_t len, const char *name, struct mr_error *err)
{
    int rc = 0;
    if (!t->darshan) {
        t->darshan = calloc(1, sizeof(*t->darshan));
        if (!t->darshan)
            return mr_error_set(err, -ENOMEM, "cannot import '%s'", name);
        t->darshan->t = t;
        rc = begin(t->darshan);
    }
    t->darshan->err = err;
    rc = rc ? rc : read_lines(t->darshan, data, len);
    rc = rc ? rc : finish(t->darshan);
    return rc ? mr_error_set(err, rc, "cannot import '%s'", name) : 0;
}
