/* The convenience functions that every caller uses: exact reads and writes, whole files, folders; the wording of I/O
 * errors, and stubs. The registry and the text form of a stack are in store_stack.c.
 *
 * The convenience functions repeat interrupted and short transfers; a backend may return either at any time. `err` is
 * written only on failure, so a repeated call writes to a local error first. */
#include "store/store.h"
#include "base/strbuf.h"

#include "base/common.h"
#include "base/log.h"
#include "base/map.h"
#include "base/vec.h"
#include "store/store_internal.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- wording of errors ---- */

/* The longest part of a path that is there, as a word for a shell: 'ls' on what could not be made shows nothing. */
static const char *existing_part(const char *path, char *out, size_t cap)
{
    char part[1024];
    int n = snprintf(part, sizeof part, "%s", path);
    while (n > 0 && n < (int)sizeof part && access(part, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR)) {
        char *slash = strrchr(part, '/');
        if (!slash)
            return ".";
        slash[slash == part] = '\0';
    }
    if (mr_shell_word(part, out, cap) == part)
        snprintf(out, cap, "%s", part);
    return out;
}

static void hint_for(struct mr_error *err, int code, const char *path)
{
    char word[1100];
    if (mr_store_is_url(path))
        return;
    path = existing_part(path, word, sizeof word);
    switch (-code) {
    case ENOSPC:
        mr_error_hint(err, "free space with 'rm' or choose another folder; 'df -h %s' shows what is left", path);
        break;
    case EDQUOT:
        mr_error_hint(err, "your quota is used up: 'quota -s' shows it; free space or choose another folder");
        break;
    case EIO: mr_error_hint(err, "the device or server failed: 'dmesg | tail' says more"); break;
    case EMFILE:
    case ENFILE: mr_error_hint(err, "raise the limit of open files: 'ulimit -n 65536'"); break;
    case EACCES:
    case EPERM: mr_error_hint(err, "check the permissions: 'ls -ld %s'", path); break;
    case EROFS: mr_error_hint(err, "the file system is mounted read-only: 'findmnt -T %s'", path); break;
    default: break;
    }
}

int mr_store_fail_range(struct mr_error *err, int code, const char *verb, const char *path, size_t want,
                        uint64_t offset, size_t have)
{
    if (!err)
        return code;
    mr_error_set(err, code, "cannot %s '%s': want %zu bytes at %llu, have %zu", verb, path, want,
                 (unsigned long long)offset, have);
    hint_for(err, code, path);
    return code;
}

int mr_store_fail_path(struct mr_error *err, int code, const char *verb, const char *path)
{
    if (!err)
        return code;
    mr_error_set(err, code, "cannot %s '%s'", verb, path);
    hint_for(err, code, path);
    return code;
}

int mr_store_no_rename(struct mr_store *s, const char *from, const char *to, struct mr_error *err)
{
    return mr_error_plain(err, MR_E_UNSUPPORTED, "store '%s' cannot rename ('%s' to '%s')", s->ops->name, from, to);
}

int mr_store_no_drop_cache(struct mr_object *o, struct mr_error *err)
{
    return mr_error_plain(err, MR_E_UNSUPPORTED, "store '%s' has no page cache to drop ('%s')", o->store->ops->name,
                          o->path);
}

int mr_store_no_resident(struct mr_object *o, uint64_t *resident_bytes, uint64_t *total_bytes, struct mr_error *err)
{
    (void)resident_bytes;
    (void)total_bytes;
    return mr_error_plain(err, MR_E_UNSUPPORTED, "store '%s' has no page cache to measure ('%s')", o->store->ops->name,
                          o->path);
}

int mr_ioq_check_room(const struct mr_ioq *q, unsigned in_flight, unsigned n, struct mr_error *err)
{
    if (n <= q->depth - in_flight)
        return 0;
    return mr_error_plain(err, MR_E_USAGE, "I/O queue is full: depth %u, in flight %u, want %u more", q->depth,
                          in_flight, n);
}

