/* Temporary folders: see temp_folder.h. */
#include "base/temp_folder.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int mr_temp_folder_make(const char *parent, const char *purpose, char *out, size_t cap, struct mr_error *err)
{
    const char *usual = getenv("TMPDIR");
    if (*parent && mkdir(parent, 0777) != 0 && errno != EEXIST)
        return mr_error_set(err, -errno, "cannot make the folder '%s'", parent);
    if (!*parent)
        parent = usual && *usual ? usual : "/tmp";
    /* mkdtemp puts letters in place of the X's. */
    int n = snprintf(out, cap, "%s/millrace-%s-XXXXXX", parent, purpose);
    if (n < 0 || (size_t)n >= cap)
        return mr_error_set(err, -ENAMETOOLONG, "cannot make a folder in '%s'", parent);
    if (mkdtemp(out))
        return 0;
    *out = '\0'; /* nothing to remove later */
    return mr_error_set(err, -errno, "cannot make a folder in '%s'", parent);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

int mr_temp_folder_remove(const char *folder, struct mr_error *err)
{
    return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0
               ? 0
               : mr_error_set(err, -errno, "cannot remove '%s'", folder);
}
