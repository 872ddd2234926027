/* Formats as the program uses them: the registry and the simple way to read one sample. What a format is, and how to
 * write one, stands in <millrace/plugin_format.h>.
 *
 * How to add a built-in format: copy format_raw.c, fill struct mr_format_ops, add the row to the registry in format.c,
 * run tests/conformance/test_format_conformance on it, add a fuzz target (tests/fuzz/fuzz_<format>.c). */
#ifndef MR_FORMAT_FORMAT_H
#define MR_FORMAT_FORMAT_H

#include "base/common.h"
#include "conf/option.h"
#include "store/store.h"

#include <millrace/plugin_format.h>

const struct mr_format_ops *mr_format_find(const char *name, struct mr_error *err); /* error lists the names */
const struct mr_format_ops *mr_format_for_path(const char *path);                   /* by extension, or NULL */
const struct mr_format_ops *const *mr_format_registry(void);                        /* NULL-terminated */

/* Reads one sample the simple way, in the calling thread: plan, read, decode. `buf` grows as needed (realloc). For
 * tools and tests; the loader does the same steps with its own buffers. */
struct mr_growbuf {
    void *data;
    size_t cap;
};
int mr_format_read_sample(const struct mr_format_ops *f, struct mr_object *o, struct mr_decoder *d,
                          const struct mr_layout *layout, const struct mr_sample_ref *ref, unsigned flags,
                          struct mr_growbuf *raw, struct mr_sample_out *out, struct mr_error *err);

#endif
