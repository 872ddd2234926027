/* Printing an error, once. main does it at the end; a rank under a launcher does it before it leaves the job, because
 * the launcher may kill every process as soon as the first one has failed. */
#include "base/common.h"
#include "cli/command.h"

#include <stdio.h>
#include <string.h>

int mr_cli_tell_error(int code, const struct mr_error *err)
{
    static bool told;
    fflush(stdout);
    if (!told) {
        /* Three lines: the fact, where, what to do. */
        bool says_where = strncmp(err->context, "in ", 3) == 0 || strncmp(err->context, "at ", 3) == 0;
        fprintf(stderr, "millrace: %s\n", err->message[0] ? err->message : mr_error_name(code));
        if (err->context[0])
            fprintf(stderr, "  %s%s\n", says_where ? "" : "in ", err->context);
        if (err->hint[0])
            fprintf(stderr, "  hint: %s\n", err->hint);
        fflush(stderr);
    }
    told = true;
    return mr_error_exit_status(code);
}
