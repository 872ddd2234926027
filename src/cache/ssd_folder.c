/* The folder of an SSD class: see ssd_folder.h. */
#include "cache/ssd_folder.h"

#include "base/clock.h"
#include "base/common.h"
#include "base/regular_file.h"
#include "base/vec.h"
#include "cache/ssd_index.h"
#include "cache/ssd_io.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define LOCK_NAME "cache.lock"
#define LOCK_TEXT "millrace cache %u\n"
#define ABOUT_NAME "about.json"
#define ABOUT_TEMP "about.json.tmp"
#define PATIENCE_NS (10 * MR_NS_PER_S)

/* ---- is it ours? ---- */

static int refuse(struct mr_error *err, const char *path, const char *why, const char *hint)
{
    mr_error_plain(err, MR_E_CONFIG, "the folder '%s' cannot be a cache: %s", path, why);
    return mr_error_hint(err, "%s", hint), MR_E_CONFIG;
}

static bool is_dots(const char *name)
{
    return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

/* Lists through a descriptor of its own, so that listings do not disturb each other. */
static DIR *list_begin(int dir)
{
    int fd = mr_ssd_openat(dir, ".", O_RDONLY | O_DIRECTORY, 0);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && !d)
        close(fd);
    if (fd < 0)
        errno = -fd;
    return d;
}

static bool is_empty(int dir)
{
    DIR *d = list_begin(dir);
    struct dirent *e;
    bool empty = d != NULL;
    while (empty && (e = readdir(d)))
        empty = is_dots(e->d_name);
    if (d)
        closedir(d);
    return empty;
}

static int check_owner(struct mr_ssd_folder *f, bool fresh, struct mr_error *err)
{
    struct stat st;
    int rc = mr_ssd_stat(f->dir, &st);
    if (rc)
        return mr_error_set(err, rc, "cannot look at the folder '%s'", f->path);
    if (st.st_uid != geteuid())
        return refuse(err, f->path, "it belongs to another user", "give a folder of your own");
    if (!(st.st_mode & 077))
        return 0;
    if (!fresh)
        return refuse(err, f->path, "others may enter it (its mode is not 0700)",
                      "chmod 700 it if nobody else has changed what is in it; else give another folder");
    return fchmod(f->dir, 0700) ? mr_error_set(err, -errno, "cannot set the mode of '%s'", f->path) : 0;
}

/* The lock file says that the folder is ours, and which version. An empty one is that of somebody killed just then. */
static int check_version(struct mr_ssd_folder *f, struct mr_error *err)
{
    char text[64] = "", want[64];
    size_t got = 0;
    unsigned version;
    int rc = mr_ssd_folder_lock(f, err);
    if (rc)
        return rc;
    snprintf(want, sizeof want, LOCK_TEXT, MR_SSD_VERSION);
    rc = mr_ssd_pread(f->lock_fd, text, sizeof text - 1, 0, &got);
    if (!rc && !got && !f->read_only)
        rc = mr_ssd_pwrite(f->lock_fd, want, strlen(want), 0);
    mr_ssd_folder_unlock(f);
    if (rc)
        return mr_error_set(err, rc, "cannot use '%s/" LOCK_NAME "'", f->path);
    text[got] = '\0';
    if (!got || !strcmp(text, want))
        return 0;
    if (sscanf(text, LOCK_TEXT, &version) != 1)
        return refuse(err, f->path, "its " LOCK_NAME " is not Millrace's", "give another folder");
    mr_error_plain(err, MR_E_CONFIG, "the cache '%s' has version %u, this program reads version %u", f->path, version,
                   MR_SSD_VERSION);
    return mr_error_hint(err, "give another folder, or remove this one"), MR_E_CONFIG;
}

