/* Processes by number and start time, field 22 of /proc/PID/stat; see process.h. */
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIELD_STATE 3
#define FIELD_THREADS 20
#define FIELD_STARTED 22

/* The name, field 2, stands in brackets and may hold anything, brackets too: fields are counted from the last one. A
 * process whose first thread ended before the others looks like one that has ended; its threads tell. */
static bool read_stat(pid_t pid, char *state, bool *ended, uint64_t *started)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    char *at = strrchr(text, ')');
    if (!at || at[1] != ' ')
        return false;
    at += 2;
    *state = *at;
    bool zombie = *at == 'Z' || *at == 'X';
    uint64_t threads = 0;
    for (int field = FIELD_STATE; at && field < FIELD_STARTED; field++) {
        if (field == FIELD_THREADS)
            threads = strtoull(at, NULL, 10);
        at = strchr(at, ' ');
        at += at != NULL;
    }
    *ended = zombie && threads <= 1;
    *started = at ? strtoull(at, NULL, 10) : 0;
    return at != NULL;
}

struct mr_process_id mr_process_self(void)
{
    struct mr_process_id p = {.pid = getpid()};
    char state;
    bool ended;
    if (!read_stat(p.pid, &state, &ended, &p.started))
        p.started = 0;
    return p;
}

bool mr_process_lives(const struct mr_process_id *p)
{
    char state;
    bool ended;
    uint64_t started;
    if (p->started && read_stat(p->pid, &state, &ended, &started))
        return started == p->started && !ended;
    return kill(p->pid, 0) == 0 || errno == EPERM;
}

bool mr_process_gone(pid_t pid)
{
    char state;
    bool ended;
    uint64_t started;
    return !read_stat(pid, &state, &ended, &started) || ended;
}

bool mr_process_is_stopped(const struct mr_process_id *p)
{
    char state;
    bool ended;
    uint64_t started;
    return p->started && read_stat(p->pid, &state, &ended, &started) && started == p->started && !ended &&
           (state == 'T' || state == 't');
}
