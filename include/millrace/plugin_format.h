/* A file format, as a plug-in provides it (and as every built-in one does): how samples lie in files. A format never
 * opens a file by itself; it reads and writes ranges of mr_objects, so that O_DIRECT, io_uring, an emulated PFS or an
 * object store need no format code.
 *
 *   writing   writer_open, then per sample sample_begin / sample_data* / sample_end, then writer_close. Samples arrive
 * in pieces, so a 600 MB record needs no 600 MB of memory. sample_end says where the sample lies (mr_sample_ref).
 *   finding   scan: lists the samples of a file anybody wrote. Used once, by `millrace scan`; the manifest keeps the
 *             result.
 *   reading   plan:   which byte ranges of the file hold the sample (normally one; an HDF5 sample may span chunks)
 *             read:   the caller reads them, with any store, thread or queue, into one buffer, one after the other
 *             decode: bytes -> sample, in memory, no I/O
 *
 * What a file needs to be understood later (dtype, shape, chunk map, which zip member) is its layout: opaque bytes that
 * scan and writer_close produce and that the manifest keeps, once for all files that share it. plan and decode get it
 * back. Layouts are little-endian, start with a version byte, and are untrusted input: decode checks every field.
 *
 * A file that can only be read as a whole (gzip around TFRecord or CSV, several samples in one deflated zip member) has
 * access MR_ACCESS_UNPACK: the reader unpacks it once (unpack), keeps the result while samples of it are wanted, and
 * plan's ranges then refer to the unpacked bytes. Nothing is ever re-read per sample.
 *
 * Thread safety: ops are called from many threads at once; a writer belongs to one thread, a decoder as well; plan,
 * cost and decode keep no state of their own. Errors: negative codes with a message that names file, offset, want and
 * have: MR_E_FORMAT (not such a file), MR_E_CORRUPT (a checksum), MR_E_LIMIT (beyond the limits below),
 * MR_E_UNSUPPORTED (a spec this format cannot write). All input is hostile: check every count, size and offset against
 * the file and the limits before use. Costs: plan and decode run once per sample on the loader's threads; no allocation
 * there in the steady state, use mr_decoder_scratch.
 *
 * How to write one: examples/plugins/format_skeleton.c; the conformance suite takes plug-ins
 * (doc/guides/plugins.md). */
#ifndef MILLRACE_PLUGIN_FORMAT_H
#define MILLRACE_PLUGIN_FORMAT_H

#include <millrace/dtype.h>
#include <millrace/error.h>
#include <millrace/field.h>
#include <millrace/plugin_store.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

#define MR_FORMAT_ABI 2
#define MR_LABEL_NONE INT64_MIN

enum mr_compression { MR_COMP_NONE, MR_COMP_GZIP, MR_COMP_ZIP };

/* Limits against bombs; a file that wants more is refused with MR_E_LIMIT, naming the limit. */
#define MR_LIMIT_SAMPLE_BYTES ((uint64_t)64 << 30)
#define MR_LIMIT_UNPACKED_BYTES ((uint64_t)16 << 30)
#define MR_LIMIT_UNPACK_RATIO 1100u /* deflate cannot exceed 1032 */
#define MR_LIMIT_HEADER_BYTES (1u << 20)

/* What a sample is. */
struct mr_sample_info {
    uint64_t id; /* global sample number */
    enum mr_dtype dtype;
    struct mr_dims dims; /* of this sample, without a batch axis */
    uint64_t bytes;      /* payload = product(dims) * dtype size */
    int64_t label;       /* or MR_LABEL_NONE */
    uint64_t
        file_bytes; /* jpeg, png: the size that shape was asked for, to which the encoding is padded; 0: as it comes */
    const char *suffix; /* what a file with these bytes would be called, e.g. "jpg"; NULL: not known */
};

struct mr_extent {
    uint64_t offset, length;
};

/* Where a sample lies in its file: what the manifest keeps for it. Meaning of `aux` is the format's (row in a
 * chunk...). */
struct mr_sample_ref {
    struct mr_extent raw;
    uint32_t aux;  /* 24 bits are kept */
    int64_t label; /* 32 bits are kept; MR_LABEL_NONE allowed */
};

struct mr_layout {
    void *data; /* malloc'ed where a function returns one */
    size_t len;
};

enum mr_access {
    MR_ACCESS_RANGE,  /* plan's ranges are read and decoded */
    MR_ACCESS_UNPACK, /* the file is read and unpacked as a whole; plan's ranges are of the unpacked file */
    /* Samples share a unit (a page, a chunk of rows) that is read and unpacked as a whole: plan gives the unit's
     * ranges, unpack turns them into what decode takes. Readers keep the last units; their first range identifies them.
     */
    MR_ACCESS_UNIT,
};

