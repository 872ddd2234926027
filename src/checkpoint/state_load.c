/* Loading a state: see <millrace/state.h>. Files are read in the chunks they were written in, because these have the
 * checksums; a range that touches a chunk costs the whole chunk. Many chunks are read at once, each by one thread into
 * its own buffer, compared, and copied to where the caller wants its part.
 *
 * A path that names a .safetensors file is read as well: it has no checksums, so its ranges are read as they are. */
#include "base/common.h"
#include "base/map.h"
#include "base/workers.h"
#include "checkpoint/checkpoint_read.h"
#include "checkpoint/state_cuda.h"
#include "checkpoint/state_image.h"
#include "checkpoint/state_save.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define THREADS_DEFAULT 8
#define SMALL_MAX (1ull << 30)

struct file {
    struct mr_object *object;
    uint64_t bytes;
    uint64_t *sum; /* of each chunk, little-endian; NULL: none are known */
};

struct mr_state_reader {
    struct mr_checkpoint_place at;
    struct mr_path dir;
    struct mr_checkpoint_list list;
    unsigned threads;
    bool direct;
    struct file *file;
    size_t files;
    struct mr_arena names;
    struct mr_header_tensors tensor;
    struct mr_map by_name; /* hash of (rank, name), and of the name alone: number + 1 */
};

/* ---- chunks ---- */

static int read_chunk(const struct file *f, size_t chunk, uint8_t *buf, struct mr_error *err)
{
    size_t n = (size_t)MR_MIN(MR_STATE_CHUNK, f->bytes - chunk * MR_STATE_CHUNK);
    int rc = mr_object_read(f->object, buf, n, chunk * MR_STATE_CHUNK, err);
    if (rc || XXH3_64bits(buf, n) == le64toh(f->sum[chunk]))
        return rc;
    mr_error_plain(err, MR_E_CORRUPT, "'%s' does not match its checksum at bytes %" PRIu64 " to %" PRIu64,
                   f->object->path, (uint64_t)(chunk * MR_STATE_CHUNK), (uint64_t)(chunk * MR_STATE_CHUNK + n));
    return mr_error_hint(err, "load an older checkpoint"), MR_E_CORRUPT;
}

/* What one chunk has for one range. */
struct part {
    uint32_t file;
    size_t chunk;
    uint64_t within, bytes;
    uint8_t *into;
    int cuda; /* as in mr_state_range */
};

struct reading {
    struct mr_state_reader *r;
    MR_VEC(struct part) part; /* by file, chunk */
    MR_VEC(size_t) first;     /* of each chunk in `part`, and the end */
    uint8_t *buf;             /* a chunk of each thread */
    bool device;              /* some of it goes to a CUDA device: through these buffers */
};

static int by_chunk(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    int order = MR_ORDER(x->file, y->file);
    return order ? order : MR_ORDER(x->chunk, y->chunk);
}

/* Bytes of a file, chunk by chunk. */
static int add_parts(struct reading *d, uint32_t file, uint64_t at, uint64_t bytes, uint8_t *into, int cuda,
                     struct mr_error *err)
{
    for (uint64_t done = 0, take; done < bytes; done += take) {
        uint64_t within = (at + done) % MR_STATE_CHUNK;
        struct part *p = MR_VEC_ADD(&d->part);
        if (!p)
            return mr_error_set(err, -ENOMEM, "cannot read %" PRIu64 " bytes", bytes);
        take = MR_MIN(bytes - done, MR_STATE_CHUNK - within);
        *p = (struct part){file, (size_t)((at + done) / MR_STATE_CHUNK), within, take, into + done, cuda};
        d->device = d->device || cuda;
    }
    return 0;
}

/* Parts of one chunk are read together. */
static int group_parts(struct reading *d, struct mr_error *err)
{
    if (d->part.n)
        qsort(d->part.item, d->part.n, sizeof(*d->part.item), by_chunk);
    for (size_t i = 0; i <= d->part.n; i++) {
        if (i && i < d->part.n && by_chunk(&d->part.item[i - 1], &d->part.item[i]) == 0)
            continue;
        size_t *first = MR_VEC_ADD(&d->first);
        if (!first)
            return mr_error_set(err, -ENOMEM, "cannot read %zu pieces", d->part.n);
        *first = i;
    }
    return 0;
}

