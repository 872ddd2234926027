/* See the header. Safetensors: the header is a JSON object, tensor name -> {dtype, shape, data_offsets}, with offsets
 * relative to its end, no holes and no overlaps. */
#include "checkpoint/state_image.h"

#include "base/common.h"
#include "base/map.h"
#include "base/vec.h"
#include "checkpoint/state_cuda.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of one element, 0: no such dtype. */
static unsigned dtype_bytes(const char *dtype)
{
    static const struct {
        const char *name;
        unsigned bytes;
    } known[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},   {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"I16", 2},
                 {"U16", 2},  {"F16", 2}, {"BF16", 2}, {"I32", 4},     {"U32", 4},     {"F32", 4},
                 {"C64", 8},  {"F64", 8}, {"I64", 8},  {"U64", 8}};
    for (size_t i = 0; dtype && i < MR_ARRAY_LEN(known); i++)
        if (strcmp(dtype, known[i].name) == 0)
            return known[i].bytes;
    return 0;
}

/* Elements times `each`; false when that is no 63-bit number. */
static bool shape_bytes(const uint64_t *shape, unsigned dims, unsigned each, uint64_t *out)
{
    uint64_t n = each;
    bool fits = true, empty = false;
    for (unsigned d = 0; d < dims; d++) {
        fits = fits && !__builtin_mul_overflow(n, shape[d], &n) && n <= INT64_MAX;
        empty = empty || shape[d] == 0;
    }
    *out = empty ? 0 : n;
    return fits || empty;
}

static int check_tensor(const struct mr_tensor *t, size_t i, struct mr_error *err)
{
    if (!t->name || !*t->name)
        return mr_error_plain(err, MR_E_USAGE, "tensor %zu has no name", i);
    if (strcmp(t->name, "__metadata__") == 0)
        return mr_error_plain(err, MR_E_USAGE,
                              "a tensor cannot be named '__metadata__': the file format has another use for it");
    if (!dtype_bytes(t->dtype))
        return mr_error_plain(err, MR_E_USAGE, "tensor '%s' has dtype '%s', which safetensors does not know", t->name,
                              t->dtype ? t->dtype : "");
    if (t->cuda && t->strides)
        return mr_error_plain(err, MR_E_USAGE, "tensor '%s' lies on a CUDA device with strides: make it contiguous",
                              t->name);
    if (t->dims > MR_TENSOR_DIMS)
        return mr_error_plain(err, MR_E_USAGE, "tensor '%s' has %u dimensions, at most %d are possible", t->name,
                              t->dims, MR_TENSOR_DIMS);
    return 0;
}

/* How far the tensor is in one piece in memory: the innermost dimensions without gaps make a run. */
static void find_run(struct mr_state_piece *p)
{
    const struct mr_tensor *t = &p->tensor;
    p->run = t->strides ? p->each : p->bytes;
    p->outer = t->strides ? t->dims : 0;
    while (p->outer && (t->shape[p->outer - 1] == 1 || t->strides[p->outer - 1] == (int64_t)p->run))
        p->run *= t->shape[--p->outer];
}

static int make_piece(const struct mr_tensor *t, size_t number, struct mr_arena *memory, struct mr_state_piece *p,
                      struct mr_error *err)
{
    int rc = check_tensor(t, number, err);
    if (rc)
        return rc;
    *p = (struct mr_state_piece){.tensor = *t, .start = number, .each = dtype_bytes(t->dtype)};
    if (!shape_bytes(t->shape, t->dims, p->each, &p->bytes))
        return mr_error_plain(err, MR_E_USAGE, "tensor '%s' has more elements than fit into a file", t->name);
    if (p->bytes && !t->data && !t->pull)
        return mr_error_plain(err, MR_E_USAGE, "tensor '%s' has %" PRIu64 " bytes and nothing to take them from",
                              t->name, p->bytes);
    uint64_t *kept = mr_arena_alloc(memory, 2 * t->dims * sizeof(*kept));
    if (!kept)
        return mr_error_set(err, -ENOMEM, "cannot describe tensor '%s'", t->name);
    p->tensor.shape = t->dims ? memcpy(kept, t->shape, t->dims * sizeof(*kept)) : kept;
    if (t->dims && t->strides)
        p->tensor.strides = memcpy(kept + t->dims, t->strides, t->dims * sizeof(*kept));
    if (p->bytes)
        find_run(p);
    return 0;
}

/* Larger elements first; otherwise as the caller gave them: `start` is the tensor's number still. */
static int by_element(const void *a, const void *b)
{
    const struct mr_state_piece *x = a, *y = b;
    int order = MR_ORDER(y->each, x->each);
    return order ? order : MR_ORDER(x->start, y->start);
}

/* The same elements in the same order: tied weights. */
static bool same_tensor(const struct mr_tensor *a, const struct mr_tensor *b)
{
    if (a->pull || b->pull || a->data != b->data || a->cuda != b->cuda || strcmp(a->dtype, b->dtype) != 0 ||
        a->dims != b->dims || !a->strides != !b->strides)
        return false;
    return memcmp(a->shape, b->shape, a->dims * sizeof(*a->shape)) == 0 &&
           (!a->strides || memcmp(a->strides, b->strides, a->dims * sizeof(*a->strides)) == 0);
}

