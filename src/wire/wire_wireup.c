/* How the nodes find each other: two rounds of an all-gather. The first carries what must be equal (version, data set),
 * whether this node could open its transport at all, the length of its address and, from rank 0, the secret; the second
 * the addresses, all padded to the longest. After it every node knows every address and trusts no other. */
#include "wire/wire_internal.h"
#include "base/common.h"
#include "comm/comm.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* First round, little-endian: magic 4, version 2, failed 1, zero 1, address length 4, zero 4, data set 16, secret 32.
 */
#define FIRST_BYTES 64

static int first_encode(struct mr_wire *w, int local, size_t address_len, uint8_t out[FIRST_BYTES],
                        struct mr_error *err)
{
    memset(out, 0, FIRST_BYTES);
    memcpy(out, "MRW1", 4);
    mr_store_le16(out + 4, MR_WIRE_VERSION);
    out[6] = local != 0;
    mr_store_le32(out + 8, (uint32_t)address_len);
    memcpy(out + 16, w->p.data_set, MR_WIRE_HASH_BYTES);
    if (w->p.secret)
        memcpy(w->secret, w->p.secret, sizeof(w->secret));
    else if (w->p.rank == 0 && getrandom(w->secret, sizeof(w->secret), 0) != sizeof(w->secret))
        return mr_error_set(err, -errno, "cannot draw a secret for the wire");
    if (!w->p.secret && w->p.rank == 0)
        memcpy(out + 32, w->secret, sizeof(w->secret)); /* one that was given travels by its own way only */
    return 0;
}

/* What came back as this node's own must be what it gave: lengths are taken from it. */
static int first_check(struct mr_wire *w, const uint8_t *mine, const uint8_t *all, size_t *longest,
                       struct mr_error *err)
{
    if (memcmp(all + (size_t)w->p.rank * FIRST_BYTES, mine, FIRST_BYTES) != 0)
        return mr_error_plain(err, MR_E_PEER, "the exchange changed what node %u gave", w->p.rank);
    for (uint32_t r = 0; r < w->p.world; r++) {
        const uint8_t *b = all + (size_t)r * FIRST_BYTES;
        if (memcmp(b, "MRW1", 4) != 0 || mr_load_le16(b + 4) != MR_WIRE_VERSION)
            return mr_error_plain(err, MR_E_CONFIG, "node %u has another version of the wire than node %u", r,
                                  w->p.rank);
        if (b[6])
            return mr_error_plain(err, MR_E_PEER, "node %u could not open its wire", r);
        if (memcmp(b + 16, w->p.data_set, MR_WIRE_HASH_BYTES) != 0)
            return mr_error_plain(err, MR_E_CONFIG, "node %u has opened another data set than node %u", r, w->p.rank);
        *longest = MR_MAX(*longest, mr_load_le32(b + 8));
    }
    if (*longest == 0 || *longest > MR_WIRE_ADDRESS_MAX)
        return mr_error_plain(err, MR_E_PEER, "addresses of %zu bytes came out of the exchange", *longest);
    if (!w->p.secret)
        memcpy(w->secret, all + 32, sizeof(w->secret));
    return 0;
}

static int second(struct mr_wire *w, const uint8_t *address, size_t len, size_t longest, struct mr_error *err)
{
    uint8_t *mine = calloc(1, longest);
    w->addresses = calloc(w->p.world, longest);
    w->address_bytes = longest;
    int rc = mine && w->addresses ? 0 : mr_error_set(err, -ENOMEM, "cannot exchange addresses");
    if (!rc) {
        memcpy(mine, address, len);
        rc = w->p.exchange(w->p.exchange_ctx, mine, longest, w->addresses, err);
    }
    free(mine);
    return rc;
}

int mr_wire_wire_up(struct mr_wire *w, int local, struct mr_error *err)
{
    uint8_t first[FIRST_BYTES], *address = malloc(MR_WIRE_ADDRESS_MAX), *all = malloc((size_t)w->p.world * FIRST_BYTES);
    size_t len = 0, longest = 0;
    int rc = address && all ? 0 : mr_error_set(err, -ENOMEM, "cannot exchange addresses");
    if (!rc && !local)
        local = w->transport->ops->address(w->transport, address, MR_WIRE_ADDRESS_MAX, &len, err);
    if (!rc)
        rc = first_encode(w, local, len, first, err);
    if (!rc)
        rc = w->p.exchange(w->p.exchange_ctx, first, sizeof(first), all, err);
    if (!rc)
        rc = local ? local : first_check(w, first, all, &longest, err);
    if (!rc)
        rc = second(w, address, len, longest, err);
    free(address);
    free(all);
    return rc;
}
