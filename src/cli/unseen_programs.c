/* The file `unseen` in a folder of rings or traces: paths, each ended by NUL, one for every start. */
#include "cli/unseen_programs.h"
#include "base/log.h"
#include "base/strbuf.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NAMED 5u

void mr_unseen_tell(const char *folder)
{
    char path[PATH_MAX], text[8192];
    snprintf(path, sizeof(path), "%.4000s/unseen", folder);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return;
    ssize_t n = read(fd, text, sizeof(text));
    close(fd);
    if (n <= 0)
        return;
    text[n - 1] = 0;
    unsigned starts = 0, kinds = 0;
    struct mr_strbuf names = {0};
    for (const char *p = text; p < text + n; p += strlen(p) + 1) {
        bool known = false;
        for (const char *q = text; q < p && !known; q += strlen(q) + 1)
            known = !strcmp(p, q);
        starts++;
        if (!known && kinds++ < NAMED)
            mr_strbuf_printf(&names, "%s'%s'", kinds > 1 ? ", " : "", p);
    }
    mr_log(MR_LOG_WARN, "%u%s times a program was started that the tracer cannot be in (linked statically, or setuid): %s%s", starts,
           n == sizeof(text) ? " or more" : "", names.text ? names.text : "", kinds > NAMED ? " ..." : "");
    mr_strbuf_done(&names);
}
