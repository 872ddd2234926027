/* Reads and writes the list of a checkpoint. The text comes from disk and is not trusted: a list either passes every
 * check of the header or is refused with the path and the entry. */
#include "checkpoint/checkpoint_list.h"

#include "base/common.h"
#include "base/map.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define SCHEMA "millrace.checkpoint/1"
#define HASH_DIGITS 16
#define LIST_SUM "list_xxh3"

int mr_checkpoint_name_check(const char *name, size_t cap, struct mr_error *err)
{
    size_t len = strnlen(name, cap);
    if (len == 0 || len == cap)
        return mr_error_plain(err, MR_E_USAGE, "a checkpoint file needs a name of 1 to %zu bytes", cap - 1);
    for (size_t i = 0; i < len; i++)
        if (name[i] == '/' || (unsigned char)name[i] < ' ' || name[i] == 0x7f)
            return mr_error_plain(err, MR_E_USAGE, "a checkpoint file cannot have byte 0x%02x in its name (at %zu)",
                                  (unsigned char)name[i], i);
    json_t *text = json_stringn(name, len); /* the list is JSON: only UTF-8 can be written down */
    json_decref(text);
    if (!text)
        return mr_error_plain(err, MR_E_USAGE, "a checkpoint file needs a name in UTF-8");
    bool part = strncmp(name, "rank-", 5) == 0 && len > 10 && strcmp(name + len - 5, ".part") == 0;
    if (name[0] == '.' || part || strcmp(name, MR_CHECKPOINT_LIST_NAME) == 0)
        return mr_error_plain(err, MR_E_USAGE, "a checkpoint file cannot be named '%s': the name is reserved", name);
    return 0;
}

int mr_checkpoint_list_check(const struct mr_checkpoint_list *l, struct mr_error *err)
{
    struct mr_map seen = {0};
    int rc = 0;
    for (size_t i = 0; i < l->n && !rc; i++) {
        const struct mr_checkpoint_entry *e = &l->items[i], *first;
        uint64_t *at = mr_map_put(&seen, mr_hash_bytes(e->name, strlen(e->name), 0));
        if (!at)
            rc = mr_error_set(err, -ENOMEM, "cannot check %zu files", l->n);
        else if (*at && strcmp((first = &l->items[*at - 1])->name, e->name) == 0)
            rc = mr_error_plain(err, MR_E_USAGE, "two files of one checkpoint are named '%s' (ranks %u and %u)",
                                e->name, MR_MIN(first->rank, e->rank), MR_MAX(first->rank, e->rank));
        else
            *at = i + 1;
    }
    mr_map_done(&seen);
    return rc;
}

/* Of all that the list has but its own checksum, however it is laid out. False without memory. */
static bool hash_list(json_t *root, char out[HASH_DIGITS + 1])
{
    char *text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
    if (text)
        snprintf(out, HASH_DIGITS + 1, "%016" PRIx64, (uint64_t)XXH3_64bits(text, strlen(text)));
    free(text);
    return text != NULL;
}

int mr_checkpoint_list_encode(const struct mr_checkpoint_list *l, char **text, struct mr_error *err)
{
    json_t *files = json_array();
    bool ok = files;
    for (size_t i = 0; i < l->n && ok; i++) {
        const struct mr_checkpoint_entry *e = &l->items[i];
        char hash[HASH_DIGITS + 1];
        snprintf(hash, sizeof hash, "%016" PRIx64, e->hash);
        json_t *chunk = e->chunk_bytes ? json_integer((json_int_t)e->chunk_bytes) : NULL; /* a key only then */
        json_t *row = json_pack("{s:s, s:I, s:s, s:I, s:o*}", "name", e->name, "bytes", (json_int_t)e->bytes, "xxh3",
                                hash, "rank", (json_int_t)e->rank, "chunk_bytes", chunk);
        ok = json_array_append_new(files, row) == 0 && (chunk || !e->chunk_bytes);
    }
    json_t *root =
        ok ? json_pack("{s:s, s:I, s:I, s:b, s:O, s:s*}", "schema", SCHEMA, "step", (json_int_t)l->step, "world",
                       (json_int_t)l->world, "fsync", (int)l->fsync, "files", files, "save", *l->save ? l->save : NULL)
           : NULL;
    json_decref(files);
    char sum[HASH_DIGITS + 1];
    bool summed = root && hash_list(root, sum) && json_object_set_new(root, LIST_SUM, json_string(sum)) == 0;
    char *made = summed ? json_dumps(root, JSON_INDENT(1)) : NULL;
    json_decref(root);
    if (!made)
        return mr_error_set(err, -ENOMEM, "cannot list the files of step %" PRIu64, l->step);
    *text = made;
    return 0;
}

/* Sixteen lower-case hexadecimal digits, nothing else. */
static bool parse_hash(const char *text, uint64_t *out)
{
    if (strlen(text) != HASH_DIGITS || strspn(text, "0123456789abcdef") != HASH_DIGITS)
        return false;
    *out = strtoull(text, NULL, 16);
    return true;
}

