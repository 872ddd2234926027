/* The count shim: how many calls and bytes passed here, summed over all processes that name the same file. It stands
 * where it is put: in front of the backend it counts what reached the storage, whatever the layers above believe.
 *
 * The file is a row of 64-bit integers in this machine's byte order (struct totals), mapped by all who use it and
 * changed by atomic additions, so what a killed process had done is in it. It is made when it is not there and never
 * removed: totals go on from run to run until somebody deletes it. `od -A n -t d8 FILE` prints it.
 *
 * Invariant: a call is counted once, after the lower store has answered, with the bytes that it moved. */
#include "base/common.h"
#include "store/store_internal.h"
#include "store/store_shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT_MAGIC 0x31746e756f63726dull /* "mrcount1" */

struct totals {
    _Atomic uint64_t magic, opens, reads, read_bytes, writes, written_bytes, failed;
};

struct count_options {
    const char *file;
};

#define ROW(key, field, type, def, ...) MR_OPTION(count_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option count_rows[] = {
    ROW("file", file, STRING, "", .flags = MR_OPTF_WRITES,
        .doc = "Where the totals are, for all processes together: 64-bit integers magic, opens, reads, bytes read, "
               "writes, bytes written, failed calls. Made where it is missing, else added to.",
        .example = "throttle(bandwidth=40MB):count(file=totals):posix"),
    MR_OPTION_END,
};

struct count_store {
    struct mr_shim shim;
    struct totals *totals;
};

static int count_before(struct mr_shim *shim, struct mr_shim_call *c, struct mr_error *err)
{
    (void)shim, (void)c, (void)err;
    return 0;
}

static void add(_Atomic uint64_t *to, uint64_t n)
{
    atomic_fetch_add_explicit(to, n, memory_order_relaxed);
}

static void count_after(struct mr_shim *shim, struct mr_shim_call *c)
{
    struct totals *t = ((struct count_store *)shim)->totals;
    if (c->result < 0)
        add(&t->failed, 1);
    if (c->kind == MR_SHIM_OPEN || c->kind == MR_SHIM_READ_PATH)
        add(&t->opens, 1);
    if (c->kind == MR_SHIM_READ || c->kind == MR_SHIM_READ_PATH) {
        add(&t->reads, 1);
        add(&t->read_bytes, c->result > 0 ? (uint64_t)c->result : 0);
    } else if (c->kind == MR_SHIM_WRITE) {
        add(&t->writes, 1);
        add(&t->written_bytes, c->result > 0 ? (uint64_t)c->result : 0);
    }
}

/* Maps the file; one of nothing but zeros is new. */
static int map_totals(const char *path, struct totals **out, struct mr_error *err)
{
    struct stat st;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return mr_error_set(err, -errno, "cannot count into '%s'", path);
    void *map = MAP_FAILED;
    int rc = fstat(fd, &st) != 0 ? -errno : 0;
    if (!rc && st.st_size != 0 && st.st_size != (off_t)sizeof(struct totals)) {
        mr_error_plain(err, MR_E_CONFIG, "cannot count into '%s': it is another kind of file", path);
        rc = MR_E_CONFIG;
    } else if (!rc &&
               (ftruncate(fd, sizeof(struct totals)) != 0 ||
                (map = mmap(NULL, sizeof(struct totals), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)) {
        rc = -errno;
    }
    close(fd);
    if (rc)
        return rc == MR_E_CONFIG ? rc : mr_error_set(err, rc, "cannot count into '%s'", path);
    struct totals *t = map;
    uint64_t magic = 0;
    if (!atomic_compare_exchange_strong(&t->magic, &magic, COUNT_MAGIC) && magic != COUNT_MAGIC) {
        munmap(map, sizeof(*t));
        return mr_error_plain(err, MR_E_CONFIG, "cannot count into '%s': it is another kind of file", path);
    }
    *out = t;
    return 0;
}

static void count_close(struct mr_store *base)
{
    struct count_store *s = (struct count_store *)base;
    mr_store_close(base->lower);
    munmap(s->totals, sizeof(*s->totals));
    free(s);
}

static int count_open(const void *options, struct mr_store *lower, struct mr_store **out, struct mr_error *err)
{
    const struct count_options *o = options;
    struct totals *totals = NULL;
    if (!*o->file)
        return mr_error_plain(err, MR_E_CONFIG, "the count shim needs file=FILE, where it puts the totals");
    int rc = map_totals(o->file, &totals, err);
    if (rc)
        return rc;
    struct count_store *s = calloc(1, sizeof(*s));
    if (!s) {
        munmap(totals, sizeof(*totals));
        return mr_error_set(err, -ENOMEM, "cannot open store 'count'");
    }
    s->totals = totals;
    mr_shim_init(&s->shim, &mr_store_count_ops, lower, count_before, count_after);
    *out = &s->shim.base;
    return 0;
}

const struct mr_store_ops mr_store_count_ops = {
    MR_SHIM_OPS,
    .name = "count",
    .doc = "Counts calls and bytes of all processes into one file.",
    .options = {.section = "count",
                .doc = "Totals of calls and bytes",
                .options = count_rows,
                .struct_bytes = sizeof(struct count_options)},
    .open = count_open,
    .close = count_close,
};
