/* Packing: first-fit of the documents of a window into sequences of `length` tokens. Which sequence has the first gap of
 * at least so many tokens is found in a tree of the largest gaps, so a window of n documents costs O(n log n).
 *
 * Only sequences that were not full when they were begun stand in the tree, at most one per document. Nothing is kept
 * between calls: counting and finding the pieces of one sequence are the same walk over the lengths, so they agree by
 * construction. */
#include "tokens/tokens_parts.h"

#include <stdlib.h>
#include <string.h>

struct token_packer {
    uint64_t length;
    bool drop_tails;
    uint32_t leaves; /* a power of two, at least the window */
    uint32_t *gap;   /* tree of the largest gap: [1] the root, [leaves + i] sequence i of the tree */
    uint64_t *which; /* number of sequence i of the tree in the window */
};

struct token_packer *mr_token_packer_create(uint32_t window, uint64_t length, bool drop_tails)
{
    struct token_packer *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    *p = (struct token_packer){.length = length, .drop_tails = drop_tails, .leaves = 1};
    while (p->leaves < window)
        p->leaves *= 2;
    p->gap = malloc(2ul * p->leaves * sizeof(*p->gap));
    p->which = malloc((size_t)p->leaves * sizeof(*p->which));
    if (!p->gap || !p->which) {
        mr_token_packer_free(p);
        return NULL;
    }
    return p;
}

void mr_token_packer_free(struct token_packer *p)
{
    if (!p)
        return;
    free(p->gap);
    free(p->which);
    free(p);
}

static void set_gap(struct token_packer *p, uint32_t i, uint32_t gap)
{
    uint32_t at = p->leaves + i;
    p->gap[at] = gap;
    for (at /= 2; at; at /= 2) {
        uint32_t most = MR_MAX(p->gap[2 * at], p->gap[2 * at + 1]);
        if (p->gap[at] == most)
            break;
        p->gap[at] = most;
    }
}

/* The first sequence with a gap of at least `want`; there is one. */
static uint32_t first_fit(const struct token_packer *p, uint32_t want)
{
    uint32_t at = 1;
    while (at < p->leaves)
        at = p->gap[2 * at] >= want ? 2 * at : 2 * at + 1;
    return at - p->leaves;
}

struct walk {
    uint64_t wanted; /* sequence whose pieces are collected; UINT64_MAX: none */
    struct token_piece *piece;
    size_t n;
    uint64_t sequences, tokens;
};

static void take_piece(struct walk *w, uint64_t sequence, size_t document, uint64_t from, uint64_t tokens)
{
    w->tokens += tokens;
    if (sequence == w->wanted)
        w->piece[w->n++] = (struct token_piece){.document = document, .from = from, .tokens = tokens};
}

static void walk_window(struct token_packer *p, const struct token_run *runs, size_t n, struct walk *w)
{
    uint32_t open = 0; /* sequences in the tree */
    memset(p->gap, 0, 2ul * p->leaves * sizeof(*p->gap));
    for (size_t d = 0; d < n; d++) {
        uint64_t whole = runs[d].tokens / p->length, rest = runs[d].tokens % p->length;
        if (whole) {
            w->tokens += whole * p->length;
            if (w->wanted - w->sequences < whole) {
                uint64_t from = (w->wanted - w->sequences) * p->length;
                w->piece[w->n++] = (struct token_piece){.document = d, .from = from, .tokens = p->length};
            }
            w->sequences += whole;
        }
        if (!rest || (whole && p->drop_tails))
            continue;
        uint32_t want = (uint32_t)rest, i;
        if (p->gap[1] >= want) {
            i = first_fit(p, want);
            set_gap(p, i, p->gap[p->leaves + i] - want);
        } else {
            i = open++;
            p->which[i] = w->sequences++;
            set_gap(p, i, (uint32_t)p->length - want);
        }
        take_piece(w, p->which[i], d, whole * p->length, rest);
    }
}

uint64_t mr_token_pack(struct token_packer *p, const struct token_run *runs, size_t n, uint64_t *tokens)
{
    struct walk w = {.wanted = UINT64_MAX};
    walk_window(p, runs, n, &w);
    *tokens = w.tokens;
    return w.sequences;
}

size_t mr_token_pack_pieces(struct token_packer *p, const struct token_run *runs, size_t n, uint64_t which,
                            struct token_piece *pieces)
{
    struct walk w = {.wanted = which, .piece = pieces};
    walk_window(p, runs, n, &w);
    return w.n;
}
