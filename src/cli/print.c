/* Writing results: see print.h. */
#include "cli/print.h"

#include <errno.h>
#include <stdlib.h>

int mr_cli_print_text(struct mr_strbuf *text, struct mr_error *err)
{
    bool failed = text->failed;
    if (!failed && text->len)
        fwrite(text->text, 1, text->len, stdout);
    mr_strbuf_done(text);
    return failed ? mr_error_set(err, -ENOMEM, "cannot hold the text") : 0;
}

int mr_cli_print_json(FILE *out, json_t *root, struct mr_error *err)
{
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(root);
    if (!text)
        return mr_error_set(err, -ENOMEM, "cannot build the JSON text");
    fprintf(out, "%s\n", text);
    free(text);
    return 0;
}
