/* What all shims share: declared for plug-ins as well, in <millrace/plugin_shim.h>; store_trace.c is the shortest. */
#ifndef MR_STORE_STORE_SHIM_H
#define MR_STORE_STORE_SHIM_H

#include "base/clock.h"
#include "store/store.h"

#include <millrace/plugin_shim.h>

#endif
