#ifndef MR_REPORT_NAME_JSON_H
#define MR_REPORT_NAME_JSON_H

#include <jansson.h>

/* JSON text of a name that may not be UTF-8: escaped as on the terminal. */
json_t *mr_name_json(const char *name);

#endif
