/* See the header. */
#include "checkpoint/checkpoint_read.h"

#include "base/clock.h"
#include "base/common.h"
#include "base/workers.h"
#include "checkpoint/state_image.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#define XXH_STATIC_LINKING_ONLY /* its state on the stack */
#include <xxhash.h>

/* ---- checksums ---- */

/* Of what is read front to back: of the content, or of the checksums of its chunks. */
struct hash {
    XXH3_state_t content, tree;
    uint64_t chunk_bytes, in_chunk; /* 0: no chunks */
};

static void end_chunk(struct hash *h)
{
    uint64_t digest = htole64(XXH3_64bits_digest(&h->content));
    XXH3_64bits_update(&h->tree, &digest, sizeof digest);
    XXH3_64bits_reset(&h->content);
    h->in_chunk = 0;
}

static void hash_update(struct hash *h, const uint8_t *data, size_t n)
{
    for (size_t take; n; data += take, n -= take) {
        take = h->chunk_bytes ? (size_t)MR_MIN((uint64_t)n, h->chunk_bytes - h->in_chunk) : n;
        XXH3_64bits_update(&h->content, data, take);
        h->in_chunk += take;
        if (h->in_chunk == h->chunk_bytes)
            end_chunk(h);
    }
}

static uint64_t hash_digest(struct hash *h)
{
    if (h->chunk_bytes && h->in_chunk)
        end_chunk(h);
    return XXH3_64bits_digest(h->chunk_bytes ? &h->tree : &h->content);
}

uint64_t mr_checkpoint_hash_of_chunks(const uint64_t *chunk, size_t n)
{
    return XXH3_64bits(chunk, n * sizeof(*chunk));
}

/* ---- files ---- */

int mr_checkpoint_open_entry(const struct mr_checkpoint_place *at, const char *dir, const struct mr_checkpoint_entry *e,
                             bool direct, struct mr_object **out, struct mr_error *err)
{
    struct mr_path path = mr_path("%s/%s", dir, e->name);
    uint64_t size = 0;
    struct mr_object *o = NULL;
    int rc = mr_object_open(at->store, path.text, MR_OBJ_READ | (direct ? MR_OBJ_DIRECT : 0), &o, err);
    rc = rc ? rc : mr_object_size(o, &size, err);
    if (rc == -ENOENT)
        rc = mr_error_plain(err, MR_E_CORRUPT, "'%s' is missing: the checkpoint's list names it with %" PRIu64 " bytes",
                            path.text, e->bytes);
    else if (!rc && size != e->bytes)
        rc = mr_error_plain(err, MR_E_CORRUPT, "'%s' has %" PRIu64 " bytes, the checkpoint's list says %" PRIu64,
                            path.text, size, e->bytes);
    if (rc == MR_E_CORRUPT)
        mr_error_hint(err, "load an older checkpoint");
    if (rc)
        mr_object_close(o, NULL);
    else
        *out = o;
    return rc;
}

int mr_checkpoint_reading_add(struct mr_checkpoint_reading *r, const char *dir, const struct mr_checkpoint_list *more,
                              struct mr_error *err)
{
    const char *kept = mr_arena_strdup(&r->names, dir);
    size_t first = r->list.n;
    int rc = mr_checkpoint_list_append(&r->list, more, err);
    bool ok = kept;
    for (size_t i = first; i < r->list.n && ok; i++) {
        const struct mr_checkpoint_entry *e = &r->list.items[i];
        uint64_t each = e->chunk_bytes == MR_STATE_CHUNK ? MR_STATE_CHUNK : e->bytes, at = 0;
        struct mr_object *o = NULL;
        if (each < e->bytes) /* C6: it is as long as the list says, before there are units for that */
            rc = mr_checkpoint_open_entry(r->at, dir, e, false, &o, err);
        mr_object_close(o, NULL);
        if (rc)
            break;
        do {
            struct mr_checkpoint_unit *u = MR_VEC_ADD(&r->unit);
            ok = u != NULL;
            if (ok)
                *u = (struct mr_checkpoint_unit){i, at, MR_MIN(each, e->bytes - at), kept, 0};
            at += each;
        } while (ok && at < e->bytes);
    }
    return ok || rc ? rc : mr_error_set(err, -ENOMEM, "cannot list the files of '%s'", dir);
}

