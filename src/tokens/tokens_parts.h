/* Inside src/tokens: a file of tokens, as its format's operations and the reader see it.
 *
 * To add a format: an ops struct in a file of its own, a row in tokens_file.c, its bytes in
 * doc/reference/format-tokens.md, a fuzz target. */
#ifndef MR_TOKENS_TOKENS_PARTS_H
#define MR_TOKENS_TOKENS_PARTS_H

#include "base/common.h"
#include "store/store.h"

#include <millrace/tokens.h>
#include <pthread.h>
#include <stdatomic.h>

#define MR_TOKENS_UNKNOWN UINT64_MAX
#define MR_TOKENS_MAX_DOCUMENTS ((uint64_t)1 << 40)

typedef unsigned long long ull;

/* A file that is read by ranges. Stays open where the process has few of them open. */
struct token_object {
    char *path;
    uint64_t bytes;
    _Atomic(struct mr_object *) kept;
};

/* Memory of one call of mr_tokens_read, used again for each of its samples. */
struct token_scratch {
    void *slot[4];
    size_t cap[4];
};
void *mr_token_scratch(struct token_scratch *s, unsigned slot, size_t bytes); /* NULL without memory */
void mr_token_scratch_done(struct token_scratch *s);

/* Where the tokens of a document are. */
struct token_run {
    uint64_t offset; /* in bytes */
    uint64_t tokens;
    uint64_t bytes;      /* JSON lines: of the document's text */
    uint32_t shard;      /* MDS */
    enum mr_dtype dtype; /* MDS: may differ from document to document */
};

/* The store for `path`, shared with other corpora. */
struct mr_token_store;
int mr_token_store_get(const char *spec, const char *path, struct mr_token_store **out, struct mr_store **store,
                       struct mr_error *err);
void mr_token_store_put(struct mr_token_store *s); /* accepts NULL */

struct token_file;
struct token_file_ops {
    const char *name;
    /* Fills what is below in `f`; `path` is what the user gave. */
    int (*open)(struct token_file *f, const char *path, const struct mr_tokens_params *p, struct mr_error *err);
    void (*close)(struct token_file *f);
    /* The runs of documents first ... first + n - 1, each checked against its file. */
    int (*runs)(struct token_file *f, uint64_t first, size_t n, struct token_run *runs, struct token_scratch *s,
                struct mr_error *err);
    /* Tokens from ... from + n - 1 of a run. */
    int (*read)(struct token_file *f, const struct token_run *run, uint64_t from, size_t n, int64_t *out,
                struct token_scratch *s, struct mr_error *err);
};

struct token_file {
    const struct token_file_ops *ops;
    struct mr_store *store;
    char *name;   /* as given, for messages */
    char *column; /* as given, or NULL */
    enum mr_dtype dtype;
    uint64_t documents, tokens; /* tokens: MR_TOKENS_UNKNOWN until they are counted */
    bool is_stream;             /* documents lie end to end: token i is at stream_offset + i * item */
    uint64_t stream_offset;
    struct token_object data; /* of formats with one data file */
    void *own;                /* the format's */
    /* the reader's */
    uint64_t samples, first_sample, delivered;
    uint64_t windows, first_window, *first_pack; /* PACKED: windows + 1 */
    uint16_t *place;                             /* PACKED: of the rest of each document */
    uint64_t *first_token;                       /* FIXED of documents that do not lie end to end: documents + 1 */
};

int mr_token_file_open(struct token_file *f, struct mr_store *store, const char *path, const struct mr_tokens_params *p,
                       struct mr_error *err);
void mr_token_file_close(struct token_file *f);

/* Takes `path`; on success, bytes is set. */
int mr_token_object_init(struct token_object *o, struct mr_store *s, char *path, struct mr_error *err);
void mr_token_object_done(struct token_object *o);
int mr_token_object_read(struct token_object *o, struct mr_store *s, void *buf, size_t len, uint64_t offset,
                         struct mr_error *err);
/* `n` numbers of a type as int64, also in place of a wider buffer's end. */
void mr_token_widen(int64_t *out, const void *raw, enum mr_dtype dtype, size_t n);
/* The element type that the user named, or `known`, where a header has one. */
int mr_token_dtype(const char *path, const char *want, const enum mr_dtype *known, enum mr_dtype *out,
                   struct mr_error *err);
char *mr_token_path(const char *folder, const char *name); /* "folder/name", or folder followed by a suffix ".x" */
/* read operation of files of plain numbers. */
int mr_token_read_numbers(struct token_file *f, const struct token_run *run, uint64_t from, size_t n, int64_t *out,
                          struct token_scratch *s, struct mr_error *err);

/* ---- packing (tokens_pack.c) ---- */

struct token_piece {
    size_t document; /* in the window */
    uint64_t from, tokens;
};
struct token_packer; /* of one thread */
struct token_packer *mr_token_packer_create(uint32_t window, uint64_t length, bool drop_tails);
void mr_token_packer_free(struct token_packer *p);
/* The sequences that n <= window documents make, and where the rest of each document is; their pieces' tokens. */
#define MR_TOKENS_NO_REST UINT16_MAX
uint64_t mr_token_pack(struct token_packer *p, const struct token_run *runs, size_t n, uint16_t *place,
                       uint64_t *tokens);
/* The pieces of sequence `which` of them, in order: at most n, of at most `length` tokens together. 0: these are not the
 * documents that were packed. */
size_t mr_token_pack_pieces(uint64_t length, const struct token_run *runs, size_t n, const uint16_t *place,
                            uint64_t which, struct token_piece *pieces);

extern const struct token_file_ops mr_token_flat, mr_token_npy, mr_token_llmc, mr_token_megatron, mr_token_mds,
    mr_token_jsonl, mr_token_parquet;
bool mr_token_flat_is_npy(const uint8_t *head, size_t len);
bool mr_token_flat_is_llmc(const uint8_t *head, size_t len);

#endif
