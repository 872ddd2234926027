/* Facts that only the file system knows, asked where the trace was taken on this machine and its files are still there:
 * how large files are that were mapped or opened and hardly read by calls, how far the device reads ahead, how Lustre
 * stripes. What cannot be asked stays unknown. */
#include "base/common.h"
#include "explain/explain_internal.h"
#include "explain/explain_settings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#define ASKED_MOST 2000u /* files: more are not looked at */
#define HARDLY 0.01      /* of a file: less that calls read is as good as nothing */

bool mr_lustre_stripes(const void *xattr, size_t len, double *count, double *bytes)
{
    const uint8_t *p = xattr;
    uint32_t magic, size;
    uint16_t stripes;
    if (len < 30)
        return false;
    memcpy(&magic, p, sizeof magic);
    memcpy(&size, p + 24, sizeof size);
    memcpy(&stripes, p + 28, sizeof stripes);
    if ((magic != 0x0BD10BD0 && magic != 0x0BD30BD0) || !size || !stripes) /* layouts in parts have no one answer */
        return false;
    *count = stripes;
    *bytes = size;
    return true;
}

static bool path_of(const struct explain_file *f, char *out, size_t cap)
{
    if (!f->len || f->path[0] != '/' || f->len >= cap)
        return false;
    memcpy(out, f->path, f->len);
    out[f->len] = '\0';
    return true;
}

static bool is_library(const char *path)
{
    const char *at = strstr(path, ".so");
    return at && (!at[3] || at[3] == '.');
}

/* The most read file stands for the others. */
static void ask_device(const struct explain_job *j, const struct explain_file *f)
{
    struct mr_explain_facts *x = &j->x->facts;
    struct stat st;
    char path[4096], name[64];
    uint8_t layout[256];
    unsigned long kib;
    if (!path_of(f, path, sizeof path) || stat(path, &st) != 0)
        return;
    ssize_t n = f->fs && !strcmp(f->fs, "lustre") ? getxattr(path, "lustre.lov", layout, sizeof layout) : -1;
    if (n > 0)
        mr_lustre_stripes(layout, (size_t)n, &x->stripe_count, &x->stripe_bytes);
    snprintf(name, sizeof name, "/sys/class/bdi/%u:%u/read_ahead_kb", major(st.st_dev), minor(st.st_dev));
    FILE *in = fopen(name, "re");
    if (in && fscanf(in, "%lu", &kib) == 1)
        x->read_ahead_bytes = (double)kib * 1024;
    if (in)
        fclose(in);
}

void mr_explain_disk(struct explain_job *j, const struct explain_tally *tally)
{
    struct mr_explain_facts *f = &j->x->facts;
    double mapped = 0, opened = 0;
    uint32_t most = NO_INDEX, asked = 0;
    char path[4096];
    struct stat st;
    if (!mr_explain_is_here(j->x))
        return;
    for (uint32_t i = 0; i < j->file.n; i++) {
        const struct explain_tally *t = &tally[i];
        if (t->read_bytes && (t->for_batch || !j->make.n) &&
            (most == NO_INDEX || t->read_bytes > tally[most].read_bytes))
            most = i;
        bool maps = t->maps && !t->written_bytes, opens = t->opens && t->for_batch && !t->written_bytes;
        if ((!maps && !opens) || asked >= ASKED_MOST || !path_of(&j->file.item[i], path, sizeof path))
            continue;
        asked++;
        if (is_library(path) || stat(path, &st) != 0 || !S_ISREG(st.st_mode) ||
            (double)(t->read_bytes - t->faulted) >= HARDLY * (double)st.st_size)
            continue;
        *(maps ? &mapped : &opened) += (double)st.st_size;
        f->fault_bytes = (isfinite(f->fault_bytes) ? f->fault_bytes : 0) + (double)t->faulted;
    }
    f->mapped_bytes = mapped > 0 ? mapped : f->mapped_bytes;
    f->opened_bytes = opened > 0 ? opened : f->opened_bytes;
    if (most != NO_INDEX)
        ask_device(j, &j->file.item[most]);
}
