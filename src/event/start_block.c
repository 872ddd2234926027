/* The start block of a program that is run under the tracer, from the process that runs it: its own folder and
 * environment are those that the program was given. Apart from start.c, which is malloc-free and part of the preload
 * library. */
#include "base/common.h"
#include "event/mrt.h"
#include "event/start.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ABOVE_MOST 16u /* processes above us that are looked at */

static struct mr_start_text read_proc(long pid, const char *what, char *to)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/%s", pid, what);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(to, 1, MR_START_TEXT, f) : 0;
    if (f)
        fclose(f);
    return (struct mr_start_text){.text = n && n < MR_START_TEXT ? to : NULL, .len = n < MR_START_TEXT ? n : 0};
}

static long parent_of(long pid)
{
    char path[64], text[512], *at;
    long parent = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = 0;
    at = strrchr(text, ')');
    if (at && strlen(at) > 4) /* ") S PARENT" */
        parent = strtol(at + 4, NULL, 10);
    return parent;
}

/* The nearest of the processes above us that launches ranks. */
static struct mr_start_text find_launcher(char *to)
{
    long pid = getppid();
    for (unsigned i = 0; i < ABOVE_MOST && pid > 1; i++, pid = parent_of(pid)) {
        struct mr_start_text words = read_proc(pid, "cmdline", to);
        if (words.text && mr_start_launches(words.text, words.len))
            return words;
    }
    return (struct mr_start_text){0};
}

static struct mr_start_text words_of(char *const *argv, char *to)
{
    size_t len = 0;
    for (; argv && *argv; argv++) {
        size_t n = strlen(*argv) + 1;
        if (len + n > MR_START_TEXT)
            return (struct mr_start_text){0};
        memcpy(to + len, *argv, n);
        len += n;
    }
    return (struct mr_start_text){.text = len ? to : NULL, .len = len};
}

size_t mr_start_block(uint64_t key, uint64_t now_ns, char *const *argv, uint8_t *out)
{
    struct mr_mrt_block b = {.type = MR_MRT_START, .key = key, .first_ns = now_ns, .last_ns = now_ns};
    char *text = malloc(4 * (size_t)MR_START_TEXT), folder[PATH_MAX];
    if (!text)
        return 0;
    struct mr_start s = {.words = words_of(argv, text),
                         .environment = read_proc(getpid(), "environ", text + MR_START_TEXT),
                         .launcher = find_launcher(text + 2 * (size_t)MR_START_TEXT)};
    if (getcwd(folder, sizeof folder))
        s.folder = (struct mr_start_text){.text = folder, .len = strlen(folder)};
    if (!s.launcher.text) /* whose variables for its ranks nobody typed */
        s.shell = read_proc(getppid(), "environ", text + 3 * (size_t)MR_START_TEXT);
    b.payload_bytes = (uint32_t)mr_start_encode(&s, out + MR_MRT_HEADER, MR_START_PAYLOAD, &b.count);
    free(text);
    return b.count ? mr_mrt_seal(out, &b) : 0;
}
