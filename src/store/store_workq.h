/* Queues served by worker threads: declared for plug-ins as well, at the end of <millrace/plugin_store.h>. */
#ifndef MR_STORE_STORE_WORKQ_H
#define MR_STORE_STORE_WORKQ_H

#include "store/store.h"

#endif
