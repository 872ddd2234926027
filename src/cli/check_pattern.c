/* Performs a preset's access pattern: rank threads, each with reader threads of its own, over real files.
 *
 * Every rank has a list of items (whole files, or the place of one sample) in the order of the order module. Readers take
 * items in turn, never beyond what the trainer has allowed; the trainer waits until all items of its step are there:
 *
 *      items   0 1 2 3 | 4 5 6 7 | 8 9 ...          need(step) = first item that the step does not need
 *              done^     ^next     ^allowed         frontier <= next <= allowed
 *
 * Asking for step s allows need(s); having it allows need(s + prefetch_size). With no readers the trainer reads itself. A
 * rank that reads for others (collective) has their items, too; they wait for its frontier.
 *
 * Invariants
 *  1. `lock` of a rank guards next, frontier, allowed, done; it is never held during I/O or sleep.
 *  2. A failure or stop sets job->failed and wakes every waiter; every wait has it in its condition.
 *  3. Steps and times of a rank are written by its own thread and read after it was joined. */
#include "base/common.h"
#include "cli/check.h"
#include "store/store.h"

#include <errno.h>
#include <math.h>
#include <millrace/loader.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct job;
struct rank {
    struct job *job;
    uint32_t id;
    struct mr_store *store;
    struct mr_check_extent *items;
    uint64_t n_items;
    struct rank *feeder;  /* whose items feed this rank; itself unless reads are collective */
    double items_per_step;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    uint64_t next, frontier, allowed;
    uint8_t *done;
    pthread_t thread, *readers;
    unsigned n_readers;
    struct mr_step *steps;
    uint64_t n_steps, steps_cap;
    struct mr_checkpoint_event *checkpoints;
    uint64_t n_checkpoints;
    uint64_t train_start_ns, end_ns;
    int rc;
    struct mr_error err;
};

struct job {
    const struct mr_check_shape *shape;
    const struct mr_check_data *data;
    const struct mr_workload *w;
    const atomic_bool *stop;
    char folder[4096], storage[1024];
    unsigned readers, prefetch;
    double slowdown;
    struct rank *ranks;
    uint32_t world;
    atomic_bool failed;
    pthread_mutex_t lock; /* of the barrier */
    pthread_cond_t cond;
    uint32_t waiting, round;
    uint64_t start_ns;
};

/* A thread that reads: its buffer and, for records, the file it has open. */
struct hand {
    struct rank *r;
    uint8_t *buf;
    size_t cap;
    struct mr_object *object;
    uint32_t file;
};

static bool over(const struct job *j)
{
    return atomic_load(&j->failed) || (j->stop && atomic_load(j->stop));
}

static void fail(struct rank *r, int rc, const struct mr_error *why)
{
    struct job *j = r->job;
    pthread_mutex_lock(&r->lock);
    if (!r->rc) {
        r->rc = rc;
        r->err = *why;
    }
    pthread_mutex_unlock(&r->lock);
    atomic_store(&j->failed, true);
}

/* Waits on a condition for at most 50 ms: the caller looks again, so a lost stop costs no more than that. */
static void wait_a_while(pthread_cond_t *cond, pthread_mutex_t *lock)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += 50000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    pthread_cond_timedwait(cond, lock, &t);
}

static void barrier(struct job *j)
{
    pthread_mutex_lock(&j->lock);
    uint32_t round = j->round;
    if (++j->waiting == j->world) {
        j->waiting = 0;
        j->round++;
        pthread_cond_broadcast(&j->cond);
    }
    while (j->round == round && !over(j))
        wait_a_while(&j->cond, &j->lock);
    pthread_mutex_unlock(&j->lock);
}

static void sleep_s(struct job *j, double seconds)
{
    if (seconds > 0)
        mr_clock_sleep_until(mr_clock_real(), mr_now_ns() + (uint64_t)(seconds * j->slowdown * 1e9), j->stop);
}

/* ---- reading ---- */

static int grow(struct hand *h, size_t bytes, struct mr_error *err)
{
    if (h->cap >= bytes)
        return 0;
    uint8_t *b = realloc(h->buf, bytes);
    if (!b)
        return mr_error_set(err, -ENOMEM, "cannot read %zu bytes at once", bytes);
    h->buf = b;
    h->cap = bytes;
    return 0;
}

