/* The storage part of `millrace doctor`: the file system under PATH, its space, and what it lets us do without root
 * (O_DIRECT, dropping our own pages from the cache), tried on a temporary file. */
#include "probe/doctor.h"
#include "base/common.h"
#include "base/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

struct mount {
    char point[PATH_MAX], type[64], source[256], options[512];
};

/* mountinfo writes blanks and backslashes as \ooo. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from;) {
        if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] && from[3]) {
            *to++ = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'));
            from += 4;
        } else {
            *to++ = *from++;
        }
    }
    *to = '\0';
}

static bool is_under(const char *path, const char *point)
{
    size_t len = strlen(point);
    return strcmp(point, "/") == 0 || (strncmp(path, point, len) == 0 && (path[len] == '/' || path[len] == '\0'));
}

/* The longest mount point above the path; of equal ones the last, which covers the others. */
static bool find_mount(const char *path, struct mount *best)
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    char *line = NULL;
    size_t cap = 0, best_len = 0;
    bool found = false;
    while (f && getline(&line, &cap, f) > 0) {
        static struct mount m;
        char super[512] = "", *dash = strstr(line, " - ");
        if (!dash || sscanf(line, "%*d %*d %*s %*s %4095s %511s", m.point, m.options) != 2 ||
            sscanf(dash, " - %63s %255s %511s", m.type, m.source, super) < 2)
            continue;
        unescape(m.point);
        if (is_under(path, m.point) && strlen(m.point) >= best_len) {
            *best = m;
            best_len = strlen(m.point);
            found = true;
        }
    }
    free(line);
    if (f)
        fclose(f);
    return found;
}

static bool one_of(const char *word, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(word, *list) == 0)
            return true;
    return false;
}

static bool has_option(const char *options, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = options; (at = strstr(at, name)); at += len)
        if ((at == options || at[-1] == ',') && (at[len] == ',' || at[len] == '\0'))
            return true;
    return false;
}

static void check_mount(struct mr_doctor *d, const struct mount *m)
{
    static const char *const memory[] = {"tmpfs", "ramfs", "devtmpfs", NULL};
    static const char *const network[] = {"nfs",    "nfs4",      "cifs",       "smb3", "ceph",   "lustre", "gpfs",
                                          "beegfs", "glusterfs", "fuse.sshfs", "afs",  "wekafs", NULL};
    enum mr_doctor_level level = MR_DOCTOR_OK;
    const char *advice = "";
    if (one_of(m->type, memory)) {
        level = MR_DOCTOR_WARN;
        advice = "This file system is memory: nothing read here reaches a device. Choose a path on a disk, or use the "
                 "throttle shim to emulate one.";
    } else if (one_of(m->type, network)) {
        level = MR_DOCTOR_NOTE;
        advice = "A network file system: other clients share it. Repeat runs, and compare medians, not single figures.";
    } else if (strncmp(m->type, "fuse", 4) == 0 || strcmp(m->type, "9p") == 0 || strcmp(m->type, "virtiofs") == 0) {
        level = MR_DOCTOR_NOTE;
        advice = "A user-space or pass-through file system: every operation costs a switch to another program, and it "
                 "may cache on its own. Measure on the file system below it if you can.";
    } else if (strcmp(m->type, "overlay") == 0) {
        level = MR_DOCTOR_NOTE;
        advice = "A container's overlay: first writes copy whole files up. Put data on a mounted volume.";
    }
    mr_doctor_add(d, "file system", level, advice, "%s on %s, mounted at %s", m->type, m->source, m->point);
    if (has_option(m->options, "ro"))
        mr_doctor_add(d, "mount options", MR_DOCTOR_WARN, "Read-only: data sets cannot be generated here.", "%s",
                      m->options);
    else if (has_option(m->options, "sync"))
        mr_doctor_add(d, "mount options", MR_DOCTOR_WARN, "Every write waits for the device; remount without 'sync'.",
                      "%s", m->options);
    else if (has_option(m->options, "strictatime"))
        mr_doctor_add(d, "mount options", MR_DOCTOR_NOTE,
                      "Every read also writes an access time; remount with 'noatime'.", "%s", m->options);
    else
        mr_doctor_add(d, "mount options", MR_DOCTOR_OK, "", "%s", m->options);
}

