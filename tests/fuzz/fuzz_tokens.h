/* Shared by the fuzz targets of token formats: opens a file in memory and reads its documents. */
#ifndef MR_TESTS_FUZZ_TOKENS_H
#define MR_TESTS_FUZZ_TOKENS_H

#include "fuzz_format.h"
#include "tokens/tokens_parts.h"

static inline void fuzz_tokens(const struct token_file_ops *ops, const char *path)
{
    struct token_file f = {.ops = NULL};
    struct token_scratch s = {.cap = {0}};
    struct mr_tokens_params p = {.format = ops->name};
    struct mr_error err;
    struct token_packer *packer = mr_token_packer_create(64, 7, false);
    if (!packer)
        abort();
    int rc = mr_token_file_open(&f, fuzz_store(), path, &p, &err);
    for (uint64_t at = 0; rc >= 0 && at < f.documents && at < 1024; at += 64) {
        struct token_run runs[64];
        size_t n = (size_t)MR_MIN((uint64_t)64, f.documents - at);
        rc = f.ops->runs(&f, at, n, runs, &s, &err);
        for (size_t i = 0; rc >= 0 && i < n; i++) {
            int64_t out[16];
            size_t want = (size_t)MR_MIN(runs[i].tokens, (uint64_t)16);
            if (want && f.ops->read(&f, &runs[i], runs[i].tokens - want, want, out, &s, &err) < 0)
                break;
        }
        uint64_t tokens;
        struct token_piece pieces[64];
        uint16_t place[64];
        if (rc >= 0 && mr_token_pack(packer, runs, n, place, &tokens) &&
            !mr_token_pack_pieces(7, runs, n, place, 0, pieces))
            abort();
    }
    mr_token_file_close(&f);
    mr_token_packer_free(packer);
    mr_token_scratch_done(&s);
}

#endif
