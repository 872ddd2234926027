/* Reader of the Chrome JSON that torch.profiler (Kineto) exports. Its objects are those of a .pfw, only indented; what
 * it says about a training loop gets the names that our own instrumentation uses, so that the same rules find steps and
 * waits:
 *
 *   enumerate(DataLoader)#...__next__   data_loader DataLoader.next     the wait for the next batch
 *   Optimizer.step#...                  train       optimizer.step
 *   ProfilerStep#12                     profiler    ProfilerStep        with its number as argument
 *   gloo:..., c10d::barrier             barrier     ...                 host time in collectives that block
 *   cat kernel, gpu_memcpy, gpu_memset  of threads of the same process, one per stream
 *
 * The call of __next__ that finds no more batches is a span like the others. It shows by what follows: the next call,
 * and no operator on the thread that computes. It becomes data_loader DataLoader.end, which belongs to no step; and so
 * does the end of the profile, because a profiler with a schedule writes a file per cycle and sees nothing in between.
 *
 * Where there are kernels, the time of each wait in which no kernel ran becomes accelerator idle spans. The profiler
 * sees neither the workers of a DataLoader nor I/O: why a batch was late it cannot say. */
#include "base/common.h"
#include "base/rng.h"
#include "import/pfw_internal.h"

#include <errno.h>
#include <stdlib.h>

#define HEAD_BYTES 65536u
#define KINETO_JOINS 0x6b696e65746full /* any number: keeps these files apart from others */
#define STREAM_TID 0x40000000u         /* threads of streams: behind those of any machine */

struct interval {
    uint64_t start, end;
};

/* A call of __next__, or an operator: where its event is. */
struct call {
    uint64_t start, end;
    uint32_t lane, event;
};

struct kineto {
    struct mr_pfw *im;
    const char *text, *end;
    struct pfw_text host;
    uint64_t base_ns;
    int64_t rank;
    int64_t pid, wait_tid; /* of the process that trains; 0 until it is known */
    MR_VEC(struct interval) kernel, wait;
    MR_VEC(struct call) next, work; /* of the loader, all on one thread; of all threads */
    uint64_t last;                  /* end of all events */
};

static const char *find(const char *p, size_t n, const char *word)
{
    return memmem(p, n, word, strlen(word));
}

bool mr_kineto_is(const char *data, size_t len)
{
    size_t n = MR_MIN(len, (size_t)HEAD_BYTES), i = 0;
    while (i < n && (data[i] == ' ' || data[i] == '\n' || data[i] == '\r' || data[i] == '\t'))
        i++;
    return i < n && data[i] == '{' && find(data, n, "\"traceEvents\"") &&
           (find(data, n, "\"deviceProperties\"") || find(data, n, "\"baseTimeNanoseconds\"") ||
            find(data, n, "\"distributedInfo\""));
}

/* ---- the head ---- */

/* The value of a member before the events. */
static bool head_value(const struct kineto *k, size_t n, const char *key, struct pfw_text *out)
{
    const char *at = find(k->text, n, key), *colon = at ? memchr(at, ':', (size_t)(k->text + n - at)) : NULL;
    return colon && mr_pfw_take_value(colon + 1, k->text + n, out);
}

static const char *read_head(struct kineto *k)
{
    const char *events = find(k->text, (size_t)(k->end - k->text), "\"traceEvents\"");
    if (!events)
        return k->end;
    size_t n = (size_t)(events - k->text);
    struct pfw_text v;
    int64_t x;
    if (head_value(k, n, "\"baseTimeNanoseconds\"", &v) && mr_pfw_int(&v, &x) && x > 0)
        k->base_ns = (uint64_t)x;
    if (head_value(k, n, "\"host_name\"", &v) && v.quoted)
        k->host = v;
    if (find(k->text, n, "\"distributedInfo\"") && head_value(k, n, "\"rank\"", &v) && mr_pfw_int(&v, &x) && x >= 0)
        k->rank = x;
    if (k->rank >= 0 && head_value(k, n, "\"world_size\"", &v) && mr_pfw_int(&v, &x) && x > k->rank && x < INT32_MAX)
        k->im->world = (int32_t)x;
    const char *list = memchr(events, '[', (size_t)(k->end - events));
    return list ? list + 1 : k->end;
}

/* ---- events ---- */