static uint64_t piece_bytes(const struct mr_workload *w, uint64_t k, uint64_t left)
{
    const struct mr_uints *p = &w->pattern.pieces;
    uint64_t piece = p->n ? p->item[k % p->n] : w->reader.transfer_size ? w->reader.transfer_size : left;
    return MR_MIN(MR_MAX(piece, 1u), left);
}

static int read_pieces(struct hand *h, const struct mr_check_extent *x, struct mr_error *err)
{
    const struct mr_workload *w = h->r->job->w;
    uint64_t at = x->offset, end = x->offset + (uint64_t)llround((double)x->bytes * w->pattern.part);
    for (uint64_t k = 0; at < end && !over(h->r->job); k++) {
        uint64_t n = piece_bytes(w, k, end - at);
        int rc = grow(h, n, err);
        if (!rc)
            rc = mr_object_read(h->object, h->buf, n, at, err);
        if (rc)
            return rc;
        at += n;
    }
    return 0;
}

static int close_file(struct hand *h, struct mr_error *err)
{
    int rc = mr_object_close(h->object, err);
    h->object = NULL;
    return rc;
}

/* One item. Whole files are opened for each pass; a file of records stays open until another one is needed. */
static int read_item(struct hand *h, const struct mr_check_extent *x, struct mr_error *err)
{
    struct job *j = h->r->job;
    bool whole = j->w->pattern.unit == MR_UNIT_FILE;
    int rc = 0;
    if (h->object && (whole || h->file != x->file))
        rc = close_file(h, err);
    if (!rc && !h->object) {
        rc = mr_object_open(h->r->store, j->data->path[x->file], MR_OBJ_READ, &h->object, err);
        h->file = x->file;
    }
    if (!rc)
        rc = read_pieces(h, x, err);
    if (!rc && whole)
        rc = close_file(h, err);
    if (!rc)
        sleep_s(j, mr_dist_mean(&j->w->reader.preprocess_time) * (whole ? (double)j->data->samples_per_file : 1));
    return rc;
}

static void finish_item(struct rank *r, uint64_t i)
{
    pthread_mutex_lock(&r->lock);
    r->done[i] = 1;
    while (r->frontier < r->n_items && r->done[r->frontier])
        r->frontier++;
    pthread_cond_broadcast(&r->cond);
    pthread_mutex_unlock(&r->lock);
}

/* The next allowed item, or false at the end. */
static bool take_item(struct rank *r, bool wait, uint64_t *i)
{
    bool got = false;
    pthread_mutex_lock(&r->lock);
    while (wait && r->next < r->n_items && r->next >= r->allowed && !over(r->job))
        wait_a_while(&r->cond, &r->lock);
    if (r->next < MR_MIN(r->allowed, r->n_items) && !over(r->job)) {
        *i = r->next++;
        got = true;
    }
    pthread_mutex_unlock(&r->lock);
    return got;
}

static void read_allowed(struct rank *r, struct hand *h, bool wait)
{
    struct mr_error err;
    uint64_t i;
    while (take_item(r, wait, &i)) {
        int rc = 0;
        /* A file that is still held needs no second reading: a rank with one file reads it once. */
        bool held = r->job->readers == 0 && i && r->items[i].file == r->items[i - 1].file &&
                    r->job->w->pattern.unit == MR_UNIT_FILE;
        if (!held)
            rc = read_item(h, &r->items[i], &err);
        if (rc)
            fail(r, rc, &err);
        finish_item(r, i);
    }
}

static void drop_hand(struct hand *h)
{
    mr_object_close(h->object, NULL);
    free(h->buf);
}

static void *reader_main(void *arg)
{
    struct hand h = {.r = arg};
    read_allowed(arg, &h, true);
    drop_hand(&h);
    return NULL;
}

static void allow(struct rank *r, uint64_t items)
{
    pthread_mutex_lock(&r->lock);
    if (items > r->allowed) {
        r->allowed = items;
        pthread_cond_broadcast(&r->cond);
    }
    pthread_mutex_unlock(&r->lock);
}

static void wait_for_items(struct rank *feeder, uint64_t items)
{
    pthread_mutex_lock(&feeder->lock);
    while (feeder->frontier < MR_MIN(items, feeder->n_items) && !over(feeder->job))
        wait_a_while(&feeder->cond, &feeder->lock);
    pthread_mutex_unlock(&feeder->lock);
}

static uint64_t need(const struct rank *r, uint64_t step)
{
    return (uint64_t)ceil((double)(step + 1) * r->feeder->items_per_step - 1e-9);
}

