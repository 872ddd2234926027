/* The engines "sync" and "async" of emulated trainings: savers of states (<millrace/state.h>) whose tensors are the
 * model's files, made piece by piece, so that a checkpoint larger than memory needs no more than a buffer per thread.
 *
 *   sync    a saver that writes while the training waits; each file keeps its name. All ranks return the same code (C4)
 *   async   a saver that copies while the training waits; one file of tensors per rank. What is written behind shows as
 *           drains, and an error of one is the result of the next save, on all ranks, and of drain
 *
 * A burst buffer is the saver's tier. Loads read every file of the list and compare it, whatever engine wrote it; each
 * file is read by exactly one rank (C5). */
#include "base/arena.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/log.h"
#include "base/rng.h"
#include "checkpoint/checkpoint_guard.h"
#include "checkpoint/checkpoint_read.h"
#include "checkpoint/checkpointer.h"
#include "checkpoint/state_saver.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define NO_STEP                                                                                                        \
    (MR_ALL_STEPS - 1) /* never pending: mr_saver_wait returns at once, with an earlier error if there is one */
#define BUFFER_DEFAULT (4 * MR_MIB)

struct engine {
    struct mr_checkpointer base;
    struct mr_checkpoint_params p;
    bool async;
    const char *burst;      /* the buffer's folder for this one; NULL: none */
    struct mr_arena memory; /* texts of all these */
    struct mr_checkpoint_place final;
    struct mr_saver *saver; /* from the first call on that needs one */
};

#define ENGINE(checkpointer) ((struct engine *)(checkpointer))

/* ---- opening and closing ---- */

/* BUFFER/NAME-HASH: checkpoints of other folders may wait in the same buffer and must not be drained to this one. */
static char *burst_path(const struct mr_checkpoint_params *p, struct mr_arena *memory)
{
    char path[MR_CHECKPOINT_PATH];
    mr_checkpoint_canonical(p->folder, path, sizeof path);
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return mr_arena_printf(memory, "%s/%.32s-%016" PRIx64, p->burst_folder, *name ? name : "root",
                           (uint64_t)XXH3_64bits(path, strlen(path)));
}

static void engine_close(struct mr_checkpointer *base)
{
    struct engine *c = ENGINE(base);
    if (c->burst)
        mr_saver_cut(c->saver); /* the next run finishes a drain */
    else
        mr_saver_close(c->saver, NULL); /* who wants to know calls drain before */
    mr_checkpoint_place_close(&c->final);
    mr_arena_done(&c->memory);
    free(c);
}

static int open_places(struct engine *c, struct mr_error *err)
{
    unsigned caps = MR_STORE_CAP_CONTENT;
    int rc = mr_checkpoint_place_open(c->p.folder, c->p.store, c->p.rank, c->p.events, &c->final, err);
    if (!rc && c->burst && (rc = mr_store_spec_caps(c->p.burst_store, &caps, err)))
        mr_error_context(err, "the burst buffer");
    if (rc || caps & MR_STORE_CAP_CONTENT)
        return rc;
    mr_error_plain(err, MR_E_CONFIG, "the burst buffer's store keeps no content, so there is nothing to drain");
    return mr_error_hint(err, "use a store that does: 'millrace help store'"), MR_E_CONFIG;
}

static int engine_open(const struct mr_checkpoint_params *p, struct mr_checkpointer **out, struct mr_error *err)
{
    bool burst = p->burst_folder && *p->burst_folder;
    bool async = p->engine && strcmp(p->engine, mr_checkpoint_async_engine.name) == 0;
    if (p->world > 1 && async && !p->sum)
        return mr_error_plain(err, MR_E_USAGE, "the checkpoint engine 'async' needs a way to sum over %u ranks",
                              p->world);
    struct engine *c = calloc(1, sizeof(*c));
    if (!c)
        return mr_error_set(err, -ENOMEM, "cannot make a checkpointer");
    c->base.ops = async ? &mr_checkpoint_async_engine : &mr_checkpoint_sync_engine;
    c->async = async;
    c->p = *p;
    c->p.threads = p->threads ? p->threads : 1;
    c->p.buffer_bytes = MR_ALIGN_UP(p->buffer_bytes ? p->buffer_bytes : BUFFER_DEFAULT, 4096u);
    c->p.folder = mr_arena_strdup(&c->memory, p->folder);
    c->p.store = mr_arena_strdup(&c->memory, p->store ? p->store : "");
    c->p.burst_store =
        mr_arena_strdup(&c->memory, burst && p->burst_store && *p->burst_store ? p->burst_store : "posix");
    c->p.burst_folder = c->p.engine = NULL; /* the caller's */
    c->burst = burst ? burst_path(p, &c->memory) : NULL;
    int rc = c->p.folder && c->p.store && c->p.burst_store && !c->burst == !burst
                 ? open_places(c, err)
                 : mr_error_set(err, -ENOMEM, "cannot make a checkpointer");
    if (rc)
        engine_close(&c->base);
    else
        *out = &c->base;
    return rc;
}

