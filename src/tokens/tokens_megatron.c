/* Megatron's indexed data set: PREFIX.bin with the tokens, PREFIX.idx with a header of 34 bytes, int32 lengths and int64
 * pointers (in bytes) of sequences, int64 first sequences of documents and one more, and perhaps int8 modes, which are
 * not looked at. Opening reads the header and the ends of the arrays, 50 bytes; the rest is read by ranges and checked
 * when it is used. A document is its sequences, which Megatron writes one behind the other. */
#include "tokens/tokens_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HEADER 34u
#define RUN_SEQUENCES ((uint64_t)1 << 28) /* of the documents that are asked for at once */

struct megatron {
    struct token_object index;
    uint64_t sequences;
};

static uint64_t at_lengths(uint64_t i)
{
    return HEADER + 4 * i;
}

static uint64_t at_pointers(const struct megatron *m, uint64_t i)
{
    return HEADER + 4 * m->sequences + 8 * i;
}

static uint64_t at_documents(const struct megatron *m, uint64_t i)
{
    return HEADER + 12 * m->sequences + 8 * i;
}

static int bad(const struct megatron *m, struct mr_error *err, const char *what, ull have, ull want)
{
    return mr_error_plain(err, MR_E_FORMAT, "'%s': %s (want %llu, have %llu)", m->index.path, what, want, have);
}

static int take_header(struct token_file *f, struct megatron *m, const uint8_t h[HEADER],
                       const struct mr_tokens_params *p, struct mr_error *err)
{
    static const enum mr_dtype types[] = {
        [1] = MR_U8, [2] = MR_I8, [3] = MR_I16, [4] = MR_I32, [5] = MR_I64, [8] = MR_U16};
    uint8_t code = h[17];
    if (memcmp(h, "MMIDIDX\0", 9) != 0)
        return mr_error_plain(err, MR_E_FORMAT, "'%s' is no index of Megatron: it does not begin with 'MMIDIDX'",
                              m->index.path);
    if (mr_load_le64(h + 9) != 1)
        return bad(m, err, "unknown version of the index", mr_load_le64(h + 9), 1);
    if (code == 6 || code == 7)
        return mr_error_plain(err, MR_E_UNSUPPORTED,
                              "'%s' has numbers of type %u, floats, whose sizes differ between versions of Megatron: "
                              "tokens are integers",
                              m->index.path, code);
    if (code == 0 || code > 8)
        return mr_error_plain(err, MR_E_FORMAT, "'%s' has numbers of the unknown type %u (want 1 to 5 or 8)",
                              m->index.path, code);
    m->sequences = mr_load_le64(h + 18);
    uint64_t ends = mr_load_le64(h + 26);
    if (m->sequences > MR_TOKENS_MAX_DOCUMENTS || ends > MR_TOKENS_MAX_DOCUMENTS || ends < 1)
        return bad(m, err, "impossible number of sequences or documents",
                   m->sequences > MR_TOKENS_MAX_DOCUMENTS ? m->sequences : ends, MR_TOKENS_MAX_DOCUMENTS);
    f->documents = ends - 1;
    uint64_t want = at_documents(m, ends);
    if (m->index.bytes < want)
        return mr_error_plain(err, MR_E_FORMAT,
                              "'%s' is cut off: %llu sequences and %llu documents want %llu bytes, file has %llu",
                              m->index.path, (ull)m->sequences, (ull)f->documents, (ull)want, (ull)m->index.bytes);
    return mr_token_dtype(m->index.path, p->dtype, &types[code], &f->dtype, err);
}

static int read_index(struct token_file *f, void *buf, size_t len, uint64_t offset, struct mr_error *err)
{
    struct megatron *m = f->own;
    return mr_token_object_read(&m->index, f->store, buf, len, offset, err);
}

static int behind_the_end(const struct token_file *f, uint64_t document, uint64_t offset, uint64_t bytes,
                          struct mr_error *err)
{
    const struct megatron *m = f->own;
    mr_error_plain(err, MR_E_FORMAT,
                   "'%s' points behind the end of '%s': document %llu wants %llu bytes at %llu, file has %llu",
                   m->index.path, f->data.path, (ull)document, (ull)bytes, (ull)offset, (ull)f->data.bytes);
    mr_error_hint(err, "the .bin is cut off or belongs to another .idx");
    return MR_E_FORMAT;
}

/* The last sequence shows how many tokens there are, and whether the data file has them. */
static int take_end(struct token_file *f, struct mr_object *o, struct mr_error *err)
{
    struct megatron *m = f->own;
    uint8_t length[4] = {0}, pointer[8] = {0}, end[8];
    int rc = mr_object_read(o, end, sizeof end, at_documents(m, f->documents), err);
    if (rc >= 0 && m->sequences)
        rc = mr_object_read(o, length, sizeof length, at_lengths(m->sequences - 1), err);
    if (rc >= 0 && m->sequences)
        rc = mr_object_read(o, pointer, sizeof pointer, at_pointers(m, m->sequences - 1), err);
    if (rc < 0)
        return rc;
    if (mr_load_le64(end) != m->sequences)
        return bad(m, err, "the last document does not end with the last sequence", mr_load_le64(end), m->sequences);
    uint64_t item = mr_dtype_bytes(f->dtype), at = mr_load_le64(pointer), bytes = mr_load_le32(length) * item;
    if (mr_load_le32(length) > INT32_MAX || at > f->data.bytes || bytes > f->data.bytes - at || at % item)
        return behind_the_end(f, f->documents ? f->documents - 1 : 0, at, bytes, err);
    f->tokens = (at + bytes) / item;
    f->is_stream = true;
    return 0;
}