/* ---- the trainer's side ---- */

/* Reads at the front of the first file: consecutive as often as the source saw it, else back to a place before. */
static int read_header(struct rank *r, struct mr_error *err)
{
    const struct mr_conf_pattern *p = &r->job->w->pattern;
    struct hand h = {.r = r};
    uint64_t size = r->job->data->file_bytes[0], at = 0, n = MR_MIN(p->header_bytes, size), jump = 0;
    double consecutive = 0;
    int rc = grow(&h, n, err);
    if (!rc)
        rc = mr_object_open(r->store, r->job->data->path[0], MR_OBJ_READ, &h.object, err);
    for (int64_t i = 0; i < p->header_reads && !rc; i++) {
        consecutive += i ? p->header_consecutive : 0;
        if (i && consecutive >= 1 - 1e-9 && at + n <= size) {
            consecutive -= 1;
        } else if (i) {
            jump = (jump * 7 + 64) % (size - n + 1);
            at = jump == at ? jump / 2 : jump;
        }
        rc = mr_object_read(h.object, h.buf, n, at, err);
        at += n;
    }
    drop_hand(&h);
    return rc;
}

static int write_one(struct rank *r, const char *name, const uint8_t *content, uint64_t bytes, struct mr_error *err)
{
    char path[4500];
    struct mr_object *o = NULL;
    snprintf(path, sizeof path, "%s/%s", r->job->folder, name);
    int rc = mr_object_open(r->store, path, MR_OBJ_WRITE | MR_OBJ_CREATE | MR_OBJ_TRUNCATE, &o, err);
    if (rc)
        return rc;
    rc = mr_object_write(o, content, bytes, 0, err);
    if (!rc && r->job->w->checkpoint.fsync)
        rc = o->store->ops->fsync(o, err);
    int closed = mr_object_close(o, rc ? NULL : err);
    return rc ? rc : closed;
}

static int write_files(struct rank *r, const char *stem, const uint64_t *bytes, unsigned n, struct mr_error *err)
{
    uint64_t most = 0;
    for (unsigned i = 0; i < n; i++)
        most = MR_MAX(most, bytes[i]);
    uint8_t *content = malloc(most + 1);
    int rc = content ? 0 : mr_error_set(err, -ENOMEM, "cannot write %llu bytes at once", (unsigned long long)most);
    if (content)
        memset(content, 0x5a, most);
    for (unsigned i = 0; i < n && !rc; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s-%u-%u", stem, r->id, i);
        rc = write_one(r, name, content, bytes[i], err);
    }
    free(content);
    return rc;
}

/* After every n-th step rank 0 writes, the others wait. */
static int checkpoint(struct rank *r, uint64_t step, struct mr_step *record, struct mr_error *err)
{
    struct job *j = r->job;
    int64_t every = j->w->checkpoint.steps_between_checkpoints;
    if (!j->shape->writes_checkpoints || (step + 1) % (uint64_t)every)
        return 0;
    uint64_t start = mr_now_ns(), bytes = 0;
    int rc = r->id == 0 ? write_files(r, "checkpoint", j->shape->checkpoint_bytes, j->shape->checkpoint_files, err) : 0;
    barrier(j);
    record->checkpoint_ns = mr_now_ns() - start;
    for (unsigned i = 0; i < j->shape->checkpoint_files; i++)
        bytes += j->shape->checkpoint_bytes[i];
    r->checkpoints[r->n_checkpoints++] = (struct mr_checkpoint_event){
        .start_ns = start - j->start_ns, .duration_ns = record->checkpoint_ns, .bytes = r->id ? 0 : bytes, .step = step};
    return rc;
}

static int one_step(struct rank *r, uint64_t step, struct hand *h, struct mr_error *err)
{
    struct job *j = r->job;
    bool from_memory = j->w->reader.read_type == MR_READ_MEMORY;
    struct mr_step rec = {.samples = (uint32_t)j->w->reader.batch_size, .step = (uint32_t)step, .block = 1};
    uint64_t t0 = mr_now_ns(), items = need(r, step);
    if (r->feeder->n_items && !from_memory) {
        allow(r->feeder, items);
        if (r == r->feeder && j->readers == 0)
            read_allowed(r, h, false);
        wait_for_items(r->feeder, items);
        allow(r->feeder, need(r, step + j->prefetch));
    }
    uint64_t t1 = mr_now_ns();
    if (!r->train_start_ns)
        r->train_start_ns = t1;
    sleep_s(j, j->shape->step_s);
    uint64_t t2 = mr_now_ns();
    barrier(j);
    uint64_t t3 = mr_now_ns();
    rec.start_ns = t0 - j->start_ns;
    rec.end_ns = t3 - j->start_ns;
    rec.load_ns = t1 - t0;
    rec.compute_ns = rec.compute_wall_ns = t2 - t1;
    rec.barrier_ns = t3 - t2;
    int rc = checkpoint(r, step, &rec, err);
    r->steps[r->n_steps++] = rec;
    return rc;
}

