/* Options of trials, and what follows from their result: see trial_args.h. */
#include "cli/trial_args.h"
#include "base/common.h"
#include "base/log.h"
#include "report/print.h"
#include "loop/apply.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* FROM:TO, whole numbers. */
static int parse_steps(const char *text, int64_t *from, int64_t *to, struct mr_error *err)
{
    char *end = NULL;
    *from = *to = 0;
    if (!*text)
        return 0;
    *from = isdigit((unsigned char)*text) ? strtoll(text, &end, 10) : -1;
    if (*from >= 0 && *end == ':' && isdigit((unsigned char)end[1]))
        *to = strtoll(end + 1, &end, 10);
    if (*from >= 0 && !*end && *to > *from && *to < 1000000000)
        return 0;
    mr_error_plain(err, MR_E_USAGE, "bad value '%s' for '--steps': want FROM:TO, whole numbers, FROM below TO", text);
    return mr_error_hint(err, "for example --steps 20:120"), MR_E_USAGE;
}

int mr_trial_args_request(const struct mr_trial_args *a, unsigned threads, const atomic_bool *stop,
                          struct mr_trial_request *out, struct mr_error *err)
{
    *out = (struct mr_trial_request){.out = a->out,
                                     .keep_saves = a->keep_saves,
                                     .limit_ns = a->limit,
                                     .repeat = 2,
                                     .threads = threads,
                                     .stop = stop};
    return parse_steps(a->steps, &out->from, &out->to, err);
}

int mr_trial_exit_status(const struct mr_trial *t)
{
    switch (t->judgement.verdict) {
    case MR_TRIAL_CONFIRMED:
    case MR_TRIAL_SMALLER: return 0;
    case MR_TRIAL_UNDECIDED: return mr_error_exit_status(MR_E_INCOMPLETE);
    default: return mr_error_exit_status(MR_E_BUDGET);
    }
}

int mr_trial_apply(const struct mr_trial *t, bool write, bool silent, bool wanted, struct mr_error *err)
{
    json_t *places = NULL;
    char *diff = NULL;
    struct mr_error why;
    int rc = mr_injection_places(t->x, t->finding, &places, &why);
    rc = rc ? rc : mr_apply(places, write, &diff, &why);
    if (!rc && !silent) {
        putchar('\n');
        mr_cli_put_text(diff, stdout);
    }
    if (!rc && write)
        mr_log(MR_LOG_NOTE, "the script was changed as shown");
    if (rc && wanted && write && err)
        *err = why;
    else if (rc && wanted) /* what was measured stays true */
        mr_log(MR_LOG_WARN, "%s", why.message);
    json_decref(places);
    free(diff);
    return wanted && write ? rc : 0;
}
