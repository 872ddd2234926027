/* Standard output: the one place where results of commands are written. Texts and JSON come from src/report. */
#ifndef MR_REPORT_PRINT_H
#define MR_REPORT_PRINT_H

#include "base/strbuf.h"

#include <jansson.h>
#include <stdio.h>

/* Prints `text` and empties it; -ENOMEM if an append failed. */
int mr_cli_print_text(struct mr_strbuf *text, struct mr_error *err);
/* Writes a text of many lines. Names in it are escaped where they are put in; whatever a terminal would still obey, but
 * for line ends, tabs and colours, is escaped here. */
void mr_cli_put_text(const char *text, FILE *out);
/* Prints and frees `root`; -ENOMEM if it is NULL. */
int mr_cli_print_json(FILE *out, json_t *root, struct mr_error *err);

#endif
