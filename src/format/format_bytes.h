/* What formats share whose samples are plain bytes at one place in the file: see the end of
 * <millrace/plugin_format.h>. */
#ifndef MR_FORMAT_FORMAT_BYTES_H
#define MR_FORMAT_FORMAT_BYTES_H

#include "format/format.h"

#endif
