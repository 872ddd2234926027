/* The list of findings, and the order of the checks. */
#include "probe/doctor.h"
#include "store/store.h"
#include "base/common.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void mr_doctor_add(struct mr_doctor *d, const char *topic, enum mr_doctor_level level, const char *advice,
                   const char *value, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, value);
    vsnprintf(text, sizeof text, value, ap);
    va_end(ap);
    const char *kept = mr_arena_strdup(d->arena, text);
    if (d->n < MR_ARRAY_LEN(d->finding) && kept)
        d->finding[d->n++] = (struct mr_doctor_finding){topic, level, kept, advice};
}

void mr_doctor_figure(struct mr_doctor *d, const char *key, double value)
{
    if (d->n_figures < MR_DOCTOR_FIGURES) {
        d->figure[d->n_figures].key = key;
        d->figure[d->n_figures++].value = value;
    }
}

bool mr_doctor_read(const char *path, char *line, size_t cap)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    bool ok = fgets(line, (int)cap, f) != NULL;
    fclose(f);
    if (ok)
        line[strcspn(line, "\n")] = '\0';
    return ok;
}

unsigned mr_doctor_count(const struct mr_doctor *d, enum mr_doctor_level level)
{
    unsigned n = 0;
    for (unsigned i = 0; i < d->n; i++)
        n += d->finding[i].level == level;
    return n;
}

int mr_doctor_examine(const char *path, bool built_with_uring, struct mr_arena *a, struct mr_doctor *out,
                      struct mr_error *err)
{
    *out = (struct mr_doctor){.arena = a, .path = path, .built_with_uring = built_with_uring};
    int rc = mr_store_is_url(path) ? mr_doctor_objects(out, err) : mr_doctor_storage(out, err);
    if (rc == 0)
        mr_doctor_machine(out);
    return rc;
}