enum mr_read_flags {
    MR_READ_VERIFY = 1, /* check stored checksums; may enlarge the planned ranges */
};

/* What one sample costs to read: told by `millrace show` and used by the advisor. */
struct mr_read_cost {
    enum mr_access access;
    double bytes_read_per_payload_byte; /* 1.0 = no amplification */
    bool verbatim;                      /* this layout: planned ranges (without VERIFY) are exactly the payload */
    const char *note;                   /* e.g. "deflated: whole member is inflated" */
    uint64_t unpack_key; /* MR_ACCESS_UNPACK: layouts of a file's fields with equal keys unpack to the same bytes */
};

/* A part of a picture of full_height x full_width pixels. */
struct mr_part {
    uint64_t top, left, height, width;
    uint64_t full_height, full_width;
    /* 2, 4 or 8: at this share of its size in each direction; 0 and 1: as it is. What the caller asks for is a
     * permission. In what a decoder says of its result, top, left, height and width count reduced pixels, of which the
     * picture has full_height / shrink and full_width / shrink, rounded up; full_* stay what they are. */
    unsigned shrink;
};
/* Which part of a picture the caller needs: full_* are set; the function sets the others, inside the picture. */
typedef int mr_choose_part_fn(void *user, struct mr_part *part, struct mr_error *err);

/* Result of decode. If `dst` is NULL or the payload is already contiguous in raw, data may point into raw. */
struct mr_sample_out {
    void *dst;        /* in: where the payload should go, or NULL */
    size_t dst_cap;   /* in */
    const void *data; /* out: dst, or inside raw */
    size_t bytes;     /* out; if dst is too small: MR_E_LIMIT and bytes = what is needed */
    enum mr_dtype dtype;
    struct mr_dims dims;
    int64_t label;
    /* in, pictures: asked once the size is known; NULL: all of it. A format that can leave out the rest calls it,
     * decodes at least that part with the very pixels a full decoding has (but see shrink), and says in `part` which
     * part dims and data are. Others ignore it and leave part.full_height at 0. Damage outside the part may go
     * unnoticed. */
    mr_choose_part_fn *choose_part;
    void *choose_user;
    struct mr_part part; /* out */
};

/* Per-thread scratch for decoders (inflate state, JPEG objects, temporary rows). Create one per thread. */
struct mr_decoder;
struct mr_decoder *mr_decoder_create(void);
void mr_decoder_free(struct mr_decoder *d);
/* A scratch buffer of at least `bytes`, slot 0..3; NULL when out of memory. */
void *mr_decoder_scratch(struct mr_decoder *d, unsigned slot, size_t bytes);
/* A format's own per-thread object, freed with the decoder. `key` is a unique address (the format's ops). */
void **mr_decoder_private(struct mr_decoder *d, const void *key, void (*free_fn)(void *));

/* What a writer is to produce. */
struct mr_writer_spec {
    uint64_t samples; /* in this file; known beforehand */
    enum mr_dtype dtype;
    struct mr_dims dims; /* of one sample; n = 0: sizes vary, 1-d */
    bool fixed_size;     /* all samples have `dims` */
    enum mr_compression compression;
    int compression_level;
    struct mr_dims chunk_dims; /* hdf5 */
    unsigned quality;          /* jpeg, 1..100 */
    uint64_t content_seed;     /* jpeg: noise */
};

struct mr_writer { /* first member of a format's own writer */
    const struct mr_format_ops *ops;
};

typedef int mr_scan_fn(void *user, const struct mr_sample_ref *ref, const char *key, struct mr_error *err);

enum mr_format_caps {
    MR_FMT_MULTI = 1,     /* several samples per file */
    MR_FMT_VARSIZE = 2,   /* samples of one file may differ in size */
    MR_FMT_LABEL = 4,     /* the file itself carries the label */
    MR_FMT_CHECKSUM = 8,  /* MR_READ_VERIFY checks something */
    MR_FMT_LOSSY = 16,    /* decode(write(x)) only resembles x */
    MR_FMT_VERBATIM = 32, /* without VERIFY, plan's ranges can be exactly the payload, to be read in place; whether
                             they are is told per layout by cost (compressed or byte-swapped files are not) */
    MR_FMT_DTYPE = 64,    /* dtype and shape survive the round trip; otherwise samples are bytes */
};

struct mr_format_ops {
    uint32_t abi, size;
    const char *name; /* "npz" */
    const char *doc;
    const char *extensions; /* ".npz"; comma-separated; for scan by name */
    unsigned caps;

