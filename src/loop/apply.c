/* Runs _apply.py: see apply.h. */
#include "loop/apply.h"
#include "base/common.h"
#include "launch/trace_environment.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Folders of our Python files, seen from that of the tracer's library: as in src/tracer/tracer_python.c. */
static const char *const places[] = {"../python", "../share/millrace/python", "../../share/millrace/python",
                                     "../../../share/millrace/python", "../../.."};

static int find_script(char out[PATH_MAX], struct mr_error *err)
{
    char library[PATH_MAX];
    int rc = mr_trace_library_find(library, err);
    if (rc)
        return rc;
    char *slash = strrchr(library, '/');
    *slash = 0;
    for (size_t i = 0; i < MR_ARRAY_LEN(places); i++) {
        snprintf(out, PATH_MAX, "%.3000s/%s/millrace/trace/_apply.py", library, places[i]);
        if (access(out, R_OK) == 0)
            return 0;
    }
    return mr_error_plain(err, MR_E_CONFIG, "cannot find '_apply.py' near '%s'", library);
}

/* Standard input, output and error are files in memory: nothing to wait for. */
static int run(const char *script, bool write, const int fd[3])
{
    fflush(NULL);
    pid_t pid = fork();
    int status = -1;
    if (pid == 0) {
        for (int i = 0; i < 3; i++)
            dup2(fd[i], i);
        execlp("python3", "python3", "-I", script, write ? "--write" : (char *)NULL, (char *)NULL);
        fprintf(stderr, "cannot run 'python3': %s\n", strerror(errno));
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* What was written, with an end; the caller frees. */
static char *content(int fd)
{
    struct stat st;
    char *text = fstat(fd, &st) == 0 ? calloc(1, (size_t)st.st_size + 1) : NULL;
    if (text && pread(fd, text, (size_t)st.st_size, 0) != (ssize_t)st.st_size)
        *text = 0;
    return text;
}

static int apply(const char *script, const char *request, bool write, const int fd[3], char **out, struct mr_error *err)
{
    size_t len = strlen(request);
    if (pwrite(fd[0], request, len, 0) != (ssize_t)len)
        return mr_error_set(err, -errno, "cannot make the diff");
    int status = run(script, write, fd);
    char *text = content(status ? fd[2] : fd[1]);
    if (!text)
        return mr_error_set(err, -ENOMEM, "cannot make the diff");
    if (!status) {
        *out = text;
        return 0;
    }
    text[strcspn(text, "\n")] = 0;
    int rc = mr_error_plain(err, MR_E_UNSUPPORTED, "cannot make the diff: %s", *text ? text : "python3 failed");
    free(text);
    return rc;
}

int mr_apply(const json_t *changes, bool write, char **out, struct mr_error *err)
{
    char script[PATH_MAX];
    int fd[3] = {-1, -1, -1}, rc = find_script(script, err);
    if (rc)
        return rc;
    json_t *root = json_pack("{s:O}", "changes", changes);
    char *request = root ? json_dumps(root, JSON_COMPACT) : NULL;
    for (int i = 0; i < 3; i++)
        fd[i] = memfd_create("apply", MFD_CLOEXEC);
    rc = request && fd[0] >= 0 && fd[1] >= 0 && fd[2] >= 0 ? apply(script, request, write, fd, out, err)
                                                           : mr_error_set(err, -ENOMEM, "cannot make the diff");
    for (int i = 0; i < 3; i++)
        if (fd[i] >= 0)
            close(fd[i]);
    free(request);
    json_decref(root);
    return rc;
}
