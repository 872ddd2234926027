/* The engine "async": training waits for a copy in memory only; threads write it out meanwhile. It is a saver of states
 * (<millrace/state.h>) whose tensors are the emulated model's files, made piece by piece: a checkpoint larger than
 * memory needs no more than the ring. Loads read the list like those of "sync", whose code they use.
 *
 * What is written behind shows as drains: `buffered` counts saves that are not durable yet. An error of one is the
 * result of the next save, on all ranks, and of drain. */
#include "base/clock.h"
#include "base/common.h"
#include "base/rng.h"
#include "base/vec.h"
#include "checkpoint/checkpointer.h"

#include <errno.h>
#include <inttypes.h>
#include <millrace/state.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_STEP (MR_ALL_STEPS - 1) /* never pending: mr_saver_wait returns at once with what is to be told */

struct async {
    struct mr_checkpointer base;
    struct mr_checkpoint_params p;
    char *folder, *store;
    struct mr_checkpointer *reader; /* "sync" */
    struct mr_saver *saver;         /* from the first save on */
};

#define ASYNC(checkpointer) ((struct async *)(checkpointer))

static int agree(struct async *c, int code, struct mr_error *err)
{
    return c->p.agree ? c->p.agree(c->p.user, code, err) : code;
}

static void async_close(struct mr_checkpointer *base)
{
    struct async *c = ASYNC(base);
    mr_saver_close(c->saver, NULL); /* who wants to know calls drain before */
    mr_checkpointer_close(c->reader);
    free(c->folder);
    free(c->store);
    free(c);
}

static int async_open(const struct mr_checkpoint_params *p, struct mr_checkpointer **out, struct mr_error *err)
{
    if (p->burst_folder && *p->burst_folder) {
        mr_error_plain(err, MR_E_UNSUPPORTED, "the checkpoint engine 'async' writes to the final folder only");
        return mr_error_hint(err, "use engine 'sync' with a burst buffer, or 'async' without"), MR_E_UNSUPPORTED;
    }
    if (p->world > 1 && !p->sum)
        return mr_error_plain(err, MR_E_USAGE, "the checkpoint engine 'async' needs a way to sum over %u ranks",
                              p->world);
    struct async *c = calloc(1, sizeof(*c));
    if (!c)
        return mr_error_set(err, -ENOMEM, "cannot make a checkpointer");
    c->base.ops = &mr_checkpoint_async_engine;
    c->p = *p;
    c->p.engine = c->p.burst_folder = c->p.burst_store = NULL;
    c->folder = strdup(p->folder);
    c->store = p->store ? strdup(p->store) : NULL;
    struct mr_checkpoint_params reading = *p;
    reading.engine = "sync";
    int rc = c->folder && (c->store || !p->store) ? mr_checkpointer_open(&reading, &c->reader, err)
                                                  : mr_error_set(err, -ENOMEM, "cannot make a checkpointer");
    c->p.folder = c->folder;
    c->p.store = c->store;
    if (rc)
        async_close(&c->base);
    else
        *out = &c->base;
    return rc;
}

/* A number that all ranks of this job have and no other job: rank 0 draws it. Collective. */
static int open_saver(struct async *c, struct mr_error *err)
{
    char job[32];
    uint64_t id = c->p.rank == 0 ? mr_mix64(mr_wall_ns() ^ mr_now_ns()) >> 1 : 0;
    int rc = c->p.world > 1 ? c->p.sum(c->p.user, &id, err) : 0;
    if (rc)
        return rc;
    snprintf(job, sizeof job, "%016" PRIx64, id);
    struct mr_saver_params p = {.size = sizeof p,
                                .folder = c->p.folder,
                                .store = c->p.store,
                                .job = job,
                                .rank = c->p.rank,
                                .world = c->p.world,
                                .fsync = c->p.fsync,
                                .direct = c->p.direct,
                                .copy_threads = c->p.threads,
                                .keep_last = c->p.keep_last,
                                .events = c->p.events};
    return agree(c, mr_saver_open(&p, &c->saver, err), err);
}

/* ---- save ---- */

struct source {
    const struct mr_checkpoint_params *p;
    const char *name;
    uint64_t step, bytes;
};

static int make_bytes(void *user, uint64_t offset, void *into, size_t n, struct mr_error *err)
{
    const struct source *s = user;
    (void)err;
    if (s->p->random_content)
        mr_checkpoint_content(s->p, s->step, s->name, offset, into, n);
    else
        memset(into, 0, n);
    return 0;
}

static int save_files(struct async *c, uint64_t step, const struct mr_checkpoint_file *files, uint64_t n,
                      struct mr_save_result *out, struct mr_error *err)
{
    struct mr_tensor *t = calloc(MR_MAX(n, 1u), sizeof(*t));
    struct source *from = calloc(MR_MAX(n, 1u), sizeof(*from));
    int rc = t && from ? 0 : mr_error_set(err, -ENOMEM, "cannot list %" PRIu64 " files", n);
    for (uint64_t i = 0; i < n && !rc; i++) {
        rc = mr_checkpoint_name_check(files[i].name, sizeof files[i].name, err);
        from[i] = (struct source){&c->p, files[i].name, step, files[i].bytes};
        t[i] = (struct mr_tensor){.name = files[i].name,
                                  .dtype = "U8",
                                  .dims = 1,
                                  .shape = &from[i].bytes,
                                  .pull = make_bytes,
                                  .user = &from[i]};
    }
    struct mr_state state = {.size = sizeof state, .tensor = t, .tensors = n};
    if (!rc)
        rc = mr_saver_save(c->saver, step, &state, out, err);
    free(t);
    free(from);
    return rc;
}