/* A store of this process keeps what its saver put there, and nothing that another one opened. */
static const struct mr_checkpoint_place *final_of(const struct engine *c)
{
    return c->saver ? &c->saver->place.at : &c->final;
}

static int need_saver(struct engine *c, struct mr_error *err)
{
    char job[32];
    if (c->saver)
        return 0;
    /* A number that all ranks of this job have and no other job: rank 0 draws it. Collective. */
    uint64_t id = c->p.rank == 0 ? mr_mix64(mr_wall_ns() ^ mr_now_ns() ^ ((uint64_t)getpid() << 40)) >> 1 : 0;
    int rc = c->p.world > 1 && c->p.sum ? c->p.sum(c->p.user, &id, err) : 0;
    if (rc)
        return rc;
    snprintf(job, 32, "%016" PRIx64, id); /* without drains ranks that agree need no name */
    uint64_t capacity = c->p.burst_bytes;
    const struct mr_saver_tier tier = {.folder = c->burst,
                                       .store = c->p.burst_store,
                                       .capacity = c->async && capacity ? MR_MAX(capacity / c->p.world, 1u) : capacity};
    const struct mr_saver_params p = {.size = sizeof p,
                                      .folder = c->p.folder,
                                      .store = c->p.store,
                                      .job = job,
                                      .rank = c->p.rank,
                                      .world = c->p.world,
                                      .fsync = c->p.fsync,
                                      .direct = c->p.direct,
                                      .copy_threads = c->p.threads,
                                      .keep_last = c->p.keep_last,
                                      .events = c->p.events,
                                      .tier = &tier,
                                      .tiers = c->burst != NULL,
                                      .sync = !c->async};
    const struct mr_saver_hooks hooks = {.emulated = true,
                                         .files = !c->async,
                                         .chunk_bytes = c->async ? 0 : c->p.buffer_bytes,
                                         .agree = c->async ? NULL : c->p.agree,
                                         .sum = c->async || !capacity ? NULL : c->p.sum,
                                         .stopped = c->p.stopped,
                                         .user = c->p.user};
    rc = mr_checkpoint_agree(&c->p, mr_saver_open_with(&p, &hooks, &c->saver, err), err);
    if (rc) {
        mr_saver_cut(c->saver);
        c->saver = NULL;
    }
    return rc;
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
    mr_checkpoint_content(s->p, s->step, s->name, offset, into, n);
    return 0;
}

static int save_files(struct engine *c, uint64_t step, const struct mr_checkpoint_file *files, uint64_t n,
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
    rc = mr_checkpoint_agree(&c->p, rc, err);
    rc = rc ? rc : mr_saver_save(c->saver, step, &state, out, err);
    free(t);
    free(from);
    return rc;
}

static int engine_save(struct mr_checkpointer *base, uint64_t step, const struct mr_checkpoint_file *files, uint64_t n,
                       struct mr_checkpoint_result *out, struct mr_error *err)
{
    struct engine *c = ENGINE(base);
    struct mr_save_result saved = {0};
    uint64_t start = mr_now_ns();
    int rc = need_saver(c, err);
    if (rc)
        return rc;
    assert(c->saver);
    /* First what became of the saves before: a rank with an error to return makes no new save, so none may. */
    if (c->async)
        rc = mr_checkpoint_agree(&c->p, mr_saver_wait(c->saver, NO_STEP, err), err);
    rc = rc ? rc : save_files(c, step, files, n, &saved, err);
    if (c->async)
        rc = mr_checkpoint_agree(&c->p, rc, err);
    if (rc)
        return rc;
    const struct mr_saver_did *did = &c->saver->did;
    *out = (struct mr_checkpoint_result){.bytes = saved.bytes,
                                         .files = n,
                                         .write_ns = did->write_ns,
                                         .fsync_ns = did->fsync_ns,
                                         .wait_ns = c->async ? saved.room_ns : did->wait_ns,
                                         .buffered = c->async || did->in_tier};
    snprintf(out->path, sizeof out->path, "%.900s/step-%012" PRIu64, did->in_tier ? c->burst : c->p.folder, step);
    out->duration_ns = mr_now_ns() - start;
    out->wait_ns = MR_MIN(out->wait_ns, out->duration_ns);
    return 0;
}

/* ---- what is behind ---- */

