/* Options that several commands have, each defined once. */
#ifndef MR_CLI_DATASET_ARGS_H
#define MR_CLI_DATASET_ARGS_H

#include "conf/option.h"
#include "dataset/dataset_parts.h"

/* `at` is the offset of the field. */
#define MR_ROW_FOLDER(at, text)                                                                                        \
    {                                                                                                                  \
        .key = "folder", .type = MR_OPT_STRING, .offset = (at), .def = "",                                             \
        .flags = MR_OPTF_POSITIONAL | MR_OPTF_REQUIRED, .doc = (text)                                                  \
    }
#define MR_ROW_THREADS(at, text)                                                                                       \
    {                                                                                                                  \
        .key = "threads", .type = MR_OPT_INT, .offset = (at), .def = "0", .min = 0, .max = 1024, .short_flag = 't',    \
        .doc = (text)                                                                                                  \
    }
#define MR_ROW_STORE(at, text)                                                                                         \
    {                                                                                                                  \
        .key = "store", .type = MR_OPT_STRING, .offset = (at), .def = "posix", .doc = (text), .example = "uring"       \
    }
#define MR_ROW_JSON(at, text)                                                                                          \
    {                                                                                                                  \
        .key = "json", .type = MR_OPT_BOOL, .offset = (at), .def = "false", .short_flag = 'j', .doc = (text)           \
    }
#define MR_DOC_FOLDER "Folder of the data set, or a manifest."
#define MR_DOC_THREADS "Threads; 0 = one per CPU."
#define MR_DOC_STORE "Storage stack to read through; 'millrace help store' lists the parts."
#define MR_DOC_JSON "Print the result as JSON."

#endif