static int start_readers(struct rank *r, struct mr_error *err)
{
    unsigned n = r->n_items ? r->job->readers : 0;
    r->readers = calloc(n + 1, sizeof(*r->readers));
    if (!r->readers)
        return mr_error_set(err, -ENOMEM, "cannot start the readers");
    for (; r->n_readers < n; r->n_readers++) {
        int rc = pthread_create(&r->readers[r->n_readers], NULL, reader_main, r);
        if (rc)
            return mr_error_set(err, -rc, "cannot start the readers");
    }
    return 0;
}

/* Whole files are read to the end of the list, needed or not: readers of streams run ahead. Records nobody asked for are
 * not read. */
static void finish_reading(struct rank *r, struct hand *own, bool failed)
{
    bool files = r->job->w->pattern.unit == MR_UNIT_FILE;
    pthread_mutex_lock(&r->lock);
    if (!files || failed)
        r->n_items = MR_MIN(r->n_items, r->next);
    r->allowed = UINT64_MAX;
    pthread_cond_broadcast(&r->cond);
    pthread_mutex_unlock(&r->lock);
    if (r->job->readers == 0)
        read_allowed(r, own, false);
}

static int pattern_rank(struct rank *r, struct mr_error *err)
{
    struct job *j = r->job;
    struct hand own = {.r = r};
    int rc = j->w->pattern.header_reads ? read_header(r, err) : 0;
    if (!rc)
        rc = start_readers(r, err);
    if (!rc && r->n_items && j->w->reader.read_type == MR_READ_MEMORY) {
        allow(r, r->n_items);
        if (j->readers == 0)
            read_allowed(r, &own, false);
        wait_for_items(r, r->n_items);
    }
    barrier(j);
    for (uint64_t s = 0; s < r->steps_cap && !rc && !over(j); s++)
        rc = one_step(r, s, &own, err);
    r->end_ns = mr_now_ns();
    finish_reading(r, &own, rc != 0);
    if (rc)
        fail(r, rc, err);
    for (unsigned i = 0; i < r->n_readers; i++)
        pthread_join(r->readers[i], NULL);
    if (!rc && j->w->pattern.outputs.n)
        rc = write_files(r, "output", j->w->pattern.outputs.item, j->w->pattern.outputs.n, err);
    r->end_ns = r->end_ns && !j->w->pattern.outputs.n && r->n_steps ? r->end_ns : mr_now_ns();
    drop_hand(&own);
    free(r->readers);
    return rc;
}

/* ---- the loader's side: what `millrace run` reads with ---- */

static void store_text(const struct rank *r, char *out, size_t cap)
{
    const struct job *j = r->job;
    snprintf(out, cap, "trace(file=\"%s/rank-%u.tsv\"):%s%sposix", j->folder, r->id, j->storage, *j->storage ? ":" : "");
}

static void loader_params(const struct rank *r, char *store, size_t cap, struct mr_loader_params *p)
{
    const struct job *j = r->job;
    mr_loader_params_init(p);
    store_text(r, store, cap);
    p->dataset = j->data->folder;
    p->store = store;
    p->batch_size = (uint32_t)j->w->reader.batch_size;
    p->drop_last_batch = j->w->reader.drop_last;
    p->threads = MR_MAX(j->readers, 1u);
    p->lookahead = j->prefetch;
    p->transfer_bytes = j->w->reader.transfer_size;
    p->io = MR_LOADER_IO_THREADS;
    mr_order_mode_parse(mr_workload_order_name(j->w), &p->order.mode, &p->order.window, NULL);
    p->order.window = (uint64_t)j->w->reader.shuffle_size;
    p->order.samples_per_file = j->data->samples_per_file;
    p->order.rank = r->id;
    p->order.world = j->world;
    p->order.seed = (uint64_t)j->w->train.seed;
    p->order.shuffle_each_epoch = true;
    p->order.drop_last = j->w->reader.drop_last;
}