static int check_space(struct mr_doctor *d, struct mr_error *err)
{
    struct statvfs v;
    char a[MR_HUMAN_LEN], b[MR_HUMAN_LEN];
    if (statvfs(d->path, &v))
        return mr_error_set(err, -errno, "cannot examine '%s'", d->path);
    double total = (double)v.f_blocks * (double)v.f_frsize, free_bytes = (double)v.f_bavail * (double)v.f_frsize;
    mr_doctor_figure(d, "space_free_bytes", free_bytes);
    mr_doctor_figure(d, "space_total_bytes", total);
    bool tight = free_bytes < 10.0 * (double)MR_GIB || free_bytes < 0.05 * total;
    mr_doctor_add(d, "space", tight ? MR_DOCTOR_WARN : MR_DOCTOR_OK,
                  tight ? "Little room: file systems slow down when nearly full, and generating may not fit. Make room "
                          "or choose another path."
                        : "",
                  "%s free of %s", mr_human_bytes(free_bytes, a), mr_human_bytes(total, b));
    if (v.f_files == 0) { /* btrfs and others make them as needed */
        mr_doctor_add(d, "inodes", MR_DOCTOR_OK, "", "no fixed number");
        return 0;
    }
    mr_doctor_figure(d, "inodes_free_count", (double)v.f_favail);
    bool few = v.f_favail < 2000000;
    mr_doctor_add(d, "inodes", few ? MR_DOCTOR_NOTE : MR_DOCTOR_OK,
                  few ? "Too few for data sets with one file per sample (ImageNet has 1.3 million): use packed formats."
                      : "",
                  "%s free of %s", mr_human_count((unsigned long long)v.f_favail, a),
                  mr_human_count((unsigned long long)v.f_files, b));
    return 0;
}

/* Queue settings of the block device below; a partition keeps them in its parent. */
static void check_device(struct mr_doctor *d)
{
    struct stat st;
    char dir[128], path[192], ahead[64], rotational[16], scheduler[128] = "";
    if (stat(d->path, &st) || major(st.st_dev) == 0)
        return; /* no single block device: network, overlay, btrfs */
    snprintf(dir, sizeof dir, "/sys/dev/block/%u:%u", major(st.st_dev), minor(st.st_dev));
    snprintf(path, sizeof path, "%s/queue/read_ahead_kb", dir);
    const char *queue = access(path, R_OK) == 0 ? "queue" : "../queue";
    snprintf(path, sizeof path, "%s/%s/read_ahead_kb", dir, queue);
    if (!mr_doctor_read(path, ahead, sizeof ahead))
        return;
    snprintf(path, sizeof path, "%s/%s/rotational", dir, queue);
    bool spins = mr_doctor_read(path, rotational, sizeof rotational) && rotational[0] == '1';
    snprintf(path, sizeof path, "%s/%s/scheduler", dir, queue);
    mr_doctor_read(path, scheduler, sizeof scheduler);
    char *chosen = strchr(scheduler, '['), *end = strchr(scheduler, ']'); /* "none [mq-deadline] kyber" */
    if (chosen && end > chosen)
        *end = '\0';
    long kb = strtol(ahead, NULL, 10);
    mr_doctor_figure(d, "read_ahead_bytes", (double)kb * 1024);
    mr_doctor_add(d, "block device", kb > 1024 ? MR_DOCTOR_NOTE : MR_DOCTOR_OK,
                  kb > 1024 ? "Large read-ahead: small random reads through the page cache fetch far more than asked. "
                              "Use O_DIRECT, or compare bytes asked with bytes read."
                            : "",
                  "%s, read-ahead %ld KiB, scheduler %s", spins ? "reports itself as rotating" : "not rotating", kb,
                  chosen && end > chosen ? chosen + 1
                  : scheduler[0]         ? scheduler
                                         : "unknown");
}

#define TRIAL_BYTES ((size_t)1 << 20)

/* The smallest alignment a direct read accepts; 0 if none does. */
static unsigned direct_alignment(int fd, char *buf)
{
    static const unsigned sizes[] = {512, 1024, 2048, 4096, 65536};
    for (unsigned i = 0; i < MR_ARRAY_LEN(sizes); i++)
        if (pread(fd, buf + sizes[i], sizes[i], sizes[i]) == (ssize_t)sizes[i])
            return sizes[i];
    return 0;
}