    /* Every operation is set; one that makes no sense points to a stub below. Those marked optional may be NULL. */

    /* Chooses dtype and dims of a sample for a requested size (jpeg: the image whose encoding comes near it). Default
     * (mr_format_shape_flat): a 1-d array of exactly that size, rounded to whole elements. */
    int (*shape)(const struct mr_writer_spec *spec, uint64_t want_bytes, struct mr_sample_info *info,
                 struct mr_error *err);
    /* Produces bytes [offset, offset+len) of the payload of sample info->id. Default: mr_content_fill. jpeg: pixels. */
    void (*synth)(const struct mr_writer_spec *spec, const void *content, const struct mr_sample_info *info,
                  uint64_t offset, void *dst, size_t len);
    /* Is `have` the content that synth makes? Default: equality (returns 0); lossy formats: near enough. On mismatch
     * MR_E_CORRUPT naming the first differing byte or the distance. */
    int (*check)(const struct mr_writer_spec *spec, const void *content, const struct mr_sample_info *info,
                 const struct mr_sample_out *have, struct mr_error *err);

    int (*writer_open)(struct mr_store *s, const char *path, const struct mr_writer_spec *spec, struct mr_writer **out,
                       struct mr_error *err);
    int (*sample_begin)(struct mr_writer *w, const struct mr_sample_info *info, struct mr_error *err);
    int (*sample_data)(struct mr_writer *w, const void *data, size_t len, struct mr_error *err);
    int (*sample_end)(struct mr_writer *w, struct mr_sample_ref *ref, struct mr_error *err);
    /* Optional: where the next `len` bytes of the sample may be made in place, to be handed to sample_data at once;
     * NULL: not now, use a buffer of your own. Saves a copy of small samples. */
    void *(*sample_room)(struct mr_writer *w, size_t len);
    /* Frees w in any case. ref of earlier samples stay valid. The file is complete, not yet fsynced. */
    int (*writer_close)(struct mr_writer *w, struct mr_layout *layout, uint64_t *file_bytes, struct mr_error *err);
    void (*writer_abort)(struct mr_writer *w); /* frees w and leaves whatever is there; accepts NULL */
    /* Optional, both or none: one file written by several writers at once, each its range of samples, where samples
     * take equally many bytes. part_bytes: how many that is; 0: not with this spec. `one` is any sample of the file;
     * its label is the largest of all. part_open: a writer of samples [first, first + n), n > 1, which leaves the rest
     * of the file as it is; the one with the last sample sets the file's size. Its writer_close gives the layout of the
     * whole file, and as file_bytes where the part ends. */
    uint64_t (*part_bytes)(const struct mr_writer_spec *spec, const struct mr_sample_info *one);
    int (*part_open)(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                     const struct mr_sample_info *one, uint64_t first, uint64_t n, struct mr_writer **out,
                     struct mr_error *err);
    /* Other files that belong to `path` (index side-cars), "" terminated list of suffixes, e.g. ".off.idx\0.sz.idx\0"
     */
    const char *side_suffixes;

    int (*scan)(struct mr_store *s, const char *path, mr_scan_fn *fn, void *user, struct mr_layout *layout,
                struct mr_error *err);
    /* The same, but the first axis of the array counts samples (`millrace scan --rows`). Only for formats whose files
     * do not say it themselves (npy, npz: there scan takes the whole array as one sample); NULL elsewhere. */
    int (*scan_rows)(struct mr_store *s, const char *path, mr_scan_fn *fn, void *user, struct mr_layout *layout,
                     struct mr_error *err);

    int (*cost)(const struct mr_layout *layout, struct mr_read_cost *out, struct mr_error *err);
    /* Turns whole-file bytes into unpacked bytes (malloc'ed); only for layouts with MR_ACCESS_UNPACK. */
    int (*unpack)(const struct mr_layout *layout, const void *raw, size_t len, void **out, size_t *out_len,
                  struct mr_error *err);
    /* Fills up to `max` extents, sets *n; MR_E_LIMIT and *n = needed if max is too small. */
    int (*plan)(const struct mr_layout *layout, const struct mr_sample_ref *ref, unsigned flags, struct mr_extent *ext,
                unsigned max, unsigned *n, struct mr_error *err);
    /* raw = the planned extents, concatenated. Same flags as for plan. */
    int (*decode)(struct mr_decoder *d, const struct mr_layout *layout, const struct mr_sample_ref *ref, unsigned flags,
                  const void *raw, size_t len, struct mr_sample_out *out, struct mr_error *err);

