/* Reading samples, one thread at a time: see <millrace/dataset.h>. Steps: manifest -> place, format plan -> ranges,
 * store -> bytes, format decode -> payload. Files with several samples stay open in a small cache, files that must be
 * unpacked as a whole stay unpacked in another; both forget the least recently used.
 *
 * Hot path (file open, buffers grown): no malloc, no lock, one read per range. Payload bytes that need no decoding are
 * read straight into their destination. */
#include "base/clock.h"
#include "base/common.h"
#include "dataset/dataset_parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPEN_FILES 16u /* unless tuned */
#define OPEN_WAYS 8u   /* places where an open file may be */
#define UNPACKED_FILES 64u
#define UNPACKED_BYTES MR_GIB
#define NO_FILE UINT64_MAX
#define SEEN_FILES ((uint64_t)1 << 20) /* of so many it is remembered whether they were opened before */

struct open_file {
    uint64_t file, used;
    struct mr_object *object;
};

struct unpacked_file {
    uint64_t file, used;
    void *data;
    size_t len;
};

struct mr_dataset_reader {
    struct mr_dataset *ds;
    const struct mr_manifest *manifest;
    const struct mr_format_ops *format;
    struct mr_decoder *decoder;
    struct open_file *open; /* file f in one of the OPEN_WAYS places from f % open_sets * OPEN_WAYS on */
    unsigned open_sets;
    struct unpacked_file unpacked[UNPACKED_FILES];
    unsigned last_open; /* slot of the file that was read last: mostly the next one's, too */
    uint64_t tick, unpacked_bytes;
    uint8_t *raw; /* page-aligned */
    size_t raw_cap;
    struct mr_extent *extent;
    unsigned extent_cap;
    uint64_t cost_layout; /* layout that `cost` is about */
    struct mr_read_cost cost;
    struct mr_sample_out known; /* what decoding in place said of a sample of that layout; bytes 0: nothing yet */
    uint64_t transfer_bytes;    /* 0: a range is one read */
    unsigned open_flags;
    uint8_t *seen; /* one bit per file */
    struct mr_reader_times times;
    char path[2 * MR_NAME_MAX];
};

/* Room for `files` open files; keeps what there is when memory is short. */
static void make_open(struct mr_dataset_reader *r, uint64_t files)
{
    unsigned sets = (unsigned)((files + OPEN_WAYS - 1) / OPEN_WAYS);
    struct open_file *open = calloc(sets, OPEN_WAYS * sizeof(*open));
    if (!open)
        return;
    for (unsigned i = 0; i < sets * OPEN_WAYS; i++)
        open[i].file = NO_FILE;
    free(r->open);
    r->open = open;
    r->open_sets = sets;
    r->last_open = 0;
}

int mr_dataset_reader_create(struct mr_dataset *ds, struct mr_dataset_reader **out, struct mr_error *err)
{
    struct mr_dataset_reader *r = calloc(1, sizeof(*r));
    if (r) {
        r->ds = ds;
        r->manifest = mr_dataset_manifest(ds);
        r->format = mr_dataset_format(ds);
        r->cost_layout = NO_FILE;
        r->extent_cap = 16;
        r->extent = calloc(r->extent_cap, sizeof(*r->extent));
        r->decoder = mr_decoder_create();
        make_open(r, OPEN_FILES);
        for (unsigned i = 0; i < UNPACKED_FILES; i++)
            r->unpacked[i].file = NO_FILE;
    }
    if (r)
        r->seen = calloc(1, MR_MIN(mr_manifest_get_info(r->manifest)->files, SEEN_FILES) / 8 + 1);
    if (!r || !r->extent || !r->decoder || !r->seen || !r->open) {
        mr_dataset_reader_free(r);
        return mr_error_set(err, -ENOMEM, "cannot make a reader");
    }
    *out = r;
    return 0;
}

static void forget_open(struct open_file *f)
{
    mr_object_close(f->object, NULL); /* opened for reading: nothing can be lost */
    *f = (struct open_file){.file = NO_FILE};
}

static void forget_unpacked(struct mr_dataset_reader *r, struct unpacked_file *f)
{
    r->unpacked_bytes -= f->len;
    free(f->data);
    *f = (struct unpacked_file){.file = NO_FILE};
}

