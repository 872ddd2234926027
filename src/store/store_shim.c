/* The engine behind all shims: forwards every operation with the shim's before and after around it, and runs queues by
 * handing copies of the requests to the lower store's queue and holding finished ones until they are due.
 *
 * Invariants of a queue (used by its owner thread alone, so it needs no lock)
 *  1. A node is in exactly one place: the free list, the lower queue, the heap of finished ones.
 *  2. in_flight = nodes not free; below = nodes in the lower queue; heap_count = nodes in the heap; the sum fits.
 *  3. A finished request is handed out no earlier than its due_ns.
 *  4. Nothing is allocated after creation. */
#include "store/store_shim.h"

#include "base/common.h"
#include "store/store_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void mr_shim_init(struct mr_shim *s, const struct mr_store_ops *ops, struct mr_store *lower,
                  int (*before)(struct mr_shim *, struct mr_shim_call *, struct mr_error *),
                  void (*after)(struct mr_shim *, struct mr_shim_call *))
{
    s->base = (struct mr_store){.ops = ops, .lower = lower};
    s->clock = mr_clock_real();
    s->before = before;
    s->after = after;
}

struct mr_shim *mr_shim_find(struct mr_store *s, const struct mr_store_ops *ops)
{
    while (s && s->ops != ops)
        s = s->lower;
    return (struct mr_shim *)s;
}

int mr_store_set_clock(struct mr_store *s, struct mr_clock *clock, struct mr_error *err)
{
    unsigned found = 0;
    for (; s; s = s->lower)
        if (s->ops->object_open == mr_shim_object_open) { /* one that runs on this engine, not one of its own */
            ((struct mr_shim *)s)->clock = clock;
            found++;
        }
    return found ? 0 : mr_error_plain(err, MR_E_USAGE, "cannot set a clock: the store has no shim");
}

/* ---- direct calls ---- */

static uint64_t thread_stream(void)
{
    static _Thread_local uint64_t stream;
    if (!stream)
        stream = (uint64_t)gettid();
    return stream;
}

static int begin(struct mr_shim *s, struct mr_shim_call *c, struct mr_error *err)
{
    c->stream = thread_stream();
    c->start_ns = mr_clock_now_ns(s->clock);
    int rc = s->before(s, c, err);
    if (rc < 0 && c->due_ns)
        mr_clock_sleep_until(s->clock, c->due_ns, NULL);
    return rc;
}

static int64_t finish(struct mr_shim *s, struct mr_shim_call *c, int64_t result)
{
    c->result = result;
    s->after(s, c);
    if (c->due_ns) {
        mr_clock_sleep_until(s->clock, c->due_ns, NULL);
        if (s->woke)
            s->woke(s, c);
    }
    return c->result;
}

#define SHIM(store) ((struct mr_shim *)(store))
#define LOWER(object) (((struct mr_shim_object *)(object))->lower)
#define LOWER_OPS(object) (LOWER(object)->store->ops)

int mr_shim_object_open(struct mr_store *base, const char *path, unsigned flags, struct mr_object **out,
                        struct mr_error *err)
{
    struct mr_shim *s = SHIM(base);
    struct mr_shim_call c = {.kind = MR_SHIM_OPEN, .path = path};
    int rc = begin(s, &c, err);
    if (rc < 0)
        return rc;
    struct mr_shim_object *o = calloc(1, sizeof(*o));
    if (!o)
        return mr_error_set(err, -ENOMEM, "cannot open '%s'", path);
    rc = (int)finish(s, &c, base->lower->ops->object_open(base->lower, path, flags, &o->lower, err));
    if (rc < 0) {
        free(o);
        return rc;
    }
    o->lower->abandoned = false; /* stores need not know this member */
    o->base = (struct mr_object){.store = base, .path = o->lower->path};
    o->tag = c.tag;
    *out = &o->base;
    return 0;
}

static struct mr_shim_call call_on(const struct mr_object *o, enum mr_shim_kind kind)
{
    return (struct mr_shim_call){.kind = kind, .path = o->path, .tag = ((const struct mr_shim_object *)o)->tag};
}

int mr_shim_object_close(struct mr_object *o, struct mr_error *err)
{
    struct mr_shim *s = SHIM(o->store);
    struct mr_shim_call c = call_on(o, MR_SHIM_CLOSE);
    struct mr_object *lower = LOWER(o);
    lower->abandoned |= o->abandoned;
    int refused = begin(s, &c, err);
    /* The object goes in any case, so a refused close still closes below. */
    if (refused < 0) {
        lower->abandoned = true; /* the close fails: no name for it */
        lower->store->ops->object_close(lower, NULL);
        free(o);
        return refused;
    }
    /* The path belongs to the lower object; keep a copy for `after`. */
    char *path = strdup(o->path);
    c.path = path ? path : "";
    int64_t rc = lower->store->ops->object_close(lower, err);
    free(o);
    rc = finish(s, &c, rc);
    free(path);
    return (int)rc;
}

