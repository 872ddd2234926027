/* Fetching: the one implementation of "get these ranges of this sample to this place", for the reader of a data set,
 * the loader's threads and its queue.
 *
 *   planner: sample -> ranges (the format's) -> reads (neighbours merged, whole blocks where asked) ─┐
 *                                                                                                    v
 *   source:  { store | memory | ... }  read now, or start ... flush ... reap  ──> bytes at a place, as the plan says
 *                                                                                                    v
 *   collect: the wanted ranges, one behind the other, ready for decode
 *
 * A plan says what is wanted; a source says where it comes from, so that new sources (a node's memory, its SSD, a peer)
 * need no engine to change. To add one: fill struct mr_fetch_source_ops; fetch_memory.c is the shortest.
 *
 * Planner, source and plan belong to one thread. No memory is allocated once the largest plan has been seen, apart from
 * what opening a file takes. */
#ifndef MR_DATASET_FETCH_H
#define MR_DATASET_FETCH_H

#include "base/common.h"
#include "dataset/dataset_parts.h"
#include "dataset/file_cache.h"

#define MR_FETCH_BLOCK 4096u /* direct reads take whole blocks; no file system asks for larger ones */

/* Ranges of a sample that follow each other in the file with at most GAP bytes in between are one read if the one
 * behind the gap has at most SMALL bytes. A read of its own costs a microsecond when the page cache answers, as much as
 * copying 10 KiB, and 20 to 100 when a device does, as much as transferring 64 KiB and more; a merged one reads the gap
 * and moves the range to its place. Ranges without a gap are always one read. */
#define MR_FETCH_GAP (16 * MR_KIB)
#define MR_FETCH_SMALL (64 * MR_KIB)

/* ---- plans ---- */

struct mr_fetch_range {
    struct mr_extent extent; /* in the file (in the unpacked file, with MR_ACCESS_UNPACK) */
    uint64_t at;             /* where it will lie, from the place on */
};

struct mr_fetch_read {
    uint64_t from, to;  /* of the file; whole blocks where the planner has an alignment */
    uint64_t wanted_to; /* the last wanted byte lies before it */
    uint64_t at;        /* where `from` goes */
};

/* Smaller ranges of neighbouring fields are read together over gaps of at most a page, which the page cache and devices
 * move as a whole anyway; so bytes of fields that were not selected are not read beyond that. */
#define MR_FETCH_FIELD_GAP (4 * MR_KIB)

/* One selected field of a sample. */
struct mr_fetch_slice {
    unsigned field; /* of the schema */
    struct mr_sample_ref ref;
    struct mr_layout layout; /* borrowed from the manifest */
    enum mr_access access;
    bool verbatim; /* its ranges are its value */
    bool alone;    /* large and verbatim: its reads are its own, to be read in place */
    unsigned first_range, n_ranges, first_read, n_reads;
    uint64_t at, length; /* among the sample's ranges, one behind the other */
    uint64_t unpack_key;
};

/* What one sample takes. Zero-initialise; mr_fetch_done frees it. */
struct mr_fetch {
    uint64_t id;
    struct mr_manifest_pos pos;
    struct mr_layout layout; /* borrowed from the manifest */
    enum mr_access access;   /* UNPACK: there are ranges, and no reads */
    bool verbatim;           /* the ranges are the payload */
    unsigned n_ranges, n_reads, cap;
    struct mr_fetch_range *range;
    struct mr_fetch_read *read;
    uint64_t length; /* of all ranges */
    uint64_t room;   /* that the reads take at the place */
    /* With fields: n_slices > 0; layout, verbatim and pos.ref are then the primary field's or not set, and access is
     * UNPACK or UNIT if that of any slice is. */
    unsigned n_slices, slice_cap;
    struct mr_fetch_slice *slice;
};
void mr_fetch_done(struct mr_fetch *f);

