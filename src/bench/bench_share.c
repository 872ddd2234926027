/* Batches that few ranks read and all get: reader.file_access collective and mpio.
 *
 *   rank 0, 1, ... readers-1 read        rank r's batch is read by rank r mod readers
 *   every rank                            gets it by broadcast
 *
 *     reader g:  next of the feed of g, g + readers, ...   ──┐ status of all      for g = 0 ... readers-1:
 *     others:    nothing                                    ──┴─ allreduce ──────>  broadcast sizes, broadcast rows,
 * keep own
 *
 * Through MPI-IO the readers open a single shared file together and read with collective calls, of which every reader
 * makes equally many (the largest number that one needs; the others read nothing); several files are opened by each
 * reader alone. MPI-IO goes past the storage stack, so only a bare "posix" is replaced by it.
 *
 * Invariant: every rank enters the same collectives, whatever happened to it: a rank that failed or was told to stop
 * says so in the status, and then nobody broadcasts. Only the rank that failed returns the error; the others
 * "interrupted", so that the step's own agreement names the right one. */
#include "bench/bench_feed.h"
#include "base/common.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { STATUS_GOOD, STATUS_STOPPED, STATUS_FAILED };

/* MPI-IO as a source of bytes. */
struct mpi_source {
    struct mr_fetch_source base;
    struct share *share;
};

struct share {
    struct mr_comm *comm;
    uint32_t readers, n_inner, batch_size;
    struct feed **inner;        /* of the ranks this one reads for */
    struct feed_batch *batches; /* theirs */
    uint64_t *head;             /* per rank of a reader's: rows, then bytes of each */
    uint8_t *pack, *mine;       /* all rows of a reader; this rank's */
    size_t pack_cap, mine_cap;
    const void **rows;
    uint64_t *bytes;
    bool shared_file; /* MPI-IO: one handle for all readers */
    struct mr_comm_file *file;
    char path[2 * MR_NAME_MAX]; /* of `file` */
    uint64_t calls;             /* collective reads made for this batch */
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
static int check_config(const struct mr_bench_params *p, struct mr_error *err)
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
    bool reader = s->comm->rank < s->readers;
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
    rc = s->shared_file ? mr_comm_file_open(s->comm, s->path, s->readers, &s->file, err) : 0;
    return mr_comm_agree(s->comm, rc, err);
}

/* What the reader with the most to read needs, all make. */
static int agree_on_calls(struct share *s, uint64_t *calls, struct mr_error *err)
{
    *calls = 0;
    s->calls = 0;
    if (!s->source.base.ops)
        return 0;
    for (uint32_t i = 0; i < s->n_inner && s->shared_file; i++)
        *calls += mr_feed_pieces(s->inner[i]);
    return mr_comm_allreduce_u64(s->comm, calls, 1, MR_COMM_MAX, err);
}

static int make_up_calls(struct share *s, uint64_t calls, struct mr_error *err)
{
    int rc = 0;
    for (; s->shared_file && s->calls < calls; s->calls++) {
        struct mr_error why;
        int one = mr_comm_file_read(s->comm, s->file, NULL, 0, 0, &why);
        if (one && !rc) {
            rc = one;
            *err = why;
        }
    }
    return rc;
}

/* ---- opening ---- */

static int open_inner(struct share *s, const struct mr_bench_params *p, struct mr_error *err)
{
    uint32_t world = s->comm->world, rank = s->comm->rank, most = (world + s->readers - 1) / s->readers;
    int rc = 0;
    s->inner = calloc(most, sizeof(*s->inner));
    s->batches = calloc(most, sizeof(*s->batches));
    s->head = calloc((size_t)most * (s->batch_size + 1), sizeof(*s->head));
    s->rows = calloc(s->batch_size, sizeof(*s->rows));
    s->bytes = calloc(s->batch_size, sizeof(*s->bytes));
    if (!s->inner || !s->batches || !s->head || !s->rows || !s->bytes)
        return mr_error_set(err, -ENOMEM, "cannot share batches among the ranks");
    for (uint32_t r = rank; rank < s->readers && r < world && !rc; r += s->readers) {
        rc = mr_feed_open_for(p, false, r, s->source.base.ops ? &s->source.base : NULL, &s->inner[s->n_inner], err);
        s->n_inner += !rc;
    }
    return rc;
}