static unsigned engine_recover(struct mr_checkpointer *base)
{
    struct engine *c = ENGINE(base);
    struct mr_error why;
    if (!c->burst || c->saver)
        return 0;
    if (need_saver(c, &why)) {
        mr_log(MR_LOG_WARN, "cannot look for checkpoints in the burst buffer: %s", why.message);
        return 0;
    }
    unsigned found = c->p.rank == 0 ? mr_state_tiers_recovered(c->saver->tiers) : 0;
    if (found)
        mr_log(MR_LOG_NOTE, "%u checkpoint%s of an earlier run %s drained from the burst buffer '%s'", found,
               found == 1 ? "" : "s", found == 1 ? "is" : "are", c->burst);
    return found;
}

static int engine_drain(struct mr_checkpointer *base, struct mr_error *err)
{
    struct engine *c = ENGINE(base);
    struct mr_error why;
    engine_recover(base);
    if (!c->saver || (!c->async && !c->burst))
        return c->async ? mr_checkpoint_agree(&c->p, 0, err) : 0;
    int rc = mr_saver_wait(c->saver, MR_ALL_STEPS, &why);
    if (c->burst && (!rc || rc != MR_E_INTERRUPTED)) {
        int first = mr_state_tiers_failure(c->saver->tiers, false, rc ? NULL : &why);
        rc = rc ? rc : first;
    }
    int mine =
        mr_checkpoint_agree(&c->p, rc == MR_E_PEER ? 0 : rc, &why); /* the cause before what the others saw of it */
    rc = mine ? mine : mr_checkpoint_agree(&c->p, rc, &why);
    if (rc && err)
        *err = why;
    return rc;
}

static uint64_t engine_buffered(struct mr_checkpointer *base)
{
    struct engine *c = ENGINE(base);
    if (!c->saver || (c->burst && !c->final.lead))
        return 0;
    return c->burst ? mr_state_tiers_pending(c->saver->tiers, true) : mr_saver_pending(c->saver);
}