static struct pfw_text word(const char *text)
{
    return (struct pfw_text){.p = text, .n = (uint32_t)strlen(text), .quoted = true};
}

static struct pfw_text whole(int64_t x)
{
    return (struct pfw_text){.p = "0", .n = 1, .whole = true, .number = x};
}

static bool starts(const struct pfw_text *t, const char *with)
{
    return t->n >= strlen(with) && !memcmp(t->p, with, strlen(with));
}

static bool ends(const struct pfw_text *t, const char *with)
{
    size_t n = strlen(with);
    return t->n >= n && !memcmp(t->p + t->n - n, with, n);
}

/* The names that the rules know. */
static void rename_span(struct pfw_line *l)
{
    int64_t step;
    l->f.n = 0; /* arguments are of the profiler's own book-keeping */
    if (starts(&l->name, "enumerate(DataLoader)#") && ends(&l->name, "__next__")) {
        l->cat = word("data_loader");
        l->name = word("DataLoader.next");
    } else if (starts(&l->name, "Optimizer.step#")) {
        l->cat = word("train");
        l->name = word("optimizer.step");
    } else if (starts(&l->name, "ProfilerStep#")) {
        struct pfw_text number = {.p = l->name.p + 13, .n = l->name.n - 13};
        if (mr_pfw_int(&number, &step)) {
            l->f.key[0] = word("step");
            l->f.value[0] = number;
            l->f.meant[0] = false;
            l->f.n = 1;
        }
        l->cat = word("profiler");
        l->name = word("ProfilerStep");
    } else if (starts(&l->name, "gloo:") || mr_pfw_text_is(&l->name, "c10d::barrier")) {
        l->cat = word("barrier");
    }
}

static bool is_device(const struct pfw_text *cat)
{
    return mr_pfw_text_is(cat, "kernel") || mr_pfw_text_is(cat, "gpu_memcpy") || mr_pfw_text_is(cat, "gpu_memset");
}

static int keep(struct interval **item, size_t *n, size_t *cap, const struct pfw_line *l)
{
    uint64_t start = mr_pfw_ns(&l->ts, 1000), dur = mr_pfw_ns(&l->dur, 1000);
    if (mr_vec_reserve(item, cap, *n + 1, sizeof(**item)) < 0)
        return -ENOMEM;
    (*item)[(*n)++] = (struct interval){start, start + dur};
    return 0;
}

/* Operators of a step; not those that draw the seed of a new iterator, or take tensors out for a checkpoint. */
static bool is_work(const struct pfw_line *l)
{
    static const char *const others[] = {"aten::empty",  "aten::random_", "aten::item", "aten::_local_scalar_dense",
                                         "aten::detach", "detach"};
    for (size_t i = 0; i < MR_ARRAY_LEN(others); i++)
        if (mr_pfw_text_is(&l->name, others[i]))
            return false;
    return mr_pfw_text_is(&l->cat, "cpu_op") || mr_pfw_text_is(&l->cat, "train");
}

/* Remembers calls of __next__, and operators of the thread that makes them. */
static int follow_loop(struct kineto *k, const struct pfw_line *l, bool wait)
{
    uint64_t start = mr_pfw_ns(&l->ts, 1000), end = start + mr_pfw_ns(&l->dur, 1000);
    uint32_t lane = (uint32_t)k->im->last_lane;
    k->last = MR_MAX(k->last, end);
    bool next = wait && (!k->next.n || lane == k->next.item[0].lane);
    if (!next && !is_work(l))
        return 0;
    struct call *c = next ? MR_VEC_ADD(&k->next) : MR_VEC_ADD(&k->work);
    if (!c)
        return -ENOMEM;
    *c = (struct call){start, end, lane, k->im->lane.item[lane].n - 1};
    return 0;
}