static json_t *tensor_json(const struct mr_state_piece *p)
{
    json_t *shape = json_array();
    for (unsigned d = 0; shape && d < p->tensor.dims; d++)
        json_array_append_new(shape, json_integer((json_int_t)p->tensor.shape[d]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", p->tensor.dtype, "shape", shape, "data_offsets",
                     (json_int_t)p->start, (json_int_t)(p->start + p->bytes));
}

/* The name of the piece that holds what this one would, of those kept so far; NULL: none. Looked up by address. */
static int find_same(struct mr_map *by_address, const struct mr_state_image *m, const struct mr_state_piece *p,
                     const char **out)
{
    const struct mr_tensor *t = &p->tensor;
    *out = NULL;
    if (t->pull || !p->bytes)
        return 0;
    uint64_t *at = mr_map_put(by_address, mr_hash_bytes(&t->data, sizeof t->data, 1));
    if (!at)
        return -ENOMEM;
    if (*at && same_tensor(&m->piece[*at - 1].tensor, t))
        *out = m->piece[*at - 1].tensor.name;
    else
        *at = m->pieces + 1;
    return 0;
}

static int tell_same(struct mr_state_image *m, json_t *meta, const char *name, const char *as)
{
    const char *key = mr_arena_printf(&m->memory, MR_STATE_SAME "%s", name);
    return key && json_object_set_new(meta, key, json_string(as)) == 0 ? 0 : -ENOMEM;
}

/* Eight bytes, the text, spaces to a multiple of 64: tensors then begin at one. */
static int make_header(json_t *root, struct mr_state_image *m, struct mr_error *err)
{
    char *text = json_dumps(root, JSON_COMPACT);
    size_t len = text ? strlen(text) : 0, padded = MR_ALIGN_UP(8 + len, (size_t)64) - 8;
    m->header = text && padded <= MR_STATE_HEADER_MAX ? mr_arena_alloc(&m->memory, 8 + padded) : NULL;
    if (m->header) {
        mr_store_le64(m->header, padded);
        memset(m->header + 8, ' ', padded);
        memcpy(m->header + 8, text, len);
        m->header_bytes = 8 + padded;
        m->bytes += m->header_bytes;
    }
    free(text);
    for (size_t i = 0; i < m->pieces; i++)
        m->piece[i].start += m->header_bytes;
    if (padded > MR_STATE_HEADER_MAX)
        return mr_error_plain(err, MR_E_LIMIT, "the names of the tensors take %zu bytes, readers allow 100 MB", len);
    return m->header ? 0 : -ENOMEM;
}

/* Places the tensors one behind the other, without those that are another, and describes them. */
static int lay_out(struct mr_state_image *m, struct mr_error *err)
{
    json_t *root = json_object(), *meta = json_pack("{s:s}", "format", "pt");
    struct mr_map by_address = {0};
    size_t n = m->pieces;
    int rc = root && meta ? 0 : -ENOMEM;
    qsort(m->piece, n, sizeof(*m->piece), by_element);
    m->pieces = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        struct mr_state_piece p = m->piece[i];
        const char *name = p.tensor.name, *same;
        p.start = m->bytes;
        rc = find_same(&by_address, m, &p, &same);
        if (!rc && json_object_get(root, name)) {
            rc = mr_error_plain(err, MR_E_USAGE, "two tensors of one state are named '%s'", name);
        } else if (!rc && same) {
            rc = tell_same(m, meta, name, same);
        } else if (!rc) {
            if (json_object_set_new(root, name, tensor_json(&p)))
                rc = mr_error_plain(err, MR_E_USAGE, "the name of tensor %zu is not UTF-8", i);
            m->piece[m->pieces++] = p;
            m->bytes += p.bytes;
        }
    }
    mr_map_done(&by_address);
    if (json_object_set_new(root, "__metadata__", meta) && !rc)
        rc = -ENOMEM;
    rc = rc ? rc : make_header(root, m, err);
    json_decref(root);
    return rc == -ENOMEM ? mr_error_set(err, rc, "cannot describe %zu tensors", n) : rc;
}

/* Marks the point in the device's work that copies wait for. */
static int mark_device(const struct mr_state *state, struct mr_state_image *m, struct mr_error *err)
{
    for (size_t i = 0; i < state->tensors; i++)
        if (state->tensor[i].cuda)
            return mr_cuda_mark(state->tensor[i].cuda - 1, state->cuda_stream, &m->after, err);
    return 0;
}

