/* The words of an explanation, and its end. */
#include "explain/explain.h"

#include <stdlib.h>

const char *mr_access_pattern_name(enum mr_access_pattern p)
{
    static const char *const name[] = {"", "whole-file", "streaming", "strided", "shuffled-records", "random"};
    return (unsigned)p < sizeof(name) / sizeof(*name) ? name[p] : "";
}

const char *mr_severity_name(enum mr_severity s)
{
    static const char *const name[] = {"note", "minor", "major", "critical"};
    return (unsigned)s < sizeof(name) / sizeof(*name) ? name[s] : "";
}

void mr_explanation_free(struct mr_explanation *x)
{
    if (!x)
        return;
    free(x->step_memory);
    mr_arena_done(&x->arena);
    free(x);
}