static int add_object(struct kineto *k, const char *p, const char *stop)
{
    struct pfw_line l;
    int64_t pid, tid;
    if (!mr_pfw_parse_line(p, stop, &l)) {
        k->im->skipped_lines++;
        return 0;
    }
    if (!mr_pfw_text_is(&l.ph, "X") || !l.ts.p || l.pid.quoted || !mr_pfw_int(&l.pid, &pid))
        return 0; /* names, flows, marks; and the profiler's own tracks */
    bool gpu_annotation = mr_pfw_text_is(&l.cat, "gpu_user_annotation");
    l.f.host = k->host;
    if (is_device(&l.cat) || gpu_annotation) {
        if (!mr_pfw_int(&l.tid, &tid))
            tid = 0;
        l.f.n = 0;
        l.tid = whole(STREAM_TID + ((pid & 0xff) << 16 | (tid & 0xffff)));
        l.pid = whole(k->pid);
        int rc = gpu_annotation ? 0 : keep(&k->kernel.item, &k->kernel.n, &k->kernel.cap, &l);
        return rc ? rc : mr_pfw_add_line(k->im, &l);
    }
    rename_span(&l);
    k->pid = k->pid ? k->pid : pid;
    int rc = 0;
    bool wait = mr_pfw_text_is(&l.name, "DataLoader.next");
    if (wait) {
        k->wait_tid = mr_pfw_int(&l.tid, &tid) ? tid : pid;
        rc = keep(&k->wait.item, &k->wait.n, &k->wait.cap, &l);
    }
    rc = rc ? rc : mr_pfw_add_line(k->im, &l);
    return rc ? rc : follow_loop(k, &l, wait);
}

/* The list of events ends with its bracket; a file that ends before it was cut off. */
static int read_events(struct kineto *k, const char *p)
{
    const char *whole = p; /* behind the last event */
    int rc = 0;
    while (p < k->end && !rc) {
        if (*p == ']')
            return 0;
        if (*p != '{') {
            p++;
            continue;
        }
        const char *close = mr_pfw_object_end(p, k->end);
        if (close == k->end && close[-1] != '}') {
            k->im->skipped_lines++; /* cut off */
            break;
        }
        rc = add_object(k, p, close);
        p = whole = close;
    }
    k->im->cut_bytes = MR_MAX((uint64_t)(k->end - whole), (uint64_t)1);
    return rc;
}

/* ---- the accelerator ---- */

