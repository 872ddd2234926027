/* MDS of MosaicML Streaming: FOLDER/index.json names shards and their columns; a shard has the number of its samples,
 * their offsets, a copy of the configuration, and the samples: the sizes of the columns that vary, then the columns.
 * One column has the tokens, as `ndarray` or as bytes of numbers; the others are not read. A shard that is compressed
 * with zstd is unpacked as a whole when it is first needed, and kept while there is room. */
#include "base/vec.h"
#include "tokens/tokens_parts.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define MAX_INDEX_BYTES (256 * MR_MIB)
#define MAX_SHARD_BYTES ((uint64_t)UINT32_MAX) /* offsets have 32 bits */
#define MAX_COLUMNS 4096u
#define UNPACKED_BYTES (512 * MR_MIB) /* of unpacked shards that are kept */
#define HEAD_BYTES 72u                /* at most: type, dimensions and 8 sizes in front of the numbers of an ndarray */

struct column {
    bool is_bytes, has_dtype;
    enum mr_dtype dtype;
    uint64_t fixed;  /* numbers of a fixed shape; 0: not */
    unsigned sizes;  /* sizes in front of a sample: of the columns that vary */
    unsigned varied; /* of them, those of columns before this one */
    uint64_t before; /* bytes of the columns of fixed sizes before it */
    uint64_t size;   /* of this one; 0: varies */
};

struct shard {
    struct token_object object;
    bool is_zstd;
    uint64_t bytes; /* unpacked */
    uint64_t first, samples;
    uint64_t used;
    uint8_t *unpacked;
    bool checked;
    struct column column;
};

struct mds {
    char *folder;
    MR_VEC(struct shard) shards;
    pthread_mutex_t lock; /* of `unpacked`, `used`, `checked` */
    uint64_t clock, unpacked_bytes;
};

/* ---- index.json ---- */

static int bad_index(const struct mds *m, struct mr_error *err, const char *what)
{
    return mr_error_plain(err, MR_E_FORMAT, "'%s/index.json', shard %zu: %s", m->folder, m->shards.n - 1, what);
}

static int take_dtype(const struct mds *m, struct column *c, const char *name, const char *text, size_t len,
                      struct mr_error *err)
{
    char word[16] = "";
    bool swap;
    if (len < sizeof word)
        memcpy(word, text, len);
    int rc = mr_dtype_parse(word, &c->dtype, &swap, NULL);
    c->has_dtype = true;
    if (rc < 0 || swap || c->dtype > MR_I64)
        return mr_error_plain(err, MR_E_UNSUPPORTED, "'%s/index.json': column '%s' has %.*s, tokens are integers",
                              m->folder, name, (int)MR_MIN(len, (size_t)40), text);
    return 0;
}

/* "ndarray", "ndarray:uint16", "ndarray:uint16:2048", "bytes". */
static int take_encoding(const struct mds *m, struct column *c, const char *name, const char *text, const char *dtype,
                         struct mr_error *err)
{
    if (strcmp(text, "pkl") == 0)
        return mr_error_plain(err, MR_E_UNSUPPORTED,
                              "'%s/index.json': column '%s' is pickled ('pkl'); unpickling runs code, so it is refused",
                              m->folder, name);
    c->is_bytes = strcmp(text, "bytes") == 0;
    if (c->is_bytes) {
        if (dtype)
            return take_dtype(m, c, name, dtype, strlen(dtype), err);
        return mr_error_plain(err, MR_E_USAGE,
                              "'%s/index.json': column '%s' has bytes: pass the type of its numbers as dtype",
                              m->folder, name);
    }
    if (strncmp(text, "ndarray", 7) != 0 || (text[7] && text[7] != ':'))
        return mr_error_plain(err, MR_E_UNSUPPORTED,
                              "'%s/index.json': column '%s' has the encoding '%.40s'; tokens are 'ndarray' or 'bytes'",
                              m->folder, name, text);
    if (!text[7])
        return 0;
    const char *word = text + 8;
    size_t len = strcspn(word, ":");
    int rc = take_dtype(m, c, name, word, len, err);
    if (rc < 0 || !word[len])
        return rc;
    c->fixed = 1;
    for (const char *at = word + len; *at == ':' || *at == ',';) {
        char *end;
        unsigned long long dim = strtoull(at + 1, &end, 10);
        if (end == at + 1 || !dim || dim > MR_TOKENS_MAX_LENGTH || c->fixed > MR_TOKENS_MAX_LENGTH / dim)
            return bad_index(m, err, "the shape of the tokens is none");
        c->fixed *= dim;
        at = end;
    }
    return 0;
}

