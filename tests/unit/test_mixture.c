/* Mixtures: the order is a function of (weights, seed, k); shares within one item per source and level in every prefix,
 * two in every window; states continue the same stream for any number of ranks and from any item; weights that change.
 * Worlds are random with fixed seeds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/common.h"
#include "base/rng.h"

#include <millrace/mixture.h>

#define MAX_NODES 40u
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WORLDS 40u
#define BOUND_WORLDS 5u
#else
#define WORLDS 500u
#define BOUND_WORLDS 25u
#endif

struct world {
    struct mr_mixture_node node[MAX_NODES];
    char name[MAX_NODES][24];
    struct mr_mixture_change change[4];
    double weight[4][MAX_NODES];
    struct mr_mixture_params p;
};

static uint64_t draw(uint64_t *state, uint64_t n)
{
    return mr_rng_below(mr_rng_at(*state, MR_RNG_TEST, ++state[1]), n);
}

static uint32_t children_of(const struct world *w, uint32_t node)
{
    uint32_t n = 0;
    for (uint32_t i = 1; i < w->p.n_nodes; i++)
        n += w->node[i].parent == node;
    return n;
}

static double weight_of(uint64_t *rng)
{
    static const double scale[] = {1, 1, 10, 1000, 0.01};
    return (double)(1 + draw(rng, 100)) * scale[draw(rng, MR_ARRAY_LEN(scale))];
}

/* A random tree of 1 to 3 levels, with up to two changes of the weights of random nodes. */
static void make_world(struct world *w, uint64_t seed, uint64_t about)
{
    uint64_t rng[2] = {seed, 0};
    memset(w, 0, sizeof(*w));
    uint32_t n = 2 + (uint32_t)draw(rng, MAX_NODES - 2), inner[MAX_NODES] = {0}, n_inner = 1;
    for (uint32_t i = 0; i < n; i++) {
        w->node[i] = (struct mr_mixture_node){.name = w->name[i], .weight = weight_of(rng)};
        snprintf(w->name[i], sizeof w->name[i], "source%u", i);
        w->node[i].parent = i ? inner[draw(rng, n_inner)] : 0;
        if (i && i + 1 < n && draw(rng, 4) == 0)
            inner[n_inner++] = i;
    }
    w->p = (struct mr_mixture_params){.seed = seed, .nodes = w->node, .n_nodes = n, .changes = w->change};
    bool by_tokens = draw(rng, 3) == 0;
    for (uint32_t i = 0; i < n; i++)
        w->node[i].by_tokens = by_tokens && draw(rng, 2);
    for (uint32_t i = 0; i < n; i++)
        if (!children_of(w, i)) {
            w->node[i].samples = 1 + draw(rng, draw(rng, 2) ? 20 : 3000);
            w->node[i].sequential = draw(rng, 4) == 0;
            w->node[i].tokens = by_tokens ? (double)(1 + draw(rng, 50)) * 16 : 0;
        }
    uint32_t node = inner[draw(rng, n_inner)];
    for (uint32_t c = 0; c < 2 && children_of(w, node); c++) {
        w->change[c] = (struct mr_mixture_change){
            .node = node, .from = (c + 1) * (1 + draw(rng, about / 3)) + c, .weights = w->weight[c]};
        if (c && w->change[c].from <= w->change[0].from)
            w->change[c].from = w->change[0].from + 1;
        for (uint32_t i = 0; i < n; i++)
            w->weight[c][i] = draw(rng, 5) ? weight_of(rng) : 0;
        w->weight[c][0] = 1;
        w->p.n_changes = c + 1;
    }
}

static struct mr_mixture *create(const struct world *w)
{
    struct mr_mixture *m = NULL;
    struct mr_error err = {0};
    if (mr_mixture_create(&w->p, &m, &err) < 0 && !strstr(err.message, "too small"))
        fail_msg("%s", err.message);
    return m;
}

/* ---- the bound ---- */

struct lag {
    double least, most;
};

