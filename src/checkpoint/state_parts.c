/* See the header. */
#include "checkpoint/state_parts.h"

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_hash.h"
#include "checkpoint/state_image.h"
#include "checkpoint/state_save.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define SUMS_MAX (1ull << 30)

bool mr_state_holds_tensors(const struct mr_checkpoint_entry *e)
{
    char name[64];
    mr_save_file_name(e->rank, MR_SAVE_TENSORS, name);
    return strcmp(name, e->name) == 0;
}

const struct mr_checkpoint_entry *mr_state_find_entry(const struct mr_checkpoint_list *l, const char *name)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->items[i].name, name) == 0)
            return &l->items[i];
    return NULL;
}

int mr_state_read_entry(struct mr_store *s, const char *dir, const struct mr_checkpoint_entry *e, uint64_t max,
                        void **data, struct mr_error *err)
{
    struct mr_path path = mr_path("%s/%s", dir, e->name);
    size_t len;
    int rc = mr_store_read_file(s, path.text, max, data, &len, err);
    if (rc == -ENOENT)
        return mr_error_plain(err, MR_E_CORRUPT, "'%s' is missing: the checkpoint's list names it", path.text);
    if (rc)
        return rc;
    if (len == e->bytes && XXH3_64bits(*data, len) == e->hash)
        return 0;
    free(*data);
    mr_error_plain(err, MR_E_CORRUPT, "'%s' does not match its checksum or length", path.text);
    return mr_error_hint(err, "load an older checkpoint"), MR_E_CORRUPT;
}

int mr_state_read_sums(struct mr_store *s, const char *dir, const struct mr_checkpoint_list *l,
                       const struct mr_checkpoint_entry *e, uint64_t **sum, struct mr_error *err)
{
    char name[64];
    uint64_t *words;
    size_t n = (size_t)(e->bytes / MR_STATE_CHUNK + (e->bytes % MR_STATE_CHUNK != 0));
    mr_save_file_name(e->rank, MR_SAVE_SUMS, name);
    const struct mr_checkpoint_entry *sums = mr_state_find_entry(l, name);
    if (!sums || e->chunk_bytes != MR_STATE_CHUNK || sums->bytes != (3 + n) * sizeof(*words))
        return mr_error_plain(err, MR_E_CORRUPT, "'%s' has no checksums of its chunks that fit it", e->name);
    int rc = mr_state_read_entry(s, dir, sums, SUMS_MAX, (void **)&words, err);
    if (rc)
        return rc;
    memmove(words, words + 3, n * sizeof(*words));
    if (mr_checkpoint_hash_of_chunks(words, n) != e->hash) {
        free(words);
        return mr_error_plain(err, MR_E_CORRUPT, "the checksums of '%s' are not those of the checkpoint's list",
                              e->name);
    }
    *sum = words;
    return 0;
}
