/* Writing results: see print.h. */
#include "report/print.h"

#include "base/text_escape.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Length of a change of colour or weight, "ESC [ digits ; digits m", as our own texts have them; else 0. */
static size_t colour_length(const char *p)
{
    size_t n = p[0] == '\033' && p[1] == '[' ? 2 + strspn(p + 2, "0123456789;") : 0;
    return n && p[n] == 'm' ? n + 1 : 0;
}

void mr_cli_put_text(const char *text, FILE *out)
{
    for (const char *p = text; *p;) {
        size_t n = *p == '\n' || *p == '\t' ? 1 : mr_text_printable((const unsigned char *)p);
        n = n ? n : colour_length(p);
        if (n)
            fwrite(p, 1, n, out);
        else
            fprintf(out, "\\x%02x", (unsigned char)*p);
        p += n ? n : 1;
    }
}

int mr_cli_print_text(struct mr_strbuf *text, struct mr_error *err)
{
    bool failed = text->failed;
    if (!failed && text->len)
        mr_cli_put_text(text->text, stdout);
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