static void prefixes_and_windows_are_within_the_bounds(void **state)
{
    (void)state;
    unsigned worlds = 0;
    for (uint64_t seed = 1; worlds < BOUND_WORLDS; seed++) {
        struct world w;
        make_world(&w, seed, 2000);
        struct mr_mixture *m = create(&w);
        if (!m)
            continue;
        worlds++;
        uint64_t given[MAX_NODES] = {0};
        struct lag lag[MAX_NODES] = {{0, 0}};
        struct mr_mixture_share share[MAX_NODES];
        for (uint64_t k = 0; k < 2500; k++) {
            struct mr_mixture_item item;
            assert_int_equal(mr_mixture_shares(m, k, share, NULL), 0);
            for (uint32_t i = 1; i < w.p.n_nodes; i++) {
                assert_int_equal(share[i].given, given[i]);
                double off = (double)given[i] - share[i].asked;
                assert_true(fabs(off) < 1);
                lag[i].least = fmin(lag[i].least, off);
                lag[i].most = fmax(lag[i].most, off);
                assert_true(lag[i].most - lag[i].least < 2);
            }
            assert_int_equal(mr_mixture_get(m, k, 1, &item, 1, NULL), 0);
            assert_int_equal(item.number, given[item.node]);
            for (uint32_t i = item.node;; i = w.node[i].parent) {
                given[i]++;
                if (i == 0)
                    break;
            }
        }
        mr_mixture_free(m);
    }
}

/* The shares that were asked for are the weights', computed here from the doubles. */
static void shares_are_the_weights(void **state)
{
    (void)state;
    const double weight[] = {0.5, 0.3, 0.2}, tokens[] = {1000, 100, 10};
    struct mr_mixture_node node[] = {
        {.name = "mix"},
        {.name = "a", .weight = weight[0], .samples = 10},
        {.name = "b", .weight = weight[1], .samples = 11},
        {.name = "c", .weight = weight[2], .samples = 12},
    };
    for (unsigned by_tokens = 0; by_tokens < 2; by_tokens++) {
        struct mr_mixture *m;
        struct mr_mixture_share share[4];
        double sum = 0;
        for (unsigned i = 0; i < 3; i++)
            node[i + 1].tokens = tokens[i];
        node[0].by_tokens = by_tokens;
        assert_int_equal(
            mr_mixture_create(&(struct mr_mixture_params){.seed = 1, .nodes = node, .n_nodes = 4}, &m, NULL), 0);
        assert_int_equal(mr_mixture_shares(m, 1000000, share, NULL), 0);
        for (unsigned i = 0; i < 3; i++)
            sum += by_tokens ? (double)share[i + 1].given * tokens[i] : (double)share[i + 1].given;
        for (unsigned i = 0; i < 3; i++) {
            double part = (double)share[i + 1].given * (by_tokens ? tokens[i] : 1) / sum;
            assert_true(fabs(part - weight[i]) < (by_tokens ? 2e-3 : 1e-4)); /* 1/65,536 of the items each */
            assert_true(fabs(share[i + 1].epochs - (double)share[i + 1].given / (10. + i)) < 1e-9);
        }
        mr_mixture_free(m);
    }
}

/* Every epoch of every source has each sample once; two sources of the same samples have different orders. */
static void sources_have_epochs_of_their_own(void **state)
{
    (void)state;
    struct mr_mixture_node node[] = {
        {.name = "mix"},
        {.name = "a", .weight = 5, .samples = 100},
        {.name = "a", .weight = 1, .samples = 100},
        {.name = "b", .weight = 3, .samples = 7, .sequential = true},
    };
    struct mr_mixture *m;
    unsigned seen[4][200][100] = {{{0}}};
    uint64_t order[3][100] = {{0}};
    assert_int_equal(mr_mixture_create(&(struct mr_mixture_params){.seed = 9, .nodes = node, .n_nodes = 4}, &m, NULL),
                     0);
    for (uint64_t k = 0; k < 2000; k++) {
        struct mr_mixture_item x;
        assert_int_equal(mr_mixture_get(m, k, 1, &x, 1, NULL), 0);
        assert_true(x.sample < node[x.node].samples && x.epoch < 200);
        assert_int_equal(x.epoch, x.number / node[x.node].samples);
        assert_int_equal(seen[x.node][x.epoch][x.sample]++, 0);
        if (x.node < 3 && x.epoch == 0)
            order[x.node][x.number] = x.sample;
        if (x.node == 3)
            assert_int_equal(x.sample, x.number % 7);
    }
    assert_int_not_equal(memcmp(order[1], order[2], sizeof order[1]), 0);
    mr_mixture_free(m);
}

