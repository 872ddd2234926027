/* What ranks say to each other when tiers are opened: where they run, whether they failed and why, numbers of nodes. The
 * other ranks' parts of every exchange come from the input: any bytes give nodes that are consistent, or an error with a
 * text. The key of a user's file is a number of bytes and no format; greetings are fuzz_wire's. */
#include "base/common.h"
#include "tier/tier_node.h"

#include <errno.h>

#include <stdlib.h>
#include <string.h>

#define WORLD 5u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    const uint8_t *data;
    size_t size, at;
    uint32_t rank;
};

/* All say what this rank says, but for the bytes that the input changes: (rank, place of two bytes, byte) each. */
static int all_gather(void *ctx, const void *mine, size_t len, void *all, struct mr_error *err)
{
    struct input *in = ctx;
    for (uint32_t r = 0; r < WORLD; r++)
        memcpy((uint8_t *)all + r * len, mine, len);
    if (in->at >= in->size)
        return 0;
    uint8_t changes = in->data[in->at++];
    if (changes == 255)
        return mr_error_plain(err, MR_E_PEER, "the exchange broke");
    for (; changes && in->at + 4 <= in->size; changes--, in->at += 4) {
        uint32_t rank = in->data[in->at] % WORLD;
        size_t place = (in->data[in->at + 1] | (size_t)in->data[in->at + 2] << 8) % len;
        if (rank != in->rank)
            ((uint8_t *)all)[rank * len + place] = in->data[in->at + 3];
    }
    return 0;
}

static void check(const struct mr_tier_node *n)
{
    if (n->nodes < 1 || n->nodes > WORLD || n->node >= n->nodes || n->local_rank >= n->local_ranks ||
        n->first_rank[0] != 0 || n->first_rank[n->nodes] != WORLD || n->first_rank[n->node] + n->local_rank != n->rank)
        abort();
    for (uint32_t k = 0; k < n->nodes; k++)
        if (n->first_rank[k] >= n->first_rank[k + 1])
            abort();
}

static void check_error(int rc, const struct mr_error *err)
{
    if (rc > 0 || (rc < 0 && (!memchr(err->message, 0, sizeof err->message) || !*err->message)))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t key[MR_MAC_BYTES] = {1};
    if (size < 2)
        return 0;
    struct input in = {.data = data, .size = size, .at = 2, .rank = data[0] % WORLD};
    struct mr_tier_params p = {.order = {.rank = in.rank, .world = WORLD},
                               .exchange = all_gather,
                               .exchange_ctx = &in,
                               .key = data[1] & 1 ? key : NULL,
                               .ranks_per_node = data[1] >> 1 & 7};
    struct mr_tier_node n;
    struct mr_error err = {0};
    int rc = mr_tier_node_find(&p, &n, &err);
    check_error(rc, &err);
    if (rc)
        return 0;
    check(&n);
    uint64_t mine[9] = {3, 4}, all[WORLD][9];
    struct mr_error why = {0};
    rc = mr_tier_node_gather(&n, mine, sizeof mine, all, &why);
    check_error(rc, &why);
    int code = data[1] & 16 ? mr_error_plain(&why, MR_E_CONFIG, "this rank has failed") : 0;
    rc = mr_tier_node_agree(&n, code, &why);
    check_error(rc, &why);
    struct mr_segment *s = NULL;
    why = (struct mr_error){0};
    if (n.local_rank == 0 || data[1] & 32) { /* a leader without a segment: says so, and hears from the others */
        code = mr_error_plain(&why, -ENOMEM, "no memory here");
        rc = mr_tier_node_share(&n, code, &s, &why);
        check_error(rc, &why);
        if (rc == 0)
            abort();
    }
    mr_tier_node_done(&n);
    return 0;
}