/* The column with the tokens: the one that was named, or "tokens", "input_ids", or the only one. */
static int find_column(const struct mds *m, const json_t *names, const char *wanted, size_t *out, struct mr_error *err)
{
    const char *const usual[] = {wanted ? wanted : "tokens", "input_ids"};
    for (unsigned u = 0; u < (wanted ? 1 : 2); u++)
        for (size_t i = 0; i < json_array_size(names); i++) {
            const char *name = json_string_value(json_array_get(names, i));
            if (name && strcmp(name, usual[u]) == 0) {
                *out = i;
                return 0;
            }
        }
    if (!wanted && json_array_size(names) == 1) {
        *out = 0;
        return 0;
    }
    return mr_error_plain(err, MR_E_USAGE,
                          "'%s/index.json' has no column '%s': name the one with the tokens by column=", m->folder,
                          wanted ? wanted : "tokens");
}

static int take_columns(const struct mds *m, const json_t *x, struct column *c, const struct mr_tokens_params *p,
                        struct mr_error *err)
{
    const json_t *names = json_object_get(x, "column_names"), *sizes = json_object_get(x, "column_sizes"),
                 *encodings = json_object_get(x, "column_encodings");
    size_t n = json_array_size(names), at = 0;
    if (!n || n > MAX_COLUMNS || json_array_size(sizes) != n || json_array_size(encodings) != n)
        return bad_index(m, err, "its columns have no names, sizes or encodings");
    int rc = find_column(m, names, p->column, &at, err);
    for (size_t i = 0; rc >= 0 && i < n; i++) {
        const json_t *size = json_array_get(sizes, i);
        json_int_t bytes = json_integer_value(size);
        if (bytes < 0 || bytes > (json_int_t)MAX_SHARD_BYTES || (!json_is_integer(size) && !json_is_null(size)))
            return bad_index(m, err, "the size of a column is none");
        if (i < at && bytes)
            c->before += (uint64_t)bytes;
        c->varied += i < at && !bytes;
        c->sizes += !bytes;
        if (i == at)
            c->size = (uint64_t)bytes;
    }
    const char *name = rc >= 0 ? json_string_value(json_array_get(names, at)) : NULL;
    const char *encoding = rc >= 0 ? json_string_value(json_array_get(encodings, at)) : NULL;
    if (rc >= 0 && (!name || !encoding))
        rc = bad_index(m, err, "its columns have no names or encodings");
    if (rc >= 0)
        rc = take_encoding(m, c, name, encoding, p->dtype, err);
    if (rc >= 0 && c->fixed && c->size != c->fixed * mr_dtype_bytes(c->dtype))
        rc = bad_index(m, err, "the size of the tokens is not that of their shape");
    return rc;
}

static int take_name(const struct mds *m, struct shard *s, const json_t *file, struct mr_error *err)
{
    const char *name = json_string_value(json_object_get(file, "basename"));
    if (!name || !name[0] || name[0] == '/' || strstr(name, ".."))
        return bad_index(m, err, "its file has no name, or one outside of the folder");
    s->object.path = mr_token_path(m->folder, name);
    return s->object.path ? 0 : mr_error_set(err, -ENOMEM, "cannot open '%s'", m->folder);
}

