/* Binary logs of Darshan, read by Darshan's own programs: darshan-parser for the counters, darshan-dxt-parser for the
 * segments. The format has changed with every release, and they know all of them. */
#include "base/cgroup.h"
#include "base/common.h"
#include "base/strbuf.h"
#include "base/vec.h"
#include "import/trace_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAGIC 6567223u        /* behind 8 bytes of version text, in the byte order of the writer */
#define TEXT_MAX (1ull << 34) /* a parser that prints more has lost its way */

extern char **environ;

bool mr_darshan_log_is(const uint8_t *data, size_t len)
{
    uint32_t little = 0, big = 0;
    if (len < 16 || data[0] < '0' || data[0] > '9' || data[1] != '.')
        return false;
    for (int i = 0; i < 4; i++) {
        little |= (uint32_t)data[8 + i] << (8 * i);
        big |= (uint32_t)data[12 + i] << (8 * (3 - i));
    }
    return little == MAGIC || big == MAGIC;
}

/* Everything that comes out of a pipe. */
static int read_all(int fd, char **out, size_t *len)
{
    char *data = NULL;
    size_t n = 0, cap = 0;
    uint64_t free_bytes = mr_machine_memory().free_bytes,
             most = free_bytes ? MR_MIN(free_bytes / 2, TEXT_MAX) : TEXT_MAX;
    for (ssize_t k = 1; k;) {
        if (n > most || mr_vec_reserve(&data, &cap, n + 65536, 1) < 0) {
            free(data);
            return -ENOMEM;
        }
        k = read(fd, data + n, cap - n);
        if (k < 0 && errno != EINTR) {
            int rc = -errno;
            free(data);
            return rc;
        }
        n += k > 0 ? (size_t)k : 0;
    }
    *out = data;
    *len = n;
    return 0;
}

/* Runs a program of the PATH with its messages thrown away. -ENOENT: there is none. */
static int run(const char *program, const char *path, char **out, size_t *len)
{
    int pipes[2], status = 0;
    pid_t pid;
    posix_spawn_file_actions_t actions;
    char show[] = "--show-incomplete", name[64], file[4200];
    snprintf(name, sizeof(name), "%s", program);
    snprintf(file, sizeof(file), "%s%s", *path == '-' ? "./" : "", path);
    char *argv[] = {name, show, file, NULL};
    if (pipe2(pipes, O_CLOEXEC) < 0)
        return -errno;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipes[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    int rc = -posix_spawnp(&pid, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(pipes[1]);
    if (!rc) {
        rc = read_all(pipes[0], out, len);
        close(pipes[0]); /* whoever still writes ends */
        pipes[0] = -1;
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
        if (!rc && (!WIFEXITED(status) || WEXITSTATUS(status)) && !*len) {
            free(*out);
            rc = -EIO;
        }
    }
    if (pipes[0] >= 0)
        close(pipes[0]);
    return rc;
}

int mr_darshan_log_text(const char *path, char **counters, size_t *counters_len, char **segments, size_t *segments_len,
                        struct mr_error *err)
{
    char word[1024];
    *segments = NULL;
    *segments_len = 0;
    int rc = run("darshan-parser", path, counters, counters_len);
    if (rc) {
        mr_error_plain(err, MR_E_FORMAT, "cannot read the binary Darshan log '%s': %s", path,
                       rc == -ENOENT ? "'darshan-parser' is not on the PATH" : "'darshan-parser' fails");
        return mr_error_hint(err, "install Darshan's utilities, or give the text: darshan-parser %s > counters.txt",
                             mr_shell_word(path, word, sizeof word)),
               MR_E_FORMAT;
    }
    if (*counters_len && memmem(*counters, *counters_len, "# DXT_", 6) &&
        run("darshan-dxt-parser", path, segments, segments_len) < 0)
        *segments = NULL; /* the counters alone are still worth something */
    return 0;
}
