/* MPI-IO: see feed_mpi.h. */
#include "bench/feed_mpi.h"
#include "base/common.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct feed_mpi {
    struct mr_pattern_source source; /* first */
    struct mr_comm *comm;
    bool shared_file; /* one handle for all readers */
    struct mr_comm_file *file;
    char path[2 * MR_NAME_MAX]; /* of `file` */
    uint64_t calls, wanted;     /* collective reads made for this batch, and to be made */
    struct mr_pattern_cut cut;
    struct mr_dataset *set; /* where files lie */
};

bool mr_feed_mpi_wanted(const struct mr_bench_params *p)
{
    const struct mr_workload *w = p->workload;
    bool can = mr_comm_has_mpi_io(p->comm) && w->pattern.unit != MR_CONF_UNIT_SAMPLE &&
               w->reader.read_type != MR_CONF_READ_MEMORY && (!p->store || !*p->store || !strcmp(p->store, "posix"));
    return can || w->reader.file_access == MR_FA_MPIO;
}

static int open_alone(struct feed_mpi *m, uint64_t file, struct mr_error *err)
{
    char path[2 * MR_NAME_MAX];
    int rc = mr_dataset_file_path(m->set, file, path, err);
    if (rc || (m->file && !strcmp(path, m->path)))
        return rc;
    mr_feed_mpi_detach(m);
    snprintf(m->path, sizeof m->path, "%s", path);
    return mr_comm_file_open(m->comm, path, 0, &m->file, err);
}

static int read_mpi(struct mr_pattern_source *source, const struct mr_pattern_range *r, uint8_t *to,
                    struct mr_error *err)
{
    struct feed_mpi *m = (struct feed_mpi *)source;
    int rc = m->shared_file ? 0 : open_alone(m, r->file, err);
    for (uint64_t at = 0, k = 0; !rc && at < r->bytes; k++) {
        uint64_t n = mr_pattern_cut_bytes(&m->cut, k, r->bytes - at);
        m->calls++;
        rc = mr_comm_file_read(m->comm, m->file, r->overwrite ? to : to + at, n, r->offset + at, err);
        at += n;
        source->read_bytes += rc ? 0 : n;
    }
    return rc;
}

static int open_file(struct feed_mpi *m, const struct mr_bench_params *p, uint32_t readers, struct mr_error *err)
{
    struct mr_dataset_info info = {0};
    bool reader = m->comm->rank < readers;
    char folder[4200];
    mr_bench_set_path(p, false, folder, sizeof folder);
    int rc = reader ? mr_dataset_open(folder, NULL, &m->set, err) : 0;
    if (!rc && reader) {
        mr_dataset_get_info(m->set, &info);
        rc = mr_dataset_file_path(m->set, 0, m->path, err);
    }
    if ((rc = mr_comm_agree(m->comm, rc, err)))
        return rc;
    m->shared_file = info.files == 1;
    if (!m->shared_file)
        m->path[0] = '\0';
    rc = m->shared_file ? mr_comm_file_open(m->comm, m->path, readers, &m->file, err) : 0;
    return mr_comm_agree(m->comm, rc, err);
}

int mr_feed_mpi_open(const struct mr_bench_params *p, uint32_t readers, struct feed_mpi **out, struct mr_error *err)
{
    struct feed_mpi *m = calloc(1, sizeof(*m));
    int rc = mr_comm_agree(p->comm, m ? 0 : mr_error_set(err, -ENOMEM, "cannot read through MPI-IO"), err);
    if (rc || !m) {
        free(m);
        return rc;
    }
    m->source.read = read_mpi;
    m->comm = p->comm;
    m->cut = mr_pattern_cut(p->workload);
    if ((rc = open_file(m, p, readers, err))) {
        mr_feed_mpi_detach(m);
        mr_feed_mpi_close(m);
        return rc;
    }
    *out = m;
    return 0;
}

struct mr_pattern_source *mr_feed_mpi_source(struct feed_mpi *m)
{
    return &m->source;
}

int mr_feed_mpi_agree(struct feed_mpi *m, struct feed *const *feed, uint32_t n, struct mr_error *err)
{
    m->wanted = m->calls = 0;
    for (uint32_t i = 0; i < n && m->shared_file; i++)
        m->wanted += mr_feed_pieces(feed[i]);
    return mr_comm_allreduce_u64(m->comm, &m->wanted, 1, MR_COMM_MAX, err);
}

int mr_feed_mpi_make_up(struct feed_mpi *m, struct mr_error *err)
{
    int rc = 0;
    for (; m->shared_file && m->calls < m->wanted; m->calls++) {
        struct mr_error why;
        int one = mr_comm_file_read(m->comm, m->file, NULL, 0, 0, &why);
        if (one && !rc) {
            rc = one;
            *err = why;
        }
    }
    return rc;
}

void mr_feed_mpi_detach(struct feed_mpi *m)
{
    if (!m)
        return;
    mr_comm_file_close(m->comm, m->file);
    m->file = NULL;
}

void mr_feed_mpi_close(struct feed_mpi *m)
{
    if (!m)
        return;
    mr_dataset_close(m->set);
    free(m);
}
