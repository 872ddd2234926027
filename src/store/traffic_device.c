/* See the header. An emulated device hides the one below it: the first throttle shim of the stack counts. */
#include "store/traffic_device.h"
#include "store/store_internal.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum kind { DISK, EMULATED };

/* A partition is a part of its disk. Devices without an entry (network, overlay) are themselves. */
static uint64_t disk_of(dev_t dev)
{
    char path[PATH_MAX], text[32];
    unsigned disk_major, disk_minor;
    snprintf(path, sizeof path, "/sys/dev/block/%u:%u/partition", major(dev), minor(dev));
    if (access(path, F_OK) != 0)
        return dev;
    snprintf(path, sizeof path, "/sys/dev/block/%u:%u/../dev", major(dev), minor(dev));
    FILE *f = fopen(path, "re");
    bool known = f && fgets(text, sizeof text, f) && sscanf(text, "%u:%u", &disk_major, &disk_minor) == 2;
    if (f)
        fclose(f);
    return known ? makedev(disk_major, disk_minor) : dev;
}

/* Of the path, or the nearest folder above it that exists. */
static bool find_disk(const char *path, uint64_t *out)
{
    char at[PATH_MAX];
    struct stat st;
    if (strlen(path) >= sizeof at)
        return false;
    memcpy(at, path, strlen(path) + 1);
    while (stat(at, &st) != 0) {
        char *slash = strrchr(at, '/');
        if (slash && slash != at)
            *slash = '\0';
        else if (strcmp(at, slash ? "/" : ".") == 0)
            return false;
        else
            memcpy(at, slash ? "/" : ".", 2);
    }
    *out = disk_of(st.st_dev);
    return true;
}

bool mr_device_find(struct mr_store *s, const char *path, struct mr_device_key *out)
{
    struct mr_store *bottom = s;
    for (; s; s = s->lower) {
        if (s->ops == &mr_store_throttle_ops) {
            out->kind = EMULATED;
            mr_throttle_identity(s, &out->a, &out->b);
            return true;
        }
        bottom = s;
    }
    if (bottom && !(bottom->ops->caps & MR_STORE_CAP_PERSISTENT))
        return false;
    out->kind = DISK;
    out->b = 0;
    return find_disk(path, &out->a);
}