int mr_state_image_make(const struct mr_state *state, uint64_t files_from, struct mr_state_image *out,
                        struct mr_error *err)
{
    struct mr_state_image m = {.piece = calloc(MR_MAX(state->tensors, 1u), sizeof(*m.piece)), .pieces = state->tensors};
    int rc = m.piece ? 0 : mr_error_set(err, -ENOMEM, "cannot describe %zu tensors", state->tensors);
    for (size_t i = 0; i < state->tensors && !rc; i++)
        rc = make_piece(&state->tensor[i], i, &m.memory, &m.piece[i], err);
    for (size_t i = 0; i < m.pieces && !rc && files_from; i++) {
        m.piece[i].start = m.bytes;
        m.bytes += MR_ALIGN_UP(m.piece[i].bytes, files_from);
    }
    if (!rc && !files_from)
        rc = lay_out(&m, err);
    rc = rc ? rc : mark_device(state, &m, err);
    if (rc)
        mr_state_image_done(&m);
    else
        *out = m;
    return rc;
}

/* Bytes [at, at + n) of a tensor with gaps, run by run. */
static void copy_runs(const struct mr_state_piece *p, uint64_t at, uint8_t *into, size_t n)
{
    const struct mr_tensor *t = &p->tensor;
    uint64_t index[MR_TENSOR_DIMS], which = at / p->run, within = at % p->run;
    const uint8_t *from = t->data;
    for (unsigned d = p->outer; d-- > 0;) {
        index[d] = which % t->shape[d];
        which /= t->shape[d];
        from += (int64_t)index[d] * t->strides[d];
    }
    while (n) {
        size_t take = (size_t)MR_MIN((uint64_t)n, p->run - within);
        memcpy(into, from + within, take);
        into += take;
        n -= take;
        within = 0;
        for (unsigned d = p->outer; d-- > 0;) {
            from += t->strides[d];
            if (++index[d] < t->shape[d])
                break;
            from -= (int64_t)t->shape[d] * t->strides[d];
            index[d] = 0;
        }
    }
}

static int fill_piece(const struct mr_state_image *m, const struct mr_state_piece *p, uint64_t at, uint8_t *into,
                      size_t n, struct mr_error *err)
{
    const struct mr_tensor *t = &p->tensor;
    if (t->pull) {
        int rc = t->pull(t->user, at, into, n, err);
        return rc < 0 ? rc : 0;
    }
    if (t->cuda)
        return mr_cuda_copy(t->cuda - 1, m->after, into, (const uint8_t *)t->data + at, n, err);
    if (p->outer == 0)
        memcpy(into, (const uint8_t *)t->data + at, n);
    else
        copy_runs(p, at, into, n);
    return 0;
}

static int compare_place(const void *at, const void *piece)
{
    const struct mr_state_piece *p = piece;
    uint64_t byte = *(const uint64_t *)at;
    return byte < p->start ? -1 : byte >= p->start + p->bytes;
}

/* The piece that holds the byte at `at`; NULL in the header and between files. */
static const struct mr_state_piece *piece_at(const struct mr_state_image *m, uint64_t at)
{
    return bsearch(&at, m->piece, m->pieces, sizeof(*m->piece), compare_place);
}

int mr_state_image_fill(const struct mr_state_image *m, uint64_t at, uint8_t *into, size_t n, struct mr_error *err)
{
    int rc = 0;
    if (at < m->header_bytes) {
        size_t take = (size_t)MR_MIN((uint64_t)n, m->header_bytes - at);
        memcpy(into, m->header + at, take);
        at += take;
        into += take;
        n -= take;
    }
    for (const struct mr_state_piece *p = n ? piece_at(m, at) : NULL; n && !rc; p++) {
        size_t take = (size_t)MR_MIN((uint64_t)n, p->start + p->bytes - at);
        if (take)
            rc = fill_piece(m, p, at - p->start, into, take, err);
        at += take;
        into += take;
        n -= take;
    }
    int copied = m->after ? mr_cuda_flush(rc ? NULL : err) : 0; /* also of what came before a failure */
    return rc ? rc : copied;
}

const void *mr_state_image_lies(const struct mr_state_image *m, uint64_t at, size_t n)
{
    const struct mr_state_piece *p = piece_at(m, at);
    bool lies = p && at + n <= p->start + p->bytes && !p->outer && !p->tensor.pull && !p->tensor.cuda;
    return lies ? (const uint8_t *)p->tensor.data + (at - p->start) : NULL;
}

void mr_state_image_done(struct mr_state_image *m)
{
    mr_cuda_point_free(m->after);
    free(m->piece);
    mr_arena_done(&m->memory);
    *m = (struct mr_state_image){0};
}

/* ---- and back: the text comes from disk, possibly from other programs, and is not trusted ---- */

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
    uint64_t shape[MR_TENSOR_DIMS] = {0}, bytes;
    unsigned dims;
    if (json_unpack(v, "{s:s, s:o, s:[I, I]}", "dtype", &dtype, "shape", &list, "data_offsets", &start, &end) ||
        !parse_shape(list, shape, &dims))
        return corrupt(p, name, "lacks dtype, shape or data_offsets", err);
    if (!dtype_bytes(dtype))
        return corrupt(p, name, "has a dtype that this program does not know", err);
    if (!shape_bytes(shape, dims, dtype_bytes(dtype), &bytes) || start < 0 || end < start ||
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
