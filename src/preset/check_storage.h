/* From a storage model's name or text to the throttle shim's text; see check_storage.c. */
#ifndef MR_PRESET_CHECK_STORAGE_H
#define MR_PRESET_CHECK_STORAGE_H

#include "base/arena.h"
#include "conf/option.h"

#include <millrace/error.h>

/* *out lives in the arena; "" for no model. MR_E_CONFIG for a bad text or an unknown system. */
int mr_check_storage(const char *model, double slowdown, const struct mr_strings *search, struct mr_arena *a,
                     const char **out, struct mr_error *err);

#endif
