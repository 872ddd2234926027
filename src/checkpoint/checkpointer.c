/* Checkpointers: the registry of engines, and the public functions, which check the parameters and hand over to the
 * engine. The registry grows only at the start (plug-ins), then it may be used from any thread. */
#include "checkpoint/checkpointer.h"

#include "base/common.h"
#include "base/content.h"
#include "checkpoint/checkpoint_place.h"
#include "conf/option.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#define BUFFER_MAX MR_GIB
#define THREADS_MAX 1024
#define REGISTERED_MAX 32

/* To add a built-in engine: one file checkpoint_<name>.c with its ops, one extern in checkpointer.h, one row here. */
static const struct mr_checkpoint_engine_ops *engines[3 + REGISTERED_MAX + 1] = {
    &mr_checkpoint_sync_engine,
    &mr_checkpoint_async_engine,
    &mr_checkpoint_null_engine,
};
static size_t registered = 3;

const struct mr_checkpoint_engine_ops *const *mr_checkpoint_engine_registry(void)
{
    return engines;
}

static const struct mr_checkpoint_engine_ops *find_engine(const char *name)
{
    for (const struct mr_checkpoint_engine_ops *const *e = engines; *e; e++)
        if (strcmp((*e)->name, name) == 0)
            return *e;
    return NULL;
}

static const char *missing_op(const struct mr_checkpoint_engine_ops *o)
{
    const struct {
        const char *name;
        bool there;
    } ops[] = {
        {"open", o->open},   {"close", o->close},       {"save", o->save},
        {"load", o->load},   {"newest", o->newest},     {"recover", o->recover},
        {"drain", o->drain}, {"buffered", o->buffered}, {"drains", o->drains},
    };
    for (size_t i = 0; i < MR_ARRAY_LEN(ops); i++)
        if (!ops[i].there)
            return ops[i].name;
    return NULL;
}

int mr_checkpoint_engine_register(const struct mr_checkpoint_engine_ops *ops, struct mr_error *err)
{
    if (ops->abi != MR_CHECKPOINT_ENGINE_ABI || ops->size != sizeof(*ops))
        return mr_error_plain(err, MR_E_UNSUPPORTED,
                              "a checkpoint engine of abi %u with %u bytes of operations; this program has abi %u with "
                              "%zu",
                              ops->abi, ops->size, MR_CHECKPOINT_ENGINE_ABI, sizeof(*ops));
    if (!ops->name || !*ops->name || ops->name[strcspn(ops->name, ", \t")] || !ops->doc)
        return mr_error_plain(err, MR_E_USAGE, "a checkpoint engine needs a plain name and a text");
    if (find_engine(ops->name))
        return mr_error_plain(err, -EEXIST, "there is a checkpoint engine '%s' already", ops->name);
    const char *missing = missing_op(ops);
    if (missing)
        return mr_error_plain(err, MR_E_USAGE, "checkpoint engine '%s' lacks the operation '%s'", ops->name, missing);
    if (registered + 1 >= MR_ARRAY_LEN(engines))
        return mr_error_plain(err, MR_E_LIMIT, "cannot add checkpoint engine '%s': %d are registered", ops->name,
                              REGISTERED_MAX);
    engines[registered++] = ops;
    return 0;
}

static int check_params(const struct mr_checkpoint_params *p, struct mr_error *err)
{
    if (!p->folder || !*p->folder || p->world == 0 || p->rank >= p->world)
        return mr_error_plain(err, MR_E_USAGE, "a checkpointer needs a folder and a rank below its world");
    if (strlen(p->folder) > MR_CHECKPOINT_FOLDER_MAX)
        return mr_error_plain(err, MR_E_USAGE, "the checkpoint folder's path has %zu bytes, more than %d",
                              strlen(p->folder), MR_CHECKPOINT_FOLDER_MAX);
    if (p->burst_folder && strlen(p->burst_folder) > MR_CHECKPOINT_FOLDER_MAX - MR_CHECKPOINT_BURST_NAME)
        return mr_error_plain(err, MR_E_USAGE, "the burst buffer's path has %zu bytes, more than %d",
                              strlen(p->burst_folder), MR_CHECKPOINT_FOLDER_MAX - MR_CHECKPOINT_BURST_NAME);
    if (p->world > 1 && p->burst_folder && *p->burst_folder && !p->sum)
        return mr_error_plain(err, MR_E_USAGE, "a burst buffer of %u ranks needs a way to sum", p->world);
    if (p->world > 1 && !p->agree)
        return mr_error_plain(err, MR_E_USAGE, "a checkpointer of %u ranks needs a way to agree", p->world);
    if (p->threads > THREADS_MAX || p->buffer_bytes > BUFFER_MAX)
        return mr_error_plain(err, MR_E_USAGE,
                              "a checkpointer takes up to %d threads and %" PRIu64
                              " bytes of buffer, not %u and %" PRIu64,
                              THREADS_MAX, BUFFER_MAX, p->threads, p->buffer_bytes);
    return 0;
}

