/* A whole machine: each folder, then memory, within one budget of time; and the result as a system file. */
#include "probe/calibrate_machine.h"
#include "base/cgroup.h"
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "model/system_yaml.h"

#include <millrace/version.h>

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static uint64_t usable_memory(void)
{
    uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE),
             limit = mr_cgroup_memory_limit();
    return limit ? MR_MIN(machine, limit) : machine;
}

int mr_machine_calibrate(const char *const *paths, unsigned n, const struct mr_calibrate_options *o,
                         struct mr_machine_calibration *c, struct mr_error *err)
{
    double files = o->only == MR_CALIBRATE_MEMORY ? 0 : o->only == MR_CALIBRATE_ALL ? 0.9 : 1;
    struct mr_calibrate_options one = *o;
    assert(n <= MR_CALIBRATE_PATHS_MAX);
    c->memory_bytes = usable_memory();
    one.budget_s = files * o->budget_s / n;
    one.copy_bytes = c->memory_bytes / 16;
    int rc = 0;
    for (unsigned i = 0; i < n && !rc && files > 0; i++) {
        mr_log(MR_LOG_INFO, "measuring '%s' for %.0f s", paths[i], one.budget_s);
        rc = mr_calibrate_path(paths[i], &one, &c->paths[i], err);
    }
    c->n_paths = files > 0 ? n : 0;
    if (rc || files == 1)
        return rc;
    one.budget_s = (files > 0 ? 0.08 : 1) * o->budget_s;
    one.max_threads = MR_MIN(one.max_threads, 2 * mr_cpus_affinity());
    return mr_calibrate_memory(&one, &c->memory, err);
}

static int write_file(const char *path, const struct mr_strbuf *text, struct mr_error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return mr_error_set(err, -errno, "cannot write '%s'", path);
    int rc = 0;
    for (size_t n = 0; n < text->len && !rc;) {
        ssize_t w = write(fd, text->text + n, text->len - n);
        if (w < 0 && errno != EINTR)
            rc = -errno;
        n += w > 0 ? (size_t)w : 0;
    }
    if (close(fd) && !rc)
        rc = -errno;
    return rc ? mr_error_set(err, rc, "cannot write '%s'", path) : 0;
}

int mr_machine_write_system(const struct mr_machine_calibration *c, uint64_t request_bytes, const char *path,
                            struct mr_error *err)
{
    struct mr_system s;
    struct mr_strbuf text = {0};
    char host[64] = "this machine";
    mr_calibration_system(c->paths, c->n_paths, &c->memory, request_bytes, c->memory_bytes, c->net.bytes_per_s / 1e6,
                          &s);
    (void)gethostname(host, sizeof host - 1);
    snprintf(s.name, sizeof s.name, "%s", host);
    snprintf(s.source, sizeof s.source, "millrace calibrate %s on %s", MR_VERSION, host);
    mr_system_write(&s,
                    c->net.ranks
                        ? "The PFS table holds one client, this machine. No compute rate: give step_time or compute."
                        : "The PFS table holds one client, this machine; the network was not measured and counts as "
                          "unlimited. No compute rate: give step_time or compute.",
                    &text);
    int rc = text.failed ? mr_error_set(err, -ENOMEM, "writing '%s'", path) : write_file(path, &text, err);
    mr_strbuf_done(&text);
    return rc;
}
