/* The cleaner of a trial's folder: see scratch.h. */
#include "loop/scratch.h"
#include "base/common.h"
#include "base/regular_file.h"
#include "base/temp_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Only folders that a trial makes have such a name. */
static void remove_other(char *path)
{
    path[strcspn(path, "\n")] = 0;
    const char *slash = strrchr(path, '/');
    if (path[0] == '/' && slash && !strncmp(slash + 1, MR_SCRATCH_NAME, strlen(MR_SCRATCH_NAME)))
        (void)mr_temp_folder_remove(path, NULL);
}

static void remove_all(const struct mr_scratch *s)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/others", s->folder);
    FILE *f = mr_fopen_regular(path);
    while (f && fgets(path, sizeof path, f))
        remove_other(path);
    if (f)
        fclose(f);
    (void)mr_temp_folder_remove(s->folder, NULL);
}

/* In a session of its own: signals from the terminal end `try`, and then it is this process' turn. */
static _Noreturn void clean(const struct mr_scratch *s, int hold)
{
    char byte;
    ssize_t got;
    setsid();
    for (int number = 1; number < NSIG; number++)
        if (number != SIGKILL && number != SIGSTOP)
            signal(number, number == SIGCHLD ? SIG_DFL : SIG_IGN);
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3 && null >= 0; fd++)
        dup2(null, fd);
    while ((got = read(hold, &byte, 1)) > 0 || (got < 0 && errno == EINTR))
        continue;
    remove_all(s);
    _exit(0);
}

int mr_scratch_open(struct mr_scratch *out, struct mr_error *err)
{
    int hold[2];
    *out = (struct mr_scratch){.hold = -1};
    int rc = mr_temp_folder_make("", "try", out->folder, sizeof out->folder, err);
    if (rc)
        return rc;
    if (pipe2(hold, O_CLOEXEC) < 0) {
        rc = mr_error_set(err, -errno, "cannot start a trial");
        (void)mr_temp_folder_remove(out->folder, NULL);
        return rc;
    }
    fflush(NULL);
    out->cleaner = fork();
    if (out->cleaner == 0) {
        close(hold[1]);
        clean(out, hold[0]);
    }
    close(hold[0]);
    out->hold = hold[1];
    if (out->cleaner > 0)
        return 0;
    rc = mr_error_set(err, -errno, "cannot start a trial");
    remove_all(out);
    mr_scratch_close(out);
    return rc;
}

/* Noted before it is made: a kill in between leaves nothing. */
int mr_scratch_beside(const struct mr_scratch *s, const char *parent, char *out, struct mr_error *err)
{
    char list[PATH_MAX + 16];
    uint64_t random = 0;
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        return mr_error_set(err, -errno, "cannot make a folder in '%s'", parent);
    snprintf(list, sizeof list, "%s/others", s->folder);
    int n = snprintf(out, PATH_MAX, "%s/%s%016" PRIx64, parent, MR_SCRATCH_NAME, random);
    if (n >= PATH_MAX)
        return mr_error_set(err, -ENAMETOOLONG, "cannot make a folder in '%s'", parent);
    FILE *f = fopen(list, "ae");
    bool written = f && fprintf(f, "%s\n", out) > 0;
    if (f)
        written = fclose(f) == 0 && written;
    if (!written)
        return mr_error_set(err, -EIO, "cannot write '%s'", list);
    return mkdir(out, 0700) == 0 ? 0 : mr_error_set(err, -errno, "cannot make a folder in '%s'", parent);
}

void mr_scratch_close(struct mr_scratch *s)
{
    if (s->hold < 0)
        return;
    close(s->hold);
    s->hold = -1;
    while (s->cleaner > 0 && waitpid(s->cleaner, NULL, 0) < 0 && errno == EINTR)
        continue;
}