struct mr_fetch_planner {
    const struct mr_dataset *ds;
    const struct mr_manifest *manifest;
    const struct mr_format_ops *format;
    unsigned align;      /* reads start and end at multiples of it */
    bool merge;          /* neighbours are one read */
    unsigned max_ranges; /* of a sample */
    uint64_t cost_layout;
    struct mr_read_cost cost; /* of that layout */
    struct mr_layout layout;  /* the same; borrowed from the manifest */
    struct mr_planned_field { /* the same per selected field */
        uint64_t cost_layout;
        struct mr_read_cost cost;
        struct mr_layout layout;
    } * field;
    struct mr_extent *extent;
    unsigned extent_cap;
};
void mr_fetch_planner_init(struct mr_fetch_planner *p, const struct mr_dataset *ds, unsigned align, bool merge,
                           unsigned max_ranges);
void mr_fetch_planner_done(struct mr_fetch_planner *p);
/* Plans sample `id`; flags: MR_READ_*. 0; MR_FETCH_MANY when it has more ranges than max_ranges; MR_E_USAGE (no such
 * sample), MR_E_FORMAT, MR_E_LIMIT, -ENOMEM. `pos` is set as soon as it is known, for messages. */
#define MR_FETCH_MANY 1
/* The steps of it (fetch_plan.c), for the plan of several fields (fetch_fields.c). */
int mr_fetch_reserve(struct mr_fetch *f, unsigned n, struct mr_error *err);
int mr_fetch_ask_format(struct mr_fetch_planner *p, const struct mr_layout *layout, const struct mr_sample_ref *ref,
                        unsigned flags, unsigned *n, struct mr_error *err);
/* gap: over how many bytes it may be read together with the last range; MR_FETCH_APART: not at all. */
#define MR_FETCH_APART UINT64_MAX
int mr_fetch_add_range(const struct mr_fetch_planner *p, struct mr_fetch *f, const struct mr_extent *e, bool is_read,
                       uint64_t gap, struct mr_error *err);
int mr_fetch_plan_fields(struct mr_fetch_planner *p, struct mr_fetch *f, unsigned flags, struct mr_error *err);
/* A plan of one field of the schema, as slice 0. */
int mr_fetch_plan_one(struct mr_fetch_planner *p, struct mr_fetch *f, uint64_t id, unsigned field,
                      struct mr_error *err);
int mr_fetch_plan(struct mr_fetch_planner *p, uint64_t id, unsigned flags, struct mr_fetch *out, struct mr_error *err);
/* 128 bits that stand for the stored bytes of all samples: of the manifest, and of whether checksums are among them
 * (flags: MR_DATASET_VERIFY, where the format has some). What is kept from run to run goes by it. */
void mr_stored_key(const struct mr_dataset *ds, unsigned flags, uint8_t out[16]);
/* Closes up what lies between the ranges at `place` and says where they begin. */
uint8_t *mr_fetch_collect(const struct mr_fetch *f, uint8_t *place);
/* Copies the ranges from `place` to `to`, one behind the other. */
void mr_fetch_copy(const struct mr_fetch *f, const uint8_t *place, uint8_t *to);

/* ---- sources ---- */

enum mr_fetch_kind { MR_FETCH_STORE, MR_FETCH_RAM };

struct mr_fetch_source;

/* A sample on its way through a source's queue; the caller's, stays put from start until reap gives it back. */
struct mr_fetch_job {
    struct mr_fetch plan; /* in */
    uint8_t *place;       /* in: plan.room bytes */
    void *user;
    int code; /* out: 0, or the first failure */
    struct mr_error error;
    bool is_short;      /* out: wanted bytes did not come, e.g. because the file ends; reading now says why */
    uint64_t got;       /* out: bytes that came */
    uint64_t submit_ns; /* out, where times were asked for: when the first read went out */
    /* The source's. */
    unsigned now, pieces;
    uint64_t issued;
    struct mr_cached_file *file;
    struct mr_fetch_job *next;
    char path[2 * MR_NAME_MAX];
};