int mr_share_open(const struct mr_bench_params *p, struct share **out, uint64_t *batches, struct mr_error *err)
{
    int rc = check_config(p, err);
    if (rc)
        return rc;
    struct share *s = calloc(1, sizeof(*s));
    rc = mr_comm_agree(p->comm, s ? 0 : mr_error_set(err, -ENOMEM, "cannot share batches among the ranks"), err);
    if (rc) {
        free(s);
        return rc;
    }
    s->comm = p->comm;
    s->readers = (uint32_t)MR_MIN(p->workload->pattern.collective_readers, (int64_t)p->comm->world);
    s->batch_size = (uint32_t)p->workload->reader.batch_size;
    if (uses_mpi_io(p))
        rc = open_mpi(s, p, err);
    if (!rc)
        rc = mr_comm_agree(s->comm, open_inner(s, p, err), err);
    uint64_t n = UINT64_MAX;
    for (uint32_t i = 0; i < s->n_inner; i++)
        n = MR_MIN(n, mr_feed_batches(s->inner[i]));
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
    for (uint32_t i = 0; i < s->n_inner; i++)
        mr_feed_close(s->inner[i]);
    mr_dataset_close(s->set);
    free(s->inner);
    free(s->batches);
    free(s->head);
    free(s->pack);
    free(s->mine);
    free(s->rows);
    free(s->bytes);
    free(s);
}

int mr_share_start_epoch(struct share *s, uint64_t epoch, struct mr_error *err)
{
    int rc = 0;
    for (uint32_t i = 0; i < s->n_inner && !rc; i++)
        rc = mr_feed_start_epoch(s->inner[i], epoch, err);
    return rc;
}

/* ---- a batch ---- */

static int read_all(struct share *s, struct mr_error *err)
{
    int rc = 0;
    for (uint32_t i = 0; i < s->n_inner && !rc; i++) {
        rc = mr_feed_next(s->inner[i], &s->batches[i], err);
        rc = rc > 0 ? 0 : rc < 0 ? rc : mr_error_plain(err, MR_E_INTERNAL, "the loader ended its epoch early");
    }
    return rc;
}

static void release_all(struct share *s)
{
    for (uint32_t i = 0; i < s->n_inner; i++) {
        mr_feed_release(s->inner[i], &s->batches[i]);
        s->batches[i] = (struct feed_batch){0};
    }
}

static int reserve(uint8_t **buf, size_t *cap, size_t want)
{
    if (*cap >= want)
        return 0;
    uint8_t *grown = realloc(*buf, want);
    if (!grown)
        return -ENOMEM;
    *buf = grown;
    *cap = want;
    return 0;
}

/* Own rows of all its ranks, sizes first. */
static void fill_head(struct share *s)
{
    for (uint32_t i = 0; i < s->n_inner; i++) {
        uint64_t *h = s->head + (size_t)i * (s->batch_size + 1);
        h[0] = s->batches[i].n;
        memcpy(h + 1, s->batches[i].bytes, s->batches[i].n * sizeof(*h));
    }
}

static void fill_pack(struct share *s)
{
    uint8_t *to = s->pack;
    for (uint32_t i = 0; i < s->n_inner; i++)
        for (uint32_t k = 0; k < s->batches[i].n; k++) {
            memcpy(to, s->batches[i].rows[k], s->batches[i].bytes[k]);
            to += s->batches[i].bytes[k];
        }
}

static size_t head_bytes(const uint64_t *h)
{
    size_t sum = 0;
    for (uint64_t k = 0; k < h[0]; k++)
        sum += h[1 + k];
    return sum;
}

/* This rank's rows out of what its reader sent. */
static int keep_own(struct share *s, uint32_t place, struct feed_batch *out)
{
    const uint64_t *h = s->head + (size_t)place * (s->batch_size + 1);
    const uint8_t *from = s->pack;
    size_t own = head_bytes(h);
    for (uint32_t i = 0; i < place; i++)
        from += head_bytes(s->head + (size_t)i * (s->batch_size + 1));
    if (reserve(&s->mine, &s->mine_cap, MR_MAX(own, 1u)))
        return -ENOMEM;
    memcpy(s->mine, from, own);
    uint8_t *at = s->mine;
    for (uint64_t k = 0; k < h[0]; k++) {
        s->rows[k] = at;
        s->bytes[k] = h[1 + k];
        at += h[1 + k];
    }
    out->n = (uint32_t)h[0];
    out->rows = s->rows;
    out->bytes = s->bytes;
    out->sample_bytes = own;
    return 0;
}