static int refuse_engine(const char *name, struct mr_error *err)
{
    struct mr_nearest offers = {.word = name};
    for (size_t i = 0; engines[i]; i++)
        mr_nearest_offer(&offers, engines[i]->name);
    const char *near = mr_nearest_name(&offers);
    mr_error_plain(err, MR_E_CONFIG, "unknown checkpoint engine '%s'", name);
    if (near)
        mr_error_hint(err, "did you mean '%s'? 'millrace help plugins' lists them", near);
    mr_error_hint(err, "'millrace help plugins' lists them");
    return MR_E_CONFIG;
}

int mr_checkpointer_open(const struct mr_checkpoint_params *p, struct mr_checkpointer **out, struct mr_error *err)
{
    const char *name = p->engine && *p->engine ? p->engine : "sync";
    bool burst = strcmp(name, "burst") == 0; /* another name of "sync" with a buffer */
    const struct mr_checkpoint_engine_ops *ops = find_engine(burst ? "sync" : name);
    int rc = check_params(p, err);
    if (rc)
        return rc;
    if (burst && (!p->burst_folder || !*p->burst_folder)) {
        mr_error_plain(err, MR_E_CONFIG, "the checkpoint engine 'burst' needs a burst buffer");
        return mr_error_hint(err, "say where it is: checkpoint.burst_buffer.folder=FOLDER"), MR_E_CONFIG;
    }
    return ops ? ops->open(p, out, err) : refuse_engine(name, err);
}

void mr_checkpointer_close(struct mr_checkpointer *c)
{
    if (c)
        c->ops->close(c);
}

int mr_checkpoint_save(struct mr_checkpointer *c, uint64_t step, const struct mr_checkpoint_file *files, uint64_t n,
                       struct mr_checkpoint_result *out, struct mr_error *err)
{
    return c->ops->save(c, step, files, n, out, err);
}

int mr_checkpoint_load(struct mr_checkpointer *c, uint64_t step, uint32_t shift, struct mr_checkpoint_result *out,
                       struct mr_error *err)
{
    return c->ops->load(c, step, shift, out, err);
}

unsigned mr_checkpoint_recover(struct mr_checkpointer *c)
{
    return c->ops->recover(c);
}

int mr_checkpoint_drain(struct mr_checkpointer *c, struct mr_error *err)
{
    return c->ops->drain(c, err);
}

uint64_t mr_checkpoint_buffered(struct mr_checkpointer *c)
{
    return c->ops->buffered(c);
}

uint64_t mr_checkpoint_drains(struct mr_checkpointer *c, uint64_t first, struct mr_checkpoint_drained *out,
                              uint64_t cap)
{
    return c->ops->drains(c, first, out, cap);
}

int mr_checkpoint_newest(struct mr_checkpointer *c, uint64_t *step, struct mr_error *err)
{
    return c->ops->newest(c, step, err);
}

/* ---- for those who write an engine ---- */

int mr_checkpoint_agree(const struct mr_checkpoint_params *p, int code, struct mr_error *err)
{
    return p->agree ? p->agree(p->user, code, err) : code;
}

unsigned mr_checkpoint_no_recover(struct mr_checkpointer *c)
{
    (void)c;
    return 0;
}

int mr_checkpoint_no_drain(struct mr_checkpointer *c, struct mr_error *err)
{
    (void)c, (void)err;
    return 0;
}

uint64_t mr_checkpoint_no_buffered(struct mr_checkpointer *c)
{
    (void)c;
    return 0;
}

uint64_t mr_checkpoint_no_drains(struct mr_checkpointer *c, uint64_t first, struct mr_checkpoint_drained *out,
                                 uint64_t cap)
{
    (void)c, (void)first, (void)out, (void)cap;
    return 0;
}

int mr_checkpoint_open_store(const struct mr_checkpoint_params *p, struct mr_store **out, struct mr_error *err)
{
    return mr_store_open_with_events(p->store, mr_events_calls(p->events), out, err);
}

void mr_checkpoint_tell(const struct mr_checkpoint_params *p, enum mr_checkpoint_part part, uint64_t step,
                        uint64_t start_ns, uint64_t end_ns, uint64_t bytes)
{
    _Static_assert(MR_SPAN_CKPT_RENAME == MR_SPAN_SNAPSHOT + (int)MR_CHECKPOINT_RENAME, "the parts are spans in a row");
    if ((unsigned)part <= MR_CHECKPOINT_RENAME)
        mr_checkpoint_emit(p->events, (enum mr_span)(MR_SPAN_SNAPSHOT + (int)part), step, start_ns, end_ns, bytes);
}

/* Content depends on (seed, step, name) only, so that any reader could recompute it. */
void mr_checkpoint_content(const struct mr_checkpoint_params *p, uint64_t step, const char *name, uint64_t offset,
                           void *out, size_t len)
{
    const struct mr_content content = {.seed = p->seed};
    if (p->random_content)
        mr_content_fill(&content, XXH3_64bits_withSeed(name, strlen(name), step), offset, out, len);
    else
        memset(out, 0, len);
}
