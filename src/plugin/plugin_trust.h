/* Whether an object may be loaded: only what root or this user can change. */
#ifndef MR_PLUGIN_PLUGIN_TRUST_H
#define MR_PLUGIN_PLUGIN_TRUST_H

#include <millrace/error.h>

/* 0 when `path` (a file or a folder) and every folder above it belong to root or this user and nobody else can write to
 * them. Sticky folders such as /tmp may be writable: there nobody replaces files of others. Folders above may also
 * belong to a user that this user namespace does not map, as the root folder of a container does. MR_E_CONFIG with the
 * reason, -errno. */
int mr_plugin_check_trust(const char *path, struct mr_error *err);

#endif
