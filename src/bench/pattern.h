/* The access patterns of real applications, as system calls: what `pattern` and `file_access` of a workload say is done
 * here, for `millrace run` and `millrace workloads check` alike. It lies beside the loader, not on it: a pattern
 * replays the calls another program made (whole files in pieces, records in two sizes, everything at the start), which
 * a loader would do better. Rows of a batch are the samples' bytes as they lie in the file; they are not decoded. Of
 * samples of several fields (those selected of the data set) an item has every field's bytes, one behind the other, and a
 * row is the first one's value; with sequential_samples an item is a run of samples, read field by field. Of samples that
 * share units (pages of Parquet) an item is the units of its run, each read once, and a row an equal part of their bytes.
 *
 *      items   0 1 2 3 | 4 5 6 7 | 8 9 ...     an item is a file or a record; need(step): first item the step can do
 *              consumed^  frontier^  ^next ^allowed       without
 *
 * Readers take items in turn, never beyond `allowed`; asking for a step allows its items, having it those of the
 * `prefetch` steps behind it. With no readers the caller of mr_pattern_next reads. With read_type memory one pass is
 * read before the first step and served for all epochs.
 *
 * Threads: one consumer thread calls preload, next, release and finish; stop and get_stats from any. */
#ifndef MR_BENCH_PATTERN_H
#define MR_BENCH_PATTERN_H

#include "conf/workload.h"
#include "dataset/dataset_parts.h"
#include "store/store.h"

#include <millrace/loader.h>
#include <millrace/order.h>

/* Reads are cut into pieces of bytes[0], bytes[1], ... in turn, as the application did; n = 0: not at all. Borrowed. */
struct mr_pattern_cut {
    const uint64_t *bytes;
    unsigned n;
};

/* Part of a file of the data set. */
struct mr_pattern_range {
    uint64_t file, offset, bytes;
    bool overwrite; /* each piece goes to the start of the buffer: the calls matter, not the bytes */
};

/* Where items are read from; embedded as the first member. Used by one thread. */
struct mr_pattern_source {
    int (*read)(struct mr_pattern_source *s, const struct mr_pattern_range *r, uint8_t *to, struct mr_error *err);
    void (*free)(struct mr_pattern_source *s);
    uint64_t read_bytes; /* so far */
};

struct mr_pattern_params {
    const struct mr_workload *workload;
    const struct mr_dataset *dataset; /* says where samples lie; read through `store` */
    struct mr_store *store;
    uint32_t rank, world;
    uint64_t seed;
    unsigned readers, prefetch;
    uint64_t file_passes;             /* of all ranks together; 0: each file once per epoch */
    uint64_t max_steps;               /* 0: all epochs. Nothing is read for later ones */
    bool drop_last;                   /* of files or samples that do not divide evenly, and of the last batch */
    bool whole_epochs;                /* items that no batch needs are read, too */
    bool keep;                        /* batches have rows; otherwise what was read is dropped */
    bool verify;                      /* compare with the generated content; needs keep */
    struct mr_pattern_source *source; /* another way to read than the store, in the consumer's thread: readers is
                                         ignored. Or NULL */
    bool (*over)(void *user);         /* asked by waits; or NULL */
    /* Emulated preprocessing of samples [first, first + n); in the thread that read them. Or NULL. */
    void (*prepare)(void *user, uint64_t epoch, uint64_t first, uint64_t n);
    void *user;
};

struct mr_pattern_batch {
    uint32_t n;
    const void *const *rows; /* NULL without keep */
    const uint64_t *bytes, *ids;
    uint64_t sample_bytes, read_bytes;
};

struct mr_pattern;

/* Errors: MR_E_CONFIG when the pattern does not fit the data set, -ENOMEM, -errno. */
int mr_pattern_open(const struct mr_pattern_params *p, struct mr_pattern **out, struct mr_error *err);
void mr_pattern_close(struct mr_pattern *s);             /* waits for its readers; accepts NULL */
uint64_t mr_pattern_batches(const struct mr_pattern *s); /* per epoch */
uint64_t mr_pattern_items(const struct mr_pattern *s);   /* of this rank, in all */
/* read_type memory: reads everything. Otherwise lets readers fill the queue. Once, before the first step. */
int mr_pattern_preload(struct mr_pattern *s, struct mr_error *err);
/* Read calls that the next step's items take beyond what was read already. */
uint64_t mr_pattern_pieces(struct mr_pattern *s);
/* The batch of the next step; valid until release. MR_E_INTERRUPTED after stop. */
int mr_pattern_next(struct mr_pattern *s, struct mr_pattern_batch *out, struct mr_error *err);
void mr_pattern_release(struct mr_pattern *s);
/* After the last step: reads the files that are left of the list (file_passes, whole_epochs), and waits. */
int mr_pattern_finish(struct mr_pattern *s, struct mr_error *err);
void mr_pattern_stop(struct mr_pattern *s);
void mr_pattern_get_stats(struct mr_pattern *s, struct mr_loader_stats *out);

/* ---- parts ---- */

/* The order that a workload's shuffle keys and file_access ask for, over samples or, for unit file, files. */
void mr_pattern_order(const struct mr_workload *w, struct mr_order_params *out);
/* The pieces in which a workload reads files and records. Points into the workload. */
struct mr_pattern_cut mr_pattern_cut(const struct mr_workload *w);
/* The k-th piece of a read of which `left` bytes are left; the pieces of a read; the largest of them. */
uint64_t mr_pattern_cut_bytes(const struct mr_pattern_cut *c, uint64_t k, uint64_t left);
uint64_t mr_pattern_cut_count(const struct mr_pattern_cut *c, uint64_t bytes);
uint64_t mr_pattern_cut_largest(const struct mr_pattern_cut *c, uint64_t bytes);
/* Reads at the front of a file, as pattern.header_* say. */
int mr_pattern_read_header(const struct mr_conf_pattern *p, struct mr_store *store, const char *path,
                           uint64_t file_bytes, struct mr_error *err);
/* Writes files FOLDER/STEM-RANK-I of these sizes, one call each. */
int mr_pattern_write_files(struct mr_store *store, const char *folder, const char *stem, uint32_t rank,
                           const uint64_t *bytes, unsigned n, bool fsync, struct mr_error *err);

#endif
