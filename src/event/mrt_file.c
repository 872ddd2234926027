/* Writer of .mrt files: append blocks, remember where they are, end with a footer. */
#include "event/mrt_file.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/regular_file.h"
#include "base/vec.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENTRY (8 + MR_MRT_HEADER)

struct mr_mrt_writer {
    int fd;
    uint64_t at;
    char *path;
    uint8_t *index; /* ENTRY bytes per block */
    size_t blocks, cap;
};

static int write_at(struct mr_mrt_writer *w, const uint8_t *p, size_t n, struct mr_error *err)
{
    uint64_t at = w->at;
    while (n) {
        ssize_t r = pwrite(w->fd, p, n, (off_t)at);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return mr_error_set(err, r ? -errno : -EIO, "cannot write '%s' at %llu", w->path, (unsigned long long)at);
        p += r;
        n -= (size_t)r;
        at += (uint64_t)r;
    }
    w->at = at;
    return 0;
}

static int remember(struct mr_mrt_writer *w, uint64_t offset, const uint8_t *header, struct mr_error *err)
{
    if (mr_vec_reserve(&w->index, &w->cap, w->blocks + 1, ENTRY) < 0)
        return mr_error_set(err, -ENOMEM, "cannot index '%s'", w->path);
    uint8_t *e = w->index + w->blocks++ * ENTRY;
    mr_store_le64(e, offset);
    memcpy(e + 8, header, MR_MRT_HEADER);
    return 0;
}

/* Takes over what a file already holds; a footer and an unfinished end are cut off. */
static int resume_file(struct mr_mrt_writer *w, struct mr_error *err)
{
    struct stat st;
    if (fstat(w->fd, &st) < 0)
        return mr_error_set(err, -errno, "cannot stat '%s'", w->path);
    if (st.st_size < (off_t)MR_MRT_HEADER)
        return 0;
    size_t len = (size_t)st.st_size;
    uint8_t *data = mmap(NULL, len, PROT_READ, MAP_PRIVATE, w->fd, 0);
    if (data == MAP_FAILED)
        return mr_error_set(err, -errno, "cannot map '%s'", w->path);
    struct mr_mrt_scan scan = {0};
    int rc = mr_mrt_scan(data, len, true, w->path, &scan, err);
    w->at = MR_MRT_HEADER;
    for (size_t i = 0; i < scan.views && rc == 0; i++) {
        const struct mr_mrt_view *v = &scan.view[i];
        rc = remember(w, v->offset, data + v->offset, err);
        w->at = v->offset + MR_ALIGN_UP(MR_MRT_HEADER + (uint64_t)v->head.payload_bytes, 8);
    }
    mr_mrt_scan_done(&scan);
    munmap(data, len);
    if (rc == 0 && ftruncate(w->fd, (off_t)w->at) < 0)
        rc = mr_error_set(err, -errno, "cannot cut '%s'", w->path);
    return rc;
}

/* Whether the file has content that no trace begins with: a name given by mistake, or by a workload of others. */
static bool is_of_others(int fd)
{
    uint8_t first[8];
    ssize_t n = pread(fd, first, sizeof first, 0);
    return n > 0 && memcmp(first, MR_MRT_MAGIC, (size_t)n) != 0;
}

/* Opens the file, ours alone. Devices and pipes are left as they are: what is written has to be read again. */
static int open_file(const char *path, bool resume, int *fd, struct mr_error *err)
{
    struct stat st;
    if (mr_is_foreign_link(path))
        return mr_error_plain(err, MR_E_USAGE, "cannot write a trace to '%s': it is a link of another user", path);
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return mr_error_plain(err, MR_E_CONFIG, "cannot write a trace to '%s': it is no file", path);
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (*fd < 0)
        return mr_error_set(err, -errno, "cannot create '%s'", path);
    if (flock(*fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) /* where there are no locks it goes on without */
        return mr_error_plain(err, MR_E_CONFIG, "'%s' is being written by another millrace", path);
    if (!resume && is_of_others(*fd)) {
        mr_error_plain(err, MR_E_USAGE, "cannot write a trace to '%s': what is in it is no trace and would be lost",
                       path);
        return mr_error_hint(err, "remove it, or choose another name"), MR_E_USAGE;
    }
    if (!resume && ftruncate(*fd, 0) < 0)
        return mr_error_set(err, -errno, "cannot empty '%s'", path);
    if (!resume && fchmod(*fd, 0600) < 0)
        return mr_error_set(err, -errno, "cannot make '%s' private", path);
    return 0;
}

int mr_mrt_writer_open(const char *path, bool resume, struct mr_mrt_writer **out, struct mr_error *err)
{
    struct mr_mrt_writer *w = calloc(1, sizeof(*w));
    if (!w || !(w->path = strdup(path))) {
        free(w);
        return mr_error_set(err, -ENOMEM, "cannot open '%s'", path);
    }
    w->fd = -1;
    int rc = open_file(path, resume, &w->fd, err);
    if (rc == 0 && resume)
        rc = resume_file(w, err);
    if (rc == 0 && !w->at) {
        uint8_t header[MR_MRT_HEADER], id[16] = {0};
        if (getrandom(id, sizeof(id), 0) < 0)
            mr_store_le64(id, mr_now_ns());
        mr_mrt_file_header(mr_wall_ns(), id, header);
        rc = write_at(w, header, sizeof(header), err);
    }
    if (rc < 0) {
        if (w->fd >= 0)
            close(w->fd);
        free(w->path);
        free(w->index);
        free(w);
        return rc;
    }
    *out = w;
    return 0;
}

int mr_mrt_writer_append(struct mr_mrt_writer *w, const uint8_t *block, size_t bytes, struct mr_error *err)
{
    uint64_t offset = w->at;
    int rc = write_at(w, block, bytes, err);
    if (rc < 0) {
        /* A part of a block may be there; the next write starts at the same place. */
        w->at = offset;
        return rc;
    }
    return remember(w, offset, block, err);
}

uint64_t mr_mrt_writer_bytes(const struct mr_mrt_writer *w)
{
    return w->at;
}

static int write_footer(struct mr_mrt_writer *w, struct mr_error *err)
{
    size_t payload = w->blocks * ENTRY, total = MR_ALIGN_UP(MR_MRT_HEADER + payload, 8) + 16;
    if (payload > UINT32_MAX / 2)
        return 0; /* such a file is scanned */
    uint8_t *buf = malloc(total);
    if (!buf)
        return mr_error_set(err, -ENOMEM, "cannot write the footer of '%s'", w->path);
    if (payload)
        memcpy(buf + MR_MRT_HEADER, w->index, payload);
    const struct mr_mrt_block b = {
        .type = MR_MRT_FOOTER, .count = (uint32_t)w->blocks, .payload_bytes = (uint32_t)payload};
    size_t n = mr_mrt_seal(buf, &b);
    mr_store_le64(buf + n, w->at);
    memcpy(buf + n + 8, MR_MRT_FOOT_MAGIC, 8);
    int rc = write_at(w, buf, n + 16, err);
    free(buf);
    return rc;
}

int mr_mrt_writer_close(struct mr_mrt_writer *w, struct mr_error *err)
{
    if (!w)
        return 0;
    int rc = write_footer(w, err);
    if (rc == 0 && ftruncate(w->fd, (off_t)w->at) < 0)
        rc = mr_error_set(err, -errno, "cannot end '%s'", w->path);
    if (close(w->fd) < 0 && rc == 0)
        rc = mr_error_set(err, -errno, "cannot close '%s'", w->path);
    free(w->path);
    free(w->index);
    free(w);
    return rc;
}