struct mr_fetch_source_ops {
    const char *name;
    enum mr_fetch_kind kind;
    /* Where the sample's ranges lie already, one behind the other; NULL: they must be read. */
    const void *(*borrow)(struct mr_fetch_source *s, const struct mr_fetch *f);
    /* Does the reads of the plan; complete when it returns. */
    int (*read)(struct mr_fetch_source *s, const struct mr_fetch *f, void *place, struct mr_error *err);
    /* The whole file into `to`; MR_E_CHANGED when it does not have `bytes` bytes. */
    int (*read_file)(struct mr_fetch_source *s, uint64_t file, void *to, uint64_t bytes, struct mr_error *err);

    /* Queued. room: a job may be started now. start: 0, MR_FETCH_LATER (reap something first), or a negative code and
     * the job is the caller's again. flush: what was started goes out. reap: waits until something comes back and lists
     * the jobs that are complete; negative when the queue cannot be made, with nothing in flight. drain: all that is in
     * flight, and the rest of a job of which only a part went out, with MR_E_INTERRUPTED. leave: gives the queue back,
     * in the thread that used it. */
    bool (*room)(struct mr_fetch_source *s);
    int (*start)(struct mr_fetch_source *s, struct mr_fetch_job *j, struct mr_error *err);
    void (*flush)(struct mr_fetch_source *s);
    int (*reap)(struct mr_fetch_source *s, struct mr_fetch_job **done, struct mr_error *err);
    void (*drain)(struct mr_fetch_source *s, struct mr_fetch_job **done);
    void (*leave)(struct mr_fetch_source *s);
    void (*free)(struct mr_fetch_source *s);
};
#define MR_FETCH_LATER 1

/* The first member of every source. */
struct mr_fetch_source {
    const struct mr_fetch_source_ops *ops;
    uint64_t read_bytes;         /* from storage, so far */
    unsigned in_flight;          /* requests */
    _Atomic uint64_t wait_since; /* when the reap that is running began; 0: none is */
    uint64_t reaped_ns;          /* when the last one ended */
    uint64_t wait_ns;            /* in reap */
};
void mr_fetch_source_free(struct mr_fetch_source *s); /* accepts NULL */
/* For sources without a queue. */
#define MR_FETCH_NO_QUEUE                                                                                              \
    .room = mr_fetch_no_room, .start = mr_fetch_no_start, .flush = mr_fetch_no_flush, .reap = mr_fetch_no_reap,        \
    .drain = mr_fetch_no_drain, .leave = mr_fetch_no_flush
bool mr_fetch_no_room(struct mr_fetch_source *s);
int mr_fetch_no_start(struct mr_fetch_source *s, struct mr_fetch_job *j, struct mr_error *err);
void mr_fetch_no_flush(struct mr_fetch_source *s);
int mr_fetch_no_reap(struct mr_fetch_source *s, struct mr_fetch_job **done, struct mr_error *err);
void mr_fetch_no_drain(struct mr_fetch_source *s, struct mr_fetch_job **done);

struct mr_fetch_store_options {
    struct mr_store *store; /* NULL: the data set's */
    unsigned open_flags;    /* MR_OBJ_DIRECT */
    uint64_t open_files;
    uint64_t transfer_bytes;  /* reads are cut into pieces of it, as another program would; 0: not at all */
    unsigned depth;           /* of the queue; 0: there is none */
    bool scattered;           /* neighbours in the order lie in different files: one that is not open is not kept */
    bool stamps;              /* fill in submit_ns */
    const struct iovec *slab; /* memory that places lie in, to be registered with the queue; borrowed */
    unsigned n_slabs;
};
int mr_fetch_store_create(const struct mr_dataset *ds, const struct mr_fetch_store_options *o,
                          struct mr_fetch_source **out, struct mr_error *err);

#endif
