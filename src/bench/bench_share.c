/* Ranks that read for others: reader.file_access collective and mpio. Samples come from a loader that is in a group
 * (<millrace/loader.h>); files and records from the access patterns, one for each rank that is read for, through the
 * same exchange (loader/group_share.h). This file has what belongs to the benchmark: the communication behind a group,
 * and MPI-IO as a source of bytes.
 *
 * Through MPI-IO the readers open a single shared file together and read with collective calls, of which every reader
 * makes equally many (the largest number that one needs; the others read nothing); several files are opened by each
 * reader alone. MPI-IO goes past the storage stack, so only a bare "posix" is replaced by it. */
#include "bench/bench_feed.h"
#include "base/common.h"
#include "loader/group_share.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* MPI-IO as a source of bytes. */
struct mpi_source {
    struct mr_fetch_source base;
    struct share *share;
};

/* The pattern of one rank that this one reads for. */
struct inner {
    struct feed *feed;
    struct feed_batch batch;
};

struct share {
    struct mr_comm *comm;
    struct mr_loader_group group;
    uint32_t n_inner;
    struct inner *inner;
    struct mr_group_share *exchange;
    bool shared_file; /* MPI-IO: one handle for all readers */
    struct mr_comm_file *file;
    char path[2 * MR_NAME_MAX]; /* of `file` */
    uint64_t calls, wanted;     /* collective reads made for this batch, and to be made */
    struct mr_fetch_cut cut;
    struct mr_dataset *set; /* MPI-IO: where files lie */
    struct mpi_source source;
};

static struct share *share_of(struct mr_fetch_source *s)
{
    return ((struct mpi_source *)s)->share;
}

bool mr_share_wanted(const struct mr_bench_params *p)
{
    const struct mr_workload *w = p->workload;
    bool collective = w->reader.file_access == MR_FA_COLLECTIVE || w->reader.file_access == MR_FA_MPIO;
    return collective && w->dataset.format != MR_CF_SYNTHETIC && w->pattern.unit != MR_UNIT_NONE;
}

static bool uses_mpi_io(const struct mr_bench_params *p)
{
    const struct mr_workload *w = p->workload;
    bool can = mr_comm_has_mpi_io(p->comm) && w->pattern.unit != MR_UNIT_SAMPLE &&
               w->reader.read_type != MR_READ_MEMORY && (!p->store || !*p->store || !strcmp(p->store, "posix"));
    return can || w->reader.file_access == MR_FA_MPIO;
}

/* The same answer on every rank. */
int mr_share_check(const struct mr_bench_params *p, struct mr_error *err)
{
    const struct mr_workload *w = p->workload;
    bool mpio = w->reader.file_access == MR_FA_MPIO, memory = w->reader.read_type == MR_READ_MEMORY;
    if (mpio && !mr_comm_has_mpi_io(p->comm)) {
        mr_error_plain(err, MR_E_CONFIG, "reader.file_access mpio needs MPI");
        return mr_error_hint(err, "start with 'mpirun -n N millrace run ...', or say 'reader.file_access=collective'"),
               MR_E_CONFIG;
    }
    if (mpio && w->pattern.unit == MR_UNIT_SAMPLE) {
        mr_error_plain(err, MR_E_CONFIG, "reader.file_access mpio reads files or records, not through the loader");
        return mr_error_hint(err, "add 'pattern.unit=record', or say 'reader.file_access=collective'"), MR_E_CONFIG;
    }
    if (mpio && p->store && *p->store && strcmp(p->store, "posix") != 0)
        return mr_error_plain(err, MR_E_CONFIG, "reader.file_access mpio cannot read through the storage stack '%s'",
                              p->store);
    if (memory && (mpio || w->pattern.unit == MR_UNIT_SAMPLE)) {
        mr_error_plain(err, MR_E_CONFIG, "reader.read_type memory and reader.file_access %s do not go together here",
                       mpio ? "mpio" : "collective");
        return mr_error_hint(err, "with 'reader.file_access=collective pattern.unit=file' they do"), MR_E_CONFIG;
    }
    if (w->pattern.same_offsets && w->pattern.collective_readers > 1)
        return mr_error_plain(err, MR_E_CONFIG,
                              "with pattern.same_offsets all ranks get one batch, which one rank reads: "
                              "pattern.collective_readers must be 1");
    return 0;
}

/* ---- the communication of a group ---- */

static int group_max(void *user, uint64_t *v, size_t n, struct mr_error *err)
{
    return mr_comm_allreduce_u64(user, v, n, MR_COMM_MAX, err);
}

static int group_bcast(void *user, void *buf, size_t len, uint32_t root, struct mr_error *err)
{
    return mr_comm_bcast(user, buf, len, root, err);
}

static int group_agree(void *user, int code, struct mr_error *err)
{
    return mr_comm_agree(user, code, err);
}

static void group_fail(void *user, const struct mr_error *why)
{
    mr_comm_fail(user, why);
}