/* ---- resuming ---- */

#define STREAM 3000u

static bool same_item(const struct mr_mixture_item *a, const struct mr_mixture_item *b)
{
    return a->node == b->node && a->number == b->number && a->epoch == b->epoch && a->sample == b->sample;
}

/* The remaining stream from item k in batches over some ranks, each with a mixture of its own that restored `text`. */
static void check_ranks(const struct world *w, const char *text, uint64_t k, uint32_t ranks, uint64_t until,
                        const struct mr_mixture_item *want)
{
    for (uint32_t r = 0; r < ranks; r += 1 + ranks / 5) {
        struct mr_mixture *m = create(w);
        struct mr_mixture_item got[STREAM];
        uint64_t at;
        assert_int_equal(mr_mixture_restore(m, text, &at, NULL), 0);
        assert_int_equal(at, k);
        size_t n = until > k + r ? (size_t)((until - k - r + ranks - 1) / ranks) : 0;
        assert_int_equal(mr_mixture_get(m, k + r, ranks, got, n, NULL), 0);
        for (size_t i = 0; i < n; i++)
            assert_true(same_item(&got[i], &want[k + r + i * ranks]));
        mr_mixture_free(m);
    }
}

/* 500 random worlds: sources, weights, nesting, 1 to 64 ranks, resumed at random items, weights changed twice. */
static void resumed_streams_equal_the_uninterrupted_one(void **state)
{
    (void)state;
    unsigned worlds = 0;
    for (uint64_t seed = 1000; worlds < WORLDS; seed++) {
        struct world w;
        make_world(&w, seed, STREAM);
        struct mr_mixture *m = create(&w);
        if (!m)
            continue;
        worlds++;
        uint64_t rng[2] = {seed, 77};
        struct mr_mixture_item want[STREAM];
        char *text;
        assert_int_equal(mr_mixture_get(m, 0, 1, want, STREAM, NULL), 0);
        for (unsigned i = 0; i < 50; i++) { /* any item at any time */
            struct mr_mixture_item one;
            uint64_t k = draw(rng, STREAM);
            assert_int_equal(mr_mixture_get(m, k, 1, &one, 1, NULL), 0);
            assert_true(same_item(&one, &want[k]));
        }
        uint64_t k = 0;
        for (unsigned leg = 0; leg < 3; leg++) { /* each from a state that the one before saved */
            k += draw(rng, (STREAM - k) / 2 + 1);
            assert_int_equal(mr_mixture_save(m, k, &text, NULL), 0);
            assert_true(strlen(text) <= 1024ul * w.p.n_nodes);
            check_ranks(&w, text, k, 1 + (uint32_t)draw(rng, 64), STREAM, want);
            uint64_t at;
            assert_int_equal(mr_mixture_restore(m, text, &at, NULL), 0);
            free(text);
        }
        mr_mixture_free(m);
    }
}

/* Far from the start the tables repeat: the same as simulating all of it. */
static void far_items_equal_those_reached_step_by_step(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct world w;
        make_world(&w, seed, 600000);
        struct mr_mixture *far = create(&w), *near = create(&w);
        if (!far)
            continue;
        struct mr_mixture_item a[64], b[64];
        for (uint64_t k = 0; k < 700000; k += 64 * 499) {
            char *text;
            uint64_t at;
            assert_int_equal(mr_mixture_get(far, k, 1, a, 64, NULL), 0);
            assert_int_equal(mr_mixture_save(near, k, &text, NULL), 0); /* `near` starts anew in every leg */
            assert_int_equal(mr_mixture_restore(near, text, &at, NULL), 0);
            assert_int_equal(mr_mixture_get(near, k, 1, b, 64, NULL), 0);
            for (unsigned i = 0; i < 64; i++)
                assert_true(same_item(&a[i], &b[i]));
            free(text);
        }
        mr_mixture_free(far);
        mr_mixture_free(near);
    }
}