static void try_direct(struct mr_doctor *d, const char *file, char *buf)
{
    int fd = open(file, O_RDONLY | O_DIRECT | O_CLOEXEC);
    unsigned align = fd >= 0 ? direct_alignment(fd, buf) : 0;
    if (fd >= 0)
        close(fd);
    mr_doctor_figure(d, "direct_alignment_bytes", align);
    if (align)
        mr_doctor_add(d, "O_DIRECT", MR_DOCTOR_OK, "", "works, aligned to %u bytes", align);
    else
        mr_doctor_add(d, "O_DIRECT", MR_DOCTOR_NOTE,
                      "Reads cannot bypass the page cache here; cold reads then depend on dropping our pages (below).",
                      "does not work");
}

/* Writes are clean and dropped, then counted by mincore. */
static void try_cold(struct mr_doctor *d, int fd)
{
    unsigned char resident[TRIAL_BYTES / 4096] = {0};
    unsigned pages = 0;
    fdatasync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    void *map = mmap(NULL, TRIAL_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    bool known = map != MAP_FAILED && mincore(map, TRIAL_BYTES, resident) == 0;
    if (map != MAP_FAILED)
        munmap(map, TRIAL_BYTES);
    for (unsigned i = 0; i < MR_ARRAY_LEN(resident); i++)
        pages += resident[i] & 1;
    if (!known)
        mr_doctor_add(d, "cold reads", MR_DOCTOR_NOTE,
                      "Whether reads come from the page cache cannot be determined here.", "mincore does not work");
    else if (pages * 20 > MR_ARRAY_LEN(resident))
        mr_doctor_add(d, "cold reads", MR_DOCTOR_WARN,
                      "Our own pages stay in memory after fadvise: a second epoch measures memory. Use O_DIRECT or a "
                      "data set several times larger than RAM.",
                      "%u of %zu pages stay cached", pages, MR_ARRAY_LEN(resident));
    else
        mr_doctor_add(d, "cold reads", MR_DOCTOR_OK, "", "our own pages can be dropped from the cache without root");
}

static void try_file(struct mr_doctor *d)
{
    char *file = mr_arena_printf(d->arena, "%s/.millrace-doctor-XXXXXX", d->path);
    char *buf = aligned_alloc(65536, TRIAL_BYTES);
    int fd = file && buf ? mkostemp(file, O_CLOEXEC) : -1;
    if (fd < 0) {
        mr_doctor_add(d, "write access", MR_DOCTOR_NOTE,
                      "Not tried: O_DIRECT, dropping the cache. Give a folder you may write to, to learn more.", "%s",
                      strerror(errno));
        free(buf);
        return;
    }
    memset(buf, 0x5a, TRIAL_BYTES);
    if (pwrite(fd, buf, TRIAL_BYTES, 0) == (ssize_t)TRIAL_BYTES && fdatasync(fd) == 0) {
        try_direct(d, file, buf);
        try_cold(d, fd);
    } else {
        mr_doctor_add(d, "write access", MR_DOCTOR_WARN,
                      "Even 1 MiB cannot be written here: make room or check quotas.", "%s", strerror(errno));
    }
    close(fd);
    unlink(file);
    free(buf);
}

int mr_doctor_storage(struct mr_doctor *d, struct mr_error *err)
{
    char real[PATH_MAX];
    struct stat st;
    static struct mount m;
    if (!realpath(d->path, real) || stat(real, &st) || access(real, R_OK))
        return mr_error_set(err, -errno, "cannot examine '%s'", d->path);
    if (!S_ISDIR(st.st_mode)) { /* a file: its folder is what matters */
        char *slash = strrchr(real, '/');
        slash[slash == real] = '\0';
    }
    d->path = mr_arena_strdup(d->arena, real);
    if (!d->path)
        return mr_error_set(err, -ENOMEM, "cannot examine '%s'", real);
    if (find_mount(real, &m))
        check_mount(d, &m);
    else /* as in a chroot that is not a mount point */
        for (unsigned i = 0; i < 2; i++)
            mr_doctor_add(d, i ? "mount options" : "file system", MR_DOCTOR_NOTE, "Its properties are unknown.",
                          "not in /proc/self/mountinfo");
    int code = check_space(d, err);
    if (code)
        return code;
    check_device(d);
    try_file(d);
    return 0;
}