static int take_shard(struct mds *m, const json_t *x, const struct mr_tokens_params *p, struct mr_error *err)
{
    struct shard *s = MR_VEC_ADD(&m->shards);
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot open '%s'", m->folder);
    *s = (struct shard){.first = 0};
    const char *format = json_string_value(json_object_get(x, "format"));
    const char *packed = json_string_value(json_object_get(x, "compression"));
    json_int_t samples = json_integer_value(json_object_get(x, "samples"));
    const json_t *raw = json_object_get(x, "raw_data"), *zip = json_object_get(x, "zip_data");
    json_int_t bytes = json_integer_value(json_object_get(raw, "bytes"));
    if (!format || strcmp(format, "mds") != 0 || json_integer_value(json_object_get(x, "version")) != 2)
        return bad_index(m, err, "no MDS of version 2");
    if (samples < 0 || bytes < 8 || bytes > (json_int_t)MAX_SHARD_BYTES || samples > bytes)
        return bad_index(m, err, "impossible numbers of samples or bytes");
    if (packed && strcmp(packed, "zstd") != 0 && strncmp(packed, "zstd:", 5) != 0)
        return mr_error_plain(err, MR_E_UNSUPPORTED,
                              "'%s/index.json': shards are compressed with '%.40s'; only zstd is read", m->folder,
                              packed);
    s->samples = (uint64_t)samples;
    s->bytes = (uint64_t)bytes;
    s->is_zstd = packed != NULL;
    if (m->shards.n > 1)
        s->first = s[-1].first + s[-1].samples;
    int rc = take_name(m, s, packed ? zip : raw, err);
    return rc < 0 ? rc : take_columns(m, x, &s->column, p, err);
}

static int load_index(struct token_file *f, const char *path, json_t **out, struct mr_error *err)
{
    struct token_object index = {0};
    json_error_t why;
    int rc = mr_token_object_init(&index, f->store, strdup(path), err);
    if (rc >= 0 && index.bytes > MAX_INDEX_BYTES)
        rc = mr_error_plain(err, MR_E_LIMIT, "'%s' has %llu bytes, over the limit of %llu", path, (ull)index.bytes,
                            (ull)MAX_INDEX_BYTES);
    char *text = rc >= 0 ? malloc((size_t)index.bytes + 1) : NULL;
    if (rc >= 0)
        rc = text ? mr_token_object_read(&index, f->store, text, (size_t)index.bytes, 0, err)
                  : mr_error_set(err, -ENOMEM, "cannot read '%s'", path);
    *out = rc >= 0 ? json_loadb(text, (size_t)index.bytes, JSON_REJECT_DUPLICATES, &why) : NULL;
    if (rc >= 0 && !*out)
        rc = mr_error_plain(err, MR_E_FORMAT, "'%s' is no JSON: %.100s (line %d)", path, why.text, why.line);
    free(text);
    mr_token_object_done(&index);
    return rc;
}

static int take_index(struct token_file *f, struct mds *m, const char *path, const struct mr_tokens_params *p,
                      struct mr_error *err)
{
    json_t *index = NULL, *one;
    size_t i;
    int rc = load_index(f, path, &index, err);
    const json_t *shards = json_object_get(index, "shards");
    if (rc >= 0 && !json_is_array(shards))
        rc = mr_error_plain(err, MR_E_FORMAT, "'%s' has no list of shards", path);
    if (rc >= 0)
        json_array_foreach(shards, i, one)
        {
            rc = take_shard(m, one, p, err);
            if (rc < 0)
                break;
        }
    json_decref(index);
    return rc;
}