static void a_state_is_continued_with_weights_changed_from_there_on(void **state)
{
    (void)state;
    struct mr_mixture_node node[] = {
        {.name = "mix"},
        {.name = "a", .weight = 1, .samples = 100},
        {.name = "b", .weight = 2, .samples = 100},
        {.name = "c", .weight = 4, .samples = 100},
    };
    const double next[] = {8, 1, 0};
    struct mr_mixture_change change = {.node = 0, .from = 1001, .weights = next};
    struct mr_mixture_params before = {.seed = 5, .nodes = node, .n_nodes = 4}, after = before;
    struct mr_mixture *m, *n;
    struct mr_mixture_share share[4];
    struct mr_error err = {0};
    char *text;
    uint64_t k;
    assert_int_equal(mr_mixture_create(&before, &m, NULL), 0);
    assert_int_equal(mr_mixture_save(m, 1001, &text, NULL), 0);
    after.changes = &change;
    after.n_changes = 1;
    assert_int_equal(mr_mixture_create(&after, &n, NULL), 0);
    assert_int_equal(mr_mixture_restore(n, text, &k, NULL), 0);
    assert_int_equal(mr_mixture_shares(n, 1001 + 9000, share, NULL), 0);
    assert_true(fabs((double)share[1].given - 1001 / 7. - 8000) < 3);
    assert_true(share[3].weight <= 0 && fabs((double)share[3].given - 1001 * 4 / 7.) < 3);
    mr_mixture_free(n);
    change.from = 1000; /* before what was given */
    assert_int_equal(mr_mixture_create(&after, &n, NULL), 0);
    assert_int_equal(mr_mixture_restore(n, text, &k, &err), MR_E_USAGE);
    assert_non_null(strstr(err.message, "weights of 'mix'"));
    mr_mixture_free(n);
    mr_mixture_free(m);
    free(text);
}

/* A ramp: weights that change every few hundred items. A source of a thousandth gets its items all the same, and any item
 * is the same whether it is reached forwards, backwards or from a state. */
static void a_ramp_of_many_versions_keeps_the_bounds(void **state)
{
    (void)state;
    enum { VERSIONS = 150, EACH = 211, N = 4 };
    struct mr_mixture_node node[N + 1] = {{.name = "mix"}};
    static double weights[VERSIONS][N];
    struct mr_mixture_change change[VERSIONS];
    static struct mr_mixture_item want[VERSIONS * EACH + 1];
    for (uint32_t i = 1; i <= N; i++)
        node[i] = (struct mr_mixture_node){.name = "s", .weight = i == 4 ? 0.001 : 1, .samples = 50 + i};
    for (uint32_t v = 0; v < VERSIONS; v++) {
        change[v] = (struct mr_mixture_change){.from = (v + 1) * EACH, .weights = weights[v]};
        weights[v][0] = VERSIONS - v;
        weights[v][1] = v % 7 == 3 ? 0 : v + 1;
        weights[v][2] = 40;
        weights[v][3] = 0.2;
    }
    struct mr_mixture *m;
    struct mr_mixture_share share[N + 1];
    const struct mr_mixture_params p = {
        .seed = 2, .nodes = node, .n_nodes = N + 1, .changes = change, .n_changes = VERSIONS};
    assert_int_equal(mr_mixture_create(&p, &m, NULL), 0);
    for (uint64_t k = 0; k <= VERSIONS * EACH; k++) {
        if (k % 37 == 0)
            assert_int_equal(mr_mixture_shares(m, k, share, NULL), 0);
        for (uint32_t i = 1; k % 37 == 0 && i <= N; i++)
            assert_true(fabs((double)share[i].given - share[i].asked) < 1);
        assert_int_equal(mr_mixture_get(m, k, 1, &want[k], 1, NULL), 0);
    }
    assert_true(share[4].given > 20);
    for (uint64_t k = VERSIONS * EACH; k > 1009; k -= 1009) {
        struct mr_mixture_item one;
        assert_int_equal(mr_mixture_get(m, k, 1, &one, 1, NULL), 0);
        assert_true(same_item(&one, &want[k]));
    }
    struct mr_mixture *n;
    char *text;
    uint64_t k;
    assert_int_equal(mr_mixture_create(&p, &n, NULL), 0);
    assert_int_equal(mr_mixture_save(m, 17777, &text, NULL), 0);
    assert_int_equal(mr_mixture_restore(n, text, &k, NULL), 0);
    for (; k <= VERSIONS * EACH; k += 13) {
        struct mr_mixture_item one;
        assert_int_equal(mr_mixture_get(n, k, 1, &one, 1, NULL), 0);
        assert_true(same_item(&one, &want[k]));
    }
    free(text);
    mr_mixture_free(n);
    mr_mixture_free(m);
}