void mr_dataset_reader_free(struct mr_dataset_reader *r)
{
    if (!r)
        return;
    for (unsigned i = 0; i < r->open_sets * OPEN_WAYS; i++)
        if (r->open[i].object)
            forget_open(&r->open[i]);
    for (unsigned i = 0; i < UNPACKED_FILES; i++)
        if (r->unpacked[i].data)
            forget_unpacked(r, &r->unpacked[i]);
    mr_decoder_free(r->decoder);
    free(r->open);
    free(r->extent);
    free(r->seen);
    free(r->raw);
    free(r);
}

void mr_dataset_reader_tune(struct mr_dataset_reader *r, uint64_t transfer_bytes, unsigned open_flags,
                            uint64_t open_files)
{
    uint64_t files = MR_MIN(open_files, mr_manifest_get_info(r->manifest)->files);
    if (files > r->open_sets * OPEN_WAYS)
        make_open(r, files);
    r->transfer_bytes = transfer_bytes;
    r->open_flags = open_flags;
}

const struct mr_reader_times *mr_dataset_reader_times(const struct mr_dataset_reader *r)
{
    return &r->times;
}

static int grow_raw(struct mr_dataset_reader *r, uint64_t bytes, struct mr_error *err)
{
    if (bytes <= r->raw_cap)
        return 0;
    uint64_t cap = MR_ALIGN_UP(bytes + bytes / 4 + 1, 4096);
    if (bytes > MR_LIMIT_SAMPLE_BYTES)
        return mr_error_plain(err, MR_E_LIMIT, "a sample of %llu bytes is beyond the limit of %llu",
                              (unsigned long long)bytes, (unsigned long long)MR_LIMIT_SAMPLE_BYTES);
    free(r->raw);
    r->raw_cap = 0;
    r->raw = aligned_alloc(4096, cap);
    if (!r->raw)
        return mr_error_set(err, -ENOMEM, "cannot get a buffer of %llu bytes", (unsigned long long)cap);
    r->raw_cap = cap;
    return 0;
}

static struct open_file *find_open(struct mr_dataset_reader *r, uint64_t file)
{
    if (r->open[r->last_open].file == file)
        return &r->open[r->last_open];
    unsigned first = (unsigned)(file % r->open_sets) * OPEN_WAYS;
    for (unsigned i = first; i < first + OPEN_WAYS; i++)
        if (r->open[i].file == file)
            return &r->open[r->last_open = i];
    return NULL;
}

/* The place that the file takes: in its set the one that was used least recently. */
static struct open_file *oldest_open(struct mr_dataset_reader *r, uint64_t file)
{
    struct open_file *set = &r->open[file % r->open_sets * OPEN_WAYS], *oldest = set;
    for (struct open_file *f = set + 1; f < set + OPEN_WAYS; f++)
        if (f->used < oldest->used)
            oldest = f;
    return oldest;
}

static int open_file(struct mr_dataset_reader *r, uint64_t file, struct mr_object **out, struct mr_error *err)
{
    unsigned flags = MR_OBJ_READ | r->open_flags;
    int rc = mr_dataset_file_path(r->ds, file, r->path, err);
    if (rc < 0)
        return rc;
    if (file < SEEN_FILES && r->seen[file / 8] & 1u << file % 8)
        flags |= MR_OBJ_KNOWN;
    rc = mr_object_open(mr_dataset_store(r->ds), r->path, flags, out, err);
    if (rc >= 0 && file < SEEN_FILES)
        r->seen[file / 8] |= (uint8_t)(1u << file % 8);
    return rc < 0 ? rc : 0;
}

/* The file's object. A file with one sample is opened for this read only: *transient says that the caller closes it. */
static int get_object(struct mr_dataset_reader *r, uint64_t file, struct mr_object **out, bool *transient,
                      struct mr_error *err)
{
    uint64_t first, n;
    mr_manifest_file_samples(r->manifest, file, &first, &n);
    *transient = n == 1;
    if (n == 1)
        return open_file(r, file, out, err);
    struct open_file *f = find_open(r, file);
    if (MR_LIKELY(f != NULL)) {
        f->used = ++r->tick;
        *out = f->object;
        return 0;
    }
    int rc = open_file(r, file, out, err);
    if (rc < 0)
        return rc;
    f = oldest_open(r, file);
    if (f->object)
        forget_open(f);
    *f = (struct open_file){.file = file, .used = ++r->tick, .object = *out};
    return 0;
}