static int parse_entry(json_t *file, size_t i, const char *path, uint32_t world, struct mr_checkpoint_entry *e,
                       struct mr_error *err)
{
    const char *name, *hash;
    size_t len;
    json_int_t bytes, rank, chunk = 0;
    struct mr_error why;
    if (json_unpack(file, "{s:s%, s:I, s:s, s:I, s?I}", "name", &name, &len, "bytes", &bytes, "xxh3", &hash, "rank",
                    &rank, "chunk_bytes", &chunk))
        return mr_error_plain(err, MR_E_CORRUPT, "'%s': file %zu of the list lacks name, bytes, xxh3 or rank", path, i);
    if (strlen(name) != len || mr_checkpoint_name_check(name, sizeof e->name, &why))
        return mr_error_plain(err, MR_E_CORRUPT, "'%s': file %zu of the list has a name that no checkpoint has", path,
                              i);
    if (bytes < 0 || chunk < 0 || rank < 0 || rank >= world || !parse_hash(hash, &e->hash))
        return mr_error_plain(err, MR_E_CORRUPT,
                              "'%s': file '%s' of the list has bad figures: %" JSON_INTEGER_FORMAT
                              " bytes, rank %" JSON_INTEGER_FORMAT " of %u, xxh3 '%.20s'",
                              path, name, bytes, rank, world, hash);
    memcpy(e->name, name, len + 1);
    e->bytes = (uint64_t)bytes;
    e->chunk_bytes = (uint64_t)chunk;
    e->rank = (uint32_t)rank;
    return 0;
}

/* Lists of older versions have none. */
static int check_sum(json_t *root, const char *path, struct mr_error *err)
{
    char have[HASH_DIGITS + 1], want[HASH_DIGITS + 1];
    const char *sum = json_string_value(json_object_get(root, LIST_SUM));
    if (!sum)
        return json_object_get(root, LIST_SUM)
                   ? mr_error_plain(err, MR_E_CORRUPT, "'%s' has a checksum of another kind", path)
                   : 0;
    snprintf(want, sizeof want, "%s", sum);
    if (json_object_del(root, LIST_SUM) || !hash_list(root, have))
        return mr_error_set(err, -ENOMEM, "cannot read '%s'", path);
    if (strcmp(have, want) == 0)
        return 0;
    mr_error_plain(err, MR_E_CORRUPT, "'%s' does not match its own checksum: it was changed or is damaged", path);
    return mr_error_hint(err, "use another checkpoint"), MR_E_CORRUPT;
}

static int parse_root(json_t *root, const char *path, struct mr_checkpoint_list *l, struct mr_error *err)
{
    const char *schema, *save = "";
    json_int_t step, world;
    int fsync;
    json_t *files, *file;
    size_t i;
    if (json_unpack(root, "{s:s, s:I, s:I, s:b, s:o, s?s}", "schema", &schema, "step", &step, "world", &world, "fsync",
                    &fsync, "files", &files, "save", &save) ||
        !json_is_array(files) || step < 0 || world < 1 || world > UINT32_MAX)
        return mr_error_plain(err, MR_E_CORRUPT,
                              "'%s' is not the list of a checkpoint: want schema, step, world, fsync, files", path);
    if (strcmp(schema, SCHEMA) != 0) {
        mr_error_plain(err, MR_E_CORRUPT, "'%s' has schema '%.64s', this program reads '" SCHEMA "'", path, schema);
        return mr_error_hint(err, "was it written by another version? see 'millrace --version'"), MR_E_CORRUPT;
    }
    *l = (struct mr_checkpoint_list){.step = (uint64_t)step, .world = (uint32_t)world, .fsync = fsync};
    snprintf(l->save, sizeof l->save, "%s", save);
    l->items = calloc(MR_MAX(json_array_size(files), 1u), sizeof(*l->items));
    if (!l->items)
        return mr_error_set(err, -ENOMEM, "cannot read '%s'", path);
    json_array_foreach(files, i, file)
    {
        int rc = parse_entry(file, i, path, l->world, &l->items[l->n++], err);
        if (rc)
            return rc;
    }
    struct mr_error twice;
    int rc = mr_checkpoint_list_check(l, &twice);
    return rc == MR_E_USAGE ? mr_error_plain(err, MR_E_CORRUPT, "'%s': %s", path, twice.message)
           : rc             ? mr_error_set(err, rc, "cannot read '%s'", path)
                            : 0;
}

int mr_checkpoint_list_parse(const char *text, size_t len, const char *path, struct mr_checkpoint_list *out,
                             struct mr_error *err)
{
    json_error_t why;
    struct mr_checkpoint_list l = {0};
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (!root) {
        mr_error_plain(err, MR_E_CORRUPT, "'%s' is not JSON: %s (line %d, offset %d of %zu)", path, why.text, why.line,
                       why.position, len);
        return mr_error_hint(err, "use another checkpoint"), MR_E_CORRUPT;
    }
    int rc = check_sum(root, path, err);
    rc = rc ? rc : parse_root(root, path, &l, err);
    json_decref(root);
    if (rc)
        mr_checkpoint_list_done(&l);
    else
        *out = l;
    return rc;
}

int mr_checkpoint_list_append(struct mr_checkpoint_list *l, const struct mr_checkpoint_list *more, struct mr_error *err)
{
    struct mr_checkpoint_entry *items = realloc(l->items, MR_MAX(l->n + more->n, 1u) * sizeof(*items));
    if (!items)
        return mr_error_set(err, -ENOMEM, "cannot list %zu files", l->n + more->n);
    l->items = items;
    if (more->n)
        memcpy(items + l->n, more->items, more->n * sizeof(*items));
    l->n += more->n;
    return 0;
}

void mr_checkpoint_list_done(struct mr_checkpoint_list *l)
{
    free(l->items);
    *l = (struct mr_checkpoint_list){0};
}
