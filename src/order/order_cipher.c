/* A permutation of 0 ... n-1 as a keyed cipher: exact, without a table.
 *
 *   x = left * b + right,  left < a, right < b,  a * b >= n,  a = ceil(sqrt(n)), b = ceil(n / a)
 *   even rounds:  left  = (left  + F(right)) mod a
 *   odd rounds:   right = (right + F(left))  mod b
 *
 * Each round is undone by subtracting the same value, so the whole is a bijection of the a * b values whatever F is. A
 * result >= n is encrypted again until it is below (cycle walking): following a cycle of a bijection from an element
 * below n always comes back below n, so the walk ends, and restricted this way it is a bijection of 0 ... n-1. Because
 * a * b - n < a, only one value in about sqrt(n) walks; a power-of-two network would walk up to three in four.
 *
 * F mixes 32 bits with two keys and two multiplications and scales the result to the modulus by multiply-shift. Values
 * are kept in 32-bit lanes, rounds run over small blocks, so that the compiler vectorises them. This is for spreading
 * reads, not for secrets. */
#include "order/order_modes.h"
#include "base/common.h"
#include "base/rng.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define BLOCK 256u

/* Small domains need more rounds to look random: each round has few values to mix with. */
#define SMALL_DOMAIN 65536u
#define ROUNDS_SMALL 16u
#define ROUNDS 8u

static inline uint32_t scramble(uint32_t v, const uint32_t key[2])
{
    v = (v ^ key[0]) * 0x9e3779b1u;
    v = ((v ^ v >> 16) + key[1]) * 0x85ebca6bu;
    return v ^ v >> 15;
}

static inline uint32_t scale(uint32_t v, uint32_t modulus)
{
    return (uint32_t)((uint64_t)v * modulus >> 32);
}

static uint64_t ceil_sqrt(uint64_t n)
{
    uint64_t r = (uint64_t)sqrt((double)n);
    while (r * r < n)
        r++;
    while (r > 1 && (r - 1) * (r - 1) >= n)
        r--;
    return r;
}

/* n <= 2^62 keeps a and b below 2^31 + 1, so that a sum of two residues fits in 32 bits. */
void mr_cipher_init(struct mr_cipher *c, uint64_t n, uint64_t key)
{
    uint64_t root = ceil_sqrt(n), a = root ? root : 1;
    *c = (struct mr_cipher){.n = n, .a = (uint32_t)a, .b = (uint32_t)((n + a - 1) / a)};
    assert(n <= (uint64_t)1 << 62 && (uint64_t)c->a * c->b >= n && (uint64_t)c->a * c->b - n < a);
    c->rounds = n < SMALL_DOMAIN ? ROUNDS_SMALL : ROUNDS;
    for (unsigned r = 0; r < c->rounds; r++) {
        uint64_t k = mr_rng_at(key, MR_RNG_ORDER, r);
        c->key[r][0] = (uint32_t)k;
        c->key[r][1] = (uint32_t)(k >> 32);
    }
}

static inline uint32_t add_mod(uint32_t x, uint32_t y, uint32_t modulus)
{
    uint32_t sum = x + y, less = sum - modulus;
    return sum >= modulus ? less : sum;
}

static uint64_t encrypt(const struct mr_cipher *c, uint64_t x)
{
    uint32_t left = (uint32_t)(x / c->b), right = (uint32_t)(x % c->b);
    for (unsigned r = 0; r < c->rounds; r += 2) {
        left = add_mod(left, scale(scramble(right, c->key[r]), c->a), c->a);
        right = add_mod(right, scale(scramble(left, c->key[r + 1]), c->b), c->b);
    }
    return (uint64_t)left * c->b + right;
}

static uint64_t decrypt(const struct mr_cipher *c, uint64_t y)
{
    uint32_t left = (uint32_t)(y / c->b), right = (uint32_t)(y % c->b);
    for (unsigned r = c->rounds; r; r -= 2) {
        right = add_mod(right, c->b - scale(scramble(left, c->key[r - 1]), c->b), c->b);
        left = add_mod(left, c->a - scale(scramble(right, c->key[r - 2]), c->a), c->a);
    }
    return (uint64_t)left * c->b + right;
}

uint64_t mr_cipher_at(const struct mr_cipher *c, uint64_t x)
{
    do
        x = encrypt(c, x);
    while (x >= c->n);
    return x;
}

uint64_t mr_cipher_inverse(const struct mr_cipher *c, uint64_t y)
{
    assert(y < c->n);
    do
        y = decrypt(c, y);
    while (y >= c->n);
    return y;
}

/* One block through all rounds. The loops have a constant length and no branches: one vector instruction each. */
MR_SIMD_CLONES static void encrypt_block(const struct mr_cipher *restrict c, uint32_t *restrict left,
                                         uint32_t *restrict right, uint64_t *restrict out)
{
    const uint32_t a = c->a, b = c->b;
    for (unsigned r = 0; r < c->rounds; r += 2) {
        const uint32_t even[2] = {c->key[r][0], c->key[r][1]}, odd[2] = {c->key[r + 1][0], c->key[r + 1][1]};
        for (unsigned i = 0; i < BLOCK; i++) {
            uint32_t l = add_mod(left[i], scale(scramble(right[i], even), a), a);
            left[i] = l;
            right[i] = add_mod(right[i], scale(scramble(l, odd), b), b);
        }
    }
    for (unsigned i = 0; i < BLOCK; i++)
        out[i] = (uint64_t)left[i] * b + right[i];
}