static uint64_t engine_drains(struct mr_checkpointer *base, uint64_t first, struct mr_checkpoint_drained *out,
                              uint64_t cap)
{
    struct engine *c = ENGINE(base);
    struct mr_saved s;
    uint64_t n = 0;
    if (c->saver && c->burst)
        return c->final.lead ? mr_state_tiers_drains(c->saver->tiers, first, out, cap) : 0;
    while (c->saver && c->async && n < cap && mr_saver_saved(c->saver, first + n, &s)) {
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

struct load {
    struct engine *c;
    const struct mr_checkpoint_place *at;
    struct mr_checkpoint_list list; /* what this rank reads */
    struct mr_path dir;
    uint64_t read_ns;
};

/* Tensors and their bytes, where the checkpoint has any: those count, not the files that hold them. */
static int count_tensors(const struct engine *c, const char *folder, uint64_t step, uint32_t mine,
                         struct mr_checkpoint_result *out, struct mr_error *err)
{
    struct mr_state_reader *r;
    struct mr_state_params p = {.size = sizeof p, .folder = folder, .step = step};
    p.store = out->buffered ? c->p.burst_store : c->p.store;
    int rc = mr_state_open(&p, &r, err);
    for (size_t i = 0; !rc && i < mr_state_tensors(r); i++) {
        const struct mr_stored_tensor *t = mr_state_tensor(r, i);
        if (c->final.shared && t->rank % c->p.world != mine)
            continue;
        out->files++;
        out->bytes += t->bytes;
    }
    if (!rc)
        mr_state_close(r);
    return rc;
}

/* The files of the ranks that are `mine` modulo this job's world. */
static int load_from(struct load *l, const char *folder, uint64_t step, uint32_t mine, struct mr_checkpoint_result *out,
                     struct mr_error *err)
{
    size_t n = 0;
    bool tensors = false;
    uint64_t bytes = 0;
    int rc = mr_checkpoint_find(l->at->store, folder, step, &l->dir, err);
    rc = rc ? rc : mr_checkpoint_read_list(l->at, l->dir.text, &l->list, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < l->list.n; i++) {
        const struct mr_checkpoint_entry *e = &l->list.items[i];
        if (l->c->final.shared && e->rank % l->c->p.world != mine)
            continue;
        tensors |= mr_state_holds_tensors(e);
        bytes += e->bytes;
        l->list.items[n++] = *e;
    }
    l->list.n = n;
    rc = mr_checkpoint_verify(&l->c->p, l->at, l->dir.text, &l->list, &l->read_ns, err);
    mr_checkpoint_list_done(&l->list);
    if (!rc && tensors)
        return count_tensors(l->c, folder, step, mine, out, err);
    out->files += n;
    out->bytes += bytes;
    return rc;
}

struct found {
    uint64_t step;
    uint32_t shares; /* of the buffer; 0: it is in the final folder */
    bool all_shares;
};

/* The final folder counts before the burst buffer, where there is one. */
static int locate(struct engine *c, uint64_t step, struct found *f, struct mr_error *err)
{
    uint64_t have = step;
    struct mr_path dir;
    int rc = mr_checkpoint_find(final_of(c)->store, c->p.folder, step, &dir, err);
    *f = (struct found){.step = step};
    if (!rc)
        f->step = mr_checkpoint_step_of(dir.text);
    if ((rc && rc != MR_E_INCOMPLETE) || !c->burst || !c->saver || (!rc && step != UINT64_MAX))
        return rc;
    mr_state_tiers_recovered(c->saver->tiers);
    uint32_t shares = mr_state_tiers_find(c->saver->tiers, &have, &f->all_shares);
    if (!shares || (!rc && have <= f->step))
        return rc;
    *f = (struct found){have, shares, f->all_shares};
    return 0;
}

static int load_share(struct load *l, uint64_t step, uint32_t shift, struct mr_checkpoint_result *out,
                      struct mr_error *err)
{
    struct engine *c = l->c;
    struct found f;
    uint32_t mine = (uint32_t)(((uint64_t)c->p.rank + shift) % c->p.world);
    if (!(mr_store_caps(c->final.store) & MR_STORE_CAP_CONTENT)) {
        mr_error_plain(err, MR_E_UNSUPPORTED, "the store keeps no content, so there is no checkpoint to load");
        return mr_error_hint(err, "use a store that does: 'millrace help store'"), MR_E_UNSUPPORTED;
    }
    int rc = locate(c, step, &f, err);
    if (rc)
        return rc;
    out->buffered = f.shares > 0;
    l->at = f.shares ? &mr_state_tiers_first(c->saver->tiers)->at : final_of(c);
    if (!f.shares || f.all_shares)
        return load_from(l, f.shares ? c->burst : c->p.folder, f.step, mine, out, err);
    for (uint32_t r = 0; r < f.shares && !rc; r++)
        if (r % c->p.world == mine)
            rc = load_from(l, mr_state_tier_folder(c->burst, r).text, f.step, mine, out, err);
    return rc;
}

static int engine_load(struct mr_checkpointer *base, uint64_t step, uint32_t shift, struct mr_checkpoint_result *out,
                       struct mr_error *err)
{
    struct engine *c = ENGINE(base);
    struct load l = {.c = c};
    struct mr_checkpoint_result r = {0};
    uint64_t start = mr_now_ns();
    int rc = 0;
    engine_recover(base);
    if (c->burst) /* the buffer must not be freed while it is read; drains that failed free nothing */
        rc = mr_checkpoint_agree(&c->p, c->saver ? mr_saver_settle(c->saver, MR_ALL_STEPS, err) : 0, err);
    else if (c->async)
        rc = engine_drain(base, err);
    r.wait_ns = mr_now_ns() - start;
    rc = rc ? rc : mr_checkpoint_agree(&c->p, load_share(&l, step, shift, &r, err), err);
    if (rc)
        return rc;
    r.duration_ns = mr_now_ns() - start;
    r.read_ns = l.read_ns;
    snprintf(r.path, sizeof r.path, "%.*s", (int)sizeof r.path - 1, l.dir.text);
    *out = r;
    return 0;
}

static int engine_newest(struct mr_checkpointer *base, uint64_t *step, struct mr_error *err)
{
    struct engine *c = ENGINE(base);
    struct found f;
    if (c->p.world == 1) /* not collective: ranks find what is in the buffer once they have recovered */
        engine_recover(base);
    int rc = c->async && c->saver ? mr_saver_settle(c->saver, MR_ALL_STEPS, err) : 0;
    rc = rc ? rc : locate(c, UINT64_MAX, &f, err);
    if (!rc)
        *step = f.step;
    return rc;
}

#define OPS(engine, text)                                                                                              \
    {                                                                                                                  \
        .abi = MR_CHECKPOINT_ENGINE_ABI, .size = sizeof(struct mr_checkpoint_engine_ops), .name = #engine,             \
        .doc = text, .open = engine_open, .close = engine_close, .save = engine_save, .load = engine_load,             \
        .newest = engine_newest, .recover = engine_recover, .drain = engine_drain, .buffered = engine_buffered,        \
        .drains = engine_drains                                                                                        \
    }

const struct mr_checkpoint_engine_ops mr_checkpoint_sync_engine = OPS(
    sync, "Training waits while all ranks write, to the final folder or a burst buffer, which is drained meanwhile.");
const struct mr_checkpoint_engine_ops mr_checkpoint_async_engine =
    OPS(async, "Training waits for a copy in memory; threads write it out while training goes on.");
