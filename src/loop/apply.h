/* A change as a unified diff of the user's script, by python/millrace/trace/_apply.py: it takes Python to find the
 * arguments of a call of Python. */
#ifndef MR_LOOP_APPLY_H
#define MR_LOOP_APPLY_H

#include <jansson.h>
#include <millrace/error.h>
#include <stdbool.h>

/* `changes`: list of {"file", "line", "set": {argument: value}}. The diff goes to *out, which the caller frees. With
 * `write` the files are changed, too, each in one go. MR_E_UNSUPPORTED: why it has to be done by hand. */
int mr_apply(const json_t *changes, bool write, char **out, struct mr_error *err);

#endif