static int read_and_unpack(struct mr_dataset_reader *r, struct mr_object *o, uint64_t file,
                           const struct mr_layout *layout, void **data, size_t *len, struct mr_error *err)
{
    uint64_t bytes, want = mr_manifest_file_bytes(r->manifest, file);
    int rc = mr_object_size(o, &bytes, err);
    if (rc < 0)
        return rc;
    if (bytes != want)
        return mr_error_plain(err, MR_E_CHANGED, "the file has %llu bytes, the manifest says %llu",
                              (unsigned long long)bytes, (unsigned long long)want);
    if ((rc = grow_raw(r, bytes, err)) < 0 || (rc = mr_object_read(o, r->raw, bytes, 0, err)) < 0)
        return rc;
    return r->format->unpack(layout, r->raw, bytes, data, len, err);
}

static struct unpacked_file *free_slot(struct mr_dataset_reader *r)
{
    for (unsigned i = 0; i < UNPACKED_FILES; i++)
        if (r->unpacked[i].file == NO_FILE)
            return &r->unpacked[i];
    return NULL;
}

static struct unpacked_file *oldest_unpacked(struct mr_dataset_reader *r)
{
    struct unpacked_file *oldest = NULL;
    for (unsigned i = 0; i < UNPACKED_FILES; i++)
        if (r->unpacked[i].file != NO_FILE && (!oldest || r->unpacked[i].used < oldest->used))
            oldest = &r->unpacked[i];
    return oldest;
}

static int get_unpacked(struct mr_dataset_reader *r, uint64_t file, const struct mr_layout *layout,
                        const struct unpacked_file **out, struct mr_error *err)
{
    struct unpacked_file *slot = NULL;
    for (unsigned i = 0; i < UNPACKED_FILES; i++)
        if (r->unpacked[i].file == file) {
            r->unpacked[i].used = ++r->tick;
            *out = &r->unpacked[i];
            return 0;
        }
    struct mr_object *o;
    bool transient;
    void *data = NULL;
    size_t len = 0;
    int rc = get_object(r, file, &o, &transient, err);
    if (rc < 0)
        return rc;
    rc = read_and_unpack(r, o, file, layout, &data, &len, err);
    if (transient)
        mr_object_close(o, NULL);
    if (rc < 0)
        return rc;
    while (!(slot = free_slot(r)) || (r->unpacked_bytes && r->unpacked_bytes + len > UNPACKED_BYTES))
        forget_unpacked(r, oldest_unpacked(r));
    *slot = (struct unpacked_file){.file = file, .used = ++r->tick, .data = data, .len = len};
    r->unpacked_bytes += len;
    *out = slot;
    return 0;
}

static int plan(struct mr_dataset_reader *r, const struct mr_layout *layout, const struct mr_sample_ref *ref,
                unsigned flags, unsigned *n, uint64_t *total, struct mr_error *err)
{
    int rc = r->format->plan(layout, ref, flags, r->extent, r->extent_cap, n, err);
    if (rc == MR_E_LIMIT && *n > r->extent_cap && *n < (1u << 24)) {
        struct mr_extent *grown = realloc(r->extent, *n * sizeof(*grown));
        if (!grown)
            return mr_error_set(err, -ENOMEM, "cannot plan a sample of %u ranges", *n);
        r->extent = grown;
        r->extent_cap = *n;
        rc = r->format->plan(layout, ref, flags, r->extent, r->extent_cap, n, err);
    }
    *total = 0;
    for (unsigned i = 0; rc >= 0 && i < *n; i++)
        if (__builtin_add_overflow(*total, r->extent[i].length, total) || *total > MR_LIMIT_SAMPLE_BYTES)
            return mr_error_plain(err, MR_E_LIMIT, "the ranges of the sample are beyond the limit of %llu bytes",
                                  (unsigned long long)MR_LIMIT_SAMPLE_BYTES);
    return rc;
}

