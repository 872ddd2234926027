/* Reads what the trace shim wrote (tab-separated: kind, path, offset, length, result, start_ns, dur_ns, tid) into
 * events. Our own file, written a moment ago; still, a line that does not parse is an error, not skipped. */
#include "base/common.h"
#include "job/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint16_t kind_of(const char *name)
{
    static const struct {
        const char *name;
        uint16_t kind;
    } kinds[] = {{"read", MR_EV_READ},      {"read_path", MR_EV_READ}, {"write", MR_EV_WRITE},
                 {"open", MR_EV_OPEN},      {"close", MR_EV_CLOSE},    {"fsync", MR_EV_FSYNC},
                 {"sync_dir", MR_EV_FSYNC}, {"stat", MR_EV_STAT},      {"list", MR_EV_LIST},
                 {"mkdir", MR_EV_MKDIR},    {"unlink", MR_EV_UNLINK},  {"rename", MR_EV_RENAME}};
    for (size_t i = 0; i < MR_ARRAY_LEN(kinds); i++)
        if (!strcmp(name, kinds[i].name))
            return kinds[i].kind;
    return 0;
}

/* Files of a set have numbers in their names and lie in order, so the last file's neighbour is tried first. */
static uint32_t number_of(struct mr_check_paths *p, const char *path, uint32_t *hint)
{
    uint32_t files = p->data ? p->data->n_files : 0;
    for (uint32_t k = 0; k < files; k++) {
        uint32_t i = (*hint + k) % files;
        if (!strcmp(p->data->path[i], path)) {
            *hint = i;
            return i + 1;
        }
    }
    for (uint32_t i = 0; i < p->n_other; i++)
        if (!strcmp(p->other[i], path))
            return files + i + 1;
    char **grown = realloc(p->other, (p->n_other + 1) * sizeof(*grown));
    if (!grown)
        return 0;
    p->other = grown;
    if (!(grown[p->n_other] = strdup(path)))
        return 0;
    return files + ++p->n_other;
}

static int parse_line(char *line, struct mr_check_paths *paths, uint32_t *hint, struct mr_event *e)
{
    char *field[8], *at = line;
    for (unsigned i = 0; i < 8; i++)
        field[i] = strsep(&at, "\t\n");
    if (!field[7])
        return MR_E_FORMAT;
    e->kind = kind_of(field[0]);
    e->offset = strtoull(field[2], NULL, 10);
    e->result = strtoll(field[4], NULL, 10);
    e->start_ns = strtoull(field[5], NULL, 10);
    e->dur_ns = strtoull(field[6], NULL, 10);
    e->tid = (uint32_t)strtoul(field[7], NULL, 10);
    e->path_id = number_of(paths, field[1], hint);
    return e->path_id ? 0 : -ENOMEM;
}

int mr_check_trace_read(const char *file, uint32_t rank, struct mr_check_paths *paths, struct mr_event **events,
                        size_t *n, size_t *cap, struct mr_error *err)
{
    FILE *f = fopen(file, "re");
    char *line = NULL;
    size_t room = 0;
    uint32_t hint = 0;
    int rc = 0;
    if (!f)
        return mr_error_set(err, -errno, "cannot read the trace '%s'", file);
    for (size_t number = 1; !rc && getline(&line, &room, f) > 0; number++) {
        struct mr_event e = {.rank = rank};
        if (number == 1)
            continue;
        rc = parse_line(line, paths, &hint, &e);
        if (rc == MR_E_FORMAT)
            mr_error_plain(err, rc, "line %zu of the trace '%s' is damaged", number, file);
        if (!rc && *n == *cap) {
            size_t more = *cap ? 2 * *cap : 4096;
            struct mr_event *grown = realloc(*events, more * sizeof(*grown));
            rc = grown ? 0 : -ENOMEM;
            *events = grown ? grown : *events;
            *cap = grown ? more : *cap;
        }
        if (rc == -ENOMEM)
            mr_error_set(err, rc, "cannot keep the calls of the check");
        if (!rc && e.kind)
            (*events)[(*n)++] = e;
    }
    free(line);
    fclose(f);
    return rc;
}
