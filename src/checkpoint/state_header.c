/* See the header. The text comes from disk, possibly from other programs, and is not trusted. */
#include "checkpoint/state_header.h"

#include "base/common.h"
#include "checkpoint/state_image.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

struct parsing {
    const char *path;
    uint64_t data_start, data_bytes;
    uint32_t rank, file;
    struct mr_arena *names;
    struct mr_header_tensors *out;
    size_t first; /* of this file in `out` */
};

static int corrupt(const struct parsing *p, const char *name, const char *what, struct mr_error *err)
{
    mr_error_plain(err, MR_E_CORRUPT, "'%s': tensor '%.200s' %s", p->path, name, what);
    return mr_error_hint(err, "load another checkpoint"), MR_E_CORRUPT;
}

static int no_memory(const struct parsing *p, struct mr_error *err)
{
    return mr_error_set(err, -ENOMEM, "cannot read '%s'", p->path);
}

static bool parse_shape(json_t *list, uint64_t *shape, unsigned *dims)
{
    size_t i;
    json_t *v;
    if (!json_is_array(list) || json_array_size(list) > MR_TENSOR_DIMS)
        return false;
    json_array_foreach(list, i, v)
    {
        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return false;
        shape[i] = (uint64_t)json_integer_value(v);
    }
    *dims = (unsigned)json_array_size(list);
    return true;
}

static int parse_tensor(struct parsing *p, const char *name, json_t *v, struct mr_error *err)
{
    const char *dtype;
    json_t *list;
    json_int_t start, end;
    uint64_t shape[MR_TENSOR_DIMS], bytes;
    unsigned dims;
    if (json_unpack(v, "{s:s, s:o, s:[I, I]}", "dtype", &dtype, "shape", &list, "data_offsets", &start, &end) ||
        !parse_shape(list, shape, &dims))
        return corrupt(p, name, "lacks dtype, shape or data_offsets", err);
    if (!mr_state_dtype_bytes(dtype))
        return corrupt(p, name, "has a dtype that this program does not know", err);
    if (!mr_state_shape_bytes(shape, dims, mr_state_dtype_bytes(dtype), &bytes) || start < 0 || end < start ||
        (uint64_t)end > p->data_bytes || (uint64_t)(end - start) != bytes)
        return corrupt(p, name, "does not fit its shape or the file", err);
    struct mr_header_tensor *t = MR_VEC_ADD(p->out);
    uint64_t *kept = t ? mr_arena_alloc(p->names, MR_MAX(dims, 1u) * sizeof(*kept)) : NULL;
    if (!kept)
        return no_memory(p, err);
    memcpy(kept, shape, dims * sizeof(*kept));
    *t = (struct mr_header_tensor){
        .is = {mr_arena_strdup(p->names, name), mr_arena_strdup(p->names, dtype), p->rank, dims, kept, bytes},
        .start = p->data_start + (uint64_t)start,
        .file = p->file};
    return t->is.name && t->is.dtype ? 0 : no_memory(p, err);
}

/* "same:NAME" -> the tensor that holds its elements. */
static int parse_same(struct parsing *p, json_t *meta, struct mr_error *err)
{
    const char *key;
    json_t *v;
    size_t last = p->out->n, prefix = sizeof(MR_STATE_SAME) - 1;
    json_object_foreach(meta, key, v)
    {
        const char *as = json_string_value(v);
        size_t i = p->first;
        if (strncmp(key, MR_STATE_SAME, prefix) != 0)
            continue;
        while (i < last && as && strcmp(p->out->item[i].is.name, as) != 0)
            i++;
        if (!as || i == last)
            return corrupt(p, key + prefix, "is said to be another's, which is not there", err);
        struct mr_header_tensor *t = MR_VEC_ADD(p->out);
        if (!t)
            return no_memory(p, err);
        *t = p->out->item[i];
        t->is.name = mr_arena_strdup(p->names, key + prefix);
        if (!t->is.name)
            return no_memory(p, err);
    }
    return 0;
}

int mr_state_header_parse(const char *text, size_t len, uint64_t file_bytes, const char *path, uint32_t rank,
                          uint32_t file, struct mr_arena *names, struct mr_header_tensors *out, struct mr_error *err)
{
    json_error_t why;
    const char *key;
    json_t *v, *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    if (!root || !json_is_object(root)) {
        mr_error_plain(err, MR_E_CORRUPT, "'%s' has no readable header: %s", path, root ? "not an object" : why.text);
        json_decref(root);
        return mr_error_hint(err, "is it a safetensors file?"), MR_E_CORRUPT;
    }
    struct parsing p = {path, 8 + len, file_bytes - 8 - len, rank, file, names, out, out->n};
    int rc = 0;
    json_object_foreach(root, key, v)
    {
        if (strcmp(key, "__metadata__") != 0)
            rc = parse_tensor(&p, key, v, err);
        if (rc)
            break;
    }
    v = json_object_get(root, "__metadata__");
    if (!rc && v)
        rc = parse_same(&p, v, err);
    json_decref(root);
    return rc;
}