/* Reader g sends; everybody takes part. Memory that one rank lacks is a failure of the job: it cannot leave the others
 * in the broadcast. */
static int send_from(struct share *s, uint32_t g, struct feed_batch *out, struct mr_error *err)
{
    uint32_t ranks = (s->comm->world - g + s->readers - 1) / s->readers;
    if (s->comm->rank == g)
        fill_head(s);
    int rc = mr_comm_bcast(s->comm, s->head, (size_t)ranks * (s->batch_size + 1) * sizeof(*s->head), g, err);
    size_t sum = 0;
    for (uint32_t i = 0; !rc && i < ranks; i++)
        sum += head_bytes(s->head + (size_t)i * (s->batch_size + 1));
    if (!rc && reserve(&s->pack, &s->pack_cap, MR_MAX(sum, 1u))) {
        rc = mr_error_set(err, -ENOMEM, "no memory for the batches of %u ranks", ranks);
        mr_comm_fail(s->comm, err);
    }
    if (!rc && s->comm->rank == g)
        fill_pack(s);
    if (!rc && sum)
        rc = mr_comm_bcast(s->comm, s->pack, sum, g, err);
    if (!rc && s->comm->rank % s->readers == g && keep_own(s, s->comm->rank / s->readers, out)) {
        rc = mr_error_set(err, -ENOMEM, "no memory for a batch");
        mr_comm_fail(s->comm, err);
    }
    return rc;
}

int mr_share_next(struct share *s, struct feed_batch *out, struct mr_error *err)
{
    uint64_t calls, status, read = 0;
    struct mr_error why;
    int rc = agree_on_calls(s, &calls, err);
    if (rc)
        return rc;
    int mine = read_all(s, err);
    int made = make_up_calls(s, calls, &why);
    if (made && !mine) {
        mine = made;
        *err = why;
    }
    status = !mine ? STATUS_GOOD : mine == MR_E_INTERRUPTED ? STATUS_STOPPED : STATUS_FAILED;
    rc = mr_comm_allreduce_u64(s->comm, &status, 1, MR_COMM_MAX, mine ? &why : err);
    for (uint32_t i = 0; i < s->n_inner; i++)
        read += s->batches[i].read_bytes;
    for (uint32_t g = 0; !rc && status == STATUS_GOOD && g < s->readers; g++)
        rc = send_from(s, g, out, err);
    out->read_bytes = read;
    release_all(s);
    if (mine || rc)
        return mine ? mine : rc;
    return status == STATUS_GOOD ? 1 : mr_error_plain(err, MR_E_INTERRUPTED, "a rank that reads for others stopped");
}

int mr_share_finish(struct share *s, struct mr_error *err)
{
    int rc = 0;
    for (uint32_t i = 0; i < s->n_inner && !rc && !s->source.base.ops; i++)
        rc = mr_feed_finish(s->inner[i], err);
    return rc;
}

void mr_share_stop(struct share *s)
{
    for (uint32_t i = 0; i < s->n_inner; i++)
        mr_feed_stop(s->inner[i]);
}

void mr_share_stats(struct share *s, struct mr_bench_loader_stats *out)
{
    struct mr_loader_stats sum = {0};
    for (uint32_t i = 0; i < s->n_inner; i++) {
        mr_feed_stats(s->inner[i], out);
        sum.batches += out->stats.batches;
        sum.samples += out->stats.samples;
        sum.sample_bytes += out->stats.sample_bytes;
        sum.read_bytes += out->stats.read_bytes;
        sum.wait_ns += out->stats.wait_ns;
        sum.read_ns += out->stats.read_ns;
        sum.decode_ns += out->stats.decode_ns;
        sum.transform_ns += out->stats.transform_ns;
        sum.idle_ns += out->stats.idle_ns;
        sum.cpu_ns += out->stats.cpu_ns;
        sum.slab_bytes += out->stats.slab_bytes;
        sum.threads += out->stats.threads;
        sum.ready_mean = MR_MAX(sum.ready_mean, out->stats.ready_mean);
        sum.empty_ratio = MR_MAX(sum.empty_ratio, out->stats.empty_ratio);
    }
    out->stats = sum;
}