static int mds_open(struct token_file *f, const char *path, const struct mr_tokens_params *p, struct mr_error *err)
{
    static const char name[] = "/index.json";
    struct mds *m = f->own = calloc(1, sizeof(*m));
    if (!m)
        return mr_error_set(err, -ENOMEM, "cannot open '%s'", path);
    pthread_mutex_init(&m->lock, NULL);
    size_t len = strlen(path), end = sizeof name - 1;
    m->folder = strndup(path, len > end && strcmp(path + len - end, name) == 0 ? len - end : len);
    char *index = m->folder ? mr_token_path(m->folder, "index.json") : NULL;
    int rc = index ? take_index(f, m, index, p, err) : mr_error_set(err, -ENOMEM, "cannot open '%s'", path);
    free(index);
    if (rc == -ENOENT)
        mr_error_hint(err, "a folder of tokens is MDS of MosaicML Streaming, with an index.json");
    f->tokens = 0;
    for (size_t i = 0; rc >= 0 && i < m->shards.n; i++) {
        const struct shard *s = &m->shards.item[i];
        f->documents += s->samples;
        f->tokens = f->tokens == MR_TOKENS_UNKNOWN || !s->column.fixed ? MR_TOKENS_UNKNOWN
                                                                       : f->tokens + s->samples * s->column.fixed;
        f->dtype = s->column.dtype;
    }
    return rc;
}