static int open_lock(struct mr_ssd_folder *f, bool make, bool *fresh)
{
    f->lock_fd = mr_ssd_openat(f->dir, LOCK_NAME, O_RDWR, 0);
    if (f->lock_fd == -EROFS || f->lock_fd == -EACCES) {
        f->read_only = true;
        f->lock_fd = mr_ssd_openat(f->dir, LOCK_NAME, O_RDONLY, 0);
    }
    *fresh = f->lock_fd == -ENOENT && is_empty(f->dir);
    if (f->lock_fd == -ENOENT && make && *fresh)
        f->lock_fd = mr_ssd_openat(f->dir, LOCK_NAME, O_RDWR | O_CREAT, 0600);
    else if (f->lock_fd == -ENOENT) /* somebody else may have made it meanwhile */
        f->lock_fd = mr_ssd_openat(f->dir, LOCK_NAME, O_RDWR, 0);
    /* a folder of mode 0500 opens its files for writing and makes none */
    if (f->lock_fd >= 0 && faccessat(f->dir, ".", W_OK, AT_EACCESS) != 0)
        f->read_only = true;
    return f->lock_fd < 0 ? f->lock_fd : 0;
}

/* A link to a folder is as good as the folder: who owns it is asked of what was opened. */
static int open_top(const char *path)
{
    char inside[4096];
    if ((size_t)snprintf(inside, sizeof inside, "%s/.", path) >= sizeof inside)
        return -ENAMETOOLONG;
    return mr_ssd_openat(AT_FDCWD, inside, O_RDONLY | O_DIRECTORY, 0);
}

static int open_all(struct mr_ssd_folder *f, bool make, struct mr_error *err)
{
    bool fresh;
    if (mr_is_foreign_link(f->path))
        return refuse(err, f->path, "it is a link of another user", "give a folder of your own");
    f->dir = open_top(f->path);
    if (f->dir == -ENOENT && make) {
        int rc = mr_ssd_mkdirat(AT_FDCWD, f->path, 0700);
        if (rc && rc != -EEXIST)
            return mr_error_set(err, rc, "cannot make the folder '%s'", f->path);
        f->dir = open_top(f->path);
    }
    if (f->dir == -ENOTDIR)
        return refuse(err, f->path, "it is not a folder", "give a folder");
    if (f->dir < 0)
        return mr_error_set(err, f->dir, "cannot open the folder '%s'", f->path);
    int rc = open_lock(f, make, &fresh);
    if (rc == -ENOENT)
        return refuse(err, f->path, fresh ? "nothing was ever kept there" : "it has files that are not a cache's",
                      fresh ? "'millrace cache fill FOLDER DATA' or a run with --tiers makes one"
                            : "give an empty folder, or one that does not exist yet");
    if (rc == MR_E_FORMAT || rc == -ELOOP || rc == -EISDIR)
        return refuse(err, f->path, "its " LOCK_NAME " is not a regular file", "give another folder");
    if (rc)
        return mr_error_set(err, rc, "cannot open '%s/" LOCK_NAME "'", f->path);
    rc = check_owner(f, fresh, err);
    return rc ? rc : check_version(f, err);
}

int mr_ssd_folder_open(const char *path, bool make, struct mr_ssd_folder *out, struct mr_error *err)
{
    *out = (struct mr_ssd_folder){.path = strdup(path), .dir = -1, .lock_fd = -1};
    pthread_mutex_init(&out->mutex, NULL);
    int rc = out->path ? open_all(out, make, err) : mr_error_set(err, -ENOMEM, "cannot open the folder '%s'", path);
    if (rc)
        mr_ssd_folder_close(out);
    return rc;
}

void mr_ssd_folder_close(struct mr_ssd_folder *f)
{
    if (f->dir >= 0)
        close(f->dir);
    if (f->lock_fd >= 0)
        close(f->lock_fd);
    free(f->path);
    pthread_mutex_destroy(&f->mutex);
    f->path = NULL;
    f->dir = f->lock_fd = -1;
}