struct mr_loader_group mr_share_group(const struct mr_bench_params *p)
{
    return (struct mr_loader_group){
        .rank = p->comm->rank,
        .world = p->comm->world,
        .readers = (uint32_t)MR_MIN(p->workload->pattern.collective_readers, (int64_t)p->comm->world),
        .user = p->comm,
        .max_u64 = group_max,
        .bcast = group_bcast,
        .agree = group_agree,
        .fail = group_fail};
}

/* ---- MPI-IO ---- */

static int open_alone(struct share *s, const char *path, struct mr_error *err)
{
    if (s->file && !strcmp(path, s->path))
        return 0;
    mr_comm_file_close(s->comm, s->file);
    s->file = NULL;
    snprintf(s->path, sizeof s->path, "%s", path);
    return mr_comm_file_open(s->comm, path, 0, &s->file, err);
}

static int read_mpi_read(struct share *s, const struct mr_fetch_read *r, uint8_t *place, bool overwrite,
                         struct mr_error *err)
{
    uint64_t bytes = r->to - r->from;
    int rc = 0;
    for (uint64_t at = 0, k = 0; !rc && at < bytes; k++) {
        uint64_t n = mr_fetch_cut_bytes(&s->cut, k, bytes - at);
        s->calls++;
        rc = mr_comm_file_read(s->comm, s->file, overwrite ? place : place + r->at + at, n, r->from + at, err);
        at += n;
        s->source.base.read_bytes += rc ? 0 : n;
    }
    return rc;
}

static int read_mpi(struct mr_fetch_source *base, const struct mr_fetch *f, void *place, struct mr_error *err)
{
    struct share *s = share_of(base);
    char path[2 * MR_NAME_MAX];
    int rc = s->shared_file ? 0 : mr_dataset_file_path(s->set, f->pos.file, path, err);
    if (!rc && !s->shared_file)
        rc = open_alone(s, path, err);
    for (unsigned i = 0; !rc && i < f->n_reads; i++)
        rc = read_mpi_read(s, &f->read[i], place, f->overwrite, err);
    return rc;
}

static int no_whole_file(struct mr_fetch_source *base, uint64_t file, void *to, uint64_t bytes, struct mr_error *err)
{
    (void)base, (void)file, (void)to, (void)bytes;
    return mr_error_plain(err, MR_E_UNSUPPORTED, "MPI-IO reads ranges of files only");
}

static const void *nothing_to_borrow(struct mr_fetch_source *base, const struct mr_fetch *f)
{
    (void)base, (void)f;
    return NULL;
}

static const struct mr_fetch_source_ops mpi_ops = {.name = "mpi-io",
                                                   .kind = MR_FETCH_STORE,
                                                   .borrow = nothing_to_borrow,
                                                   .read = read_mpi,
                                                   .read_file = no_whole_file,
                                                   MR_FETCH_NO_QUEUE,
                                                   .free = mr_fetch_no_flush}; /* lies in the share */

static int open_mpi(struct share *s, const struct mr_bench_params *p, struct mr_error *err)
{
    struct mr_dataset_info info = {0};
    bool reader = s->comm->rank < s->group.readers;
    char folder[4200];
    mr_bench_set_path(p, false, folder, sizeof folder);
    int rc = reader ? mr_dataset_open(folder, NULL, &s->set, err) : 0;
    if (!rc && reader) {
        mr_dataset_get_info(s->set, &info);
        rc = mr_dataset_file_path(s->set, 0, s->path, err);
    }
    if ((rc = mr_comm_agree(s->comm, rc, err)))
        return rc;
    s->cut = mr_pattern_cut(p->workload);
    s->source = (struct mpi_source){.base = {.ops = &mpi_ops}, .share = s};
    s->shared_file = info.files == 1;
    if (!s->shared_file)
        s->path[0] = '\0';
    rc = s->shared_file ? mr_comm_file_open(s->comm, s->path, s->group.readers, &s->file, err) : 0;
    return mr_comm_agree(s->comm, rc, err);
}

/* What the reader with the most to read needs, all make. */
static int agree_on_calls(void *user, struct mr_error *err)
{
    struct share *s = user;
    s->wanted = s->calls = 0;
    for (uint32_t i = 0; i < s->n_inner && s->shared_file; i++)
        s->wanted += mr_feed_pieces(s->inner[i].feed);
    return mr_comm_allreduce_u64(s->comm, &s->wanted, 1, MR_COMM_MAX, err);
}

static int make_up_calls(void *user, struct mr_error *err)
{
    struct share *s = user;
    int rc = 0;
    for (; s->shared_file && s->calls < s->wanted; s->calls++) {
        struct mr_error why;
        int one = mr_comm_file_read(s->comm, s->file, NULL, 0, 0, &why);
        if (one && !rc) {
            rc = one;
            *err = why;
        }
    }
    return rc;
}

/* ---- patterns in the exchange ---- */

static int inner_start(void *user, uint64_t epoch, struct mr_error *err)
{
    return mr_feed_start_epoch(((struct inner *)user)->feed, epoch, err);
}

static int inner_next(void *user, struct mr_share_rows *out, struct mr_error *err)
{
    struct inner *x = user;
    int rc = mr_feed_next(x->feed, &x->batch, err);
    if (rc > 0)
        *out = (struct mr_share_rows){
            .n = x->batch.n, .rows = x->batch.rows, .bytes = x->batch.bytes, .read_bytes = x->batch.read_bytes};
    return rc;
}