int mr_ioq_check_register(unsigned in_flight, const struct iovec *iov, unsigned n, struct mr_error *err)
{
    if (in_flight > 0)
        return mr_error_plain(err, MR_E_USAGE, "cannot register buffers with %u requests in flight", in_flight);
    for (unsigned i = 0; i < n; i++)
        if (!iov || !iov[i].iov_base || iov[i].iov_len == 0)
            return mr_error_plain(err, MR_E_USAGE, "cannot register buffer %u of %u: it is empty", i, n);
    return 0;
}

int mr_ioq_check_depth(unsigned depth, struct mr_error *err)
{
    if (depth >= 1 && depth <= MR_IOQ_MAX_DEPTH)
        return 0;
    return mr_error_plain(err, MR_E_USAGE, "bad I/O queue depth %u: must be between 1 and %u", depth, MR_IOQ_MAX_DEPTH);
}

/* ---- a folder's names ---- */

int mr_names_add(struct mr_names *l, const char *name, bool is_dir)
{
    if (mr_vec_reserve(&l->item, &l->cap, l->count + 1, sizeof(*l->item)) < 0)
        return -ENOMEM;
    char *copy = strdup(name);
    if (!copy)
        return -ENOMEM;
    l->item[l->count++] = (struct mr_name){.name = copy, .is_dir = is_dir};
    return 0;
}

int mr_names_give(struct mr_names *l, mr_store_list_fn *fn, void *user, struct mr_error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < l->count; i++)
        rc = fn(user, l->item[i].name, l->item[i].is_dir, err);
    mr_names_done(l);
    return rc;
}

void mr_names_done(struct mr_names *l)
{
    for (size_t i = 0; i < l->count; i++)
        free(l->item[i].name);
    free(l->item);
    *l = (struct mr_names){0};
}

/* ---- objects ---- */

/* Repeats an interrupted call. The call writes its error to `local`, so that err stays untouched when a repeat works.
 */
#define UNINTERRUPTED(rc, err, call)                                                                                   \
    do {                                                                                                               \
        struct mr_error local;                                                                                         \
        unsigned tries_ = 0;                                                                                           \
        do                                                                                                             \
            (rc) = (call);                                                                                             \
        while ((rc) == -EINTR && ++tries_ < MR_STORE_MAX_RETRIES);                                                     \
        if ((rc) < 0 && (err))                                                                                         \
            *(err) = local;                                                                                            \
    } while (0)

int mr_object_open(struct mr_store *s, const char *path, unsigned flags, struct mr_object **out, struct mr_error *err)
{
    if (!path || !*path)
        return mr_error_plain(err, MR_E_USAGE, "cannot open an object: its path is empty");
    if (!(flags & (MR_OBJ_READ | MR_OBJ_WRITE)))
        return mr_error_plain(err, MR_E_USAGE, "cannot open '%s': neither for reading nor for writing", path);
    if (!(flags & MR_OBJ_WRITE) && (flags & (MR_OBJ_CREATE | MR_OBJ_TRUNCATE | MR_OBJ_EXCLUSIVE)))
        return mr_error_plain(err, MR_E_USAGE, "cannot open '%s': creating or truncating needs it open for writing",
                              path);
    int rc;
    UNINTERRUPTED(rc, err, s->ops->object_open(s, path, flags, out, &local));
    if (rc == 0)
        (*out)->abandoned = false; /* stores need not know this member */
    return rc;
}

int mr_object_close(struct mr_object *o, struct mr_error *err)
{
    return o ? o->store->ops->object_close(o, err) : 0;
}

void mr_object_abandon(struct mr_object *o)
{
    if (o)
        o->abandoned = true;
}

int mr_object_size(struct mr_object *o, uint64_t *bytes, struct mr_error *err)
{
    return o->store->ops->object_size(o, bytes, err);
}

/* True when the call should be repeated: an interruption, or a momentary refusal after a short pause. */
static bool worth_repeating(int64_t code, unsigned *tries)
{
    if ((code != -EINTR && code != -EAGAIN) || *tries >= MR_STORE_MAX_RETRIES)
        return false;
    ++*tries;
    if (code == -EAGAIN)
        mr_clock_sleep_until(mr_clock_real(), mr_now_ns() + MR_MIN(*tries, 10u) * 100 * MR_NS_PER_US, NULL);
    return true;
}

