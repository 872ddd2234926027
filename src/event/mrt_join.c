/* Several .mrt files into one: ranks that are processes each write their own while they run. Blocks name their process,
 * so they only have to stand behind each other. */
#include "event/mrt_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static size_t block_bytes(const struct mr_mrt_block *b)
{
    return (MR_MRT_HEADER + (size_t)b->payload_bytes + 7) & ~(size_t)7;
}

static int append_mapped(struct mr_mrt_writer *w, const uint8_t *data, size_t len, const char *name,
                         struct mr_error *err)
{
    struct mr_mrt_scan scan = {0};
    int rc = mr_mrt_scan(data, len, true, name, &scan, err);
    for (size_t i = 0; i < scan.views && !rc; i++) {
        const struct mr_mrt_view *v = &scan.view[i];
        if (v->head.type != MR_MRT_FOOTER)
            rc = mr_mrt_writer_append(w, data + v->offset, block_bytes(&v->head), err);
    }
    mr_mrt_scan_done(&scan);
    return rc;
}

int mr_mrt_join(struct mr_mrt_writer *w, const char *path, struct mr_error *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        int rc = mr_error_set(err, -errno, "cannot read the trace '%s'", path);
        if (fd >= 0)
            close(fd);
        return rc;
    }
    size_t len = (size_t)st.st_size;
    uint8_t *data = len ? mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    int rc = data == MAP_FAILED ? mr_error_set(err, -errno, "cannot read the trace '%s'", path) : 0;
    close(fd);
    if (rc || !len)
        return rc;
    rc = append_mapped(w, data, len, path, err);
    munmap(data, len);
    return rc;
}