static void mds_close(struct token_file *f)
{
    struct mds *m = f->own;
    if (!m)
        return;
    for (size_t i = 0; i < m->shards.n; i++) {
        mr_token_object_done(&m->shards.item[i].object);
        free(m->shards.item[i].unpacked);
    }
    free(m->shards.item);
    free(m->folder);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

/* ---- shards ---- */

static int bad_shard(const struct shard *s, struct mr_error *err, const char *what, ull have, ull want)
{
    return mr_error_plain(err, MR_E_FORMAT, "'%s': %s (want %llu, have %llu)", s->object.path, what, want, have);
}

/* Under the lock: the shard's file is there and as large as the index says. */
static int check_shard(struct token_file *f, struct shard *s, struct mr_error *err)
{
    struct mr_store_stat st;
    if (s->checked)
        return 0;
    int rc = mr_store_stat(f->store, s->object.path, &st, err);
    if (rc < 0)
        return rc;
    s->object.bytes = st.bytes;
    if (!s->is_zstd && st.bytes != s->bytes)
        return bad_shard(s, err, "not as large as index.json says", st.bytes, s->bytes);
    s->checked = true;
    return 0;
}

static void make_room(struct mds *m, uint64_t bytes)
{
    while (m->unpacked_bytes + bytes > UNPACKED_BYTES) {
        struct shard *oldest = NULL;
        for (size_t i = 0; i < m->shards.n; i++)
            if (m->shards.item[i].unpacked && (!oldest || m->shards.item[i].used < oldest->used))
                oldest = &m->shards.item[i];
        if (!oldest)
            return;
        free(oldest->unpacked);
        oldest->unpacked = NULL;
        m->unpacked_bytes -= oldest->bytes;
    }
}

/* Under the lock. */
static int unpack(struct token_file *f, struct shard *s, struct mr_error *err)
{
    struct mds *m = f->own;
    s->used = ++m->clock;
    if (s->unpacked)
        return 0;
    if (s->object.bytes > MAX_SHARD_BYTES)
        return bad_shard(s, err, "too large", s->object.bytes, MAX_SHARD_BYTES);
    make_room(m, s->bytes);
    uint8_t *zipped = malloc((size_t)s->object.bytes + 1), *out = malloc((size_t)s->bytes);
    int rc = zipped && out ? mr_token_object_read(&s->object, f->store, zipped, (size_t)s->object.bytes, 0, err)
                           : mr_error_set(err, -ENOMEM, "cannot unpack '%s'", s->object.path);
    size_t got = rc >= 0 ? ZSTD_decompress(out, (size_t)s->bytes, zipped, (size_t)s->object.bytes) : 0;
    if (rc >= 0 && ZSTD_isError(got))
        rc = mr_error_plain(err, MR_E_CORRUPT, "'%s' cannot be unpacked: %s", s->object.path, ZSTD_getErrorName(got));
    else if (rc >= 0 && got != s->bytes)
        rc = bad_shard(s, err, "unpacked, not as large as index.json says", got, s->bytes);
    free(zipped);
    if (rc < 0) {
        free(out);
        return rc;
    }
    s->unpacked = out;
    m->unpacked_bytes += s->bytes;
    return 0;
}

/* `len` unpacked bytes at `offset`. */
static int shard_read(struct token_file *f, struct shard *s, void *buf, uint64_t len, uint64_t offset,
                      struct mr_error *err)
{
    struct mds *m = f->own;
    pthread_mutex_lock(&m->lock);
    int rc = check_shard(f, s, err);
    if (rc >= 0 && (offset > s->bytes || len > s->bytes - offset))
        rc = mr_error_plain(err, MR_E_FORMAT, "'%s' is cut off (want %llu bytes at %llu, has %llu)", s->object.path,
                            (ull)len, (ull)offset, (ull)s->bytes);
    if (rc >= 0 && s->is_zstd)
        rc = unpack(f, s, err);
    if (rc >= 0 && s->is_zstd)
        memcpy(buf, s->unpacked + offset, (size_t)len);
    pthread_mutex_unlock(&m->lock);
    return rc < 0 || s->is_zstd ? rc : mr_token_object_read(&s->object, f->store, buf, (size_t)len, offset, err);
}

/* ---- samples ---- */

/* What stands in front of the numbers of an ndarray, `len` bytes of which are here: type and shape. */
static int take_head(const struct shard *s, const uint8_t *head, uint64_t len, struct token_run *run,
                     struct mr_error *err)
{
    const struct column *c = &s->column;
    uint64_t at = 0, values = 1;
    if (!c->has_dtype) {
        static const struct {
            uint8_t code;
            enum mr_dtype dtype;
        } codes[] = {{8, MR_U8},   {9, MR_I8},   {16, MR_U16}, {17, MR_I16},
                     {32, MR_U32}, {33, MR_I32}, {64, MR_U64}, {65, MR_I64}};
        size_t i = 0;
        while (i < MR_ARRAY_LEN(codes) && len && codes[i].code != head[0])
            i++;
        if (!len || i == MR_ARRAY_LEN(codes))
            return bad_shard(s, err, "the tokens of a sample are no array of integers", len ? head[0] : 0, 8);
        run->dtype = codes[i].dtype;
        at = 1;
    }
    unsigned dims = len > at ? head[at] >> 2 : 0, each = len > at ? 1u << (head[at] & 3) : 1;
    at++;
    if (!dims || dims > 8 || at + dims * each > len)
        return bad_shard(s, err, "the tokens of a sample have an impossible number of dimensions", dims, 1);
    for (unsigned d = 0; d < dims; d++) {
        uint64_t dim = 0;
        for (unsigned b = 0; b < each; b++)
            dim |= (uint64_t)head[at++] << 8 * b;
        if (!dim || dim > MAX_SHARD_BYTES || values > MAX_SHARD_BYTES / dim)
            return bad_shard(s, err, "the tokens of a sample have an impossible shape", dim, 1);
        values *= dim;
    }
    if (values * mr_dtype_bytes(run->dtype) != run->bytes - at)
        return bad_shard(s, err, "the tokens of a sample are not those of its shape", run->bytes - at,
                         values * mr_dtype_bytes(run->dtype));
    run->offset += at;
    run->tokens = values;
    return 0;
}

/* The tokens of the sample at [begin, end). */
static int take_sample(struct token_file *f, struct shard *s, uint64_t begin, uint64_t end, struct token_run *run,
                       struct token_scratch *scratch, struct mr_error *err)
{
    const struct column *c = &s->column;
    uint64_t sizes = 4ull * c->sizes, offset = begin + sizes + c->before, bytes = c->size;
    uint8_t *head = mr_token_scratch(scratch, 1, (size_t)MR_MAX(sizes, (uint64_t)HEAD_BYTES));
    int rc = head ? 0 : mr_error_set(err, -ENOMEM, "cannot read '%s'", s->object.path);
    if (rc >= 0 && (begin > end || end > s->bytes || end - begin < sizes))
        rc = bad_shard(s, err, "the offsets of its samples do not ascend", end, begin + sizes);
    if (rc >= 0 && sizes)
        rc = shard_read(f, s, head, sizes, begin, err);
    if (rc < 0)
        return rc;
    for (unsigned i = 0; i < c->varied; i++)
        offset += mr_load_le32(head + 4ul * i);
    if (!bytes)
        bytes = mr_load_le32(head + 4ul * c->varied);
    if (offset > end || bytes > end - offset)
        return bad_shard(s, err, "the columns of a sample are longer than it", bytes, end - MR_MIN(offset, end));
    const struct mds *m = f->own;
    *run = (struct token_run){
        .offset = offset, .bytes = bytes, .dtype = c->dtype, .shard = (uint32_t)(s - m->shards.item)};
    if (c->is_bytes || c->fixed) {
        run->tokens = bytes / mr_dtype_bytes(c->dtype);
        if (bytes % mr_dtype_bytes(c->dtype))
            return bad_shard(s, err, "the tokens of a sample are no whole numbers", bytes, run->tokens);
        return 0;
    }
    uint64_t len = MR_MIN(bytes, (uint64_t)HEAD_BYTES);
    rc = shard_read(f, s, head, len, offset, err);
    return rc < 0 ? rc : take_head(s, head, len, run, err);
}

static struct shard *shard_of(struct mds *m, uint64_t document)
{
    size_t lo = 0, hi = m->shards.n;
    while (hi - lo > 1) {
        size_t mid = (lo + hi) / 2;
        if (m->shards.item[mid].first <= document)
            lo = mid;
        else
            hi = mid;
    }
    return &m->shards.item[lo];
}

/* Samples [first, first + n) of one shard. */
static int shard_runs(struct token_file *f, struct shard *s, uint64_t first, size_t n, struct token_run *runs,
                      struct token_scratch *scratch, struct mr_error *err)
{
    uint8_t count[4], *offsets = mr_token_scratch(scratch, 0, 4 * (n + 1));
    int rc = offsets ? shard_read(f, s, count, sizeof count, 0, err)
                     : mr_error_set(err, -ENOMEM, "cannot read '%s'", s->object.path);
    if (rc >= 0 && mr_load_le32(count) != s->samples)
        rc = bad_shard(s, err, "not as many samples as index.json says", mr_load_le32(count), s->samples);
    if (rc >= 0)
        rc = shard_read(f, s, offsets, 4 * (n + 1), 4 * (1 + first), err);
    for (size_t i = 0; rc >= 0 && i < n; i++)
        rc = take_sample(f, s, mr_load_le32(offsets + 4 * i), mr_load_le32(offsets + 4 * (i + 1)), &runs[i], scratch,
                         err);
    return rc;
}

static int mds_runs(struct token_file *f, uint64_t first, size_t n, struct token_run *runs,
                    struct token_scratch *scratch, struct mr_error *err)
{
    struct mds *m = f->own;
    for (size_t done = 0; done < n;) {
        struct shard *s = shard_of(m, first + done);
        uint64_t at = first + done - s->first;
        size_t here = (size_t)MR_MIN((uint64_t)(n - done), s->samples - at);
        int rc = shard_runs(f, s, at, here, runs + done, scratch, err);
        if (rc < 0)
            return rc;
        done += here;
    }
    return 0;
}

static int mds_read(struct token_file *f, const struct token_run *run, uint64_t from, size_t n, int64_t *out,
                    struct token_scratch *scratch, struct mr_error *err)
{
    struct mds *m = f->own;
    unsigned item = mr_dtype_bytes(run->dtype);
    uint8_t *raw = (uint8_t *)out + n * (sizeof(*out) - item); /* as in mr_token_read_numbers */
    (void)scratch;
    int rc = shard_read(f, &m->shards.item[run->shard], raw, n * item, run->offset + from * item, err);
    if (rc >= 0)
        mr_token_widen(out, raw, run->dtype, n);
    return rc;
}

const struct token_file_ops mr_token_mds = {
    .name = "mds", .open = mds_open, .close = mds_close, .runs = mds_runs, .read = mds_read};