static int loader_step(struct rank *r, struct mr_loader *l, uint32_t epoch, struct mr_error *err)
{
    struct job *j = r->job;
    struct mr_batch *b;
    uint64_t t0 = mr_now_ns();
    int got = mr_loader_next(l, &b, err);
    if (got <= 0)
        return got;
    uint64_t t1 = mr_now_ns();
    if (!r->train_start_ns)
        r->train_start_ns = t1;
    struct mr_step rec = {.samples = b->n, .epoch = epoch, .step = (uint32_t)b->index, .block = 1, .read_bytes = b->read_bytes};
    mr_loader_release(l, b);
    sleep_s(j, j->shape->step_s);
    uint64_t t2 = mr_now_ns();
    rec.start_ns = t0 - j->start_ns;
    rec.end_ns = t2 - j->start_ns;
    rec.load_ns = t1 - t0;
    rec.compute_ns = rec.compute_wall_ns = t2 - t1;
    r->steps[r->n_steps++] = rec;
    return 1;
}

static int loader_rank(struct rank *r, struct mr_error *err)
{
    struct job *j = r->job;
    struct mr_loader_params p;
    struct mr_loader *l = NULL;
    char store[6000];
    loader_params(r, store, sizeof store, &p);
    int rc = mr_loader_open(&p, &l, err);
    for (uint32_t e = 0; e < (uint32_t)j->w->train.epochs && !rc && !over(j); e++) {
        rc = mr_loader_start_epoch(l, e, err);
        while (!rc && !over(j) && r->n_steps < r->steps_cap && (rc = loader_step(r, l, e, err)) > 0)
            rc = 0;
    }
    r->end_ns = mr_now_ns();
    mr_loader_close(l);
    return rc;
}

static void *rank_main(void *arg)
{
    struct rank *r = arg;
    struct mr_error err;
    int rc = r->job->w->pattern.unit == MR_UNIT_SAMPLE ? loader_rank(r, &err) : pattern_rank(r, &err);
    if (rc)
        fail(r, rc, &err);
    return NULL;
}

/* ---- items ---- */

/* Files or samples of one rank in the order module's order, for all epochs or as many passes as the source counted. */
static int make_items(struct rank *r, uint32_t id, uint32_t world, struct mr_error *err)
{
    const struct job *j = r->job;
    const struct mr_check_data *d = j->data;
    bool files = j->w->pattern.unit == MR_UNIT_FILE, memory = j->w->reader.read_type == MR_READ_MEMORY;
    uint64_t units = files ? d->n_files : d->n_samples, passes = (j->shape->file_passes + id) / world;
    struct mr_order_params p = {.samples = units, .rank = id, .world = world, .seed = (uint64_t)j->w->train.seed,
                                .shuffle_each_epoch = true, .window = MR_MAX(units, 1u)};
    bool shuffled = j->w->reader.sample_shuffle != MR_SHUFFLE_OFF || j->w->reader.file_shuffle != MR_SHUFFLE_OFF;
    p.mode = j->w->reader.order == MR_CO_SHARD ? MR_ORDER_SHARD : shuffled ? MR_ORDER_AUTO : MR_ORDER_SEQUENTIAL;
    struct mr_order *o = NULL;
    int rc = units ? mr_order_create(&p, &o, err) : 0;
    if (rc || !units)
        return rc;
    uint64_t per_epoch = mr_order_rank_len(o), epochs = memory ? 1 : (uint64_t)j->w->train.epochs;
    r->n_items = j->shape->file_passes ? passes : per_epoch * epochs;
    r->items = calloc(r->n_items + 1, sizeof(*r->items));
    r->done = calloc(r->n_items + 1, 1);
    if (!r->items || !r->done)
        rc = mr_error_set(err, -ENOMEM, "cannot list what to read");
    for (uint64_t i = 0, id_of; i < r->n_items && !rc; i++) {
        if (i && i % per_epoch == 0)
            rc = mr_order_set_epoch(o, i / per_epoch, err);
        if (!rc && mr_order_get(o, i % per_epoch, &id_of, 1) == 1)
            r->items[i] = files ? (struct mr_check_extent){(uint32_t)id_of, 0, d->file_bytes[id_of]} : d->sample[id_of];
    }
    mr_order_free(o);
    return rc;
}

