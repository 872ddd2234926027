/* The loader's parameters: defaults, and taking them from a caller that was compiled against an older or newer header.
 *
 * A caller's struct is `size` bytes long. What lies beyond it is at its default; what the caller has beyond our own
 * struct we cannot honour, so it must be zero, which every added field's default is. */
#include "loader/loader_internal.h"

#include <string.h>

/* The oldest struct there is ends before `events`. */
#define OLDEST_SIZE offsetof(struct mr_loader_params, events)

static const struct mr_loader_params defaults = {
    .order = {.mode = MR_ORDER_AUTO, .world = 1, .shuffle_each_epoch = true}, .batch_size = 1, .lookahead = 2};

void mr_loader_params_init_sized(struct mr_loader_params *p, size_t size)
{
    memset(p, 0, size);
    memcpy(p, &defaults, MR_MIN(size, sizeof defaults));
    if (size >= sizeof p->size)
        p->size = size;
}

static int check(const struct mr_loader_params *p, struct mr_error *err)
{
    if (!p->dataset || !*p->dataset)
        return mr_error_plain(err, MR_E_USAGE, "the loader needs a data set");
    if (p->batch_size == 0)
        return mr_error_plain(err, MR_E_USAGE, "the batch size must be at least 1");
    if (p->flags & MR_LOADER_RAW && (p->preprocess || (p->flags & MR_LOADER_VERIFY_CONTENT)))
        return mr_error_plain(err, MR_E_USAGE,
                              "stored bytes can neither be preprocessed nor compared with generated content");
    if (p->n_fields && !p->fields)
        return mr_error_plain(err, MR_E_USAGE, "%u fields are asked for, and none is named", p->n_fields);
    if (p->n_fields && p->flags & MR_LOADER_IN_PLACE)
        return mr_error_plain(err, MR_E_USAGE, "samples of several fields do not go with rows in place");
    if (p->ragged > MR_RAGGED_PACK)
        return mr_error_plain(err, MR_E_USAGE, "there is no way %d to join rows that differ", (int)p->ragged);
    return 0;
}

int mr_loader_params_take(const struct mr_loader_params *from, struct mr_loader_params *out, struct mr_error *err)
{
    const unsigned char *bytes = (const unsigned char *)from;
    if (from->size < OLDEST_SIZE) {
        mr_error_plain(err, MR_E_USAGE, "the loader's parameters say they are %zu bytes long, the shortest are %zu",
                       from->size, OLDEST_SIZE);
        return mr_error_hint(err, "call mr_loader_params_init before setting any of them"), MR_E_USAGE;
    }
    for (size_t i = sizeof *out; i < from->size; i++)
        if (bytes[i]) {
            mr_error_plain(err, MR_E_UNSUPPORTED,
                           "the program sets a loader parameter (byte %zu of %zu) that this library does not have", i,
                           from->size);
            return mr_error_hint(err, "run it with the library version it was compiled for, or a newer one"),
                   MR_E_UNSUPPORTED;
        }
    *out = defaults;
    memcpy(out, from, MR_MIN(from->size, sizeof *out));
    out->size = sizeof *out;
    return check(out, err);
}
