/* Files that processes wrote themselves, because rings were full or there was no collector, and the older of two files
 * that take turns: their blocks go to the end of the trace. */
#include "base/common.h"
#include "event/collect_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool knows(const struct mr_collector *c, uint64_t key)
{
    for (size_t i = 0; i < c->rings; i++)
        if (c->ring[i].key == key)
            return true;
    return false;
}

static size_t block_bytes(const struct mr_mrt_view *v)
{
    return MR_ALIGN_UP(MR_MRT_HEADER + (size_t)v->head.payload_bytes, 8);
}

/* Writes the blocks before view n that later events of the file refer to once more. */
static int append_names(struct mr_collector *c, const uint8_t *data, const struct mr_mrt_scan *scan, size_t n,
                        struct mr_error *err)
{
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        if (scan->view[i].head.type != MR_MRT_EVENTS)
            rc = mr_collect_append(c, data + scan->view[i].offset, block_bytes(&scan->view[i]), err);
    return rc;
}

/* Whether the thread's next block in the file takes this one's place. */
static bool is_replaced(const struct mr_mrt_scan *scan, size_t i)
{
    const struct mr_mrt_block *b = &scan->view[i].head;
    for (size_t k = i + 1; b->type == MR_MRT_EVENTS && k < scan->views; k++) {
        const struct mr_mrt_block *next = &scan->view[k].head;
        if (next->type == MR_MRT_EVENTS && next->key == b->key && next->tid == b->tid)
            return next->sequence == b->sequence;
    }
    return false;
}

/* Joins a .mrt file that a process wrote itself (pressure, or no collector). */
int mr_collect_join_file(struct mr_collector *c, const char *path, bool count, struct mr_error *err)
{
    uint64_t joined = 0;
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_size < (off_t)MR_MRT_HEADER) {
        if (fd >= 0)
            close(fd);
        /* Killed between making the file and writing to it. A process that is alive may be about to write. */
        const char *name = strrchr(path, '/');
        if (fd >= 0 && name && kill((pid_t)strtol(name + 1, NULL, 10), 0) < 0 && errno == ESRCH)
            unlink(path);
        return 0;
    }
    size_t len = (size_t)st.st_size;
    const uint8_t *data = mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (data == MAP_FAILED)
        return mr_error_set(err, -errno, "cannot map '%s'", path);
    struct mr_mrt_scan scan = {0};
    size_t name_len = strlen(path);
    bool is_older =
        name_len > 6 && !strcmp(path + name_len - 6, ".1.mrt"); /* of the two of a process with a size limit */
    int rc = mr_mrt_scan(data, len, true, path, &scan, err);
    for (size_t i = 0; i < scan.views && rc == 0; i++) {
        const struct mr_mrt_view *v = &scan.view[i];
        bool events = v->head.type == MR_MRT_EVENTS;
        if (is_replaced(&scan, i))
            continue;
        if (count && events && mr_collect_is_full(c, block_bytes(v))) {
            rc = mr_collect_turn_over(c, err);
            rc = rc ? rc : append_names(c, data, &scan, i, err);
        }
        rc = rc ? rc : mr_collect_append(c, data + v->offset, block_bytes(v), err);
        c->has_events |= events;
        joined += events ? v->head.count : 0;
        if (!c->live && v->head.type == MR_MRT_PROCESS && !knows(c, v->head.key) &&
            !is_older) /* page faults are no process of ours */
            c->stats.processes++;
    }
    if (count) {
        c->stats.events += joined;
        c->session->recorded += joined;
    }
    mr_mrt_scan_done(&scan);
    munmap((void *)data, len);
    if (rc == 0)
        unlink(path);
    return rc;
}

/* Whether the process that writes this file goes on: taken away, the file would have no beginning when it is written to
 * again. */
static bool is_in_use(const struct mr_collector *c, const char *name)
{
    for (size_t i = 0; i < c->rings; i++) {
        const struct ring *r = &c->ring[i];
        if (!strncmp(r->name, name, strlen(r->name)))
            return r->left || (!r->finished && !r->gone && !mr_collect_process_gone(r));
    }
    return false;
}

int mr_collect_join_files(struct mr_collector *c, struct mr_error *err)
{
    DIR *d = opendir(c->spool);
    int rc = 0;
    if (!d)
        return mr_error_set(err, -errno, "cannot read the spool folder '%s'", c->spool);
    for (struct dirent *e; rc == 0 && (e = readdir(d));) {
        char path[4096];
        size_t n = strlen(e->d_name);
        snprintf(path, sizeof(path), "%s/%s", c->spool, e->d_name);
        if (n > 4 && !strcmp(e->d_name + n - 4, ".mrt") && strcmp(path, c->out) != 0 && !is_in_use(c, e->d_name))
            rc = mr_collect_join_file(c, path, true, err);
    }
    closedir(d);
    return rc;
}
