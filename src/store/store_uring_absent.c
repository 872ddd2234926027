/* Stands in for store_uring.c in a build without io_uring: the name stays valid and means posix, said once. */
#include "base/log.h"
#include "store/store_internal.h"
#include "store/store_posix.h"

#include <errno.h>
#include <stdlib.h>

static int uring_open(const void *options, struct mr_store *lower, struct mr_store **out, struct mr_error *err)
{
    (void)lower;
    struct mr_posix_store *s = calloc(1, sizeof(*s));
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot open store 'uring'");
    int rc = mr_posix_init(s, &mr_store_uring_ops, options, mr_posix_exec, err);
    if (rc < 0) {
        free(s);
        return rc;
    }
    mr_log(MR_LOG_NOTE, "built without io_uring; using posix");
    *out = &s->base;
    return 0;
}

const struct mr_store_ops mr_store_uring_ops = {
    MR_POSIX_OPS,
    .name = "uring",
    .doc = "Files through io_uring; this build lacks it and uses posix.",
    .options = {.section = "uring",
                .doc = "Files through io_uring",
                .options = mr_posix_option_rows,
                .struct_bytes = sizeof(struct mr_posix_options)},
    .open = uring_open,
    .ioq_create = mr_posix_ioq_create,
    .ioq_free = mr_workq_free,
    .ioq_submit = mr_workq_submit,
    .ioq_reap = mr_workq_reap,
    .ioq_register = mr_workq_register,
};