static int read_group(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct reading *d = ctx->user;
    size_t i = d->first.item[index], end = d->first.item[index + 1];
    const struct file *f = &d->r->file[d->part.item[i].file];
    uint8_t *buf = d->buf + ctx->thread * MR_STATE_CHUNK;
    int rc = f->sum ? read_chunk(f, d->part.item[i].chunk, buf, err) : 0;
    int device = 0;
    for (; i < end && !rc; i++) {
        const struct part *p = &d->part.item[i];
        uint8_t *from = f->sum || p->cuda ? buf + p->within : p->into;
        if (!f->sum)
            rc = mr_object_read(f->object, from, (size_t)p->bytes, p->chunk * MR_STATE_CHUNK + p->within, err);
        if (rc)
            break;
        if (p->cuda)
            rc = mr_cuda_copy((device = p->cuda) - 1, NULL, p->into, from, (size_t)p->bytes, err);
        else if (from != p->into)
            memcpy(p->into, from, (size_t)p->bytes);
    }
    int copied = device ? mr_cuda_flush(rc ? NULL : err) : 0; /* before the buffer is filled again */
    return rc ? rc : copied;
}

/* All that was added (rc 0), and frees the lists. */
static int read_parts(struct reading *d, int rc, struct mr_error *err)
{
    rc = rc ? rc : group_parts(d, err);
    if (!rc && d->device)
        rc = mr_cuda_find(err);
    size_t groups = d->first.n ? d->first.n - 1 : 0;
    unsigned threads = (unsigned)MR_MIN((size_t)d->r->threads, MR_MAX(groups, (size_t)1));
    d->buf = rc ? NULL : aligned_alloc(4096, threads * MR_STATE_CHUNK);
    if (!rc && !d->buf)
        rc = mr_error_set(err, -ENOMEM, "cannot get %u buffers", threads);
    bool pinned = !rc && d->device && mr_cuda_pin(d->buf, threads * MR_STATE_CHUNK) == 0; /* or slower */
    rc = rc ? rc : mr_workers_run(threads, groups, 1, read_group, d, NULL, err);
    if (pinned)
        mr_cuda_unpin(d->buf);
    free(d->buf);
    free(d->part.item);
    free(d->first.item);
    return rc;
}

/* ---- small files ---- */

bool mr_state_holds_tensors(const struct mr_checkpoint_entry *e)
{
    return strcmp(mr_save_file_name(e->rank, MR_SAVE_TENSORS).text, e->name) == 0;
}

static const struct mr_checkpoint_entry *find_entry(const struct mr_checkpoint_list *l, const char *name)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->items[i].name, name) == 0)
            return &l->items[i];
    return NULL;
}

/* The content of a small file as the list has it, malloc'ed, with a NUL behind it. */
static int read_entry(const struct mr_state_reader *r, const struct mr_checkpoint_entry *e, void **data,
                      struct mr_error *err)
{
    struct mr_path path = mr_path("%s/%s", r->dir.text, e->name);
    size_t len;
    int rc = mr_store_read_file(r->at.store, path.text, SMALL_MAX, data, &len, err);
    if (rc == -ENOENT)
        return mr_error_plain(err, MR_E_CORRUPT, "'%s' is missing: the checkpoint's list names it", path.text);
    if (rc)
        return rc;
    if (len == e->bytes && XXH3_64bits(*data, len) == e->hash)
        return 0;
    free(*data);
    mr_error_plain(err, MR_E_CORRUPT, "'%s' does not match its checksum or length", path.text);
    return mr_error_hint(err, "load an older checkpoint"), MR_E_CORRUPT;
}

/* The checksums of the chunks of a rank's tensors, little-endian, malloc'ed; they make up the one that the list has. */
static int read_sums(const struct mr_state_reader *r, const struct mr_checkpoint_entry *e, uint64_t **sum,
                     struct mr_error *err)
{
    uint64_t *words;
    size_t n = mr_save_chunks(e->bytes, MR_STATE_CHUNK);
    const struct mr_checkpoint_entry *sums = find_entry(&r->list, mr_save_file_name(e->rank, MR_SAVE_SUMS).text);
    if (!sums || e->chunk_bytes != MR_STATE_CHUNK || sums->bytes != (3 + n) * sizeof(*words))
        return mr_error_plain(err, MR_E_CORRUPT, "'%s' has no checksums of its chunks that fit it", e->name);
    int rc = read_entry(r, sums, (void **)&words, err);
    if (rc)
        return rc;
    memmove(words, words + 3, n * sizeof(*words));
    if (mr_checkpoint_hash_of_chunks(words, n) != e->hash) {
        free(words);
        return mr_error_plain(err, MR_E_CORRUPT, "the checksums of '%s' are not those of the checkpoint's list",
                              e->name);
    }
    *sum = words;
    return 0;
}

