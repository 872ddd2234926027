/* Files that are one stream of numbers behind at most a header: plain .bin (nanoGPT, litgpt), one-dimensional .npy, and
 * llm.c's .bin, whose header is 256 int32: magic, version 1, number of tokens. One document, or, where the end-of-text
 * token is named, as many as end with it: the file is read once for that, and 8 bytes per document are kept. */
#include "base/vec.h"
#include "tokens/tokens_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LLMC_HEADER 1024u
#define LLMC_GPT2 20240520u   /* uint16 */
#define LLMC_LLAMA3 20240801u /* uint32 */

#define CHUNK ((size_t)1 << 17) /* tokens */

struct flat {
    MR_VEC(uint64_t) end; /* of each document, in tokens */
};

static void flat_close(struct token_file *f)
{
    struct flat *x = f->own;
    if (x)
        free(x->end.item);
    free(x);
}

static int add_end(struct token_file *f, struct flat *x, uint64_t end, struct mr_error *err)
{
    uint64_t *to = MR_VEC_ADD(&x->end);
    if (!to)
        return mr_error_set(err, -ENOMEM, "cannot hold the documents of '%s'", f->data.path);
    *to = end;
    return 0;
}

/* Documents end behind each `eos`; the last one perhaps without. */
static int find_documents(struct token_file *f, int64_t eos, struct mr_error *err)
{
    struct flat *x = f->own = calloc(1, sizeof(*x));
    int64_t *tokens = malloc(CHUNK * sizeof(*tokens));
    const struct token_run whole = {.offset = f->stream_offset, .tokens = f->tokens};
    int rc = x && tokens ? 0 : mr_error_set(err, -ENOMEM, "cannot look through '%s'", f->data.path);
    for (uint64_t at = 0; rc >= 0 && at < f->tokens; at += CHUNK) {
        size_t n = (size_t)MR_MIN((uint64_t)CHUNK, f->tokens - at);
        rc = mr_token_read_numbers(f, &whole, at, n, tokens, NULL, err);
        for (size_t i = 0; rc >= 0 && i < n; i++)
            if (tokens[i] == eos)
                rc = add_end(f, x, at + i + 1, err);
    }
    if (rc >= 0 && f->tokens && (!x->end.n || x->end.item[x->end.n - 1] != f->tokens))
        rc = add_end(f, x, f->tokens, err);
    if (rc >= 0)
        f->documents = x->end.n;
    free(tokens);
    return rc;
}

/* The rest of the file behind `skip` bytes are its tokens, of which the header `claims` so many. */
static int finish(struct token_file *f, uint64_t skip, const uint64_t *claims, const struct mr_tokens_params *p,
                  struct mr_error *err)
{
    unsigned item = mr_dtype_bytes(f->dtype);
    uint64_t have = f->data.bytes - MR_MIN(skip, f->data.bytes);
    if (have % item)
        return mr_error_plain(err, MR_E_FORMAT, "'%s' has %llu bytes of tokens, which are no whole number of %s",
                              f->data.path, (ull)have, mr_dtype_numpy(f->dtype));
    if (claims && *claims != have / item)
        return mr_error_plain(err, MR_E_FORMAT, "the header of '%s' is that of %llu tokens, but the file has %llu",
                              f->data.path, (ull)*claims, (ull)(have / item));
    f->documents = 1;
    f->tokens = have / item;
    f->is_stream = true;
    f->stream_offset = skip;
    return p->has_eos && p->cut != MR_TOKENS_FIXED ? find_documents(f, p->eos, err) : 0;
}

static int flat_open(struct token_file *f, const char *path, const struct mr_tokens_params *p, struct mr_error *err)
{
    int rc = mr_token_dtype(path, p->dtype, NULL, &f->dtype, err);
    if (rc >= 0)
        rc = mr_token_object_init(&f->data, f->store, strdup(path), err);
    uint8_t head[4] = {0};
    if (rc >= 0 && f->data.bytes >= sizeof head)
        rc = mr_token_object_read(&f->data, f->store, head, sizeof head, 0, err);
    if (rc >= 0 && memcmp(head, "PK\3\4", 4) == 0)
        rc = mr_error_plain(err, MR_E_FORMAT, "'%s' is a ZIP archive (.npz, .pt), not a file of token numbers", path);
    return rc < 0 ? rc : finish(f, 0, NULL, p, err);
}

bool mr_token_flat_is_llmc(const uint8_t *head, size_t len)
{
    return len >= 12 && (mr_load_le32(head) == LLMC_GPT2 || mr_load_le32(head) == LLMC_LLAMA3) &&
           mr_load_le32(head + 4) == 1;
}