static int read_in_pieces(struct mr_dataset_reader *r, struct mr_object *o, struct mr_extent e, uint8_t *dst,
                          struct mr_error *err)
{
    int rc = 0;
    for (uint64_t at = 0; rc >= 0 && at < e.length; at += r->transfer_bytes)
        rc = mr_object_read(o, dst + at, MR_MIN(r->transfer_bytes, e.length - at), e.offset + at, err);
    return rc;
}

static int read_extents(struct mr_dataset_reader *r, struct mr_object *o, const struct mr_extent *e, unsigned n,
                        uint8_t *dst, struct mr_error *err)
{
    for (unsigned i = 0; i < n; i++) {
        int rc = r->transfer_bytes ? read_in_pieces(r, o, e[i], dst, err)
                                   : mr_object_read(o, dst, e[i].length, e[i].offset, err);
        if (rc < 0)
            return rc;
        dst += e[i].length;
        r->times.read_bytes += e[i].length;
    }
    return 0;
}

static int copy_extents(const struct unpacked_file *u, const struct mr_extent *e, unsigned n, uint8_t *dst,
                        struct mr_error *err)
{
    for (unsigned i = 0; i < n; i++) {
        if (e[i].offset > u->len || e[i].length > u->len - e[i].offset)
            return mr_error_plain(err, MR_E_FORMAT,
                                  "unexpected end of the unpacked file (want %llu bytes at %llu, have %zu)",
                                  (unsigned long long)e[i].length, (unsigned long long)e[i].offset, u->len);
        memcpy(dst, (const uint8_t *)u->data + e[i].offset, e[i].length);
        dst += e[i].length;
    }
    return 0;
}

/* Brings the planned bytes into memory: into the caller's buffer when they are the payload and fit, else the reader's
 * own, or, from an unpacked file, in place when there is one range. */
static int fetch(struct mr_dataset_reader *r, const struct mr_manifest_pos *pos, const struct mr_layout *layout,
                 unsigned n, uint64_t total, uint8_t *dst, const uint8_t **raw, struct mr_error *err)
{
    int rc;
    if (r->cost.access == MR_ACCESS_UNPACK) {
        const struct unpacked_file *u;
        if ((rc = get_unpacked(r, pos->file, layout, &u, err)) < 0)
            return rc;
        if (n == 1 && r->extent[0].offset <= u->len && r->extent[0].length <= u->len - r->extent[0].offset) {
            *raw = (const uint8_t *)u->data + r->extent[0].offset;
            return 0;
        }
        if ((rc = grow_raw(r, total, err)) < 0)
            return rc;
        *raw = r->raw;
        return copy_extents(u, r->extent, n, r->raw, err);
    }
    if (!dst) {
        if ((rc = grow_raw(r, MR_MAX(total, 1), err)) < 0)
            return rc;
        dst = r->raw;
    }
    struct mr_object *o;
    bool transient;
    if ((rc = get_object(r, pos->file, &o, &transient, err)) < 0)
        return rc;
    rc = read_extents(r, o, r->extent, n, dst, err);
    if (transient)
        mr_object_close(o, NULL);
    *raw = dst;
    return rc;
}

static int know_cost(struct mr_dataset_reader *r, uint64_t file, const struct mr_layout *layout, struct mr_error *err)
{
    uint64_t id = mr_manifest_file_layout_id(r->manifest, file);
    if (MR_LIKELY(id == r->cost_layout))
        return 0;
    r->cost_layout = NO_FILE;
    r->known.bytes = 0;
    int rc = r->format->cost(layout, &r->cost, err);
    if (rc >= 0)
        r->cost_layout = id;
    return rc;
}