static int prepare_rank(struct job *j, uint32_t id, struct mr_error *err)
{
    struct rank *r = &j->ranks[id];
    const struct mr_workload *w = j->w;
    bool collective = w->reader.file_access == 2 || w->reader.file_access == 3;
    uint32_t readers = collective ? MR_MIN((uint32_t)w->pattern.collective_readers, j->world) : j->world;
    bool reads = j->shape->reads && w->pattern.unit != MR_UNIT_NONE && w->pattern.unit != MR_UNIT_SAMPLE;
    int rc = 0;
    if (reads && id < readers)
        rc = w->pattern.same_offsets ? make_items(r, 0, 1, err) : make_items(r, id, readers, err);
    double per_item = w->pattern.unit == MR_UNIT_FILE && j->data ? (double)j->data->samples_per_file : 1;
    r->feeder = &j->ranks[id % readers];
    r->items_per_step = (double)w->reader.batch_size / per_item * ((double)j->world / readers);
    uint64_t from_items = 0;
    if (reads) {
        double steps = (double)r->feeder->n_items / r->feeder->items_per_step;
        if (w->reader.read_type == MR_READ_MEMORY)
            steps *= (double)w->train.epochs;
        from_items = MR_MAX((uint64_t)(steps + 1e-9), 1u);
    }
    if (w->pattern.unit == MR_UNIT_SAMPLE)
        from_items = (j->shape->plan.steps_per_epoch + 1) * (uint64_t)w->train.epochs;
    r->steps_cap = from_items && j->shape->steps ? MR_MIN(from_items, j->shape->steps) : MR_MAX(from_items, j->shape->steps);
    r->steps = calloc(r->steps_cap + 1, sizeof(*r->steps));
    r->checkpoints = calloc(r->steps_cap + 1, sizeof(*r->checkpoints));
    if (!rc && (!r->steps || !r->checkpoints))
        rc = mr_error_set(err, -ENOMEM, "cannot keep the steps of the check");
    return rc;
}

/* ---- the whole ---- */

static void free_ranks(struct job *j)
{
    for (uint32_t i = 0; j->ranks && i < j->world; i++) {
        struct rank *r = &j->ranks[i];
        mr_store_close(r->store);
        free(r->items);
        free(r->done);
        free(r->steps);
        free(r->checkpoints);
        pthread_mutex_destroy(&r->lock);
        pthread_cond_destroy(&r->cond);
    }
    free(j->ranks);
    pthread_mutex_destroy(&j->lock);
    pthread_cond_destroy(&j->cond);
}

/* All ranks share one emulated device: the group. */
static void set_storage(struct job *j, const char *storage)
{
    static atomic_uint number;
    size_t len = strlen(storage);
    if (!len || storage[len - 1] != ')')
        snprintf(j->storage, sizeof j->storage, "%s", storage);
    else
        snprintf(j->storage, sizeof j->storage, "%.*s,group=check-%d-%u)", (int)(len - 1), storage, (int)getpid(),
                 atomic_fetch_add(&number, 1));
}

static int open_ranks(struct job *j, struct mr_error *err)
{
    int rc = 0;
    char text[6000];
    j->ranks = calloc(j->world, sizeof(*j->ranks));
    if (!j->ranks)
        return mr_error_set(err, -ENOMEM, "cannot start the ranks");
    for (uint32_t i = 0; i < j->world; i++) {
        struct rank *r = &j->ranks[i];
        r->job = j;
        r->id = i;
        pthread_mutex_init(&r->lock, NULL);
        pthread_cond_init(&r->cond, NULL);
    }
    for (uint32_t i = 0; i < j->world && !rc; i++) {
        store_text(&j->ranks[i], text, sizeof text);
        if (j->w->pattern.unit != MR_UNIT_SAMPLE)
            rc = mr_store_open(text, &j->ranks[i].store, err);
        if (!rc)
            rc = prepare_rank(j, i, err);
    }
    return rc;
}

static int run_ranks(struct job *j, struct mr_error *err)
{
    uint32_t started = 0;
    int rc = 0;
    j->start_ns = mr_now_ns();
    for (; started < j->world && !rc; started++) {
        rc = -pthread_create(&j->ranks[started].thread, NULL, rank_main, &j->ranks[started]);
        if (rc)
            break;
    }
    if (rc) {
        mr_error_set(err, rc, "cannot start the ranks");
        atomic_store(&j->failed, true);
    }
    for (uint32_t i = 0; i < started; i++)
        pthread_join(j->ranks[i].thread, NULL);
    for (uint32_t i = 0; i < j->world && !rc; i++)
        if ((rc = j->ranks[i].rc)) {
            *err = j->ranks[i].err;
            mr_error_context(err, "rank %u", i);
        }
    if (!rc && j->stop && atomic_load(j->stop))
        rc = mr_error_plain(err, MR_E_INTERRUPTED, "interrupted");
    return rc;
}