static int llmc_open(struct token_file *f, const char *path, const struct mr_tokens_params *p, struct mr_error *err)
{
    uint8_t head[12];
    int rc = mr_token_object_init(&f->data, f->store, strdup(path), err);
    if (rc >= 0 && f->data.bytes < LLMC_HEADER)
        rc = mr_error_plain(err, MR_E_FORMAT, "'%s' has no header of llm.c (want %u bytes, file has %llu)", path,
                            LLMC_HEADER, (ull)f->data.bytes);
    if (rc >= 0)
        rc = mr_token_object_read(&f->data, f->store, head, sizeof head, 0, err);
    if (rc < 0)
        return rc;
    if (!mr_token_flat_is_llmc(head, sizeof head))
        return mr_error_plain(err, MR_E_FORMAT,
                              "'%s' has no header of llm.c (magic %u or %u and version 1, not %u, %u)", path, LLMC_GPT2,
                              LLMC_LLAMA3, mr_load_le32(head), mr_load_le32(head + 4));
    enum mr_dtype known = mr_load_le32(head) == LLMC_GPT2 ? MR_U16 : MR_U32;
    uint64_t claims = mr_load_le32(head + 8);
    rc = mr_token_dtype(path, p->dtype, &known, &f->dtype, err);
    return rc < 0 ? rc : finish(f, LLMC_HEADER, &claims, p, err);
}

bool mr_token_flat_is_npy(const uint8_t *head, size_t len)
{
    return len >= 10 && memcmp(head, "\x93NUMPY", 6) == 0;
}

/* The text behind 'KEY': in a header, or NULL. */
static const char *npy_value(const char *header, const char *key)
{
    const char *at = strstr(header, key);
    at = at ? strchr(at + strlen(key), ':') : NULL;
    return at ? at + 1 + strspn(at + 1, " ") : NULL;
}

static int npy_header(struct token_file *f, const char *header, uint64_t skip, const struct mr_tokens_params *p,
                      struct mr_error *err)
{
    const char *descr = npy_value(header, "'descr'"), *shape = npy_value(header, "'shape'");
    char text[16] = "";
    size_t len = descr && *descr == '\'' ? strcspn(descr + 1, "'") : 0;
    if (len && len < sizeof text)
        memcpy(text, descr + 1, len);
    char *end = NULL;
    uint64_t n = shape && *shape == '(' ? strtoull(shape + 1, &end, 10) : 0;
    if (!text[0] || !end || (*end != ',' && *end != ')'))
        return mr_error_plain(err, MR_E_FORMAT, "'%s' begins as a .npy file, but its header cannot be read",
                              f->data.path);
    enum mr_dtype known;
    bool swap = false;
    int rc = mr_dtype_parse(text, &known, &swap, err);
    if (rc < 0)
        return rc;
    if (swap || (*end == ',' && end[1 + strspn(end + 1, " ")] != ')'))
        return mr_error_plain(err, MR_E_UNSUPPORTED,
                              "'%s' is a .npy file of %s %s; tokens have one dimension and are little-endian",
                              f->data.path, text, swap ? "in big-endian order" : "with several dimensions");
    rc = mr_token_dtype(f->data.path, p->dtype, &known, &f->dtype, err);
    return rc < 0 ? rc : finish(f, skip, &n, p, err);
}

static int npy_open(struct token_file *f, const char *path, const struct mr_tokens_params *p, struct mr_error *err)
{
    char head[4096] = "";
    int rc = mr_token_object_init(&f->data, f->store, strdup(path), err);
    size_t len = (size_t)MR_MIN(f->data.bytes, sizeof head - 1);
    if (rc >= 0)
        rc = mr_token_object_read(&f->data, f->store, head, len, 0, err);
    if (rc < 0)
        return rc;
    size_t start = head[6] > 1 ? 12 : 10;
    uint64_t bytes = head[6] > 1 ? mr_load_le32(head + 8) : mr_load_le16(head + 8);
    if (!mr_token_flat_is_npy((const uint8_t *)head, len) || bytes > len - MR_MIN(start, len))
        return mr_error_plain(err, MR_E_FORMAT, "'%s' is no .npy file, or its header is longer than %zu bytes", path,
                              sizeof head);
    head[start + bytes] = '\0';
    return npy_header(f, head + start, start + bytes, p, err);
}

static int flat_runs(struct token_file *f, uint64_t first, size_t n, struct token_run *runs, struct token_scratch *s,
                     struct mr_error *err)
{
    const struct flat *x = f->own;
    uint64_t item = mr_dtype_bytes(f->dtype);
    (void)s, (void)err;
    for (size_t i = 0; i < n; i++) {
        uint64_t d = first + i, begin = x && d ? x->end.item[d - 1] : 0, end = x ? x->end.item[d] : f->tokens;
        runs[i] = (struct token_run){.offset = f->stream_offset + begin * item, .tokens = end - begin};
    }
    return 0;
}

#define FLAT(text, opens)                                                                                              \
    {                                                                                                                  \
        .name = text, .open = opens, .close = flat_close, .runs = flat_runs, .read = mr_token_read_numbers             \
    }
const struct token_file_ops mr_token_flat = FLAT("bin", flat_open);
const struct token_file_ops mr_token_npy = FLAT("npy", npy_open);
const struct token_file_ops mr_token_llmc = FLAT("llmc", llmc_open);