/* ---- opening ---- */

static int read_at(struct mr_state_reader *r, uint32_t file, uint64_t at, void *into, uint64_t n, struct mr_error *err)
{
    struct reading d = {.r = r};
    return read_parts(&d, add_parts(&d, file, at, n, into, 0, err), err);
}

static int read_header(struct mr_state_reader *r, uint32_t number, uint32_t rank, struct mr_error *err)
{
    struct file *f = &r->file[number];
    const char *path = f->object->path;
    uint64_t len = 0;
    int rc = f->bytes >= 8 ? read_at(r, number, 0, &len, 8, err) : 0;
    len = le64toh(len);
    if (!rc && (f->bytes < 8 || len < 2 || len > f->bytes - 8 || len > MR_STATE_HEADER_MAX)) {
        mr_error_plain(err, MR_E_CORRUPT, "'%s' has %" PRIu64 " bytes, its header wants %" PRIu64, path, f->bytes, len);
        return mr_error_hint(err, "is it a safetensors file, and whole?"), MR_E_CORRUPT;
    }
    char *text = rc ? NULL : malloc((size_t)len);
    if (!rc && !text)
        rc = mr_error_set(err, -ENOMEM, "cannot read '%s'", path);
    rc = rc ? rc : read_at(r, number, 8, text, len, err);
    rc = rc ? rc : mr_state_header_parse(text, (size_t)len, f->bytes, path, rank, number, &r->names, &r->tensor, err);
    free(text);
    return rc;
}

static int open_rank(struct mr_state_reader *r, const struct mr_checkpoint_entry *e, struct mr_error *err)
{
    uint32_t number = (uint32_t)r->files++;
    struct file *f = &r->file[number];
    f->bytes = e->bytes;
    int rc = mr_checkpoint_open_entry(&r->at, r->dir.text, e, r->direct, &f->object, err);
    rc = rc ? rc : read_sums(r, e, &f->sum, err);
    return rc ? rc : read_header(r, number, e->rank, err);
}

static int open_files(struct mr_state_reader *r, struct mr_error *err)
{
    r->file = calloc(MR_MAX(r->list.n, 1u), sizeof(*r->file));
    int rc = r->file ? 0 : mr_error_set(err, -ENOMEM, "cannot open the checkpoint");
    for (size_t i = 0; i < r->list.n && !rc; i++)
        if (mr_state_holds_tensors(&r->list.items[i]))
            rc = open_rank(r, &r->list.items[i], err);
    if (!rc && !r->files) {
        mr_error_plain(err, MR_E_FORMAT, "'%s' holds no tensors: it is a checkpoint of an emulated training",
                       r->dir.text);
        rc = MR_E_FORMAT;
    }
    return rc;
}

/* A file of another program. */
static int open_bare(struct mr_state_reader *r, const char *path, struct mr_error *err)
{
    r->file = calloc(1, sizeof(*r->file));
    if (!r->file)
        return mr_error_set(err, -ENOMEM, "cannot open '%s'", path);
    r->files = 1;
    r->list.world = 1;
    int rc = mr_object_open(r->at.store, path, MR_OBJ_READ | (r->direct ? MR_OBJ_DIRECT : 0), &r->file[0].object, err);
    rc = rc ? rc : mr_object_size(r->file[0].object, &r->file[0].bytes, err);
    return rc ? rc : read_header(r, 0, 0, err);
}

static bool is_bare(const char *path)
{
    size_t n = strlen(path), e = strlen(MR_SAVE_TENSORS);
    return n > e && strcmp(path + n - e, MR_SAVE_TENSORS) == 0;
}

static int index_names(struct mr_state_reader *r, struct mr_error *err)
{
    for (size_t i = 0; i < r->tensor.n; i++) {
        const struct mr_stored_tensor *t = &r->tensor.item[i].is;
        size_t len = strlen(t->name);
        uint64_t *own = mr_map_put(&r->by_name, mr_hash_bytes(t->name, len, t->rank + 1));
        if (own && !*own)
            *own = i + 1;
        uint64_t *any = own ? mr_map_put(&r->by_name, mr_hash_bytes(t->name, len, 0)) : NULL;
        if (!any)
            return mr_error_set(err, -ENOMEM, "cannot list %zu tensors", r->tensor.n);
        if (!*any)
            *any = i + 1;
    }
    return 0;
}

