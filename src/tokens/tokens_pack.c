/* Packing: first-fit of the documents of a window into sequences of `length` tokens. Which sequence has the first gap of
 * at least so many tokens is found in a tree of the largest gaps, so a window of n documents costs O(n log n).
 *
 * A document of `length` tokens or more is cut; its whole pieces are sequences of their own. What is left of it, or a
 * short document, is a rest and shares a sequence with others. The sequences of rests come first in a window, numbered as
 * they begin, then whole pieces in the order of the documents. All that is kept is the sequence of each document's rest,
 * two bytes: the pieces of a sequence are found again by looking through the window.
 *
 * Invariant: the pieces of a sequence have at most `length` tokens together, whatever the lengths are when they are asked
 * for again (files may change): mr_token_pack_pieces refuses what does not fit. */
#include "tokens/tokens_parts.h"

#include <stdlib.h>
#include <string.h>

struct token_packer {
    uint64_t length;
    bool drop_tails;
    uint32_t leaves; /* a power of two, at least the window */
    uint32_t *gap;   /* tree of the largest gap: [1] the root, [leaves + i] sequence i of rests */
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
    if (!p->gap) {
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

uint64_t mr_token_pack(struct token_packer *p, const struct token_run *runs, size_t n, uint16_t *place,
                       uint64_t *tokens)
{
    uint32_t open = 0;
    uint64_t whole = 0;
    memset(p->gap, 0, 2ul * p->leaves * sizeof(*p->gap));
    *tokens = 0;
    for (size_t d = 0; d < n; d++) {
        uint64_t pieces = runs[d].tokens / p->length;
        uint32_t rest = (uint32_t)(runs[d].tokens % p->length), i;
        whole += pieces;
        place[d] = MR_TOKENS_NO_REST;
        if (!rest || (pieces && p->drop_tails))
            continue;
        if (p->gap[1] >= rest) {
            i = first_fit(p, rest);
            set_gap(p, i, p->gap[p->leaves + i] - rest);
        } else {
            i = open++;
            set_gap(p, i, (uint32_t)p->length - rest);
        }
        place[d] = (uint16_t)i;
        *tokens += rest;
    }
    *tokens += whole * p->length;
    return open + whole;
}

/* Whole piece `which` of a window. */
static size_t whole_piece(const struct token_run *runs, size_t n, uint64_t length, uint64_t which,
                          struct token_piece *piece)
{
    for (size_t d = 0; d < n; d++) {
        uint64_t whole = runs[d].tokens < length ? 0 : runs[d].tokens / length;
        if (which < whole) {
            *piece = (struct token_piece){.document = d, .from = which * length, .tokens = length};
            return 1;
        }
        which -= whole;
    }
    return 0;
}

size_t mr_token_pack_pieces(uint64_t length, const struct token_run *runs, size_t n, const uint16_t *place,
                            uint64_t which, struct token_piece *pieces)
{
    uint16_t rests = 0; /* sequences of them: a place and one more is 0 for no rest */
    for (size_t d = 0; d < n; d++)
        rests = MR_MAX(rests, (uint16_t)(place[d] + 1));
    if (which >= rests)
        return whole_piece(runs, n, length, which - rests, pieces);
    size_t made = 0;
    uint64_t used = 0;
    for (size_t d = 0; d < n; d++) {
        if (place[d] != which)
            continue;
        uint64_t tokens = runs[d].tokens < length ? runs[d].tokens : runs[d].tokens % length;
        used += tokens;
        if (!tokens || used > length)
            return 0;
        pieces[made++] = (struct token_piece){.document = d, .from = runs[d].tokens - tokens, .tokens = tokens};
    }
    return made;
}