static int by_start(const void *a, const void *b)
{
    const struct interval *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

static int add_idle(struct kineto *k, uint64_t start, uint64_t end)
{
    struct pfw_line l = {.name = word("idle"), .cat = word("accelerator"), .ph = word("X")};
    if (end <= start || end > INT64_MAX)
        return 0;
    l.pid = whole(k->pid);
    l.tid = whole(k->wait_tid);
    l.ts = whole((int64_t)start);
    l.dur = whole((int64_t)(end - start));
    l.f.host = k->host;
    return mr_pfw_add_line(k->im, &l);
}

/* What no kernel covers of each wait. */
static int find_idle(struct kineto *k)
{
    size_t at = 0;
    int rc = 0;
    if (!k->kernel.n || !k->wait.n)
        return 0;
    qsort(k->kernel.item, k->kernel.n, sizeof(*k->kernel.item), by_start);
    qsort(k->wait.item, k->wait.n, sizeof(*k->wait.item), by_start);
    uint64_t busy = 0; /* until then, by the kernels before `at` */
    k->im->unit_ns = 1;
    for (size_t w = 0; w < k->wait.n && !rc; w++) {
        uint64_t from = k->wait.item[w].start, to = k->wait.item[w].end;
        for (; at < k->kernel.n && k->kernel.item[at].start < to && !rc; at++) {
            uint64_t start = k->kernel.item[at].start, idle = MR_MAX(busy, from);
            if (start > idle)
                rc = add_idle(k, idle, start);
            busy = MR_MAX(busy, k->kernel.item[at].end);
        }
        rc = rc ? rc : add_idle(k, MR_MAX(busy, from), to);
    }
    k->im->unit_ns = 1000;
    return rc;
}

/* ---- the ends of the loader ---- */

static int by_time(const void *a, const void *b)
{
    const struct call *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

/* Marks in `last` the calls of __next__ that no operator follows; how many there are. */
static size_t find_idle_calls(struct kineto *k, bool *last)
{
    size_t at = 0, idle = 0;
    for (size_t i = 0; i < k->next.n; i++) {
        uint64_t from = k->next.item[i].end, to = i + 1 < k->next.n ? k->next.item[i + 1].start : UINT64_MAX;
        while (at < k->work.n && (k->work.item[at].start < from || k->work.item[at].lane != k->next.item[i].lane))
            at++;
        last[i] = at == k->work.n || k->work.item[at].start >= to;
        idle += last[i];
    }
    return idle;
}

/* Where a third of the calls or more have nothing behind them, a loop takes batches of several loaders at once. */
static int mark_ends(struct kineto *k)
{
    if (!k->next.n)
        return 0;
    bool *last = calloc(k->next.n, sizeof(*last));
    uint32_t site = last ? mr_pfw_site_string(k->im, word("data_loader"), word("DataLoader.end")) : 0;
    if (!site) {
        free(last);
        return -ENOMEM;
    }
    qsort(k->next.item, k->next.n, sizeof(*k->next.item), by_time);
    if (k->work.n)
        qsort(k->work.item, k->work.n, sizeof(*k->work.item), by_time);
    bool ends = k->work.n && find_idle_calls(k, last) * 3 <= k->next.n;
    for (size_t i = 0; ends && i < k->next.n; i++)
        if (last[i])
            k->im->lane.item[k->next.item[i].lane].c.file[k->next.item[i].event] = site;
    bool closed = ends && last[k->next.n - 1];
    free(last);
    struct pfw_line l = {.name = word("DataLoader.end"), .cat = word("data_loader"), .ph = word("X")};
    l.pid = whole(k->pid);
    l.tid = whole(k->wait_tid);
    l.ts = whole((int64_t)MR_MIN(k->last, (uint64_t)INT64_MAX));
    l.dur = whole(0);
    l.f.host = k->host;
    k->im->unit_ns = 1;
    int rc = closed ? 0 : mr_pfw_add_line(k->im, &l);
    k->im->unit_ns = 1000;
    return rc;
}

/* ---- the whole ---- */

static void shift(struct mr_pfw *im, uint64_t by)
{
    for (size_t i = 0; i < im->lane.n; i++) {
        struct pfw_lane *l = &im->lane.item[i];
        for (uint32_t e = 0; e < l->n; e++) {
            l->c.start_ns[e] += by;
            l->c.end_ns[e] += by;
        }
        if (l->n) {
            l->first += by;
            l->last += by;
        }
    }
}

/* Streams belong to the process that trains, also where its first event came behind theirs. */
static void place_streams(struct kineto *k)
{
    uint64_t host = k->host.p ? mr_hash_bytes(k->host.p, k->host.n, 3) : 0;
    for (size_t i = 0; i < k->im->lane.n; i++)
        if (k->im->lane.item[i].tid >= STREAM_TID) {
            k->im->lane.item[i].process = (uint32_t)k->pid;
            k->im->lane.item[i].key = mr_pfw_process_key(host, k->pid);
        }
}

static int set_rank(struct kineto *k)
{
    for (size_t i = 0; k->rank >= 0 && i < k->im->lane.n; i++) {
        uint64_t *at = mr_map_put(&k->im->rank_of, k->im->lane.item[i].key);
        if (!at)
            return -ENOMEM;
        *at = (uint64_t)MR_MIN(k->rank, INT32_MAX - 1) + 1;
    }
    return 0;
}

int mr_kineto_parse(const char *data, size_t len, const char *name, struct mr_pfw **out, struct mr_error *err)
{
    struct kineto k = {.im = mr_pfw_create(), .rank = -1};
    char *text = malloc(len + 1); /* on one line: a JSON string has no line ends in it */
    int rc = k.im && text ? 0 : -ENOMEM;
    if (!rc) {
        for (size_t i = 0; i < len; i++)
            text[i] = data[i] == '\n' || data[i] == '\r' || data[i] == '\t' ? ' ' : data[i];
        k.text = text;
        k.end = text + len;
        k.im->unit_ns = 1000;
        k.im->note = "torch.profiler sees neither the workers of a DataLoader nor I/O calls: why a batch was late it "
                     "cannot say";
        rc = read_events(&k, read_head(&k));
        rc = rc ? rc : find_idle(&k);
        rc = rc ? rc : mark_ends(&k);
        k.im->joins = mr_mix64(KINETO_JOINS + (uint64_t)(k.rank + 1));
        place_streams(&k);
        rc = rc ? rc : set_rank(&k);
        shift(k.im, MR_MIN(k.base_ns, PFW_TIME_MAX));
        mr_pfw_end_text(k.im);
    }
    free(k.kernel.item);
    free(k.wait.item);
    free(k.next.item);
    free(k.work.item);
    free(text);
    if (rc) {
        mr_pfw_free(k.im);
        return mr_error_set(err, rc, "cannot import '%s'", name);
    }
    *out = k.im;
    return 0;
}
