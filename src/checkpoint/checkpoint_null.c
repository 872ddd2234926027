/* The engine "null": takes every checkpoint and keeps none. What a run costs without its checkpoints, and the shortest
 * engine there is. Loading says that there is nothing. */
#include "checkpoint/checkpointer.h"

#include "base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct null_engine {
    struct mr_checkpointer base;
    struct mr_checkpoint_params p;
};

static int null_open(const struct mr_checkpoint_params *p, struct mr_checkpointer **out, struct mr_error *err)
{
    struct null_engine *c = calloc(1, sizeof(*c));
    if (!c)
        return mr_error_set(err, -ENOMEM, "cannot make a checkpointer");
    *c = (struct null_engine){{&mr_checkpoint_null_engine}, *p};
    *out = &c->base;
    return 0;
}

static void null_close(struct mr_checkpointer *c)
{
    free(c);
}

static int null_save(struct mr_checkpointer *c, uint64_t step, const struct mr_checkpoint_file *files, uint64_t n,
                     struct mr_checkpoint_result *out, struct mr_error *err)
{
    uint64_t start = mr_now_ns();
    struct mr_checkpoint_result r = {.files = n};
    for (uint64_t i = 0; i < n; i++)
        r.bytes += files[i].bytes;
    int rc = mr_checkpoint_agree(&((struct null_engine *)c)->p, 0, err);
    if (rc)
        return rc;
    snprintf(r.path, sizeof r.path, "(step %" PRIu64 " was not kept)", step);
    r.duration_ns = mr_now_ns() - start;
    *out = r;
    return 0;
}

static int nothing_there(struct mr_error *err)
{
    mr_error_plain(err, MR_E_UNSUPPORTED, "the checkpoint engine 'null' keeps nothing, so there is nothing to load");
    return mr_error_hint(err, "use engine 'sync'"), MR_E_UNSUPPORTED;
}

static int null_load(struct mr_checkpointer *c, uint64_t step, uint32_t shift, struct mr_checkpoint_result *out,
                     struct mr_error *err)
{
    (void)step, (void)shift, (void)out;
    return mr_checkpoint_agree(&((struct null_engine *)c)->p, nothing_there(err), err);
}

static int null_newest(struct mr_checkpointer *c, uint64_t *step, struct mr_error *err)
{
    (void)c, (void)step;
    return nothing_there(err);
}

const struct mr_checkpoint_engine_ops mr_checkpoint_null_engine = {
    .abi = MR_CHECKPOINT_ENGINE_ABI,
    .size = sizeof(struct mr_checkpoint_engine_ops),
    .name = "null",
    .doc = "Keeps nothing: what the run costs without its checkpoints.",
    .open = null_open,
    .close = null_close,
    .save = null_save,
    .load = null_load,
    .newest = null_newest,
    .recover = mr_checkpoint_no_recover,
    .drain = mr_checkpoint_no_drain,
    .buffered = mr_checkpoint_no_buffered,
    .drains = mr_checkpoint_no_drains,
};