int64_t mr_object_read_some(struct mr_object *o, void *buf, size_t len, uint64_t offset, struct mr_error *err)
{
    if (len > INT64_MAX)
        return mr_error_plain(err, MR_E_USAGE, "cannot read '%s': %zu bytes are too many", o->path, len);
    struct mr_error local;
    unsigned tries = 0;
    size_t done = 0;
    while (done < len) {
        int64_t r = o->store->ops->read(o, (char *)buf + done, len - done, offset + done, &local);
        if (r == 0)
            break;
        if (r < 0) {
            if (worth_repeating(r, &tries))
                continue;
            if (err)
                *err = local;
            return r;
        }
        tries = 0;
        done += (size_t)r;
    }
    return (int64_t)done;
}

static int fail_end_of_file(struct mr_object *o, size_t want, uint64_t offset, size_t have, struct mr_error *err)
{
    uint64_t size = 0;
    int rc = mr_object_size(o, &size, err);
    if (rc < 0)
        return rc;
    if (size >= offset && size - offset >= want)
        return mr_error_plain(
            err, MR_E_CHANGED,
            "cannot read '%s': it changed while it was read (want %zu bytes at %llu, got %zu, file now has %llu)",
            o->path, want, (unsigned long long)offset, have, (unsigned long long)size);
    return mr_error_plain(err, MR_E_FORMAT,
                          "cannot read '%s': unexpected end of file (want %zu bytes at %llu, file has %llu)", o->path,
                          want, (unsigned long long)offset, (unsigned long long)size);
}

int mr_object_read(struct mr_object *o, void *buf, size_t len, uint64_t offset, struct mr_error *err)
{
    int64_t r = mr_object_read_some(o, buf, len, offset, err);
    if (r < 0)
        return (int)r;
    return (size_t)r == len ? 0 : fail_end_of_file(o, len, offset, (size_t)r, err);
}

int mr_object_write(struct mr_object *o, const void *buf, size_t len, uint64_t offset, struct mr_error *err)
{
    struct mr_error local;
    unsigned tries = 0;
    size_t done = 0;
    while (done < len) {
        int64_t r = o->store->ops->write(o, (const char *)buf + done, len - done, offset + done, &local);
        if (r < 0 && worth_repeating(r, &tries))
            continue;
        if (r < 0) {
            if (err)
                *err = local;
            return (int)r;
        }
        if (r == 0)
            return mr_store_fail_range(err, -EIO, "write", o->path, len, offset, done);
        tries = 0;
        done += (size_t)r;
    }
    return 0;
}

/* ---- messages of queued requests ---- */

static pthread_mutex_t noted_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    uint64_t path; /* its hash; 0: free */
    struct mr_error why;
} noted[32];
static unsigned noted_next;

void mr_store_note_failure(const char *path, const struct mr_error *why)
{
    pthread_mutex_lock(&noted_lock);
    unsigned i = noted_next++ % MR_ARRAY_LEN(noted);
    noted[i].path = mr_hash_bytes(path, strlen(path), 0);
    noted[i].why = *why;
    pthread_mutex_unlock(&noted_lock);
}

static bool take_noted(const char *path, int code, struct mr_error *err)
{
    uint64_t key = mr_hash_bytes(path, strlen(path), 0);
    bool found = false;
    pthread_mutex_lock(&noted_lock);
    for (unsigned i = 0; !found && i < MR_ARRAY_LEN(noted); i++)
        if (noted[i].path == key && noted[i].why.code == code) {
            found = true;
            if (err)
                *err = noted[i].why;
        }
    pthread_mutex_unlock(&noted_lock);
    return found;
}

int mr_io_error(const struct mr_io *io, struct mr_error *err)
{
    const char *path = io->op == MR_IO_READ_PATH ? io->path : io->object->path;
    if (io->result < 0 && take_noted(path, (int)io->result, err))
        return (int)io->result;
    if (io->result < 0) {
        if (io->op == MR_IO_FSYNC)
            return mr_store_fail_path(err, (int)io->result, "sync", path);
        return mr_store_fail_range(err, (int)io->result, io->op == MR_IO_WRITE ? "write" : "read", path, io->len,
                                   io->offset, 0);
    }
    if (io->op == MR_IO_FSYNC || (uint64_t)io->result == io->len || (io->enough && (uint64_t)io->result >= io->enough))
        return 0;
    if (io->op == MR_IO_WRITE)
        return mr_store_fail_range(err, -EIO, "write", path, io->len, io->offset, (size_t)io->result);
    return mr_error_plain(
        err, MR_E_FORMAT, "cannot read '%s': unexpected end of file (want %zu bytes at %llu, file has %llu)", path,
        io->len, (unsigned long long)io->offset, (unsigned long long)(io->offset + (uint64_t)io->result));
}

