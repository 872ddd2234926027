/* Globs for paths, as the options --include and --exclude and their variables give them. Part of the preload library:
 * no malloc. */
#ifndef MR_EVENT_PATH_GLOB_H
#define MR_EVENT_PATH_GLOB_H

#include <stdbool.h>
#include <stddef.h>

/* '*' matches any bytes, also '/', '?' one byte, [a-z] a set, [!a-z] what is not in it. Costs at most length x length.
 */
bool mr_glob(const char *pattern, size_t len, const char *text);

#define MR_GLOBS_BYTES 32768 /* of a list, at most */

/* Puts a list of globs, with ':' or ',' between them, into the form that mr_globs_match takes: {a,b} stands for one
 * glob with each, and a glob that ends in '/' for the folder and what lies below. False, and an empty list, if it needs
 * more than `cap` bytes. */
bool mr_globs_read(const char *list, char *out, size_t cap);
bool mr_globs_match(const char *globs, const char *path);

#endif