    /* ---- up to here: what a plug-in compiled before there were fields has ---- */

    const struct mr_field_ops *fields; /* samples of several fields; NULL: they are one payload and a label */
};

/* ---- several fields (doc/internals/fields.md) ----
 *
 * Each field of a file has a layout and, per sample, a ref of its own: `plan`, `decode`, `cost` and `unpack` above work
 * on those of one field, as they do on those of a file with one. So a projection is planned by planning its fields. */

/* Where a scan reports. All called by the thread that scans, with `user`. A negative result ends the scan. */
struct mr_field_sink {
    void *user;
    /* Fields that were asked for, by name; 0: all there are. */
    const char *const *wanted;
    unsigned n_wanted;
    /* One sample: the ref of each field in the order of `done`, borrowed. refs[0].label is the sample's label; refs of
     * fields that are stored as MR_FIELD_LABEL are not looked at. */
    int (*sample)(void *user, const struct mr_sample_ref *refs, unsigned n, const char *key, struct mr_error *err);
    /* Once, behind the last sample: the fields of this file, the primary one first, as all its samples have them; and
     * their layouts, whose data become the sink's (NULL for fields stored as MR_FIELD_LABEL). */
    int (*done)(void *user, const struct mr_field *fields, struct mr_layout *layouts, unsigned n, struct mr_error *err);
};

enum mr_scan_flags { MR_SCAN_ROWS = 1 /* the first axis of an array counts samples */ };

/* Rows of a unit: n values of `each` bytes, one behind the other; the sample in question is row `before`. each = 0: they
 * differ in size. */
struct mr_unit_rows {
    const void *values;
    uint64_t each, n, before;
};

/* Memory of a unit, malloc'ed; NULL: none yet. */
struct mr_unit_memory {
    void *data;
    size_t cap;
};
#define MR_UNIT_HEAD 64u /* bytes before raw bytes that are read into such memory */

struct mr_field_ops {
    uint32_t size; /* sizeof(struct mr_field_ops) as the format was compiled */
    /* Finds samples and fields. A sample without one of the fields is MR_E_FORMAT, naming sample and field. */
    int (*scan)(struct mr_store *s, const char *path, unsigned flags, const struct mr_field_sink *sink,
                struct mr_error *err);

    /* Writing; all NULL: files of several fields cannot be written. The order of values: true: all samples of field 0,
     * then all of field 1 and so on; false: all fields of sample 0, then of sample 1. Fields stored as MR_FIELD_LABEL
     * are written by the format itself, from info->label of field 0. */
    bool by_field;
    int (*writer_open)(struct mr_store *s, const char *path, const struct mr_writer_spec *spec,
                       const struct mr_field *fields, unsigned n, struct mr_writer **out, struct mr_error *err);
    int (*begin)(struct mr_writer *w, unsigned field, const struct mr_sample_info *info, struct mr_error *err);
    int (*data)(struct mr_writer *w, const void *data, size_t len, struct mr_error *err);
    int (*end)(struct mr_writer *w, unsigned field, struct mr_sample_ref *ref, struct mr_error *err);
    /* Frees w in any case; n layouts, as for `done` above. */
    int (*writer_close)(struct mr_writer *w, struct mr_layout *layouts, uint64_t *file_bytes, struct mr_error *err);
    void (*writer_abort)(struct mr_writer *w);

    /* ---- up to here: what a plug-in compiled before this line has ---- */

    /* How the manifest of a written file says that values lie in it: RAW, but for formats that put files into files. */
    enum mr_field_storage writes_as;
    /* Optional, with MR_ACCESS_UNIT: the values of a unit's rows, of which `ref` is one, where they have one size. Sample
     * i + 1 of a file is then the row behind sample i. `unit` is what unpack made; the values lie in it. */
    int (*rows)(const struct mr_layout *layout, const struct mr_sample_ref *ref, const void *unit, size_t len,
                struct mr_unit_rows *out, struct mr_error *err);
    /* Optional, with `rows`: unpack into memory that was used before and may be reallocated. */
    int (*unpack_into)(const struct mr_layout *layout, const void *raw, size_t len, struct mr_unit_memory *m,
                       size_t *out_len, struct mr_error *err);
    /* Optional, with unpack_into: the `len` raw bytes lie in m->data from MR_UNIT_HEAD on and become the unit where they
     * are. 1: they cannot, and are as they were. With len 0: is it worth trying? 0 or 1. */
    int (*unpack_here)(const struct mr_layout *layout, struct mr_unit_memory *m, size_t len, size_t *out_len,
                       struct mr_error *err);
};
/* Has the format this operation? Not if it was compiled before there was one. */
#define MR_FIELD_OPS_HAVE(ops, op) ((ops)->size >= offsetof(struct mr_field_ops, op) + sizeof((ops)->op) && (ops)->op)
/* The format's, or NULL; also of a plug-in that was compiled before there were any. */
const struct mr_field_ops *mr_format_fields(const struct mr_format_ops *ops);