int mr_state_open(const struct mr_state_params *p, struct mr_state_reader **out, struct mr_error *err)
{
    struct mr_state_reader *r = calloc(1, sizeof(*r));
    if (!r)
        return mr_error_set(err, -ENOMEM, "cannot open '%s'", p->folder);
    r->threads = p->threads ? p->threads : THREADS_DEFAULT;
    r->direct = p->direct;
    int rc = mr_checkpoint_place_open(p->folder, p->store, 0, NULL, &r->at, err);
    if (!rc && is_bare(p->folder)) {
        rc = open_bare(r, p->folder, err);
    } else if (!rc) {
        rc = mr_checkpoint_find(r->at.store, r->at.folder, p->step, &r->dir, err);
        rc = rc ? rc : mr_checkpoint_read_list(&r->at, r->dir.text, &r->list, err);
        rc = rc ? rc : open_files(r, err);
    }
    rc = rc ? rc : index_names(r, err);
    if (rc)
        mr_state_close(r);
    else
        *out = r;
    return rc;
}

void mr_state_close(struct mr_state_reader *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->files; i++) {
        mr_object_close(r->file[i].object, NULL); /* opened for reading only */
        free(r->file[i].sum);
    }
    free(r->file);
    free(r->tensor.item);
    mr_map_done(&r->by_name);
    mr_arena_done(&r->names);
    mr_checkpoint_list_done(&r->list);
    mr_checkpoint_place_close(&r->at);
    free(r);
}

/* ---- what is there ---- */

uint64_t mr_state_step(const struct mr_state_reader *r)
{
    return r->list.step;
}

uint32_t mr_state_world(const struct mr_state_reader *r)
{
    return r->list.world;
}

size_t mr_state_tensors(const struct mr_state_reader *r)
{
    return r->tensor.n;
}

const struct mr_stored_tensor *mr_state_tensor(const struct mr_state_reader *r, size_t i)
{
    return i < r->tensor.n ? &r->tensor.item[i].is : NULL;
}

size_t mr_state_find(const struct mr_state_reader *r, uint32_t rank, const char *name)
{
    uint64_t at = mr_map_get(&r->by_name, mr_hash_bytes(name, strlen(name), rank == UINT32_MAX ? 0 : rank + 1));
    return at && strcmp(r->tensor.item[at - 1].is.name, name) == 0 ? (size_t)at - 1 : SIZE_MAX;
}

int mr_state_json(struct mr_state_reader *r, uint32_t rank, const char *what, char **text, struct mr_error *err)
{
    void *data = NULL;
    bool loader = strcmp(what, "loader") == 0;
    if (!loader && strcmp(what, "state") != 0)
        return mr_error_plain(err, MR_E_USAGE, "there is \"state\" and \"loader\", no \"%s\"", what);
    struct mr_path name = mr_save_file_name(rank, loader ? MR_SAVE_LOADER : MR_SAVE_STATE);
    const struct mr_checkpoint_entry *e = find_entry(&r->list, name.text);
    int rc = e ? read_entry(r, e, &data, err) : 0; /* ends with a NUL: mr_store_read_file */
    if (!rc)
        *text = data;
    return rc;
}

/* ---- reading ---- */

static int add_range(struct reading *d, const struct mr_state_range *g, struct mr_error *err)
{
    const struct mr_state_reader *r = d->r;
    if (g->tensor >= r->tensor.n)
        return mr_error_plain(err, MR_E_USAGE, "there is no tensor %zu: the state has %zu", g->tensor, r->tensor.n);
    const struct mr_header_tensor *t = &r->tensor.item[g->tensor];
    if (g->offset > t->is.bytes || g->bytes > t->is.bytes - g->offset)
        return mr_error_plain(err, MR_E_USAGE, "tensor '%s' has %" PRIu64 " bytes, asked for %" PRIu64 " at %" PRIu64,
                              t->is.name, t->is.bytes, g->bytes, g->offset);
    return add_parts(d, t->file, t->start + g->offset, g->bytes, g->into, g->cuda, err);
}

int mr_state_read(struct mr_state_reader *r, const struct mr_state_range *range, size_t n, struct mr_error *err)
{
    struct reading d = {.r = r};
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++)
        rc = add_range(&d, &range[i], err);
    return read_parts(&d, rc, err);
}
