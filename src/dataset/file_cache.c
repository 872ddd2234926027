/* Open files: see file_cache.h. Invariants: F1 an entry with an object has its file's number, one without has NO_FILE.
 * F2 an entry with users is never replaced. */
#include "dataset/file_cache.h"
#include "base/common.h"
#include "store/store.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#define WAYS 8u
#define NO_FILE UINT64_MAX
#define UNSEEN_BYTES                                                                                                   \
    MR_MIB /* smaller files in object storage are read unseen: a look at each costs as much as its bytes */
#define SEEN_FILES ((uint64_t)1 << 20) /* of so many it is remembered whether they were opened before */

struct mr_file_cache {
    const struct mr_dataset *ds;
    struct mr_store *store;
    unsigned flags, ways;
    bool check, remote;
    uint64_t sets, tick;
    struct mr_cached_file *entry; /* file f in one of `ways` places from f % sets * ways on */
    struct mr_cached_file *last;  /* mostly the next one's, too */
    uint8_t *seen;                /* one bit per file */
    char path[2 * MR_NAME_MAX];
};

int mr_file_cache_create(const struct mr_dataset *ds, struct mr_store *store, unsigned flags, uint64_t files,
                         struct mr_file_cache **out, struct mr_error *err)
{
    struct mr_file_cache *c = calloc(1, sizeof(*c));
    uint64_t all = mr_manifest_get_info(mr_dataset_manifest(ds))->files;
    files = MR_MAX(MR_MIN(files, all), 1u);
    if (c) {
        c->ds = ds;
        c->store = store;
        c->flags = MR_OBJ_READ | (flags & ~MR_FILE_CACHE_CHECK);
        c->check = flags & MR_FILE_CACHE_CHECK;
        c->remote = mr_store_is_remote(store);
        c->ways = (unsigned)MR_MIN(files, WAYS);
        c->sets = (files + c->ways - 1) / c->ways;
        c->entry = calloc(c->sets, c->ways * sizeof(*c->entry));
        c->seen = calloc(1, MR_MIN(all, SEEN_FILES) / 8 + 1);
    }
    if (!c || !c->entry || !c->seen) {
        mr_file_cache_free(c);
        return mr_error_set(err, -ENOMEM, "cannot keep %llu files open", (unsigned long long)files);
    }
    for (uint64_t i = 0; i < c->sets * c->ways; i++)
        c->entry[i].file = NO_FILE;
    c->last = c->entry;
    *out = c;
    return 0;
}

void mr_file_cache_free(struct mr_file_cache *c)
{
    if (!c)
        return;
    for (uint64_t i = 0; c->entry && i < c->sets * c->ways; i++)
        mr_object_close(c->entry[i].object, NULL); /* opened for reading: nothing can be lost */
    free(c->entry);
    free(c->seen);
    free(c);
}

static int check_unchanged(struct mr_file_cache *c, uint64_t file, struct mr_object *o, struct mr_error *err)
{
    const struct mr_manifest *m = mr_dataset_manifest(c->ds);
    struct mr_store_stat st = {0};
    int rc = mr_object_size(o, &st.bytes, err);
    if (rc >= 0 && mr_manifest_file_mtime_ns(m, file))
        rc = mr_store_stat(c->store, c->path, &st, err);
    return rc < 0 ? rc : mr_dataset_compare_file(c->ds, file, c->path, st.bytes, st.mtime_ns, err);
}

int mr_file_cache_open(struct mr_file_cache *c, uint64_t file, struct mr_object **out, struct mr_error *err)
{
    unsigned flags = c->flags;
    int rc = mr_dataset_file_path(c->ds, file, c->path, err);
    if (rc < 0)
        return rc;
    bool seen = file < SEEN_FILES && c->seen[file / 8] & 1u << file % 8;
    if (seen || (c->remote && !c->check && mr_manifest_file_bytes(mr_dataset_manifest(c->ds), file) <= UNSEEN_BYTES))
        flags |= MR_OBJ_KNOWN;
    struct mr_object *o;
    rc = mr_object_open(c->store, c->path, flags, &o, err);
    if (rc < 0)
        return rc;
    if (c->check && (rc = check_unchanged(c, file, o, err)) < 0) {
        mr_object_close(o, NULL);
        return rc;
    }
    if (file < SEEN_FILES)
        c->seen[file / 8] |= (uint8_t)(1u << file % 8);
    *out = o;
    return 0;
}

/* The file's entry; else NULL, and in *room the one to replace, if any. */
static struct mr_cached_file *find(struct mr_file_cache *c, uint64_t file, struct mr_cached_file **room)
{
    struct mr_cached_file *set = c->entry + file % c->sets * c->ways;
    *room = NULL;
    for (struct mr_cached_file *f = set; f < set + c->ways; f++) {
        if (f->file == file)
            return f;
        if (f->users == 0 && (!*room || f->used < (*room)->used))
            *room = f;
    }
    return NULL;
}

struct mr_object *mr_file_cache_peek(struct mr_file_cache *c, uint64_t file)
{
    struct mr_cached_file *f = c->last;
    if (f->file != file) {
        struct mr_cached_file *end;
        f = c->entry + file % c->sets * c->ways;
        for (end = f + c->ways; f < end && f->file != file; f++)
            ;
        if (f == end)
            return NULL;
        c->last = f;
    }
    f->used = ++c->tick;
    return f->object;
}

bool mr_file_cache_has(struct mr_file_cache *c, uint64_t file)
{
    struct mr_cached_file *room;
    return c->last->file == file || find(c, file, &room);
}

uint64_t mr_file_cache_files(const struct mr_file_cache *c)
{
    return c->sets * c->ways;
}

static int open_entry(struct mr_file_cache *c, struct mr_cached_file *f, uint64_t file, struct mr_error *err)
{
    assert(f->users == 0); /* F2 */
    mr_object_close(f->object, NULL);
    *f = (struct mr_cached_file){.file = NO_FILE};
    int rc = mr_file_cache_open(c, file, &f->object, err);
    if (!rc)
        f->file = file; /* F1 */
    return rc;
}

int mr_file_cache_get(struct mr_file_cache *c, uint64_t file, struct mr_cached_file **out, struct mr_error *err)
{
    struct mr_cached_file *f = c->last, *room;
    if (f->file != file && !(f = find(c, file, &room))) {
        if (!room)
            return MR_FILE_CACHE_BUSY;
        int rc = open_entry(c, room, file, err);
        if (rc)
            return rc;
        f = room;
    }
    f->users++;
    f->used = ++c->tick;
    c->last = f;
    *out = f;
    return 0;
}
