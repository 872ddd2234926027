/* Parts of files: see gen_parts.h. All samples of such a file take equally many bytes, so the columns of part 0 are a
 * rule (constant, or affine) that all other parts must continue. */
#include "dataset/gen_parts.h"
#include "base/common.h"
#include "dataset/gen_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t mr_gen_records(const struct mr_gen_plan *p)
{
    uint64_t files = (uint64_t)p->spec.files;
    return p->parts > 1 ? files + files * p->parts : files;
}

uint64_t mr_gen_part_record(const struct mr_gen_plan *p, uint64_t file, uint64_t part)
{
    return (uint64_t)p->spec.files + file * p->parts + part;
}

static uint64_t samples_of(const struct mr_gen_plan *p, uint64_t part)
{
    return MR_MIN(p->part_samples, p->writer.samples - part * p->part_samples);
}

uint64_t mr_gen_part_bytes(const struct mr_gen_plan *p, uint64_t part)
{
    return samples_of(p, part) * p->record_bytes;
}

/* Size of the unfinished file, 0 when it or a side-car is not there. */
static int unfinished_bytes(const struct mr_gen_plan *p, struct mr_store *s, const char *folder, uint64_t file,
                            uint64_t *out, struct mr_error *err)
{
    char name[MR_NAME_MAX], path[2 * MR_NAME_MAX], side[2 * MR_NAME_MAX + 32];
    struct mr_store_stat st, ignored;
    mr_name_from_template(&p->names, file, name);
    mr_gen_temporary_path(folder, name, path);
    int r = mr_store_stat(s, path, &st, err);
    for (const char *x = p->format->side_suffixes; r >= 0 && x && *x; x += strlen(x) + 1) {
        snprintf(side, sizeof side, "%s%s", path, x);
        r = mr_store_stat(s, side, &ignored, err);
    }
    if (r < 0 && r != -ENOENT)
        return r;
    *out = r < 0 ? 0 : st.bytes;
    return 0;
}

int mr_gen_parts_settle(const struct mr_gen_plan *p, struct mr_store *s, const char *folder,
                        const struct mr_journals *js, uint64_t *done_bytes, struct mr_error *err)
{
    uint64_t have = 0, end = 0;
    for (uint64_t f = 0; p->parts > 1 && f < (uint64_t)p->spec.files; f++) {
        if (mr_journals_has(js, f, &end))
            continue;
        int r = unfinished_bytes(p, s, folder, f, &have, err);
        if (r < 0)
            return r;
        for (uint64_t k = 0; k < p->parts; k++) {
            if (!mr_journals_has(js, mr_gen_part_record(p, f, k), &end))
                continue;
            if (end > have)
                return 0;
            *done_bytes += mr_gen_part_bytes(p, k);
        }
    }
    return 1;
}

/* Does `c`, of the samples from number `first` of the file on, follow the rule? */
static bool continues(const struct mr_column *rule, const struct mr_column *c, uint64_t first, uint64_t n)
{
    return c->encoding == rule->encoding && c->encoding != MR_COLUMN_PACKED && c->count == n && c->step == rule->step &&
           c->base == rule->base + (rule->encoding == MR_COLUMN_AFFINE ? rule->step * first : 0);
}

static int join(const struct mr_gen_plan *p, struct mr_journals *js, uint64_t file, struct mr_manifest_file *out,
                struct mr_error *err)
{
    for (uint64_t k = 0; k < p->parts; k++) {
        struct mr_manifest_file part;
        uint64_t number = mr_gen_part_record(p, file, k), end;
        if (!mr_journals_has(js, number, &end))
            return mr_error_plain(err, MR_E_INCOMPLETE, "part %llu of %llu of file %llu was not written",
                                  (unsigned long long)k, (unsigned long long)p->parts, (unsigned long long)file),
                   mr_error_hint(err, "run the same command again: it writes what is missing"), MR_E_INCOMPLETE;
        int r = mr_journals_get(js, number, &part, err);
        if (r < 0)
            return r;
        for (unsigned c = 0; c < MR_SC_COUNT; c++) {
            if (k == 0)
                out->column[c] = part.column[c];
            if (!continues(&out->column[c], &part.column[c], k * p->part_samples, samples_of(p, k)))
                return mr_error_plain(err, MR_E_CORRUPT, "the journal's record of part %llu of file %llu does not fit",
                                      (unsigned long long)k, (unsigned long long)file),
                       mr_error_hint(err, "run the same command again with --overwrite"), MR_E_CORRUPT;
        }
        if (k == 0) {
            out->layout = (struct mr_layout){malloc(part.layout.len + 1), part.layout.len};
            if (!out->layout.data)
                return mr_error_set(err, -ENOMEM, "cannot read the journal");
            memcpy(out->layout.data, part.layout.data, part.layout.len);
        }
        out->bytes = part.bytes;
    }
    for (unsigned c = 0; c < MR_SC_COUNT; c++)
        out->column[c].count = p->writer.samples;
    return 0;
}

int mr_gen_parts_join(const struct mr_gen_plan *p, struct mr_journals *js, uint64_t file, struct mr_manifest_file *out,
                      struct mr_error *err)
{
    struct mr_manifest_file f = {0};
    int r = join(p, js, file, &f, err);
    if (r < 0) {
        free(f.layout.data);
        return r;
    }
    *out = f;
    return 0;
}