/* ---- bad input ---- */

static void refused(struct mr_mixture_node *node, uint32_t n, const char *text)
{
    struct mr_error err = {0};
    struct mr_mixture *m = NULL;
    assert_int_equal(mr_mixture_create(&(struct mr_mixture_params){.nodes = node, .n_nodes = n}, &m, &err), MR_E_USAGE);
    assert_null(m);
    if (!strstr(err.message, text))
        fail_msg("'%s' is not in '%s'", text, err.message);
}

static void bad_mixtures_are_named(void **state)
{
    (void)state;
    const struct mr_mixture_node good[] = {
        {.name = "mix"}, {.name = "wiki", .weight = 1, .samples = 10}, {.name = "code", .weight = 2, .samples = 10}};
    struct mr_mixture_node x[3];
#define WITH(change, text)                                                                                             \
    memcpy(x, good, sizeof x);                                                                                         \
    change;                                                                                                            \
    refused(x, 3, text)
    WITH(x[1].weight = 0, "weight of source 'wiki' is 0");
    WITH(x[2].weight = -1, "weight of source 'code' is -1");
    WITH(x[2].weight = (double)NAN, "weight of source 'code' is");
    WITH(x[1].weight = 1e-9, "share of source 'wiki'");
    WITH(x[1].samples = 0, "source 'wiki' is empty");
    WITH(x[1].parent = 2, "source 'wiki' stands before");
    WITH((x[1].tokens = 5, x[0].by_tokens = true), "tokens of an item of source 'code'");
    refused(x, 1, "needs a source");
}

static void states_of_other_mixtures_are_named(void **state)
{
    (void)state;
    const struct mr_mixture_node good[] = {
        {.name = "mix"}, {.name = "wiki", .weight = 1, .samples = 10}, {.name = "code", .weight = 2, .samples = 10}};
    struct mr_mixture *m;
    char *text;
    const struct mr_mixture_params p = {.seed = 3, .nodes = good, .n_nodes = 3};
    assert_int_equal(mr_mixture_create(&p, &m, NULL), 0);
    assert_int_equal(mr_mixture_save(m, 1234, &text, NULL), 0);
    mr_mixture_free(m);
    struct {
        uint64_t seed, samples;
        const char *name, *says;
        double weight;
    } row[] = {{4, 10, "wiki", "seed is 3, here 4", 1},
               {3, 9, "wiki", "source 'wiki' shrank: it has 9 samples, and had 10", 1},
               {3, 11, "wiki", "source 'wiki' grew", 1},
               {3, 10, "books", "source number 1 is 'wiki', here 'books'", 1},
               {3, 10, "wiki", "the weights of 'mix' before its item 1234", 1.5}};
    for (size_t i = 0; i < MR_ARRAY_LEN(row); i++) {
        struct mr_mixture_node x[3];
        struct mr_error err = {0};
        uint64_t k = 7;
        memcpy(x, good, sizeof x);
        x[1].samples = row[i].samples;
        x[1].name = row[i].name;
        x[1].weight = row[i].weight;
        const struct mr_mixture_params q = {.seed = row[i].seed, .nodes = x, .n_nodes = 3};
        assert_int_equal(mr_mixture_create(&q, &m, NULL), 0);
        assert_int_equal(mr_mixture_restore(m, text, &k, &err), MR_E_USAGE);
        assert_int_equal(k, 7);
        if (!strstr(err.message, row[i].says))
            fail_msg("'%s' is not in '%s'", row[i].says, err.message);
        mr_mixture_free(m);
    }
    /* Any other text is no state, and nothing of it is used. */
    assert_int_equal(mr_mixture_create(&p, &m, NULL), 0);
    uint64_t k = 0, rng[2] = {1, 1};
    for (unsigned i = 0; i < 1000; i++) {
        char *bad = strdup(text);
        size_t at = (size_t)draw(rng, strlen(bad));
        bad[at] = draw(rng, 3) ? (char)(' ' + draw(rng, 90)) : '\0';
        struct mr_error err = {0};
        if (strcmp(bad, text) != 0 && mr_mixture_restore(m, bad, &k, &err) == 0)
            fail_msg("this was taken as a state: %s", bad);
        free(bad);
    }
    assert_int_equal(mr_mixture_restore(m, text, &k, NULL), 0);
    mr_mixture_free(m);
    free(text);
}

