/* Properties of places in a segment: no two overlap, all is one hole again at the end, and the waste is small over
 * random sets whose samples come and go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/common.h"
#include "base/rng.h"
#include "tier/space.h"

enum kind { CONSTANT, UNIFORM, PICTURES, WIDE, NORMAL, SMALL, KINDS };

static uint64_t size_of(enum kind kind, uint64_t i)
{
    uint64_t bits = mr_rng_at(7, MR_RNG_TEST, i);
    double g = mr_rng_normal(3, MR_RNG_TEST, i);
    switch (kind) {
    case CONSTANT: return 81000;
    case UNIFORM: return 1024 + bits % 100000;
    case PICTURES: return (uint64_t)fmax(1024, 110000 * exp(0.5 * g));
    case WIDE: return (uint64_t)fmax(1024, 110000 * exp(g));
    case NORMAL: return (uint64_t)fmax(1024, 81000 + 8100 * g);
    default: return 1024 + bits % 3000;
    }
}

struct held {
    uint64_t at, bytes;
};

struct set {
    struct mr_space *space;
    struct held *held;
    uint64_t n, cap, asked, draws;
};

static void drop_one(struct set *s)
{
    uint64_t v = mr_rng_at(9, MR_RNG_TEST, s->draws++) % s->n;
    mr_space_give(s->space, s->held[v].at);
    s->asked -= s->held[v].bytes;
    s->held[v] = s->held[--s->n];
}

static bool add_one(struct set *s, uint64_t bytes)
{
    uint64_t at = mr_space_take(s->space, bytes);
    if (at == MR_SPACE_NONE)
        return false;
    assert_true(s->n < s->cap);
    s->held[s->n++] = (struct held){at, bytes};
    s->asked += bytes;
    return true;
}

static int by_place(const void *a, const void *b)
{
    const struct held *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

static void assert_no_overlap(struct set *s, uint64_t room)
{
    qsort(s->held, s->n, sizeof(*s->held), by_place);
    for (uint64_t k = 0; k < s->n; k++) {
        uint64_t end = s->held[k].at + s->held[k].bytes;
        assert_true(end <= (k + 1 < s->n ? s->held[k + 1].at : room));
        assert_int_equal(s->held[k].at % MR_SPACE_ALIGN, 0);
    }
}

/* A class of `samples` samples' bytes, in room for 5 % and 32 of the largest samples more: whatever comes and goes by
 * chance ten times over, there is always a hole. */
static void churn(enum kind kind, uint64_t samples)
{
    uint64_t capacity = 0, largest = 0;
    for (uint64_t i = 0; i < samples; i++) {
        capacity += size_of(kind, i);
        largest = MR_MAX(largest, size_of(kind, i));
    }
    uint64_t room = capacity + capacity / 20 + 32 * largest;
    struct set s = {.space = mr_space_create(room), .cap = samples * 8};
    s.held = calloc(s.cap, sizeof(*s.held));
    for (uint64_t i = 0; i < samples * 10; i++) {
        uint64_t bytes = size_of(kind, i + 1000000);
        if (bytes > largest)
            continue;
        while (s.asked + bytes > capacity)
            drop_one(&s);
        if (!add_one(&s, bytes))
            fail_msg("kind %d, %llu samples: no hole for %llu bytes, the largest has %llu", kind,
                     (unsigned long long)samples, (unsigned long long)bytes,
                     (unsigned long long)mr_space_largest(s.space));
        if (i % (samples * 3) == 0)
            assert_no_overlap(&s, room);
    }
    assert_true(mr_space_used(s.space) >= s.asked && mr_space_used(s.space) < s.asked + s.asked / 20);
    assert_no_overlap(&s, room);
    while (s.n)
        drop_one(&s);
    assert_int_equal(mr_space_used(s.space), 0);
    assert_int_equal(mr_space_largest(s.space), room / MR_SPACE_ALIGN * MR_SPACE_ALIGN);
    mr_space_free(s.space);
    free(s.held);
}

static void a_class_within_its_capacity_always_finds_a_hole(void **state)
{
    (void)state;
    for (enum kind kind = CONSTANT; kind < KINDS; kind++)
        for (uint64_t samples = 300; samples <= 20000; samples *= 8)
            churn(kind, samples);
}

static void any_sequence_leaves_no_overlap_and_one_hole(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        uint64_t room = 1 + mr_rng_at(seed, MR_RNG_TEST, 0) % 100000, took = 0;
        struct set s = {.space = mr_space_create(room), .cap = 4000, .draws = seed * 1000};
        s.held = calloc(s.cap, sizeof(*s.held));
        for (uint64_t i = 1; i < 1000; i++) {
            uint64_t bits = mr_rng_at(seed, MR_RNG_TEST, i);
            if (s.n && bits % 16 < 6)
                drop_one(&s);
            else
                took += add_one(&s, (bits >> 8) % (bits % 3 ? 300 : 5000));
            if (i % 100 == 0)
                assert_no_overlap(&s, room);
        }
        assert_true(took > 0 || room < 5000);
        while (s.n)
            drop_one(&s);
        assert_int_equal(mr_space_largest(s.space), room / MR_SPACE_ALIGN * MR_SPACE_ALIGN);
        mr_space_free(s.space);
        free(s.held);
    }
}

static void all_of_it_can_be_taken_at_once_and_no_more(void **state)
{
    (void)state;
    struct mr_space *s = mr_space_create(1 << 20);
    assert_int_equal(mr_space_take(s, (1 << 20) + 1), MR_SPACE_NONE);
    assert_int_equal(mr_space_take(s, UINT64_MAX), MR_SPACE_NONE);
    assert_int_equal(mr_space_take(s, 1 << 20), 0);
    assert_int_equal(mr_space_take(s, 1), MR_SPACE_NONE);
    assert_int_equal(mr_space_largest(s), 0);
    mr_space_give(s, 0);
    assert_int_equal(mr_space_take(s, 0), 0); /* an empty sample has a place, too */
    assert_int_equal(mr_space_used(s), MR_SPACE_ALIGN);
    mr_space_free(s);
    mr_space_free(NULL);
    s = mr_space_create(0);
    assert_int_equal(mr_space_take(s, 1), MR_SPACE_NONE);
    mr_space_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_class_within_its_capacity_always_finds_a_hole),
        cmocka_unit_test(any_sequence_leaves_no_overlap_and_one_hole),
        cmocka_unit_test(all_of_it_can_be_taken_at_once_and_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
