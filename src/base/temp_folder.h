#ifndef MR_BASE_TEMP_FOLDER_H
#define MR_BASE_TEMP_FOLDER_H

/* Folders for what a command needs only while it runs. */
#include <millrace/error.h>

#include <stddef.h>

/* Makes a folder of its own in `parent` (made if it is missing), or, when that is empty, in $TMPDIR or /tmp. */
int mr_temp_folder_make(const char *parent, const char *purpose, char *out, size_t cap, struct mr_error *err);

/* Removes a folder with everything in it, without following links. */
int mr_temp_folder_remove(const char *folder, struct mr_error *err);

#endif