/* ---- whole files and folders ---- */

static int read_all(struct mr_object *o, uint64_t max_bytes, void **data, size_t *len, struct mr_error *err)
{
    uint64_t size;
    int rc = mr_object_size(o, &size, err);
    if (rc < 0)
        return rc;
    /* Read until the end whatever the size says: files of /proc say 0, and a file may grow. */
    size_t cap = (size_t)MR_MIN(MR_MAX(size, (uint64_t)255), max_bytes) + 1, used = 0;
    char *buf = size > max_bytes ? NULL : malloc(cap + 1);
    if (size <= max_bytes && !buf)
        return mr_error_set(err, -ENOMEM, "cannot read '%s' (%llu bytes)", o->path, (unsigned long long)size);
    while (buf) {
        int64_t r = mr_object_read_some(o, buf + used, cap - used, used, err);
        if (r < 0) {
            free(buf);
            return (int)r;
        }
        used += (size_t)r;
        if (used < cap || used > max_bytes)
            break;
        cap = (size_t)MR_MIN((uint64_t)cap * 2, max_bytes + 1);
        char *more = realloc(buf, cap + 1);
        if (!more) {
            free(buf);
            return mr_error_set(err, -ENOMEM, "cannot read '%s' (%zu bytes and more)", o->path, used);
        }
        buf = more;
    }
    if (!buf || used > max_bytes) {
        free(buf);
        return mr_error_plain(err, MR_E_LIMIT, "cannot read '%s': it has %llu bytes, allowed are %llu", o->path,
                              (unsigned long long)MR_MAX(size, (uint64_t)used), (unsigned long long)max_bytes);
    }
    buf[used] = '\0';
    *data = buf;
    *len = used;
    return 0;
}

int mr_store_read_file(struct mr_store *s, const char *path, uint64_t max_bytes, void **data, size_t *len,
                       struct mr_error *err)
{
    struct mr_object *o;
    if (max_bytes > SIZE_MAX / 4)
        max_bytes = SIZE_MAX / 4;
    int rc = mr_object_open(s, path, MR_OBJ_READ, &o, err);
    if (rc < 0)
        return rc;
    rc = read_all(o, max_bytes, data, len, err);
    mr_object_close(o, NULL); /* nothing was written, so a failing close loses nothing */
    return rc;
}

/* The folder that holds `path`: "." for a bare name, "/" for a child of the root. Cut in place. */
static const char *parent_folder(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash)
        return ".";
    if (slash == path)
        return "/";
    *slash = '\0';
    return path;
}

static int write_new(struct mr_store *s, const char *tmp, unsigned how, const void *data, size_t len,
                     struct mr_error *err)
{
    struct mr_object *o;
    int rc = mr_object_open(s, tmp, MR_OBJ_WRITE | MR_OBJ_CREATE | how, &o, err);
    if (rc < 0)
        return rc;
    rc = mr_object_write(o, data, len, 0, err);
    if (rc == 0)
        UNINTERRUPTED(rc, err, s->ops->fsync(o, &local));
    if (rc < 0)
        mr_object_abandon(o);
    int closed = mr_object_close(o, rc == 0 ? err : NULL);
    if (rc == 0)
        rc = closed;
    if (rc < 0 && how == MR_OBJ_EXCLUSIVE)
        s->ops->unlink(s, tmp, NULL);
    return rc;
}

