/* Who could have changed a plug-in: see plugin_trust.h. The path is made canonical first, so that every link on the way
 * has been followed and only folders are left above the object. */
#include "plugin/plugin_trust.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OVERFLOW_UID 65534u /* stands for every user that a namespace does not map */

static int refuse(const char *path, const char *part, const char *why, const char *hint, struct mr_error *err)
{
    if (strcmp(path, part) != 0)
        mr_error_plain(err, MR_E_CONFIG, "cannot use plug-in '%s': %s '%s'", path, why, part);
    else
        mr_error_plain(err, MR_E_CONFIG, "cannot use plug-in '%s': %s it", path, why);
    return mr_error_hint(err, "%s", hint), MR_E_CONFIG;
}

/* `above`: a folder on the way to the plug-in. */
static int check_part(const char *path, const char *part, bool above, struct mr_error *err)
{
    struct stat st;
    if (lstat(part, &st) != 0)
        return mr_error_set(err, -errno, "cannot load plug-in '%s'", path);
    bool is_folder = S_ISDIR(st.st_mode);
    if (!is_folder && !S_ISREG(st.st_mode)) {
        mr_error_plain(err, MR_E_CONFIG, "cannot use plug-in '%s': it is not a regular file", path);
        return MR_E_CONFIG;
    }
    if (st.st_uid && st.st_uid != geteuid() && !(above && st.st_uid == OVERFLOW_UID))
        return refuse(path, part, "another user owns", "copy it to a folder of your own", err);
    if (st.st_mode & (S_IWGRP | S_IWOTH) && !(is_folder && st.st_mode & S_ISVTX))
        return refuse(path, part, "others can write to", "chmod go-w it, if nobody else has changed it", err);
    return 0;
}

int mr_plugin_check_trust(const char *path, struct mr_error *err)
{
    char *real = realpath(path, NULL);
    if (!real)
        return mr_error_set(err, -errno, "cannot load plug-in '%s'", path);
    char *full = strdup(real), *slash;
    int rc = full ? check_part(full, real, false, err) : mr_error_set(err, -ENOMEM, "cannot load plug-in '%s'", path);
    while (!rc && (slash = strrchr(real, '/')) && real[1]) {
        slash[slash == real] = '\0';
        rc = check_part(full, real, true, err);
    }
    free(real);
    free(full);
    return rc;
}