int mr_shim_object_size(struct mr_object *o, uint64_t *bytes, struct mr_error *err)
{
    return LOWER_OPS(o)->object_size(LOWER(o), bytes, err);
}

int64_t mr_shim_read(struct mr_object *o, void *buf, size_t len, uint64_t offset, struct mr_error *err)
{
    struct mr_shim_call c = call_on(o, MR_SHIM_READ);
    c.buf = buf;
    c.len = len;
    c.offset = offset;
    int rc = begin(SHIM(o->store), &c, err);
    return rc < 0 ? rc : finish(SHIM(o->store), &c, LOWER_OPS(o)->read(LOWER(o), buf, c.len, offset, err));
}

int64_t mr_shim_write(struct mr_object *o, const void *buf, size_t len, uint64_t offset, struct mr_error *err)
{
    struct mr_shim_call c = call_on(o, MR_SHIM_WRITE);
    c.len = len;
    c.offset = offset;
    int rc = begin(SHIM(o->store), &c, err);
    return rc < 0 ? rc : finish(SHIM(o->store), &c, LOWER_OPS(o)->write(LOWER(o), buf, c.len, offset, err));
}

int mr_shim_fsync(struct mr_object *o, struct mr_error *err)
{
    struct mr_shim_call c = call_on(o, MR_SHIM_FSYNC);
    int rc = begin(SHIM(o->store), &c, err);
    return rc < 0 ? rc : (int)finish(SHIM(o->store), &c, LOWER_OPS(o)->fsync(LOWER(o), err));
}

int mr_shim_allocate(struct mr_object *o, uint64_t bytes, struct mr_error *err)
{
    struct mr_shim_call c = call_on(o, MR_SHIM_ALLOCATE);
    int rc = begin(SHIM(o->store), &c, err);
    return rc < 0 ? rc : (int)finish(SHIM(o->store), &c, LOWER_OPS(o)->allocate(LOWER(o), bytes, err));
}

int mr_shim_truncate(struct mr_object *o, uint64_t bytes, struct mr_error *err)
{
    struct mr_shim_call c = call_on(o, MR_SHIM_TRUNCATE);
    int rc = begin(SHIM(o->store), &c, err);
    return rc < 0 ? rc : (int)finish(SHIM(o->store), &c, LOWER_OPS(o)->truncate(LOWER(o), bytes, err));
}

int mr_shim_stat(struct mr_store *s, const char *path, struct mr_store_stat *out, struct mr_error *err)
{
    struct mr_shim_call c = {.kind = MR_SHIM_STAT, .path = path};
    int rc = begin(SHIM(s), &c, err);
    return rc < 0 ? rc : (int)finish(SHIM(s), &c, s->lower->ops->stat(s->lower, path, out, err));
}

int mr_shim_list(struct mr_store *s, const char *path, mr_store_list_fn *fn, void *user, struct mr_error *err)
{
    struct mr_shim_call c = {.kind = MR_SHIM_LIST, .path = path};
    int rc = begin(SHIM(s), &c, err);
    return rc < 0 ? rc : (int)finish(SHIM(s), &c, s->lower->ops->list(s->lower, path, fn, user, err));
}

int mr_shim_mkdir(struct mr_store *s, const char *path, struct mr_error *err)
{
    struct mr_shim_call c = {.kind = MR_SHIM_MKDIR, .path = path};
    int rc = begin(SHIM(s), &c, err);
    return rc < 0 ? rc : (int)finish(SHIM(s), &c, s->lower->ops->mkdir(s->lower, path, err));
}

int mr_shim_unlink(struct mr_store *s, const char *path, struct mr_error *err)
{
    struct mr_shim_call c = {.kind = MR_SHIM_UNLINK, .path = path};
    int rc = begin(SHIM(s), &c, err);
    return rc < 0 ? rc : (int)finish(SHIM(s), &c, s->lower->ops->unlink(s->lower, path, err));
}

int mr_shim_rename(struct mr_store *s, const char *from, const char *to, struct mr_error *err)
{
    struct mr_shim_call c = {.kind = MR_SHIM_RENAME, .path = from};
    int rc = begin(SHIM(s), &c, err);
    return rc < 0 ? rc : (int)finish(SHIM(s), &c, s->lower->ops->rename(s->lower, from, to, err));
}

int mr_shim_sync_dir(struct mr_store *s, const char *path, struct mr_error *err)
{
    struct mr_shim_call c = {.kind = MR_SHIM_SYNC_DIR, .path = path};
    int rc = begin(SHIM(s), &c, err);
    return rc < 0 ? rc : (int)finish(SHIM(s), &c, s->lower->ops->sync_dir(s->lower, path, err));
}