/* 1,000 sources, two levels, three changes: from a state to the first batch in a few milliseconds. */
static void resuming_a_thousand_sources_is_quick(void **state)
{
    (void)state;
    enum { N = 1001 };
    struct mr_mixture_node *node = calloc(N, sizeof(*node));
    double *weight = malloc(N * sizeof(*weight));
    char name[N][24];
    for (uint32_t i = 0; i < N; i++) {
        snprintf(name[i], sizeof name[i], "s%u", i);
        weight[i] = 1 + i % 7;
        node[i] = (struct mr_mixture_node){.name = name[i], .weight = 1 + i % 13, .samples = 1000 + i};
    }
    struct mr_mixture_change change[3];
    for (unsigned i = 0; i < 3; i++)
        change[i] = (struct mr_mixture_change){.from = (i + 1) * 1000003ull, .weights = weight};
    const struct mr_mixture_params p = {.seed = 1, .nodes = node, .n_nodes = N, .changes = change, .n_changes = 3};
    struct mr_mixture *m, *n;
    struct mr_mixture_item a[256], b[256];
    char *text;
    assert_int_equal(mr_mixture_create(&p, &m, NULL), 0);
    assert_int_equal(mr_mixture_get(m, 2500000, 1, a, 256, NULL), 0);
    assert_int_equal(mr_mixture_save(m, 2500000, &text, NULL), 0);
    uint64_t k, best = UINT64_MAX;
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(mr_mixture_create(&p, &n, NULL), 0);
        uint64_t begin = mr_now_ns();
        assert_int_equal(mr_mixture_restore(n, text, &k, NULL), 0);
        assert_int_equal(mr_mixture_get(n, k, 1, b, 256, NULL), 0);
        best = MR_MIN(best, mr_now_ns() - begin);
        mr_mixture_free(n);
    }
    for (unsigned i = 0; i < 256; i++)
        assert_true(same_item(&a[i], &b[i]));
    printf("resumed in %.2f ms\n", (double)best / 1e6);
    assert_true(best < 10 * MR_NS_PER_MS * 5); /* the figure stands in bench/run_tokens; here only the order of it */
    mr_mixture_free(m);
    free(text);
    free(node);
    free(weight);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefixes_and_windows_are_within_the_bounds),
        cmocka_unit_test(shares_are_the_weights),
        cmocka_unit_test(sources_have_epochs_of_their_own),
        cmocka_unit_test(resumed_streams_equal_the_uninterrupted_one),
        cmocka_unit_test(far_items_equal_those_reached_step_by_step),
        cmocka_unit_test(a_state_is_continued_with_weights_changed_from_there_on),
        cmocka_unit_test(a_ramp_of_many_versions_keeps_the_bounds),
        cmocka_unit_test(bad_mixtures_are_named),
        cmocka_unit_test(states_of_other_mixtures_are_named),
        cmocka_unit_test(resuming_a_thousand_sources_is_quick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