int mr_ssd_folder_lock(struct mr_ssd_folder *f, struct mr_error *err)
{
    uint64_t until = mr_now_ns() + PATIENCE_NS, pause = MR_NS_PER_US * 50;
    int rc;
    pthread_mutex_lock(&f->mutex);
    while ((rc = mr_ssd_lock(f->lock_fd, LOCK_EX)) == -EWOULDBLOCK || rc == -EINTR) {
        uint64_t now = mr_now_ns();
        if (now >= until)
            break;
        mr_clock_sleep_until(mr_clock_real(), now + pause, NULL);
        pause = MR_MIN(pause * 2, 5 * MR_NS_PER_MS);
    }
    if (!rc)
        return 0;
    pthread_mutex_unlock(&f->mutex);
    if (rc != -EWOULDBLOCK)
        return mr_error_set(err, rc, "cannot lock '%s/" LOCK_NAME "'", f->path);
    mr_error_plain(err, MR_E_TIMEOUT, "another process holds '%s/" LOCK_NAME "' since more than 10 s", f->path);
    return mr_error_hint(err, "a stopped process? 'fuser' names it"), MR_E_TIMEOUT;
}

bool mr_ssd_folder_try(struct mr_ssd_folder *f)
{
    if (pthread_mutex_trylock(&f->mutex))
        return false;
    if (!mr_ssd_lock(f->lock_fd, LOCK_EX))
        return true;
    pthread_mutex_unlock(&f->mutex);
    return false;
}

void mr_ssd_folder_unlock(struct mr_ssd_folder *f)
{
    (void)flock(f->lock_fd, LOCK_UN);
    pthread_mutex_unlock(&f->mutex);
}

/* ---- names ---- */

void mr_ssd_key_text(const uint8_t data_set[16], char out[MR_SSD_KEY])
{
    for (unsigned i = 0; i < 16; i++)
        snprintf(out + 2 * i, 3, "%02x", data_set[i]);
}

