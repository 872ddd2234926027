/* A line of a .pfw becomes an event in the columns of its thread. POSIX and STDIO names become calls; everything else
 * becomes a region named by category and name, with its arguments. See pfw_internal.h. */
#include "import/pfw_internal.h"
#include "base/common.h"
#include "base/rng.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

static struct pfw_lane *lane_get(struct mr_pfw *im, uint64_t process_key, uint32_t tid)
{
    struct pfw_lane *last = im->lane.n ? &im->lane.item[im->last_lane] : NULL;
    if (last && last->key == process_key && last->tid == tid)
        return last;
    uint64_t *at = mr_map_put(&im->lane_of, process_key ^ mr_mix64(tid));
    if (!at)
        return NULL;
    if (!*at) {
        struct pfw_lane *l = MR_VEC_ADD(&im->lane);
        if (!l)
            return NULL;
        *l = (struct pfw_lane){.key = process_key, .tid = tid, .first = UINT64_MAX};
        *at = im->lane.n;
    }
    im->last_lane = *at - 1;
    assert(im->last_lane < im->lane.n);
    return &im->lane.item[im->last_lane];
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

static int lane_room(struct pfw_lane *l)
{
    if (l->n < l->cap)
        return 0;
    uint32_t cap = l->cap ? l->cap * 2 : 256;
    struct mr_columns *c = &l->c;
    if (resize(&c->start_ns, 8, cap) || resize(&c->end_ns, 8, cap) || resize(&c->offset, 8, cap) ||
        resize(&c->result, 8, cap) || resize(&c->file, 4, cap) || resize(&c->call, 2, cap) || resize(&c->fd, 2, cap) ||
        resize(&l->id, 8, cap))
        return -ENOMEM;
    l->cap = cap;
    return 0;
}

static int add_arg(struct pfw_lane *l, uint32_t key, uint8_t type, uint64_t value)
{
    struct mr_columns *c = &l->c;
    if (l->args == l->args_cap) {
        uint32_t cap = l->args_cap ? l->args_cap * 2 : 256;
        if (resize(&c->arg_event, 4, cap) || resize(&c->arg_key, 4, cap) || resize(&c->arg_type, 1, cap) ||
            resize(&c->arg_value, 8, cap))
            return -ENOMEM;
        l->args_cap = cap;
    }
    assert(l->args == 0 || c->arg_event[l->args - 1] <= l->n); /* arguments are in the order of their events */
    c->arg_event[l->args] = l->n;
    c->arg_key[l->args] = key;
    c->arg_type[l->args] = type;
    c->arg_value[l->args++] = value;
    return 0;
}

static int add_typed(struct mr_pfw *im, struct pfw_lane *l, struct pfw_text key, struct pfw_text value)
{
    int64_t i;
    double d;
    uint64_t large;
    uint32_t k = mr_pfw_text_id(im, MR_STR_KEY, key);
    if ((!value.quoted || mr_pfw_is_plain_number(&value)) && mr_pfw_int(&value, &i)) /* DFTracer quotes numbers, too */
        return add_arg(l, k, MR_MORE_INT, (uint64_t)i);
    if (!value.quoted && mr_pfw_large(&value, &large))
        return add_arg(l, k, MR_MORE_UINT, large);
    if (!value.quoted &&
        (mr_pfw_text_is(&value, "null") ? (d = NAN, true)
                                        : mr_pfw_double(&value, &d))) { /* our export writes null for NaN */
        uint64_t bits;
        memcpy(&bits, &d, 8);
        return add_arg(l, k, MR_MORE_DOUBLE, bits);
    }
    return add_arg(l, k, MR_MORE_TEXT, mr_pfw_text_id(im, MR_STR_TEXT, value));
}

static int keep_args(struct mr_pfw *im, struct pfw_lane *l, const struct pfw_facts *f, bool is_call)
{
    int rc = 0;
    bool nested = false; /* DFTracer's own: p_idx, and a level with it */
    for (unsigned i = 0; i < f->n && rc == 0; i++) {
        const struct pfw_text *key = &f->key[i];
        nested |= mr_pfw_text_is(key, "p_idx");
        if ((f->meant[i] && is_call) || mr_pfw_text_is(key, "p_idx") || (nested && mr_pfw_text_is(key, "level")) ||
            (is_call && mr_pfw_text_is(key, "whence")))
            continue;
        if (is_call && mr_pfw_text_is(key, "fname2"))
            rc = add_arg(l, 0, MR_MORE_FILE2, mr_pfw_text_id(im, MR_STR_PATH, f->value[i]));
        else
            rc = add_typed(im, l, *key, f->value[i]);
    }
    return rc;
}

/* True if this is what was looked up last. */
static inline bool memo_is(const struct pfw_memo *m, const struct pfw_text *a, const struct pfw_text *b)
{
    return m->n == a->n && m->p && (m->p == a->p || !memcmp(m->p, a->p, a->n)) &&
           (!b || (m->m == b->n && (m->q == b->p || !memcmp(m->q, b->p, b->n))));
}

static uint64_t memo_set(struct pfw_memo *m, const struct pfw_text *a, const struct pfw_text *b, uint64_t value)
{
    *m = (struct pfw_memo){.p = a->p, .n = a->n, .q = b ? b->p : NULL, .m = b ? b->n : 0, .value = value};
    return value;
}

static uint64_t host_key(struct mr_pfw *im, const struct pfw_facts *f)
{
    if (!f->host.p)
        return f->hhash.p ? mr_pfw_hash_value(&f->hhash) : 0;
    return memo_is(&im->last_host, &f->host, NULL)
               ? im->last_host.value
               : memo_set(&im->last_host, &f->host, NULL, mr_hash_bytes(f->host.p, f->host.n, 3));
}

static uint32_t file_id(struct mr_pfw *im, const struct pfw_facts *f)
{
    if (!f->file.p)
        return f->fhash.p ? mr_pfw_file_by_hash(im, &f->fhash) : 0;
    return (uint32_t)(memo_is(&im->last_file, &f->file, NULL)
                          ? im->last_file.value
                          : memo_set(&im->last_file, &f->file, NULL, mr_pfw_text_id(im, MR_STR_PATH, f->file)));
}

static uint32_t site_id(struct mr_pfw *im, const struct pfw_line *l)
{
    return (uint32_t)(memo_is(&im->last_site, &l->name, &l->cat)
                          ? im->last_site.value
                          : memo_set(&im->last_site, &l->name, &l->cat, mr_pfw_site_string(im, l->cat, l->name)));
}

static unsigned call_of(const struct pfw_line *l)
{
    if (mr_pfw_text_is(&l->cat, "SYSCALL"))
        return mr_call_find_raw(l->name.p, l->name.n);
    if (!mr_pfw_text_is(&l->cat, "POSIX") && !mr_pfw_text_is(&l->cat, "STDIO") && !mr_pfw_text_is(&l->cat, "URING") &&
        !mr_pfw_text_is(&l->cat, "MPIIO") && !mr_pfw_text_is(&l->cat, "HDF5") && !mr_pfw_text_is(&l->cat, "MMAP"))
        return MR_CALL_none;
    /* Names repeat: remember the last few look-ups by content. */
    static __thread struct {
        char name[24];
        size_t n;
        unsigned call;
    } cache[16];
    size_t slot =
        l->name.n ? ((unsigned char)l->name.p[0] * 7u + (unsigned char)l->name.p[l->name.n - 1] * 3u + l->name.n) & 15
                  : 0;
    if (l->name.n && l->name.n == cache[slot].n && !memcmp(cache[slot].name, l->name.p, l->name.n))
        return cache[slot].call;
    unsigned call = mr_call_find(l->name.p, l->name.n);
    if (l->name.n < sizeof(cache[slot].name)) {
        memcpy(cache[slot].name, l->name.p, l->name.n);
        cache[slot].n = l->name.n;
        cache[slot].call = call;
    }
    return call;
}

static int64_t fact_int(const struct pfw_text *t, int64_t otherwise)
{
    int64_t v;
    return t->p && mr_pfw_int(t, &v) ? v : otherwise;
}

/* What a call returned. An unsigned spelling, or a whole number written as a fraction, still counts; anything else (a
 * pointer) is unknown. */
static int64_t fact_result(const struct pfw_text *t)
{
    int64_t v;
    uint64_t large;
    double d;
    if (!t->p)
        return MR_NO_RESULT;
    if (mr_pfw_int(t, &v))
        return v;
    if (mr_pfw_large(t, &large))
        return (int64_t)large;
    return mr_pfw_double(t, &d) && fabs(d) < 0x1p63 && d == floor(d) && !memchr(t->p, 'x', t->n) ? (int64_t)d
                                                                                                 : MR_NO_RESULT;
}

static const struct pfw_text *fact_named(const struct pfw_facts *f, const char *name)
{
    for (unsigned i = 0; i < f->n; i++)
        if (mr_pfw_text_is(&f->key[i], name))
            return &f->value[i];
    return NULL;
}

/* The number of calls that a line stands for, NULL if it has none. The oldest versions wrote one per field. */
static const struct pfw_text *folded_calls(const struct pfw_facts *f)
{
    const struct pfw_text *calls = fact_named(f, "dft_cnt");
    return calls ? calls : fact_named(f, "dur_count");
}

/* True for a line that stands for several calls (aggregated mode): they have a phase of their own; older versions wrote
 * counters. */
static bool is_folded(const struct pfw_line *l)
{
    char ph = l->ph.n ? l->ph.p[0] : 'X';
    return ph == '3' || ph == 'A' || ((ph == 'C' || ph == '2') && folded_calls(&l->f));
}

/* Gives the event of such a line the sums of bytes and time. A field that was the same in all calls has its value
 * instead of a sum. */
static int unfold(struct mr_pfw *im, const struct pfw_line *l, struct pfw_lane *lane, uint32_t i)
{
    const struct pfw_text *calls = folded_calls(&l->f), *dur = fact_named(&l->f, "dur_sum"),
                          *bytes = fact_named(&l->f, "ret_sum");
    struct mr_columns *c = &lane->c;
    int64_t n = calls ? MR_MAX(fact_int(calls, 1), (int64_t)1) : 1;
    uint64_t ns = dur ? mr_pfw_ns(dur, im->unit_ns) : 0;
    bytes = bytes ? bytes : fact_named(&l->f, "size_sum");
    if (bytes && c->call[i] != MR_CALL_region)
        c->result[i] = fact_int(bytes, 0);
    else if (c->result[i] != MR_NO_RESULT && __builtin_mul_overflow(c->result[i], n, &c->result[i]))
        c->result[i] = MR_NO_RESULT;
    if (!dur && (dur = fact_named(&l->f, "dur")) &&
        __builtin_mul_overflow(mr_pfw_ns(dur, im->unit_ns), (uint64_t)n, &ns))
        ns = PFW_TIME_MAX;
    if (dur)
        c->end_ns[i] = c->start_ns[i] + MR_MIN(ns, PFW_TIME_MAX);
    if (!lane->folded && n > 1 && !(lane->folded = calloc(MR_CALL_COUNT, sizeof(*lane->folded))))
        return -ENOMEM;
    if (n > 1)
        lane->folded[c->call[i]] += (uint64_t)n - 1;
    return 0;
}

uint64_t mr_pfw_process_key(uint64_t host, int64_t pid)
{
    return mr_mix64(host) ^ mr_mix64((uint64_t)pid + 0x51ed);
}

/* Times that go back or ahead by more than an hour, in the order of the file. */
static void note_jump(struct pfw_lane *l, uint64_t start)
{
    if (!l->n)
        return;
    l->back += start + PFW_JUMP_NS < l->c.start_ns[l->n - 1];
    if (start <= l->last || start - l->last <= PFW_JUMP_NS)
        return;
    l->ahead++;
    if (start - l->last > l->gap_to - l->gap_from) {
        l->gap_from = l->last;
        l->gap_to = start;
    }
}

/* First event of a thread: remember who it is. */
static int begin_lane(struct mr_pfw *im, struct pfw_lane *lane, const struct pfw_facts *f, int64_t pid)
{
    lane->process = (uint32_t)pid;
    uint64_t *at = mr_map_put(&im->host_of, lane->key);
    if (!at)
        return -ENOMEM;
    *at = f->host.p    ? mr_pfw_text_id(im, MR_STR_TEXT, f->host)
          : f->hhash.p ? mr_pfw_file_by_hash(im, &f->hhash)
                       : im->no_host;
    return 0;
}

static int add_event(struct mr_pfw *im, const struct pfw_line *l, unsigned app_call)
{
    const struct pfw_facts *f = &l->f;
    int64_t pid = fact_int(&l->pid, 0), tid = fact_int(&l->tid, pid);
    uint64_t host = host_key(im, f);
    struct pfw_lane *lane = lane_get(im, mr_pfw_process_key(host, pid), (uint32_t)tid);
    if (!lane || lane_room(lane) < 0 || (!lane->n && begin_lane(im, lane, f, pid) < 0))
        return -ENOMEM;
    if (im->unit_ns == 0)
        im->unit_ns = mr_pfw_unit_of(&l->ts);
    uint64_t start = mr_pfw_ns(&l->ts, im->unit_ns), dur = mr_pfw_ns(&l->dur, im->unit_ns);
    unsigned call = app_call ? app_call : call_of(l);
    assert(lane->n < lane->cap);
    struct mr_columns *c = &lane->c;
    uint32_t i = lane->n;
    int64_t fd = fact_int(&f->fd, -1);
    c->start_ns[i] = start;
    c->end_ns[i] = start + dur;
    c->call[i] = (uint16_t)(call ? call : MR_CALL_region);
    c->result[i] = !call || app_call ? 0 : fact_result(&f->ret);
    c->offset[i] = call ? (uint64_t)fact_int(&f->offset, -1) : MR_NO_OFFSET;
    c->fd[i] = call && fd >= 0 && fd < 0xffff ? (uint16_t)(fd + 1) : 0;
    bool is_io = mr_call_get(c->call[i])->layer != MR_LAYER_APP;
    c->file[i] = is_io ? file_id(im, f) : call == MR_CALL_metadata ? 0 : site_id(im, l);
    int again = mr_pfw_repeats(lane, fact_int(&l->id, -1));
    if (again) {
        im->repeated += again > 0;
        return MR_MIN(again, 0);
    }
    note_jump(lane, start);
    bool folded = !app_call && is_folded(l);
    int rc = folded ? unfold(im, l, lane, i) : 0;
    if (rc == 0 && is_io && !folded && f->count.p && fact_int(&f->count, -1) != c->result[i])
        rc = add_arg(lane, 0, MR_MORE_COUNT, (uint64_t)fact_int(&f->count, 0));
    if (rc == 0)
        rc = keep_args(im, lane, f, is_io);
    lane->first = MR_MIN(lane->first, start);
    lane->last = MR_MAX(lane->last, c->end_ns[i]);
    lane->n++;
    return rc;
}

/* A fact with a time. Lines of the same id that follow each other are one event: our export writes a line per fact. */
static int add_fact(struct mr_pfw *im, const struct pfw_line *l, struct pfw_text name, struct pfw_text value)
{
    int64_t id = fact_int(&l->id, -1);
    struct pfw_lane *lane = im->lane.n ? &im->lane.item[im->last_lane] : NULL;
    if (id >= 0 && id == im->fact_id && lane && lane->n && lane->c.call[lane->n - 1] == MR_CALL_metadata) {
        lane->n--;
        int rc = add_typed(im, lane, name, value);
        lane->n++;
        return rc;
    }
    struct pfw_line one = *l;
    one.f.n = 1;
    one.f.key[0] = name;
    one.f.value[0] = value;
    one.f.meant[0] = false;
    im->fact_id = id;
    return add_event(im, &one, MR_CALL_metadata);
}

/* The process of a line. Some versions of DFTracer append a 'q' to the number in facts that are no strings. */
static int64_t fact_pid(const struct pfw_line *l)
{
    struct pfw_text pid = l->pid;
    if (pid.n && !pid.quoted && pid.p[pid.n - 1] == 'q')
        pid.n--;
    return fact_int(&pid, 0);
}

/* The rank of a process: of the fact 'rank', or of a name "Rank 3". */
static int add_rank(struct mr_pfw *im, const struct pfw_line *l, struct pfw_text name, struct pfw_text value)
{
    int64_t rank;
    if (mr_pfw_text_is(&l->name, "process_name")) {
        if (name.n < 6 || memcmp(name.p, "Rank ", 5) != 0)
            return 0;
        value = (struct pfw_text){.p = name.p + 5, .n = name.n - 5};
    } else if (!mr_pfw_text_is(&name, "rank")) {
        return 0;
    }
    if (!mr_pfw_int(&value, &rank) || rank < 0 || rank >= INT32_MAX)
        return 0;
    uint64_t *at = mr_map_put(&im->rank_of, mr_pfw_process_key(host_key(im, &l->f), fact_pid(l)));
    if (!at)
        return -ENOMEM;
    *at = (uint32_t)rank + 1;
    return 0;
}

/* FH, HH, SH lines name what a hash stands for; PR lines are facts about a process; CM lines are facts about the run,
 * which become events where they have a time. */
static int add_metadata(struct mr_pfw *im, const struct pfw_line *l)
{
    struct pfw_text name = {0}, hash = {0};
    bool fact = mr_pfw_text_is(&l->name, "CM") && l->ts.p,
         process = mr_pfw_text_is(&l->name, "PR") || mr_pfw_text_is(&l->name, "process_name");
    if (!fact && !process && !mr_pfw_text_is(&l->name, "FH") && !mr_pfw_text_is(&l->name, "HH") &&
        !mr_pfw_text_is(&l->name, "SH"))
        return 0;
    for (unsigned i = 0; i < l->f.n; i++) {
        if (mr_pfw_text_is(&l->f.key[i], "name"))
            name = l->f.value[i];
        else if (mr_pfw_text_is(&l->f.key[i], "value") || mr_pfw_text_is(&l->f.key[i], "hash"))
            hash = l->f.value[i];
    }
    if (process && name.p)
        return add_rank(im, l, name, hash);
    if (!name.p || !hash.p)
        return 0;
    if (fact)
        return add_fact(im, l, name, hash);
    uint32_t id = mr_pfw_file_by_hash(im, &hash);
    if (!id)
        return -ENOMEM;
    name = mr_pfw_own_text(im, name);
    im->string.item[id].text = name.p;
    im->string.item[id].len = (uint32_t)name.n;
    im->string.item[id].unnamed = false;
    return 0;
}

int mr_pfw_add_line(struct mr_pfw *im, const struct pfw_line *l)
{
    char ph = l->ph.n ? l->ph.p[0] : 'X';
    switch (ph) {
    case 'M':
    case '4': return add_metadata(im, l);
    case 'C':
    case '2': return l->ts.p ? add_event(im, l, is_folded(l) ? 0 : MR_CALL_counter) : 0;
    case 'i':
    case 'I':
    case 'R': return l->ts.p ? add_event(im, l, MR_CALL_instant) : 0;
    case 'X':
    case '1':
    case '3':
    case 'A': return l->ts.p ? add_event(im, l, 0) : 0;
    default: im->skipped_lines++; return 0;
    }
}
