/* Opening a file that must be a regular one, and making one that must be ours. A FIFO waits for a writer that may never come, a socket cannot be opened,
 * a device may have side effects or no end: whoever can put one where a file is expected stops the program, deaf to
 * SIGTERM where the caller retries after EINTR. Every file whose name or content comes from others is opened here. */
#ifndef MR_BASE_REGULAR_FILE_H
#define MR_BASE_REGULAR_FILE_H

#include <millrace/error.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>

/* openat(2) without waiting. `flags`: those of open(2); O_CLOEXEC is added, and O_TRUNC takes effect only after the
 * check. Pass O_NOFOLLOW where the last part of the name must not be a link: a link is then -ELOOP. `mode`: of a file
 * that O_CREAT makes. `st` may be NULL. Returns the descriptor, -errno, -EISDIR for a folder, or MR_E_FORMAT for
 * whatever else is no regular file. */
int mr_openat_regular(int dir, const char *name, int flags, unsigned mode, struct stat *st);
/* The same by path, with a message: "cannot open 'PATH': it is not a regular file". */
int mr_open_regular(const char *path, int flags, unsigned mode, struct stat *st, struct mr_error *err);
/* Whether `path` is a link that neither this user nor root has made: whoever did could send what is written anywhere. */
bool mr_is_foreign_link(const char *path);
/* A new, empty file of one of our own names, for writing: what has the name now, a link or a FIFO too, is removed and not
 * followed, so the file is this user's whoever else may write to the folder. A descriptor, or -errno. */
int mr_create_anew(const char *path, unsigned mode);
/* The same as a stream of mode 0666 less the umask; NULL with `errno` set. */
FILE *mr_fcreate_anew(const char *path);
/* A stream for reading; NULL with `errno` set (EINVAL: not a regular file). For files whose absence is no error. */
FILE *mr_fopen_regular(const char *path);

#endif