/* Undoes the slowdown: times are given as on the emulated device. */
static void undo_slowdown(struct job *j, struct mr_check_run *out)
{
    double k = j->slowdown;
    uint64_t t0 = j->start_ns;
    if (k <= 1)
        return;
#define SHRINK(t) ((t) = t0 + (uint64_t)((double)((t)-t0) / k))
    for (size_t i = 0; i < out->calls.n; i++) {
        struct mr_event *e = &out->calls.events[i];
        e->start_ns = e->start_ns < t0 ? t0 : e->start_ns;
        SHRINK(e->start_ns);
        e->dur_ns = (uint64_t)((double)e->dur_ns / k);
    }
    SHRINK(out->calls.train_start_ns);
    SHRINK(out->calls.end_ns);
#undef SHRINK
    for (uint32_t i = 0; i < j->world; i++)
        for (uint64_t s = 0; s < j->ranks[i].n_steps; s++) {
            struct mr_step *p = &j->ranks[i].steps[s];
            uint64_t *const times[] = {&p->start_ns, &p->end_ns, &p->load_ns, &p->compute_ns, &p->barrier_ns, &p->checkpoint_ns,
                                       &p->compute_wall_ns};
            for (size_t t = 0; t < MR_ARRAY_LEN(times); t++)
                *times[t] = (uint64_t)((double)*times[t] / k);
        }
}

static int by_file_offset(const void *a, const void *b)
{
    const struct mr_event *x = *(const struct mr_event *const *)a, *y = *(const struct mr_event *const *)b;
    if (x->path_id != y->path_id)
        return x->path_id < y->path_id ? -1 : 1;
    return x->offset != y->offset ? (x->offset < y->offset ? -1 : 1) : 0;
}

/* How often each sample's bytes were read, from the offsets of the calls. */
static int count_samples(const struct job *j, struct mr_check_run *out)
{
    const struct mr_check_data *d = j->data;
    const struct mr_event **v = malloc((out->calls.n + 1) * sizeof(*v));
    size_t n = 0, at = 0;
    if (!v)
        return -ENOMEM;
    for (size_t i = 0; i < out->calls.n; i++)
        if (out->calls.events[i].kind == MR_EV_READ && out->calls.events[i].result > 0 && out->calls.events[i].path_id <= d->n_files)
            v[n++] = &out->calls.events[i];
    qsort(v, n, sizeof(*v), by_file_offset);
    double epochs = (double)out->epochs_run;
    for (uint64_t s = 0; s < d->n_samples; s++) {
        const struct mr_check_extent *x = &d->sample[s];
        uint64_t read = 0, end = x->offset + x->bytes;
        while (at < n && (v[at]->path_id < x->file + 1 ||
                          (v[at]->path_id == x->file + 1 && v[at]->offset + (uint64_t)v[at]->result <= x->offset)))
            at++;
        for (size_t i = at; i < n && v[i]->path_id == x->file + 1 && v[i]->offset < end; i++) {
            uint64_t from = MR_MAX(v[i]->offset, x->offset), to = MR_MIN(v[i]->offset + (uint64_t)v[i]->result, end);
            read += to > from ? to - from : 0;
        }
        double times = x->bytes ? (double)read / (double)x->bytes : epochs;
        out->repeated_samples += times > epochs + 0.01;
        out->missed_samples += times < epochs - 0.01;
    }
    free(v);
    double left_out = (double)j->shape->plan.samples_left_out * epochs;
    out->missed_samples = MR_MAX(0.0, out->missed_samples - left_out);
    return 0;
}

