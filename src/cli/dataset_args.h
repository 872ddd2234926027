/* What the data set commands share: opening, and names on the terminal. */
#ifndef MR_CLI_DATASET_ARGS_H
#define MR_CLI_DATASET_ARGS_H

#include "dataset/dataset_parts.h"

#include <jansson.h>

/* JSON text of a name that may not be UTF-8: escaped as on the terminal. */
json_t *mr_cli_name_json(const char *name);

#endif