static int read_pieces(struct mr_checkpoint_reading *r, struct mr_checkpoint_unit *u, struct mr_object *o, uint8_t *buf,
                       struct hash *hash, struct mr_error *err)
{
    const struct mr_pace_way way = {.pace = r->pace, .device = r->at->device, .stop = r->stop};
    int rc = 0;
    for (uint64_t done = 0; done < u->bytes && !rc; done += r->piece_bytes) {
        size_t n = (size_t)MR_MIN(r->piece_bytes, u->bytes - done);
        if (r->stopped && r->stopped(r->user))
            return mr_error_plain(err, MR_E_INTERRUPTED, "interrupted in the checkpoint '%s'", u->dir);
        u->start_ns = mr_now_ns();
        rc = mr_pace_move(&way, o, NULL, buf, n, u->at + done, err);
        atomic_fetch_add(&r->read_ns, mr_now_ns() - u->start_ns);
        if (!rc)
            hash_update(hash, buf, n);
        if (!rc && r->take)
            rc = r->take(r->user, u, u->at + done, buf, n, err);
    }
    return rc;
}

static int read_unit(struct mr_worker_ctx *ctx, uint64_t index, struct mr_error *err)
{
    struct mr_checkpoint_reading *r = ctx->user;
    struct mr_checkpoint_unit *u = &r->unit.item[index];
    const struct mr_checkpoint_entry *e = &r->list.items[u->file];
    struct mr_object *o;
    int rc = mr_checkpoint_open_entry(r->at, u->dir, e, r->direct, &o, err);
    if (rc)
        return rc;
    struct hash hash = {.chunk_bytes = u->bytes == e->bytes ? e->chunk_bytes : 0};
    XXH3_64bits_reset(&hash.content);
    XXH3_64bits_reset(&hash.tree);
    rc = read_pieces(r, u, o, r->buf + ctx->thread * r->piece_bytes, &hash, err);
    r->sum[index] = htole64(hash_digest(&hash));
    mr_object_close(o, NULL); /* opened for reading only */
    return rc;
}

/* What was read is what the lists say. */
static int compare(const struct mr_checkpoint_reading *r, struct mr_error *err)
{
    for (size_t i = 0, n; i < r->unit.n; i += n) {
        const struct mr_checkpoint_unit *u = &r->unit.item[i];
        const struct mr_checkpoint_entry *e = &r->list.items[u->file];
        for (n = 1; i + n < r->unit.n && u[n].file == u->file; n++)
            ;
        uint64_t have = n > 1 ? mr_checkpoint_hash_of_chunks(r->sum + i, n) : le64toh(r->sum[i]);
        if (have == e->hash)
            continue;
        mr_error_plain(err, MR_E_CORRUPT, "'%s/%s' does not match its checksum: want %016" PRIx64 ", have %016" PRIx64,
                       u->dir, e->name, e->hash, have);
        return mr_error_hint(err, "load an older checkpoint"), MR_E_CORRUPT;
    }
    return 0;
}

int mr_checkpoint_reading_run(struct mr_checkpoint_reading *r, struct mr_error *err)
{
    unsigned threads = (unsigned)MR_MIN((size_t)r->threads, MR_MAX(r->unit.n, (size_t)1));
    r->buf = aligned_alloc(4096, threads * r->piece_bytes);
    r->sum = calloc(MR_MAX(r->unit.n, 1u), sizeof(*r->sum));
    if (!r->buf || !r->sum)
        return mr_error_set(err, -ENOMEM, "cannot get %u buffers of %" PRIu64 " bytes", threads, r->piece_bytes);
    int rc = mr_workers_run(threads, r->unit.n, 1, read_unit, r, r->stop, err);
    return rc ? rc : compare(r, err);
}

void mr_checkpoint_reading_done(struct mr_checkpoint_reading *r)
{
    mr_checkpoint_list_done(&r->list);
    mr_arena_done(&r->names);
    free(r->unit.item);
    free(r->sum);
    free(r->buf);
}

int mr_checkpoint_verify(const struct mr_checkpoint_params *p, const struct mr_checkpoint_place *at, const char *dir,
                         const struct mr_checkpoint_list *l, uint64_t *read_ns, struct mr_error *err)
{
    struct mr_checkpoint_reading r = {.at = at,
                                      .direct = p->direct,
                                      .threads = p->threads,
                                      .piece_bytes = p->buffer_bytes,
                                      .stopped = p->stopped,
                                      .user = p->user};
    int rc = mr_checkpoint_reading_add(&r, dir, l, err);
    rc = rc ? rc : mr_checkpoint_reading_run(&r, err);
    *read_ns += atomic_load(&r.read_ns);
    mr_checkpoint_reading_done(&r);
    return rc;
}
