/* Names that may not be UTF-8, for JSON. */
#include "report/name_json.h"
#include "base/text_escape.h"
#include "dataset/dataset_parts.h"

json_t *mr_name_json(const char *name)
{
    char text[4 * MR_NAME_MAX];
    return json_string(mr_name_escape(name, text, sizeof text));
}
