/* Writing one file front to back: declared for plug-ins as well, in <millrace/plugin_format.h>. */
#ifndef MR_FORMAT_STREAM_OUT_H
#define MR_FORMAT_STREAM_OUT_H

#include "format/format.h"

#endif