/* Adds a format under its name; `ops` must outlive all use. abi, size, name and operations are checked:
 * MR_E_UNSUPPORTED, MR_E_USAGE, -EEXIST (the name is taken), MR_E_LIMIT. At the start, before other threads use
 * formats. */
int mr_format_register(const struct mr_format_ops *ops, struct mr_error *err);

/* Defaults and shared stubs for the table. */
int mr_format_shape_flat(const struct mr_writer_spec *spec, uint64_t want_bytes, struct mr_sample_info *info,
                         struct mr_error *err);
void mr_format_synth_content(const struct mr_writer_spec *spec, const void *content, const struct mr_sample_info *info,
                             uint64_t offset, void *dst, size_t len);
int mr_format_check_equal(const struct mr_writer_spec *spec, const void *content, const struct mr_sample_info *info,
                          const struct mr_sample_out *have, struct mr_error *err);
int mr_format_no_unpack(const struct mr_layout *layout, const void *raw, size_t len, void **out, size_t *out_len,
                        struct mr_error *err);
int mr_format_plan_single(const struct mr_layout *layout, const struct mr_sample_ref *ref, unsigned flags,
                          struct mr_extent *ext, unsigned max, unsigned *n, struct mr_error *err);
/* A decode operation: the planned bytes are the payload, handed out in place as one row of uint8. */
int mr_format_decode_bytes(struct mr_decoder *d, const struct mr_layout *layout, const struct mr_sample_ref *ref,
                           unsigned flags, const void *raw, size_t len, struct mr_sample_out *out,
                           struct mr_error *err);
/* Did the writer get the bytes that sample_begin announced? MR_E_INTERNAL if not. */
int mr_format_check_written(const struct mr_sample_info *info, uint64_t written, struct mr_error *err);
/* A malloc'ed copy of `data` as a layout. */
int mr_layout_make(const void *data, size_t len, struct mr_layout *layout, struct mr_error *err);

/* ---- writing a file front to back ----
 *
 * Small puts are gathered in a buffer; a piece of at least MR_STREAM_DIRECT bytes goes to the store as it is, without a
 * copy; optionally through gzip. Belongs to one thread. After a failure every further put fails with the same code;
 * close or abort frees in any case. */
#define MR_STREAM_DIRECT (256u * 1024u)

struct mr_stream_out;

/* Creates (or truncates) `path`. `buffer_bytes` is the size of a gathered write; 0 = 512 KiB. */
int mr_stream_out_open(struct mr_store *s, const char *path, enum mr_compression compression, int level,
                       size_t buffer_bytes, struct mr_stream_out **out, struct mr_error *err);
/* A part of a file that others write as well: from `offset` on, what else is there stays. The part that ends at
 * `whole_bytes` sets the file's size. whole_bytes = 0: a file of its own, as with mr_stream_out_open. */
int mr_stream_out_open_part(struct mr_store *s, const char *path, size_t buffer_bytes, uint64_t offset,
                            uint64_t whole_bytes, struct mr_stream_out **out, struct mr_error *err);
int mr_stream_out_put(struct mr_stream_out *o, const void *data, size_t len, struct mr_error *err);
int mr_stream_out_zeros(struct mr_stream_out *o, size_t len, struct mr_error *err);
/* Room for `len` bytes (at most half the buffer) to print into; mr_stream_out_advance tells how many were used. */
char *mr_stream_out_room(struct mr_stream_out *o, size_t len, struct mr_error *err);
void mr_stream_out_advance(struct mr_stream_out *o, size_t len);
/* The place where the next put of `len` bytes would be copied to, or NULL when it does not fit there as a whole. What
 * is made there and then put is not copied. */
void *mr_stream_out_here(struct mr_stream_out *o, size_t len);
/* Bytes put so far: the position in the file, or in the unpacked stream of a gzip file. */
uint64_t mr_stream_out_position(const struct mr_stream_out *o);
/* Flushes, closes, frees. *file_bytes (may be NULL) is the size on storage. */
int mr_stream_out_close(struct mr_stream_out *o, uint64_t *file_bytes, struct mr_error *err);
void mr_stream_out_abort(struct mr_stream_out *o); /* accepts NULL */

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
