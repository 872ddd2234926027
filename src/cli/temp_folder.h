#ifndef MR_CLI_TEMP_FOLDER_H
#define MR_CLI_TEMP_FOLDER_H

/* Folders for what a command needs only while it runs. */
#include <millrace/error.h>

#include <stddef.h>

/* Makes a folder of its own in `parent` (made if it is missing), or, when that is empty, in $TMPDIR or /tmp. */
int mr_cli_temp_folder(const char *parent, const char *purpose, char *out, size_t cap, struct mr_error *err);

/* Removes a folder with everything in it, without following links. */
int mr_cli_remove_folder(const char *folder, struct mr_error *err);

#endif