static int read_at(struct mr_dataset_reader *r, const struct mr_manifest_pos *pos, unsigned flags, void *dst,
                   size_t cap, struct mr_sample_out *out, struct mr_error *err)
{
    struct mr_layout layout;
    unsigned n = 0, format_flags = flags & MR_DATASET_VERIFY ? MR_READ_VERIFY : 0;
    uint64_t total = 0;
    const uint8_t *raw = NULL;
    int rc;
    r->times.start_ns = r->times.fetched_ns = r->times.decoded_ns = 0;
    mr_manifest_file_layout(r->manifest, pos->file, &layout);
    if ((rc = know_cost(r, pos->file, &layout, err)) < 0 ||
        (rc = plan(r, &layout, &pos->ref, format_flags, &n, &total, err)) < 0)
        return rc;
    bool in_place = dst && (r->cost.verbatim || flags & MR_DATASET_RAW) && !format_flags &&
                    r->cost.access == MR_ACCESS_RANGE && total <= cap;
    uint64_t start = mr_now_ns();
    rc = fetch(r, pos, &layout, n, total, in_place ? dst : NULL, &raw, err);
    uint64_t fetched = mr_now_ns();
    r->times.read_ns += fetched - start;
    r->times.start_ns = start;
    r->times.fetched_ns = fetched;
    if (rc < 0)
        return rc;
    if (flags & MR_DATASET_RAW) {
        *out = (struct mr_sample_out){
            .data = raw, .bytes = total, .dtype = MR_U8, .dims = {1, {total}}, .label = out->label};
        return 0;
    }
    out->dst = in_place ? NULL : dst;
    out->dst_cap = in_place ? 0 : cap;
    if (in_place && r->known.bytes == total && total) {
        *out = r->known;
        out->data = raw;
        out->label = pos->ref.label;
        return 0;
    }
    rc = r->format->decode(r->decoder, &layout, &pos->ref, format_flags, raw, total, out, err);
    /* Where all samples of a file are alike, what was said of one holds for every one of this layout and size. */
    if (rc >= 0 && in_place && !(r->format->caps & MR_FMT_VARSIZE) && out->bytes == total)
        r->known = *out;
    if (!in_place) { /* in place there is nothing to decode, and a look at the clock costs more than the nothing */
        r->times.decoded_ns = mr_now_ns();
        r->times.decode_ns += r->times.decoded_ns - fetched;
    }
    return rc;
}

static const char dtype_name[MR_DTYPE_COUNT][sizeof(((struct mr_sample *)0)->dtype)] = {
#define DTYPE_NAME(name, numpy, bytes) [name] = numpy,
    MR_DTYPE_LIST(DTYPE_NAME)
#undef DTYPE_NAME
};

/* Decoders may hand out a pointer into the raw bytes; a caller who gave a buffer wants them there. */
static int deliver(const struct mr_sample_out *o, void *dst, size_t cap, struct mr_sample *out, struct mr_error *err)
{
    out->bytes = o->bytes;
    if (dst && o->data != dst) {
        if (o->bytes > cap)
            return mr_error_plain(err, MR_E_LIMIT, "the sample has %zu bytes, the buffer %zu", o->bytes, cap);
        memcpy(dst, o->data, o->bytes);
    }
    out->data = dst ? dst : o->data;
    out->label = o->label;
    out->n_dims = o->dims.n;
    for (unsigned d = 0; d < o->dims.n; d++)
        out->dims[d] = o->dims.dim[d];
    memcpy(out->dtype, dtype_name[o->dtype], sizeof out->dtype);
    return 0;
}

int mr_dataset_read(struct mr_dataset_reader *r, uint64_t id, unsigned flags, void *dst, size_t cap,
                    struct mr_sample *out, struct mr_error *err)
{
    struct mr_manifest_pos pos;
    int rc = mr_manifest_locate(r->manifest, id, &pos, err);
    if (rc < 0)
        return rc;
    struct mr_sample_out o = {.label = pos.ref.label};
    rc = read_at(r, &pos, flags, dst, cap, &o, err);
    if (pos.ref.label != MR_LABEL_NONE)
        o.label = pos.ref.label;
    if (rc >= 0)
        rc = deliver(&o, dst, cap, out, err);
    else if (rc == MR_E_LIMIT && o.bytes > cap && dst)
        out->bytes = o.bytes;
    if (MR_UNLIKELY(rc < 0)) {
        if (mr_dataset_file_path(r->ds, pos.file, r->path, NULL) < 0)
            snprintf(r->path, sizeof r->path, "file %llu", (unsigned long long)pos.file);
        mr_error_context(err, "in sample %llu of '%s'", (unsigned long long)id, r->path);
        if (rc != MR_E_LIMIT)
            mr_error_hint(err, "'millrace verify %s' lists all that is wrong", mr_dataset_root(r->ds));
    }
    return rc < 0 ? rc : 0;
}
