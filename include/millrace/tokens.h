/* Token corpora: samples for language models out of files of token numbers.
 *
 *   files      Megatron .bin + .idx; llm.c's .bin; one-dimensional .npy; plain numbers without a header; MDS of MosaicML
 *              Streaming (index.json and shards, as they are or zstd); JSON lines; a column of Parquet
 *   samples    MR_TOKENS_FIXED      `length` tokens cut from the stream of a file, each `step` behind the one before
 *              MR_TOKENS_DOCUMENTS  whole documents
 *              MR_TOKENS_PACKED     sequences of `length` tokens filled with documents: first-fit inside a window of
 *                                   documents, with segment ids, position ids and borders for attention kernels
 *
 * Sample i is a function of (files, parameters, i): any order, any number of threads and processes. Index arrays are read
 * by ranges when they are needed: opening a thousand files reads a few dozen bytes of each. Packed samples need the
 * lengths of all documents once, when the corpus is opened.
 *
 * Packing. Documents longer than `length` are cut into pieces of `length` and a rest. Documents 0 ... window-1 are packed,
 * then the next ones: each piece of full length is a sequence of its own, a shorter one goes into the first sequence of the
 * window that has room, else into a new one; whole pieces come behind the others. No token is lost or repeated; with drop_tails the rests of documents that
 * were cut are left out. Windows and files do not share sequences.
 *
 * Byte tables: doc/reference/format-tokens.md.
 *
 * Thread-safety: mr_tokens_open and _free belong to one thread; the others are safe from all threads between them. */
#ifndef MILLRACE_TOKENS_H
#define MILLRACE_TOKENS_H

#include <millrace/dtype.h>
#include <millrace/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

#define MR_TOKENS_WINDOW 1024u /* documents that are packed together by default */
#define MR_TOKENS_MAX_WINDOW 65534u
#define MR_TOKENS_MAX_LENGTH ((uint64_t)1 << 30)

enum mr_tokens_cut { MR_TOKENS_FIXED, MR_TOKENS_DOCUMENTS, MR_TOKENS_PACKED };

struct mr_tokens_params {
    /* Of each file: its path; of Megatron's the prefix, the .idx or the .bin; of MDS the folder. Borrowed for open. */
    const char *const *paths;
    uint32_t n_paths;
    const char *format; /* "bin", "npy", "llmc", "megatron", "mds", "jsonl", "parquet"; NULL: by what is there */
    const char *dtype;  /* of plain numbers; NULL: uint16. With a header it must be the header's, or NULL */
    const char *column; /* MDS, JSON lines, Parquet: who has the tokens; NULL: "tokens", "input_ids", or the only one */
    enum mr_tokens_cut cut;
    uint64_t length; /* FIXED, PACKED */
    uint64_t step;   /* FIXED: 0: length */
    uint32_t extra;  /* FIXED: tokens behind `length` that belong to the sample as well: 1 for targets */
    uint32_t window; /* PACKED: 0: MR_TOKENS_WINDOW */
    bool drop_tails; /* PACKED */
    bool has_eos;    /* files without documents: a document ends behind each token `eos`; else the file is one */
    int64_t eos;
    const char *store; /* NULL: what the paths need */
};

struct mr_tokens_info {
    uint64_t samples, files;
    uint64_t documents; /* of a file without documents: 1 */
    uint64_t tokens;    /* in the files; MDS and Parquet cut into documents: 0, since only reading shows it */
    uint64_t delivered; /* tokens of all samples together, without padding; FIXED with overlaps: each as often as it
                           is delivered; 0 where `tokens` is */
    uint64_t windows;   /* PACKED */
    const char *format; /* of the first file */
    enum mr_dtype dtype;
};

struct mr_tokens;

/* Errors: -ENOENT, MR_E_FORMAT naming file, offset, want and have (a header, an index that points behind its data, ...),
 * MR_E_UNSUPPORTED (floats, pickled columns, compressions other than zstd), MR_E_USAGE, -ENOMEM. */
int mr_tokens_open(const struct mr_tokens_params *p, struct mr_tokens **out, struct mr_error *err);
void mr_tokens_free(struct mr_tokens *t); /* accepts NULL */
void mr_tokens_get_info(const struct mr_tokens *t, struct mr_tokens_info *out);

/* Tokens of these samples: FIXED length + extra, PACKED those that are not padding. */
int mr_tokens_lengths(struct mr_tokens *t, const uint64_t *ids, size_t n, uint64_t *lengths, struct mr_error *err);

/* Where rows go. FIXED: row i of `tokens` has length + extra numbers. DOCUMENTS: document i begins at the sum of the
 * lengths before it, which mr_tokens_lengths gave. PACKED: rows of `length`: */
struct mr_token_rows {
    int64_t *tokens;
    int64_t *targets;   /* PACKED, or NULL: the next token of the same piece, else -100 */
    int32_t *segments;  /* PACKED, or NULL: 1, 2, ... for the pieces of a row; 0: padding */
    int32_t *positions; /* PACKED, or NULL: from 0 in each piece; padding: from 0 as well */
    /* PACKED, or NULL: room for n * (length + 1) + 1 numbers: where pieces begin and end in the flat batch, padding
     * counted as a piece, the last one n * length: cu_seqlens of attention kernels. */
    int32_t *borders;
    size_t n_borders; /* out */
    int64_t pad;      /* PACKED: the token of padding */
};
/* All or nothing; numbers behind an error are undefined. Errors: MR_E_USAGE for ids that do not exist, those of
 * mr_tokens_open, of storage. */
int mr_tokens_read(struct mr_tokens *t, const uint64_t *ids, size_t n, struct mr_token_rows *rows,
                   struct mr_error *err);

/* Where a sample is: its file, and for PACKED the window (over all files) and its position there. */
struct mr_token_place {
    uint32_t file;
    uint64_t window, position;
};
int mr_tokens_place(const struct mr_tokens *t, uint64_t id, struct mr_token_place *out, struct mr_error *err);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
