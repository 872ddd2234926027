/* See wire_greet.h. */
#include "wire/wire_greet.h"
#include "base/common.h"

#include <string.h>
#include <sys/random.h>

#define NONCE_AT 32u
#define NONCE_BYTES 32u
#define PROOF_AT 64u
#define COUNT_MAX 16u /* a peer that hears nothing greets again, each second */

struct fields {
    enum mr_greet_kind kind;
    uint32_t from, to, window;
};

static const uint8_t magic[4] = {'M', 'R', 'W', 'I'};

enum mr_greet_kind mr_greet_kind(const uint8_t *bytes, size_t len)
{
    static const size_t lengths[] = {0, MR_GREET_HELLO_BYTES, MR_GREET_CHALLENGE_BYTES, MR_GREET_PROOF_BYTES};
    if (len < 8 || memcmp(bytes, magic, sizeof magic) != 0 || bytes[4] >= MR_ARRAY_LEN(lengths))
        return 0;
    return len == lengths[bytes[4]] ? (enum mr_greet_kind)bytes[4] : 0;
}

static void encode(const struct mr_greet_self *self, enum mr_greet_kind kind, uint32_t to, uint8_t *out)
{
    memset(out, 0, NONCE_AT);
    memcpy(out, magic, sizeof magic);
    out[4] = (uint8_t)kind;
    out[5] = (uint8_t)self->use;
    mr_store_le16(out + 6, MR_GREET_VERSION);
    mr_store_le32(out + 8, self->rank);
    mr_store_le32(out + 12, to);
    mr_store_le32(out + 16, self->world);
    mr_store_le32(out + 20, self->window);
}

/* Of this job as far as can be seen without a proof, for this rank, from one that may be there. */
static bool decode(const struct mr_greet_self *self, const uint8_t *bytes, size_t len, struct fields *out)
{
    *out = (struct fields){.kind = mr_greet_kind(bytes, len)};
    if (!out->kind || bytes[5] != self->use || mr_load_le16(bytes + 6) != MR_GREET_VERSION)
        return false;
    out->from = mr_load_le32(bytes + 8);
    out->to = mr_load_le32(bytes + 12);
    out->window = mr_load_le32(bytes + 20);
    return out->to == self->rank && out->from != self->rank && out->from < self->world &&
           mr_load_le32(bytes + 16) == self->world && (self->use == MR_GREET_EXCHANGE) == (out->window == 0);
}

/* `what`: the kind of message whose proof it is; 0: the key of the connection. */
static void prove(const struct mr_greet_self *self, const struct mr_greet *g, uint8_t what, uint8_t out[MR_MAC_BYTES])
{
    static const char purpose[] = "millrace greeting";
    struct mr_mac m;
    mr_mac_init(&m, self->key);
    mr_mac_add(&m, purpose, sizeof purpose);
    mr_mac_add(&m, &what, 1);
    mr_mac_add(&m, g->hello, sizeof g->hello);
    mr_mac_add(&m, g->challenge, PROOF_AT);
    mr_mac_add(&m, self->data_set, sizeof self->data_set);
    mr_mac_done(&m, out);
}

static bool is_proof(const struct mr_greet_self *self, const struct mr_greet *g, uint8_t what, const uint8_t *proof)
{
    uint8_t want[MR_MAC_BYTES];
    prove(self, g, what, want);
    return mr_mac_same(want, proof);
}

static void finish(const struct mr_greet_self *self, struct mr_greet *g, const struct fields *f)
{
    prove(self, g, 0, g->session);
    g->peer = f->from;
    g->done = true;
}

bool mr_greet_begin(const struct mr_greet_self *self, struct mr_greet *g, uint32_t peer,
                    uint8_t out[MR_GREET_HELLO_BYTES])
{
    if (!g->begun) {
        encode(self, MR_GREET_HELLO, peer, g->hello);
        if (getrandom(g->hello + NONCE_AT, NONCE_BYTES, 0) != NONCE_BYTES)
            return false;
        g->peer = peer;
        g->begun = true;
    }
    memcpy(out, g->hello, MR_GREET_HELLO_BYTES);
    return true;
}

bool mr_greet_answer(const struct mr_greet_self *self, struct mr_greet *g, const uint8_t *bytes, size_t len,
                     uint8_t out[MR_GREET_CHALLENGE_BYTES])
{
    struct fields f;
    if (g->count >= COUNT_MAX || !decode(self, bytes, len, &f) || f.kind != MR_GREET_HELLO)
        return false;
    g->count++;
    if (g->begun && memcmp(g->hello, bytes, sizeof g->hello) != 0)
        return false;
    if (!g->begun) {
        memcpy(g->hello, bytes, sizeof g->hello);
        encode(self, MR_GREET_CHALLENGE, f.from, g->challenge);
        if (getrandom(g->challenge + NONCE_AT, NONCE_BYTES, 0) != NONCE_BYTES)
            return false;
        prove(self, g, MR_GREET_CHALLENGE, g->challenge + PROOF_AT);
        g->window = f.window;
        g->begun = true;
    }
    memcpy(out, g->challenge, MR_GREET_CHALLENGE_BYTES);
    return true;
}

bool mr_greet_prove(const struct mr_greet_self *self, struct mr_greet *g, const uint8_t *bytes, size_t len,
                    uint8_t out[MR_GREET_PROOF_BYTES])
{
    struct fields f;
    if (!g->begun || !decode(self, bytes, len, &f) || f.kind != MR_GREET_CHALLENGE || f.from != g->peer)
        return false;
    if (g->done && memcmp(g->challenge, bytes, sizeof g->challenge) != 0)
        return false;
    memcpy(g->challenge, bytes, sizeof g->challenge);
    if (!is_proof(self, g, MR_GREET_CHALLENGE, bytes + PROOF_AT))
        return false;
    g->window = f.window;
    finish(self, g, &f);
    encode(self, MR_GREET_PROOF, g->peer, out);
    prove(self, g, MR_GREET_PROOF, out + NONCE_AT);
    return true;
}

bool mr_greet_accept(const struct mr_greet_self *self, struct mr_greet *g, const uint8_t *bytes, size_t len)
{
    struct fields f;
    if (!g->begun || !decode(self, bytes, len, &f) || f.kind != MR_GREET_PROOF ||
        f.from != mr_load_le32(g->hello + 8) || f.window != g->window ||
        !is_proof(self, g, MR_GREET_PROOF, bytes + NONCE_AT))
        return false;
    finish(self, g, &f);
    return true;
}