int mr_shim_free_space(struct mr_store *s, const char *path, uint64_t *bytes, uint64_t *inodes, struct mr_error *err)
{
    return s->lower->ops->free_space(s->lower, path, bytes, inodes, err);
}

int mr_shim_drop_cache(struct mr_object *o, struct mr_error *err)
{
    return LOWER_OPS(o)->drop_cache(LOWER(o), err);
}

int mr_shim_resident(struct mr_object *o, uint64_t *resident_bytes, uint64_t *total_bytes, struct mr_error *err)
{
    return LOWER_OPS(o)->resident(LOWER(o), resident_bytes, total_bytes, err);
}

/* ---- queues ---- */

struct node {
    struct mr_io io; /* what the lower queue sees */
    struct mr_io *upper;
    struct mr_shim_call call;
    uint64_t stream;
};

struct shimq {
    struct mr_ioq base;
    struct mr_shim *shim;
    struct mr_ioq *lower;
    unsigned in_flight, below, heap_count, free_count;
    struct node **heap;  /* smallest due_ns first */
    struct node **idle;  /* the free list */
    struct mr_io **list; /* for talking to the lower queue */
    struct node node[];
};

static void heap_push(struct shimq *q, struct node *n)
{
    assert(q->heap_count + q->below + q->free_count < q->base.depth + 1); /* invariant 2 */
    unsigned i = q->heap_count++;
    while (i > 0 && q->heap[(i - 1) / 2]->call.due_ns > n->call.due_ns) {
        q->heap[i] = q->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    q->heap[i] = n;
}

static struct node *heap_pop(struct shimq *q)
{
    assert(q->heap_count > 0); /* invariant 1 */
    struct node *top = q->heap[0], *last = q->heap[--q->heap_count];
    unsigned i = 0;
    for (;;) {
        unsigned child = 2 * i + 1;
        if (child >= q->heap_count)
            break;
        if (child + 1 < q->heap_count && q->heap[child + 1]->call.due_ns < q->heap[child]->call.due_ns)
            child++;
        if (q->heap[child]->call.due_ns >= last->call.due_ns)
            break;
        q->heap[i] = q->heap[child];
        i = child;
    }
    q->heap[i] = last;
    return top;
}

int mr_shim_ioq_create(struct mr_store *s, unsigned depth, struct mr_ioq **out, struct mr_error *err)
{
    static atomic_uint serial;
    int rc = mr_ioq_check_depth(depth, err);
    if (rc < 0)
        return rc;
    struct shimq *q = calloc(1, sizeof(*q) + depth * sizeof(q->node[0]));
    void **lists = calloc(3 * (size_t)depth, sizeof(*lists));
    rc = q && lists ? s->lower->ops->ioq_create(s->lower, depth, &q->lower, err)
                    : mr_error_set(err, -ENOMEM, "cannot create an I/O queue of depth %u", depth);
    if (rc < 0) {
        free(lists);
        free(q);
        return rc;
    }
    q->base = (struct mr_ioq){.store = s, .depth = depth};
    q->shim = SHIM(s);
    q->heap = (struct node **)lists;
    q->idle = (struct node **)(lists + depth);
    q->list = (struct mr_io **)(lists + 2 * (size_t)depth);
    /* Streams of queue places differ from thread ids, which stay below 2^22. */
    uint64_t base = ((uint64_t)atomic_fetch_add(&serial, 1) + 1) << 32;
    for (unsigned i = 0; i < depth; i++) {
        q->node[i].stream = base + i;
        q->idle[q->free_count++] = &q->node[depth - 1 - i];
    }
    *out = &q->base;
    return 0;
}

void mr_shim_ioq_free(struct mr_ioq *base)
{
    if (!base)
        return;
    struct shimq *q = (struct shimq *)base;
    struct mr_io *done;
    while (q->in_flight > 0 && mr_shim_ioq_reap(base, 1, 1, &done, NULL) >= 0) {
    }
    q->lower->store->ops->ioq_free(q->lower);
    free(q->heap);
    free(q);
}

/* The lower queue's requests use the callers' buffers, so what is registered goes to it. */
int mr_shim_ioq_register(struct mr_ioq *base, const struct iovec *iov, unsigned n, struct mr_error *err)
{
    struct shimq *q = (struct shimq *)base;
    int rc = mr_ioq_check_register(q->in_flight, iov, n, err);
    return rc < 0 ? rc : q->lower->store->ops->ioq_register(q->lower, iov, n, err);
}

static enum mr_shim_kind kind_of(enum mr_io_op op)
{
    switch (op) {
    case MR_IO_READ: return MR_SHIM_READ;
    case MR_IO_WRITE: return MR_SHIM_WRITE;
    case MR_IO_READ_PATH: return MR_SHIM_READ_PATH;
    case MR_IO_FSYNC: return MR_SHIM_FSYNC;
    }
    return MR_SHIM_READ;
}

static void node_fill(struct node *n, struct mr_io *upper, uint64_t now)
{
    struct mr_object *o = upper->op == MR_IO_READ_PATH ? NULL : upper->object;
    n->upper = upper;
    n->io = (struct mr_io){.op = upper->op,
                           .flags = upper->flags,
                           .object = o ? LOWER(o) : NULL,
                           .path = upper->path,
                           .buf = upper->buf,
                           .len = upper->len,
                           .enough = upper->enough,
                           .offset = upper->offset};
    n->call = (struct mr_shim_call){
        .kind = kind_of(upper->op),
        .path = o ? o->path : upper->path,
        .buf = upper->op == MR_IO_WRITE ? NULL : upper->buf,
        .len = upper->len,
        .offset = upper->offset,
        .stream = n->stream,
        .start_ns = now,
        .tag = o ? ((struct mr_shim_object *)o)->tag : 0,
    };
}

static void node_done(struct shimq *q, struct node *n, int64_t result, bool refused)
{
    n->call.result = result;
    if (!refused)
        q->shim->after(q->shim, &n->call);
    heap_push(q, n);
}

int mr_shim_ioq_submit(struct mr_ioq *base, struct mr_io *const *ios, unsigned n, struct mr_error *err)
{
    struct shimq *q = (struct shimq *)base;
    int rc = mr_ioq_check_room(base, q->in_flight, n, err);
    if (rc < 0 || n == 0)
        return rc;
    uint64_t now = mr_clock_now_ns(q->shim->clock);
    unsigned count = 0;
    for (unsigned i = 0; i < n; i++) {
        struct node *node = q->idle[--q->free_count];
        q->in_flight++;
        node_fill(node, ios[i], now);
        rc = q->shim->before(q->shim, &node->call, NULL);
        node->io.len = node->call.len;
        if (rc < 0)
            node_done(q, node, rc, true);
        else
            q->list[count++] = &node->io;
    }
    if (count == 0)
        return 0;
    rc = q->lower->store->ops->ioq_submit(q->lower, q->list, count, err);
    if (rc == 0)
        q->below += count;
    else /* all of them are finished, with this result; the queue stays usable */
        for (unsigned i = 0; i < count; i++)
            node_done(q, MR_CONTAINER_OF(q->list[i], struct node, io), rc, false);
    return 0;
}

/* Takes what the lower queue has finished, waiting for one if `wait`. */
static int collect(struct shimq *q, bool wait, struct mr_error *err)
{
    if (q->below == 0)
        return 0;
    int n = q->lower->store->ops->ioq_reap(q->lower, wait ? 1 : 0, q->below, q->list, err);
    for (int i = 0; i < n; i++) {
        struct node *node = MR_CONTAINER_OF(q->list[i], struct node, io);
        q->below--;
        node_done(q, node, node->io.result, false);
    }
    return n < 0 ? n : 0;
}

/* Hands out what is due. */
static unsigned hand_out(struct shimq *q, unsigned max, struct mr_io **done)
{
    unsigned n = 0;
    uint64_t now = 0;
    while (n < max && q->heap_count > 0) {
        if (q->heap[0]->call.due_ns > now && q->heap[0]->call.due_ns > (now = mr_clock_now_ns(q->shim->clock)))
            break;
        struct node *node = heap_pop(q);
        node->upper->result = node->call.result;
        node->upper->submit_ns = node->io.submit_ns;
        node->upper->done_ns = node->io.done_ns ? MR_MAX(node->io.done_ns, node->call.due_ns) : 0;
        done[n++] = node->upper;
        q->idle[q->free_count++] = node;
        q->in_flight--;
    }
    return n;
}

int mr_shim_ioq_reap(struct mr_ioq *base, unsigned min, unsigned max, struct mr_io **done, struct mr_error *err)
{
    struct shimq *q = (struct shimq *)base;
    const uint64_t glance_ns = 100 * MR_NS_PER_US; /* between looks at the lower queue while something else is held */
    min = MR_MIN(MR_MIN(min, max), q->in_flight);
    unsigned n = 0;
    bool wait = false;
    for (;;) {
        int rc = collect(q, wait, err);
        if (rc < 0)
            return n ? (int)n : rc;
        n += hand_out(q, max - n, done + n);
        if (n >= min)
            return (int)n;
        wait = q->heap_count == 0;
        if (!wait) {
            uint64_t until = q->heap[0]->call.due_ns;
            if (q->below > 0)
                until = MR_MIN(until, mr_clock_now_ns(q->shim->clock) + glance_ns);
            mr_clock_sleep_until(q->shim->clock, until, NULL);
        }
    }
}