bool mr_ssd_key_parse(const char *text, uint8_t data_set[16])
{
    size_t n = strspn(text, "0123456789abcdef");
    if (n != MR_SSD_KEY - 1 || text[n])
        return false;
    for (unsigned i = 0; i < 16; i++) {
        char pair[3] = {text[2 * i], text[2 * i + 1], 0};
        data_set[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return true;
}

static bool is_key(const char *name)
{
    uint8_t unused[16];
    return mr_ssd_key_parse(name, unused);
}

void mr_ssd_pair_name(uint32_t number, const char *end, char out[32])
{
    snprintf(out, 32, "%04" PRIu32 ".%s", number, end);
}

/* The number in NNNN.seg or NNNN.idx as we write it; false: another file. */
static bool pair_of(const char *name, uint32_t *number, bool *idx)
{
    char again[32];
    char *end;
    if (!isdigit((unsigned char)name[0]))
        return false;
    unsigned long n = strtoul(name, &end, 10);
    if (n > UINT32_MAX - 1)
        return false;
    *number = (uint32_t)n;
    *idx = !strcmp(end, ".idx");
    mr_ssd_pair_name(*number, *idx ? "idx" : "seg", again);
    return !strcmp(name, again);
}

/* ---- how large ---- */

static uint64_t bytes_of(int dir, const char *name)
{
    struct stat st;
    return mr_ssd_statat(dir, name, &st) ? 0 : (uint64_t)st.st_blocks * 512;
}

static uint64_t bytes_in(int dir, bool below)
{
    uint64_t sum = bytes_of(dir, ".");
    DIR *d = list_begin(dir);
    struct dirent *e;
    while (d && (e = readdir(d))) {
        int sub = below && is_key(e->d_name) ? mr_ssd_openat(dir, e->d_name, O_RDONLY | O_DIRECTORY, 0) : -1;
        if (sub >= 0) {
            sum += bytes_in(sub, false);
            close(sub);
        } else if (!is_dots(e->d_name))
            sum += bytes_of(dir, e->d_name);
    }
    if (d)
        closedir(d);
    return sum;
}

uint64_t mr_ssd_folder_bytes(const struct mr_ssd_folder *f)
{
    return bytes_in(f->dir, true);
}

/* ---- data sets ---- */

static int longest_unused_first(const void *a, const void *b)
{
    const struct mr_ssd_set *x = a, *y = b;
    if (x->used_s != y->used_s)
        return x->used_s < y->used_s ? -1 : 1;
    return strcmp(x->key, y->key);
}

int mr_ssd_folder_sets(const struct mr_ssd_folder *f, struct mr_ssd_set **sets, unsigned *n, struct mr_error *err)
{
    MR_VEC(struct mr_ssd_set) all = {0};
    DIR *d = list_begin(f->dir);
    struct dirent *e;
    int rc = d ? 0 : -errno;
    while (!rc && (e = readdir(d))) {
        struct stat st;
        char about[MR_SSD_KEY + 16];
        if (!is_key(e->d_name))
            continue;
        struct mr_ssd_set *s = MR_VEC_ADD(&all);
        if (!s) {
            rc = -ENOMEM;
            break;
        }
        memcpy(s->key, e->d_name, sizeof s->key); /* that long: it is a key */
        snprintf(about, sizeof about, "%s/" ABOUT_NAME, s->key);
        s->used_s = mr_ssd_statat(f->dir, about, &st) ? 0 : (int64_t)st.st_mtim.tv_sec;
    }
    if (d)
        closedir(d);
    if (rc) {
        free(all.item);
        return mr_error_set(err, rc, "cannot list '%s'", f->path);
    }
    if (all.n)
        qsort(all.item, all.n, sizeof *all.item, longest_unused_first);
    *sets = all.item;
    *n = (unsigned)all.n;
    return 0;
}

int mr_ssd_set_open(const struct mr_ssd_folder *f, const char *key)
{
    return mr_ssd_openat(f->dir, key, O_RDONLY | O_DIRECTORY, 0);
}

static int by_number(const void *a, const void *b)
{
    const struct mr_ssd_pair *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

int mr_ssd_set_pairs(int set, struct mr_ssd_pair **pairs, unsigned *n)
{
    MR_VEC(struct mr_ssd_pair) all = {0};
    DIR *d = list_begin(set);
    struct dirent *e;
    if (!d)
        return -errno;
    while ((e = readdir(d))) {
        uint32_t number;
        bool idx;
        if (!pair_of(e->d_name, &number, &idx))
            continue;
        struct mr_ssd_pair *p = MR_VEC_ADD(&all);
        if (!p) {
            free(all.item);
            closedir(d);
            return -ENOMEM;
        }
        *p = (struct mr_ssd_pair){.number = number, .seg = !idx, .idx = idx};
    }
    closedir(d);
    if (all.n)
        qsort(all.item, all.n, sizeof *all.item, by_number);
    size_t kept = 0;
    for (size_t i = 0; i < all.n; i++)
        if (kept && all.item[kept - 1].number == all.item[i].number) {
            all.item[kept - 1].seg |= all.item[i].seg;
            all.item[kept - 1].idx |= all.item[i].idx;
        } else
            all.item[kept++] = all.item[i];
    *pairs = all.item;
    *n = (unsigned)kept;
    return 0;
}

/* Nobody uses the file: true, and the descriptor that keeps it so. */
static bool take_alone(int set, const char *name, int *fd)
{
    *fd = mr_ssd_openat(set, name, O_RDONLY, 0);
    if (*fd >= 0 && mr_ssd_lock(*fd, LOCK_EX)) {
        close(*fd);
        *fd = -1;
        return false;
    }
    return *fd >= 0 || *fd == -ENOENT;
}

/* Removes both; the index first: bytes without one are nobody's, an index without bytes would be believed for a while.
 */
static bool remove_both(int set, const struct mr_ssd_pair *p, const char *seg, const char *idx, uint64_t *freed)
{
    uint64_t bytes = bytes_of(set, idx), more = bytes_of(set, seg);
    if (p->idx && mr_ssd_unlinkat(set, idx, false))
        return false;
    if (freed)
        *freed += bytes;
    if (p->seg && mr_ssd_unlinkat(set, seg, false))
        return false;
    if (freed)
        *freed += more;
    return true;
}

static bool with_pair_alone(int set, const struct mr_ssd_pair *p, bool drop, uint64_t *freed)
{
    char seg[32], idx[32];
    int seg_fd = -1, idx_fd = -1;
    mr_ssd_pair_name(p->number, "seg", seg);
    mr_ssd_pair_name(p->number, "idx", idx);
    bool good = (!p->idx || take_alone(set, idx, &idx_fd)) && (!p->seg || take_alone(set, seg, &seg_fd)) &&
                (!drop || remove_both(set, p, seg, idx, freed));
    if (seg_fd >= 0)
        close(seg_fd);
    if (idx_fd >= 0)
        close(idx_fd);
    return good;
}

bool mr_ssd_pair_remove(int set, const struct mr_ssd_pair *p, uint64_t *freed)
{
    return with_pair_alone(set, p, true, freed);
}

bool mr_ssd_pair_in_use(int set, const struct mr_ssd_pair *p)
{
    return !with_pair_alone(set, p, false, NULL);
}

void mr_ssd_set_remove_empty(const struct mr_ssd_folder *f, const char *key)
{
    struct mr_ssd_pair *pairs = NULL;
    unsigned n = 0;
    int set = mr_ssd_set_open(f, key);
    if (set < 0)
        return;
    if (!mr_ssd_set_pairs(set, &pairs, &n) && !n) {
        mr_ssd_about_clean(set);
        (void)mr_ssd_unlinkat(set, ABOUT_NAME, false);
        (void)mr_ssd_unlinkat(f->dir, key, true); /* refused where something else lies in it */
    }
    free(pairs);
    close(set);
}

/* ---- about.json ---- */

bool mr_ssd_about_read(int set, struct mr_ssd_about *out)
{
    char text[2048];
    size_t got = 0;
    const char *name;
    json_int_t samples;
    int fd = mr_ssd_openat(set, ABOUT_NAME, O_RDONLY, 0);
    *out = (struct mr_ssd_about){0};
    if (fd < 0)
        return false;
    int rc = mr_ssd_pread(fd, text, sizeof text, 0, &got);
    close(fd);
    json_t *j = rc ? NULL : json_loadb(text, got, JSON_REJECT_DUPLICATES, NULL);
    bool good = j && !json_unpack(j, "{s:s, s:I}", "name", &name, "samples", &samples) && samples >= 0;
    if (good) {
        snprintf(out->name, sizeof out->name, "%s", name);
        out->samples = (uint64_t)samples;
    }
    json_decref(j);
    return good;
}

/* A name that JSON takes: cut between characters, and without bytes that are no UTF-8. */
static json_t *name_json(const char *name)
{
    char ascii[256];
    json_t *j = strlen(name) < sizeof ascii ? json_string(name) : NULL;
    if (j)
        return j;
    size_t n = strnlen(name, sizeof ascii - 1);
    for (size_t i = 0; i < n; i++)
        ascii[i] = (unsigned char)name[i] < 0x80 ? name[i] : '?';
    return json_stringn(ascii, n);
}

static int write_about(int set, const struct mr_ssd_about *about)
{
    json_t *j = json_pack("{s:s, s:i, s:o, s:I}", "schema", "millrace.cache_about/1", "version", (int)MR_SSD_VERSION,
                          "name", name_json(about->name), "samples", (json_int_t)about->samples);
    char *text = j ? json_dumps(j, JSON_INDENT(1)) : NULL;
    json_decref(j);
    if (!text)
        return -ENOMEM;
    int fd = mr_ssd_openat(set, ABOUT_TEMP, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int rc = fd < 0 ? fd : mr_ssd_pwrite(fd, text, strlen(text), 0);
    if (fd >= 0)
        close(fd);
    free(text);
    if (!rc)
        rc = mr_ssd_renameat(set, ABOUT_TEMP, ABOUT_NAME);
    if (rc)
        mr_ssd_about_clean(set);
    return rc;
}

void mr_ssd_about_clean(int set)
{
    (void)mr_ssd_unlinkat(set, ABOUT_TEMP, false);
}

int mr_ssd_about_write(int set, const struct mr_ssd_about *about)
{
    struct mr_ssd_about have;
    if (mr_ssd_about_read(set, &have) && have.samples == about->samples && !strcmp(have.name, about->name))
        return utimensat(set, ABOUT_NAME, NULL, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
    return write_about(set, about);
}