static void inner_release(void *user)
{
    struct inner *x = user;
    mr_feed_release(x->feed, &x->batch);
    x->batch = (struct feed_batch){0};
}

static void inner_stop(void *user)
{
    mr_feed_stop(((struct inner *)user)->feed);
}

static const struct mr_share_feed_ops inner_ops = {
    .start_epoch = inner_start, .next = inner_next, .release = inner_release, .stop = inner_stop};

/* ---- opening ---- */

static int open_inner(struct share *s, const struct mr_bench_params *p, struct mr_error *err)
{
    uint32_t n = mr_group_feeds(&s->group);
    bool mpi = s->source.base.ops;
    const struct mr_share_around around = {.before = agree_on_calls, .after = make_up_calls, .user = s};
    void **feeds = calloc(n + 1, sizeof(void *));
    s->inner = calloc(n + 1, sizeof(*s->inner));
    int rc = feeds && s->inner ? 0 : mr_error_set(err, -ENOMEM, "cannot share batches among the ranks");
    for (uint32_t i = 0; i < n && !rc; i++) {
        rc = mr_feed_open_for(p, false, s->group.rank + i * s->group.readers, mpi ? &s->source.base : NULL,
                              &s->inner[i].feed, err);
        s->n_inner += !rc;
        feeds[i] = &s->inner[i];
    }
    if (!rc)
        rc = mr_group_share_create(&s->group, (uint32_t)p->workload->reader.batch_size, &inner_ops, feeds,
                                   mpi ? &around : NULL, &s->exchange, err);
    free(feeds);
    return rc;
}

int mr_share_open(const struct mr_bench_params *p, struct share **out, uint64_t *batches, struct mr_error *err)
{
    struct share *s = calloc(1, sizeof(*s));
    int rc = mr_comm_agree(p->comm, s ? 0 : mr_error_set(err, -ENOMEM, "cannot share batches among the ranks"), err);
    if (rc || !s) {
        free(s);
        return rc;
    }
    s->comm = p->comm;
    s->group = mr_share_group(p);
    if (uses_mpi_io(p))
        rc = open_mpi(s, p, err);
    if (!rc)
        rc = mr_comm_agree(s->comm, open_inner(s, p, err), err);
    uint64_t n = UINT64_MAX;
    for (uint32_t i = 0; i < s->n_inner; i++)
        n = MR_MIN(n, mr_feed_batches(s->inner[i].feed));
    if (!rc)
        rc = mr_comm_allreduce_u64(s->comm, &n, 1, MR_COMM_MIN, err);
    if (rc) {
        mr_share_close(s);
        return rc;
    }
    *batches = n;
    *out = s;
    return 0;
}

void mr_share_detach(struct share *s)
{
    mr_comm_file_close(s->comm, s->file);
    s->file = NULL;
}

void mr_share_close(struct share *s)
{
    if (!s)
        return;
    mr_share_detach(s);
    mr_group_share_free(s->exchange);
    for (uint32_t i = 0; i < s->n_inner; i++)
        mr_feed_close(s->inner[i].feed);
    mr_dataset_close(s->set);
    free(s->inner);
    free(s);
}

/* ---- one interface ---- */

int mr_share_start_epoch(struct share *s, uint64_t epoch, struct mr_error *err)
{
    return mr_group_share_start_epoch(s->exchange, epoch, err);
}

int mr_share_next(struct share *s, struct feed_batch *out, struct mr_error *err)
{
    struct mr_share_rows own;
    int rc = mr_group_share_next(s->exchange, false, &own, err);
    if (rc <= 0)
        return rc;
    *out = (struct feed_batch){.n = own.n, .rows = own.rows, .bytes = own.bytes, .read_bytes = own.read_bytes};
    for (uint32_t i = 0; i < own.n; i++)
        out->sample_bytes += own.bytes[i];
    return rc;
}

int mr_share_finish(struct share *s, struct mr_error *err)
{
    int rc = 0;
    for (uint32_t i = 0; i < s->n_inner && !rc && !s->source.base.ops; i++)
        rc = mr_feed_finish(s->inner[i].feed, err);
    return rc;
}

void mr_share_stop(struct share *s)
{
    mr_group_share_stop(s->exchange);
}

void mr_share_stats(struct share *s, struct mr_bench_loader_stats *out)
{
    struct mr_loader_stats sum = {0};
    for (uint32_t i = 0; i < s->n_inner; i++) {
        mr_feed_stats(s->inner[i].feed, out);
        sum.batches += out->stats.batches;
        sum.samples += out->stats.samples;
        sum.sample_bytes += out->stats.sample_bytes;
        sum.read_bytes += out->stats.read_bytes;
        sum.wait_ns += out->stats.wait_ns;
        sum.read_ns += out->stats.read_ns;
        sum.transform_ns += out->stats.transform_ns;
        sum.idle_ns += out->stats.idle_ns;
        sum.slab_bytes += out->stats.slab_bytes;
        sum.threads += out->stats.threads;
    }
    out->stats = sum;
}