static int collect(struct job *j, struct mr_check_run *out, struct mr_error *err)
{
    struct mr_check_paths paths = {.data = j->data};
    struct mr_rank_series *series = calloc(j->world, sizeof(*series));
    size_t cap = 0;
    char file[4200];
    uint32_t files = j->data ? j->data->n_files : 0;
    int rc = series ? 0 : mr_error_set(err, -ENOMEM, "cannot keep the steps of the check");
    for (uint32_t i = 0; i < j->world && !rc; i++) {
        struct rank *r = &j->ranks[i];
        mr_store_close(r->store); /* writes the rest of its trace */
        r->store = NULL;
        snprintf(file, sizeof file, "%s/rank-%u.tsv", j->folder, i);
        rc = mr_check_trace_read(file, i, &paths, &out->calls.events, &out->calls.n, &cap, err);
        out->calls.train_start_ns = i ? MR_MIN(out->calls.train_start_ns, r->train_start_ns) : r->train_start_ns;
        out->calls.end_ns = MR_MAX(out->calls.end_ns, r->end_ns);
    }
    out->calls.ranks = j->world;
    out->calls.start_ns = j->start_ns;
    out->calls.n_paths = files + paths.n_other;
    out->calls.dataset_bytes = j->data ? j->data->bytes : 0;
    out->file_bytes = calloc(out->calls.n_paths + 1, sizeof(*out->file_bytes));
    if (!rc && !out->file_bytes)
        rc = mr_error_set(err, -ENOMEM, "cannot keep the files of the check");
    for (uint32_t f = 0; !rc && f < files; f++)
        out->file_bytes[f + 1] = j->data->file_bytes[f];
    out->calls.file_bytes = out->file_bytes;
    for (uint32_t i = 0; i < paths.n_other; i++)
        free(paths.other[i]);
    free(paths.other);
    if (!rc)
        undo_slowdown(j, out);
    for (uint32_t i = 0; !rc && i < j->world; i++)
        series[i] = (struct mr_rank_series){.rank = i, .steps = j->ranks[i].steps, .n = j->ranks[i].n_steps,
                                            .checkpoints = j->ranks[i].checkpoints, .n_checkpoints = j->ranks[i].n_checkpoints};
    out->metrics = rc ? NULL : calloc(1, sizeof(*out->metrics));
    if (out->metrics)
        mr_metrics_compute(series, j->world, 1, out->metrics);
    free(series);
    return rc;
}

static void sum_up(const struct job *j, struct mr_check_run *out)
{
    const struct rank *r = &j->ranks[0];
    double steps = 0, saves = 0;
    out->runtime_s = (double)(out->calls.end_ns - out->calls.start_ns) / 1e9;
    out->steps = r->n_steps;
    out->epochs_run = (uint32_t)j->w->train.epochs;
    for (uint64_t i = 0; i < r->n_steps; i++) {
        steps += (double)(r->steps[i].end_ns - r->steps[i].start_ns);
        saves += (double)r->steps[i].checkpoint_ns;
    }
    out->checkpoints = r->n_checkpoints;
    out->checkpoint_s = r->n_checkpoints ? saves / 1e9 / (double)r->n_checkpoints : 0;
    out->checkpoint_share = steps + saves > 0 ? saves / (steps + saves) : 0;
}

int mr_check_execute(const struct mr_check_shape *s, const struct mr_check_data *d, const struct mr_check_variant *v,
                     const char *folder, const atomic_bool *stop, struct mr_check_run *out, struct mr_error *err)
{
    struct job j = {.shape = s, .data = d, .w = &s->w, .stop = stop, .slowdown = s->w.pattern.slowdown, .world = s->ranks,
                    .readers = (unsigned)(v->threads >= 0 ? v->threads : s->w.reader.read_threads),
                    .prefetch = (unsigned)(v->prefetch >= 0 ? v->prefetch : s->w.reader.prefetch_size)};
    memset(out, 0, sizeof(*out));
    snprintf(j.folder, sizeof j.folder, "%s", folder);
    set_storage(&j, v->storage);
    pthread_mutex_init(&j.lock, NULL);
    pthread_cond_init(&j.cond, NULL);
    int rc = open_ranks(&j, err);
    if (!rc)
        rc = run_ranks(&j, err);
    if (!rc)
        rc = collect(&j, out, err);
    if (!rc)
        sum_up(&j, out);
    if (!rc && s->w.pattern.unit == MR_UNIT_SAMPLE && count_samples(&j, out))
        rc = mr_error_set(err, -ENOMEM, "cannot count the samples of the check");
    free_ranks(&j);
    if (rc)
        mr_check_run_done(out);
    return rc;
}

void mr_check_run_done(struct mr_check_run *r)
{
    free(r->calls.events);
    free(r->file_bytes);
    free(r->metrics);
    memset(r, 0, sizeof(*r));
}