void mr_cipher_fill(const struct mr_cipher *c, uint64_t at, uint64_t stride, uint64_t *ids, size_t count)
{
    uint32_t left[BLOCK] = {0}, right[BLOCK] = {0};
    uint64_t out[BLOCK];
    assert(count == 0 || at + (count - 1) * stride < c->n); /* the walk ends only from below n */
    uint64_t l = at / c->b, r = at % c->b, step_l = stride / c->b, step_r = stride % c->b;
    while (count) {
        size_t n = MR_MIN(count, (size_t)BLOCK);
        for (size_t i = 0; i < n; i++) { /* at + i * stride in (left, right), without a division each */
            left[i] = (uint32_t)l;
            right[i] = (uint32_t)r;
            l += step_l;
            r += step_r;
            if (r >= c->b) {
                r -= c->b;
                l++;
            }
        }
        encrypt_block(c, left, right, out);
        for (size_t i = 0; i < n; i++)
            ids[i] = MR_LIKELY(out[i] < c->n) ? out[i] : mr_cipher_at(c, out[i]);
        ids += n;
        count -= n;
    }
}

/* The same backwards. */
MR_SIMD_CLONES static void decrypt_block(const struct mr_cipher *restrict c, uint32_t *restrict left,
                                         uint32_t *restrict right, uint64_t *restrict out)
{
    const uint32_t a = c->a, b = c->b;
    for (unsigned r = c->rounds; r; r -= 2) {
        const uint32_t even[2] = {c->key[r - 2][0], c->key[r - 2][1]}, odd[2] = {c->key[r - 1][0], c->key[r - 1][1]};
        for (unsigned i = 0; i < BLOCK; i++) {
            uint32_t x = add_mod(right[i], b - scale(scramble(left[i], odd), b), b);
            right[i] = x;
            left[i] = add_mod(left[i], a - scale(scramble(x, even), a), a);
        }
    }
    for (unsigned i = 0; i < BLOCK; i++)
        out[i] = (uint64_t)left[i] * b + right[i];
}

void mr_cipher_find(const struct mr_cipher *c, const uint64_t *ids, uint64_t *places, size_t count)
{
    uint32_t left[BLOCK] = {0}, right[BLOCK] = {0};
    uint64_t out[BLOCK];
    if (count < BLOCK / 8) { /* a block costs the same however few are in it */
        for (size_t i = 0; i < count; i++)
            places[i] = mr_cipher_inverse(c, ids[i]);
        return;
    }
    /* Divisions by b through its reciprocal: the estimate is off by at most one for ids below 2^53. */
    const double reciprocal = 1.0 / c->b;
    while (count) {
        size_t n = MR_MIN(count, (size_t)BLOCK);
        for (size_t i = 0; i < n; i++) {
            assert(ids[i] < c->n);
            uint64_t l = c->n < (uint64_t)1 << 52 ? (uint64_t)((double)ids[i] * reciprocal) : ids[i] / c->b;
            uint64_t r = ids[i] - l * c->b;
            l -= r >> 63; /* one too many: r is negative */
            r += (r >> 63) * c->b;
            l += r >= c->b;
            r -= r >= c->b ? c->b : 0;
            left[i] = (uint32_t)l;
            right[i] = (uint32_t)r;
        }
        decrypt_block(c, left, right, out);
        for (size_t i = 0; i < n; i++)
            places[i] = MR_LIKELY(out[i] < c->n) ? out[i] : mr_cipher_inverse(c, ids[i]);
        ids += n;
        places += n;
        count -= n;
    }
}

/* The key derives from (seed, epoch) alone, so g is the same whatever the world. */
static int prepare_cipher(struct mr_order *o, struct mr_error *err)
{
    if (!o->mode_state)
        o->mode_state = malloc(sizeof(struct mr_cipher));
    if (!o->mode_state)
        return mr_error_set(err, -ENOMEM, "cannot prepare a cipher order");
    mr_cipher_init(o->mode_state, o->p.samples, mr_order_key(o, 0));
    return 0;
}

static void done_cipher(struct mr_order *o)
{
    free(o->mode_state);
}

static void fill_cipher(const struct mr_order *o, uint64_t at, uint64_t stride, uint64_t *ids, size_t count)
{
    mr_cipher_fill(o->mode_state, at, stride, ids, count);
}

static void find_cipher(const struct mr_order *o, const uint64_t *ids, uint64_t *places, size_t count)
{
    mr_cipher_find(o->mode_state, ids, places, count);
}

const struct mr_order_ops mr_order_cipher = {
    .prepare = prepare_cipher, .done = done_cipher, .fill_global = fill_cipher, .find = find_cipher};