static int async_save(struct mr_checkpointer *base, uint64_t step, const struct mr_checkpoint_file *files, uint64_t n,
                      struct mr_checkpoint_result *out, struct mr_error *err)
{
    struct async *c = ASYNC(base);
    struct mr_save_result saved;
    uint64_t start = mr_now_ns();
    int rc = c->saver ? 0 : open_saver(c, err);
    /* First what became of the saves before: a rank that has to tell an error makes no new save, so none may. */
    if (!rc)
        rc = agree(c, mr_saver_wait(c->saver, NO_STEP, err), err);
    if (!rc)
        rc = agree(c, save_files(c, step, files, n, &saved, err), err);
    if (rc)
        return rc;
    *out = (struct mr_checkpoint_result){.bytes = saved.bytes, .files = n, .wait_ns = saved.room_ns, .buffered = true};
    snprintf(out->path, sizeof out->path, "%s/step-%012" PRIu64, c->folder, step);
    out->duration_ns = mr_now_ns() - start;
    out->wait_ns = MR_MIN(out->wait_ns, out->duration_ns);
    return 0;
}

/* ---- what is written behind ---- */

static int async_drain(struct mr_checkpointer *base, struct mr_error *err)
{
    struct async *c = ASYNC(base);
    return agree(c, c->saver ? mr_saver_wait(c->saver, MR_ALL_STEPS, err) : 0, err);
}

static uint64_t async_buffered(struct mr_checkpointer *base)
{
    struct async *c = ASYNC(base);
    return c->saver ? mr_saver_pending(c->saver) : 0;
}

static uint64_t async_drains(struct mr_checkpointer *base, uint64_t first, struct mr_checkpoint_drained *out,
                             uint64_t cap)
{
    struct async *c = ASYNC(base);
    struct mr_saved s;
    uint64_t n = 0;
    while (c->saver && n < cap && mr_saver_saved(c->saver, first + n, &s)) {
        uint64_t end = s.durable_ns ? s.durable_ns : s.end_ns;
        out[n++] = (struct mr_checkpoint_drained){.step = s.step,
                                                  .bytes = s.bytes,
                                                  .files = 1,
                                                  .queued_ns = s.start_ns,
                                                  .start_ns = s.start_ns,
                                                  .end_ns = end,
                                                  .code = s.code};
    }
    return n;
}

/* ---- load ---- */

#define SLICE (64 * MR_MIB) /* of a tensor at a time: memory stays bounded */

/* Reads a tensor from end to end; what comes back was compared with its checksums and is not kept. */
static int read_tensor(struct mr_state_reader *r, size_t i, uint8_t *buf, struct mr_error *err)
{
    uint64_t bytes = mr_state_tensor(r, i)->bytes;
    int rc = 0;
    for (uint64_t at = 0; at < bytes && !rc; at += SLICE)
        rc = mr_state_read(r, &(struct mr_state_range){i, at, MR_MIN(SLICE, bytes - at), buf, 0}, 1, err);
    return rc;
}

/* Every tensor is read by exactly one rank, whatever the number of ranks. */
static int load_share(struct async *c, uint64_t step, uint32_t shift, struct mr_checkpoint_result *out,
                      struct mr_error *err)
{
    struct mr_state_reader *r;
    struct mr_state_params p = {
        .size = sizeof p, .folder = c->folder, .store = c->store, .step = step, .direct = c->p.direct};
    uint32_t mine = (uint32_t)(((uint64_t)c->p.rank + shift) % c->p.world);
    int rc = mr_state_open(&p, &r, err);
    if (rc)
        return rc;
    uint8_t *buf = malloc(SLICE);
    if (!buf)
        rc = mr_error_set(err, -ENOMEM, "cannot load a checkpoint");
    for (size_t i = 0; i < mr_state_tensors(r) && !rc; i++) {
        const struct mr_stored_tensor *t = mr_state_tensor(r, i);
        if (t->rank % c->p.world != mine)
            continue;
        rc = read_tensor(r, i, buf, err);
        out->files++;
        out->bytes += t->bytes;
    }
    snprintf(out->path, sizeof out->path, "%s/step-%012" PRIu64, c->folder, mr_state_step(r));
    free(buf);
    mr_state_close(r);
    return rc;
}

static int async_load(struct mr_checkpointer *base, uint64_t step, uint32_t shift, struct mr_checkpoint_result *out,
                      struct mr_error *err)
{
    struct async *c = ASYNC(base);
    struct mr_checkpoint_result r = {0};
    uint64_t start = mr_now_ns();
    int rc = async_drain(base, err);
    r.wait_ns = mr_now_ns() - start;
    if (!rc)
        rc = agree(c, load_share(c, step, shift, &r, err), err);
    if (rc)
        return rc;
    r.duration_ns = mr_now_ns() - start;
    r.read_ns = r.duration_ns - r.wait_ns;
    *out = r;
    return 0;
}

static int async_newest(struct mr_checkpointer *base, uint64_t *step, struct mr_error *err)
{
    struct async *c = ASYNC(base);
    int rc = c->saver ? mr_saver_wait(c->saver, MR_ALL_STEPS, err) : 0;
    return rc ? rc : mr_checkpoint_newest(c->reader, step, err);
}

const struct mr_checkpoint_engine_ops mr_checkpoint_async_engine = {
    .abi = MR_CHECKPOINT_ENGINE_ABI,
    .size = sizeof(struct mr_checkpoint_engine_ops),
    .name = "async",
    .doc = "Training waits for a copy in memory; threads write it out while training goes on.",
    .open = async_open,
    .close = async_close,
    .save = async_save,
    .load = async_load,
    .newest = async_newest,
    .recover = mr_checkpoint_no_recover,
    .drain = async_drain,
    .buffered = async_buffered,
    .drains = async_drains,
};