/* Header and ends, by one opening of the index. */
static int look_at_index(struct token_file *f, struct megatron *m, const struct mr_tokens_params *p,
                         struct mr_error *err)
{
    uint8_t header[HEADER];
    struct mr_object *o;
    if (m->index.bytes < HEADER)
        return bad(m, err, "no index of Megatron: its header is cut off", m->index.bytes, HEADER);
    int rc = mr_object_open(f->store, m->index.path, MR_OBJ_READ, &o, err);
    if (rc < 0)
        return rc;
    rc = mr_object_read(o, header, sizeof header, 0, err);
    if (rc >= 0)
        rc = take_header(f, m, header, p, err);
    if (rc >= 0)
        rc = take_end(f, o, err);
    mr_object_close(o, NULL);
    return rc;
}

static int megatron_open(struct token_file *f, const char *path, const struct mr_tokens_params *p, struct mr_error *err)
{
    struct megatron *m = f->own = calloc(1, sizeof(*m));
    char *prefix = m ? strdup(path) : NULL;
    if (!prefix)
        return mr_error_set(err, -ENOMEM, "cannot open '%s'", path);
    size_t len = strlen(prefix);
    if (len > 4 && (strcmp(prefix + len - 4, ".idx") == 0 || strcmp(prefix + len - 4, ".bin") == 0))
        prefix[len - 4] = '\0';
    int rc = mr_token_object_init(&m->index, f->store, mr_token_path(prefix, ".idx"), err);
    if (rc >= 0)
        rc = mr_token_object_init(&f->data, f->store, mr_token_path(prefix, ".bin"), err);
    free(prefix);
    return rc < 0 ? rc : look_at_index(f, m, p, err);
}

static void megatron_close(struct token_file *f)
{
    struct megatron *m = f->own;
    if (m)
        mr_token_object_done(&m->index);
    free(m);
}

/* Document `number` has sequences [first, end) of those whose lengths and pointers are given. */
static int take_run(const struct token_file *f, uint64_t number, uint64_t first, uint64_t n, const uint8_t *lengths,
                    const uint8_t *pointers, struct token_run *run, struct mr_error *err)
{
    const struct megatron *m = f->own;
    uint64_t item = mr_dtype_bytes(f->dtype), offset = n ? mr_load_le64(pointers) : 0, end = offset;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t length = mr_load_le32(lengths + 4 * i);
        uint64_t at = mr_load_le64(pointers + 8 * i);
        if (length > INT32_MAX)
            return bad(m, err, "a sequence has a negative length", length, INT32_MAX);
        if (at > f->data.bytes || length * item > f->data.bytes - at || at % item)
            return behind_the_end(f, number, at, length * item, err);
        if (at != end)
            return mr_error_plain(err, MR_E_UNSUPPORTED,
                                  "'%s': sequence %llu of document %llu lies apart from the one before it",
                                  m->index.path, (ull)(first + i), (ull)number);
        end = at + length * item;
    }
    *run = (struct token_run){.offset = offset, .tokens = (end - offset) / item};
    return 0;
}

static int megatron_runs(struct token_file *f, uint64_t first, size_t n, struct token_run *runs,
                         struct token_scratch *s, struct mr_error *err)
{
    struct megatron *m = f->own;
    uint8_t *bounds = mr_token_scratch(s, 0, 8 * (n + 1));
    int rc = bounds ? read_index(f, bounds, 8 * (n + 1), at_documents(m, first), err)
                    : mr_error_set(err, -ENOMEM, "cannot read '%s'", m->index.path);
    if (rc < 0)
        return rc;
    uint64_t from = mr_load_le64(bounds), to = mr_load_le64(bounds + 8 * n);
    if (from > to || to > m->sequences || to - from > RUN_SEQUENCES)
        return bad(m, err, "the first sequences of documents do not ascend", to, from);
    uint8_t *lengths = mr_token_scratch(s, 1, 12 * (size_t)(to - from) + 1), *pointers = lengths + 4 * (to - from);
    if (!lengths)
        return mr_error_set(err, -ENOMEM, "cannot read '%s'", m->index.path);
    if (to > from)
        rc = read_index(f, lengths, 4 * (size_t)(to - from), at_lengths(from), err);
    if (rc >= 0 && to > from)
        rc = read_index(f, pointers, 8 * (size_t)(to - from), at_pointers(m, from), err);
    for (size_t d = 0; rc >= 0 && d < n; d++) {
        uint64_t a = mr_load_le64(bounds + 8 * d), b = mr_load_le64(bounds + 8 * (d + 1));
        if (a > b || a < from || b > to)
            return bad(m, err, "the first sequences of documents do not ascend", b, a);
        rc = take_run(f, first + d, a, b - a, lengths + 4 * (a - from), pointers + 8 * (a - from), &runs[d], err);
    }
    return rc;
}

const struct token_file_ops mr_token_megatron = {.name = "megatron",
                                                 .open = megatron_open,
                                                 .close = megatron_close,
                                                 .runs = megatron_runs,
                                                 .read = mr_token_read_numbers};
