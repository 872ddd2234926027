/* One order asked by many threads at once, also about other ranks (buffer mode plans those on the first question).
 * test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <cmocka.h>

#include <millrace/order.h>

enum { N = 3001, WORLD = 5, THREADS = 4 };

struct job {
    const struct mr_order *order;
    atomic_uint wrong;
};

static void *ask(void *arg)
{
    struct job *j = arg;
    unsigned char seen[N] = {0};
    uint64_t ids[97], n;
    for (uint32_t r = 0; r < WORLD; r++)
        for (uint64_t k = 0; (n = mr_order_get_for(j->order, r, k, ids, 97)) > 0; k += n)
            for (uint64_t i = 0; i < n; i++)
                seen[ids[i]] = 1;
    for (int i = 0; i < N; i++)
        atomic_fetch_add(&j->wrong, !seen[i]);
    return NULL;
}

static void order_answers_all_threads_alike(void **state)
{
    (void)state;
    for (int mode = MR_ORDER_SEQUENTIAL; mode <= MR_ORDER_FILE; mode++) {
        struct mr_order_params p = {.mode = (enum mr_order_mode)mode,
                                    .samples = N,
                                    .seed = 3,
                                    .rank = 2,
                                    .world = WORLD,
                                    .shuffle_each_epoch = true,
                                    .window = 64,
                                    .samples_per_file = 10};
        struct mr_order *o;
        assert_int_equal(mr_order_create(&p, &o, NULL), 0);
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            assert_int_equal(mr_order_set_epoch(o, epoch, NULL), 0);
            struct job j = {.order = o};
            pthread_t t[THREADS];
            for (int i = 0; i < THREADS; i++)
                pthread_create(&t[i], NULL, ask, &j);
            for (int i = 0; i < THREADS; i++)
                pthread_join(t[i], NULL);
            assert_int_equal(j.wrong, 0);
        }
        mr_order_free(o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(order_answers_all_threads_alike)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