/* Without rename: an object that appears as a whole needs no temporary. */
static int put_file(struct mr_store *s, const char *path, const void *data, size_t len, struct mr_error *err)
{
    if (mr_store_caps(s) & MR_STORE_CAP_WHOLE_PUT)
        return write_new(s, path, MR_OBJ_TRUNCATE, data, len, err);
    char what[1200];
    snprintf(what, sizeof(what), "replace '%s' in one step", path);
    return mr_store_require(s, MR_STORE_CAP_RENAME, what, err);
}

int mr_store_write_file(struct mr_store *s, const char *path, const void *data, size_t len, struct mr_error *err)
{
    static atomic_uint serial;
    if (!path || !*path)
        return mr_error_plain(err, MR_E_USAGE, "cannot write a file: its path is empty");
    if (!(mr_store_caps(s) & MR_STORE_CAP_RENAME))
        return put_file(s, path, data, len, err);
    char *tmp = NULL;
    if (asprintf(&tmp, "%s.tmp.%ld.%u", path, (long)getpid(), atomic_fetch_add(&serial, 1)) < 0)
        return mr_error_set(err, -ENOMEM, "cannot write '%s'", path);
    int rc = write_new(s, tmp, MR_OBJ_EXCLUSIVE, data, len, err);
    if (rc == 0) {
        UNINTERRUPTED(rc, err, s->ops->rename(s, tmp, path, &local));
        if (rc < 0)
            s->ops->unlink(s, tmp, NULL);
    }
    const char *folder = parent_folder(tmp);
    if (rc == 0)
        UNINTERRUPTED(rc, err, s->ops->sync_dir(s, folder, &local));
    free(tmp);
    return rc;
}

int mr_store_stat(struct mr_store *s, const char *path, struct mr_store_stat *out, struct mr_error *err)
{
    int rc;
    UNINTERRUPTED(rc, err, s->ops->stat(s, path, out, &local));
    return rc;
}

int mr_store_look(struct mr_store *s, const char *path, struct mr_store_stat *out, struct mr_error *err)
{
    struct mr_error why;
    int rc = mr_store_stat(s, path, out, &why);
    if (rc >= 0)
        return 1;
    if (rc == -ENOENT || rc == -ENOTDIR)
        return 0;
    if (err)
        *err = why;
    return rc;
}

int mr_store_mkdirs(struct mr_store *s, const char *path, struct mr_error *err)
{
    struct mr_store_stat st;
    if (!path || !*path)
        return mr_error_plain(err, MR_E_USAGE, "cannot make a folder: its path is empty");
    if (mr_store_stat(s, path, &st, NULL) == 0 && st.is_dir)
        return 0;
    char *part = strdup(path);
    if (!part)
        return mr_error_set(err, -ENOMEM, "cannot make folder '%s'", path);
    int rc = 0;
    for (char *p = part + 1; rc == 0; p++) {
        char c = *p;
        if (c != '/' && c != '\0')
            continue;
        if (p[-1] != '/') {
            *p = '\0';
            UNINTERRUPTED(rc, err, s->ops->mkdir(s, part, &local));
            *p = c;
        }
        if (c == '\0')
            break;
    }
    free(part);
    return rc;
}

static int add_cold(struct mr_store *s, const char *path, struct mr_cold *sum, struct mr_error *err)
{
    struct mr_object *o;
    int rc = mr_object_open(s, path, MR_OBJ_READ, &o, err);
    if (rc < 0)
        return rc;
    uint64_t resident = 0, total = 0;
    rc = s->ops->resident(o, &resident, &total, err);
    if (rc == MR_E_UNSUPPORTED) {
        rc = mr_object_size(o, &total, err);
        sum->unknown_files++;
    }
    if (rc == 0) {
        sum->total_bytes += total;
        sum->cold_bytes += total - MR_MIN(resident, total);
    }
    mr_object_close(o, NULL); /* opened for reading only */
    return rc;
}

int mr_store_cold_fraction(struct mr_store *s, const char *const *paths, size_t n, struct mr_cold *out,
                           struct mr_error *err)
{
    struct mr_cold sum = {0};
    struct mr_error local; /* an unsupported measurement is no failure and must not touch err */
    for (size_t i = 0; i < n; i++) {
        int rc = add_cold(s, paths[i], &sum, &local);
        if (rc < 0) {
            if (err)
                *err = local;
            return rc;
        }
    }
    *out = sum;
    return 0;
}
