/* The arbiter of a device's traffic, on a clock of the test's own: full speed where nobody reads, gaps, buckets that
 * follow latency, what a stalled reader changes, the order of the classes, floors, hurry, what a device is; and all of
 * it from many threads. test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/common.h"
#include "store/store.h"
#include "store/traffic.h"
#include "store/traffic_budget.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#define MS MR_NS_PER_MS

/* A device that moves `rate` bytes per second for one request after the other, and a training that reads samples from
 * it with `threads` threads, never more than `ahead` of what it has consumed; time goes in steps of TICK. */
#define TICK (MS / 4)
struct scene {
    struct mr_traffic *d;
    struct mr_traffic_reader *reader;
    struct mr_demand demand;
    uint64_t now;
    double rate;
    uint64_t free_ns; /* when the device has done all that it was given */
    /* the training */
    uint64_t sample, batch, compute_ns, ahead;
    unsigned threads;
    uint64_t read_end[16], read_begin[16]; /* of each thread; 0: none */
    uint64_t begun, have, used;            /* samples */
    uint64_t next_step_ns, steps, stall_ns;
    /* a drain */
    bool drains;
    uint64_t piece, piece_end, piece_begin, drained, want;
    double need;
    enum mr_traffic_class class;
};

static void look(void *user, uint64_t now_ns, struct mr_demand *out)
{
    (void)now_ns;
    *out = ((struct scene *)user)->demand;
}

static struct scene scene(double rate)
{
    return (struct scene){.d = mr_traffic_create(), .now = MR_NS_PER_S, .rate = rate, .class = MR_TRAFFIC_DRAIN};
}

static void join(struct scene *s)
{
    s->reader = mr_traffic_join(s->d, look, s);
    assert_non_null(s->reader);
}

static void end(struct scene *s)
{
    mr_traffic_leave(s->reader);
    mr_traffic_put(s->d);
}

/* The device is asked for bytes; when they are there. */
static uint64_t serve(struct scene *s, uint64_t bytes)
{
    s->free_ns = MR_MAX(s->free_ns, s->now) + (uint64_t)((double)bytes / s->rate * 1e9);
    return s->free_ns;
}

static void read_ahead(struct scene *s)
{
    s->demand.reading = 0;
    for (unsigned i = 0; i < s->threads; i++) {
        if (s->read_end[i] && s->read_end[i] <= s->now) {
            s->demand.reads++;
            s->demand.read_ns += s->read_end[i] - s->read_begin[i];
            s->read_end[i] = 0;
            s->have++;
        }
        if (!s->read_end[i] && s->begun < s->used + s->ahead) {
            s->read_begin[i] = s->now;
            s->read_end[i] = serve(s, s->sample);
            s->begun++;
        }
        s->demand.reading += s->read_end[i] != 0;
    }
}

static void train(struct scene *s)
{
    s->demand.threads = s->threads;
    s->demand.waits = false;
    if (s->now < s->next_step_ns)
        return;
    if (s->have - s->used >= s->batch) {
        s->used += s->batch;
        s->steps++;
        s->next_step_ns = s->now + s->compute_ns;
    } else {
        s->demand.waits = true;
        s->stall_ns += TICK;
    }
}

static void drain(struct scene *s)
{
    uint64_t wait_ns;
    if (s->piece && s->piece_end <= s->now) {
        mr_traffic_done(s->d, s->piece, s->piece_begin, s->piece_end);
        s->drained += s->piece;
        s->piece = 0;
    }
    if (!s->drains || s->piece || s->drained >= s->want)
        return;
    struct mr_traffic_ask ask = {.class = s->class,
                                 .bytes = MR_MIN(8 * MR_MIB, s->want - s->drained),
                                 .least = MR_TRAFFIC_PIECE,
                                 .need_per_s = s->need};
    s->piece = mr_traffic_take(s->d, &ask, s->now, &wait_ns);
    s->piece_begin = s->now;
    s->piece_end = s->piece ? serve(s, s->piece) : 0;
}

static void play(struct scene *s, uint64_t ns)
{
    for (uint64_t until = s->now + ns; s->now < until; s->now += TICK) {
        read_ahead(s);
        train(s);
        drain(s);
    }
}

/* 40 MB/s, batches of 16 samples of 81 kB every 50 ms: 26 MB/s. */
static void begin_training(struct scene *s, uint64_t compute_ms)
{
    *s = scene(40e6);
    s->sample = 81000;
    s->batch = 16;
    s->threads = 4;
    s->ahead = 48;
    s->compute_ns = compute_ms * MS;
    s->want = UINT64_MAX / 2;
    join(s);
}

static uint64_t ask(struct mr_traffic *d, enum mr_traffic_class c, uint64_t bytes, uint64_t now)
{
    uint64_t wait_ns;
    const struct mr_traffic_ask a = {.class = c, .bytes = bytes, .least = MR_MIN(bytes, MR_TRAFFIC_PIECE)};
    uint64_t got = mr_traffic_take(d, &a, now, &wait_ns);
    assert_true(got || wait_ns);
    return got;
}

/* ---- rules ---- */

static void without_readers_everything_goes_at_once(void **state)
{
    (void)state;
    struct scene s = scene(1);
    assert_false(mr_traffic_shared(s.d));
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(ask(s.d, MR_TRAFFIC_DRAIN, 64 * MR_MIB, s.now), 64 * MR_MIB);
    assert_int_equal(ask(NULL, MR_TRAFFIC_DRAIN, 1, s.now), 1);
    join(&s); /* somebody has joined and does not read */
    assert_true(mr_traffic_shared(s.d));
    for (unsigned i = 0; i < 100; i++)
        mr_traffic_done(s.d, 64 * MR_MIB, s.now, s.now + 32 * MS); /* 2 GB/s */
    s.now += 1000 * MS;
    assert_true(ask(s.d, MR_TRAFFIC_DRAIN, 8 * MR_MIB, s.now) == 8 * MR_MIB); /* a few milliseconds of such a device */
    end(&s);
}

static void a_drain_takes_what_a_training_leaves(void **state)
{
    (void)state;
    struct scene s;
    begin_training(&s, 50);
    play(&s, 5000 * MS);
    uint64_t steps = s.steps;
    s.stall_ns = 0;
    s.drains = true;
    play(&s, 5000 * MS);
    assert_true(s.steps >= steps - steps / 50);            /* 2 % */
    assert_true(s.stall_ns < 100 * MS);                    /* of 5 s */
    assert_true(s.drained > (uint64_t)(0.8 * 5 * 13.5e6)); /* of the 13.5 MB/s that are left */
    end(&s);
}

/* The training reads as fast as the device can: every byte of a drain costs it. */
static void a_drain_beside_a_starved_training_gets_its_floor(void **state)
{
    (void)state;
    struct scene s;
    begin_training(&s, 1);
    play(&s, 5000 * MS);
    uint64_t steps = s.steps;
    s.drains = true;
    play(&s, 5000 * MS);
    uint64_t with = s.steps - steps;
    assert_true(with >= steps - steps * 3 / 100);
    assert_true(s.drained >= 4 * 1000 * 1000); /* not starved: 1 MB/s */
    s.need = 10e6;                             /* it must be over before the next: then it gets that much */
    uint64_t before = s.drained;
    play(&s, 5000 * MS);
    assert_true(s.drained - before > 45 * 1000 * 1000);
    end(&s);
}

/* Hardly anything is left over, and somebody waits as soon as that is exceeded. */
static void a_drain_beside_a_busy_training_finds_its_pace(void **state)
{
    (void)state;
    struct scene s;
    begin_training(&s, 33);
    play(&s, 5000 * MS);
    s.drains = true;
    play(&s, 5000 * MS); /* finds out */
    uint64_t steps = s.steps, drained = s.drained;
    s.stall_ns = 0;
    play(&s, 5000 * MS);
    assert_true(s.steps - steps >= 145); /* of 151 */
    assert_true(s.stall_ns < 250 * MS);
    assert_true(s.drained - drained > 5 * 1000 * 1000);
    end(&s);
}

/* Readers that hardly use the device: they spend their time on decoding, and the training always waits for them. */
static void a_drain_does_not_yield_to_who_waits_for_something_else(void **state)
{
    (void)state;
    struct scene s = scene(2e9);
    join(&s);
    s.want = UINT64_MAX / 2;
    s.drains = true;
    s.demand.threads = 8;
    s.demand.waits = true;
    for (unsigned i = 0; i < 40000; i++, s.now += TICK) { /* every look finds one in flight: 0.1 ms each, 4 a tick */
        s.demand.reading = 1;
        s.demand.reads += 4;
        s.demand.read_ns += 4 * (MS / 40);
        drain(&s);
    }
    assert_true(s.drained > 5ull * 1000 * 1000 * 1000); /* in 10 s */
    end(&s);
}

static void a_reader_that_is_slowed_down_is_noticed(void **state)
{
    (void)state;
    struct scene s = scene(1e9);
    struct mr_traffic_state x;
    join(&s);
    s.demand = (struct mr_demand){.threads = 4, .reading = 2};
    for (unsigned i = 0; i < 4000; i++, s.now += TICK) { /* background beside reads of 1 ms */
        s.demand.reads += 1;
        s.demand.read_ns += MS;
        if (ask(s.d, MR_TRAFFIC_COPY, MR_TRAFFIC_PIECE, s.now))
            mr_traffic_done(s.d, MR_TRAFFIC_PIECE, s.now, s.now + MS / 10);
    }
    mr_traffic_state(s.d, &x);
    double calm = x.rate[MR_TRAFFIC_COPY];
    assert_true(calm > 64e6);
    for (unsigned i = 0; i < 4000; i++, s.now += TICK) { /* now they take 3 ms */
        s.demand.reads += 1;
        s.demand.read_ns += 3 * MS;
        if (ask(s.d, MR_TRAFFIC_COPY, MR_TRAFFIC_PIECE, s.now))
            mr_traffic_done(s.d, MR_TRAFFIC_PIECE, s.now, s.now + MS / 10);
    }
    mr_traffic_state(s.d, &x);
    assert_true(x.rate[MR_TRAFFIC_COPY] < calm / 8);
    end(&s);
}

/* All that is granted to a class until it is refused. */
static uint64_t take_all(struct scene *s, enum mr_traffic_class c)
{
    uint64_t sum = 0, n;
    while ((n = ask(s->d, c, MR_TRAFFIC_PIECE, s->now))) {
        mr_traffic_done(s->d, n, s->now, s->now + MS / 10);
        sum += n;
    }
    return sum;
}

static void fills_go_before_copies_before_drains(void **state)
{
    (void)state;
    for (unsigned first = MR_TRAFFIC_FILL; first < MR_TRAFFIC_CLASSES; first++) { /* those before it want nothing */
        struct scene s = scene(40e6);
        uint64_t got[MR_TRAFFIC_CLASSES] = {0};
        join(&s);
        s.demand = (struct mr_demand){.threads = 4, .reading = 1}; /* a read is always in flight */
        for (unsigned i = 0; i < 8000; i++, s.now += TICK) {
            s.demand.reads += 1;
            s.demand.read_ns += MS;
            for (unsigned c = MR_TRAFFIC_CLASSES; c-- > first;) /* the last one asks first */
                got[c] += take_all(&s, (enum mr_traffic_class)c);
        }
        double floor = 8000.0 * TICK / 1e9 * MR_MAX(1e6, 0.02 * 65536 / 1e-4);
        assert_true((double)got[first] > 2 * floor);
        for (unsigned c = first + 1; c < MR_TRAFFIC_CLASSES; c++) { /* nobody is starved */
            assert_true((double)got[c] > 0.8 * floor);
            assert_true((double)got[c] < 1.2 * floor);
        }
        end(&s);
    }
}

static void who_is_waited_for_goes_at_once(void **state)
{
    (void)state;
    struct scene s = scene(40e6);
    uint64_t wait_ns;
    join(&s);
    s.demand = (struct mr_demand){.threads = 4, .reading = 4, .reads = 1, .read_ns = MS, .waits = true};
    while (ask(s.d, MR_TRAFFIC_DRAIN, MR_MIB, s.now))
        ;
    struct mr_traffic_ask a = {.class = MR_TRAFFIC_DRAIN, .bytes = 64 * MR_MIB, .least = 1, .hurry = true};
    assert_int_equal(mr_traffic_take(s.d, &a, s.now, &wait_ns), 64 * MR_MIB);
    end(&s);
}

static void a_budget_follows_latency(void **state)
{
    (void)state;
    struct mr_traffic_budget b;
    uint64_t now = MR_NS_PER_S;
    mr_budget_init(&b, 100e6);
    for (unsigned i = 0; i < 100; i++, now += 10 * MS)
        mr_budget_latency(&b, MS, 1.5, now);
    assert_true(b.rate == 100e6); /* nobody wanted more */
    for (unsigned i = 0; i < 100; i++, now += 10 * MS) {
        while (mr_budget_take(&b, 1000000, now))
            ;
        mr_budget_latency(&b, MS, 1.5, now);
    }
    double calm = b.rate;
    assert_true(calm > 100e6);
    for (unsigned i = 0; i < 100; i++, now += 10 * MS)
        mr_budget_latency(&b, 5 * MS, 1.5, now);
    assert_true(b.rate < calm / 8);
    while (mr_budget_take(&b, 10000, now))
        ;
    assert_true(mr_budget_wait_ns(&b) > 0);
    double before = b.rate;
    uint64_t taken = 0;
    for (unsigned i = 0; i < 10000; i++, now += MS)
        taken += mr_budget_take(&b, 10000, now) ? 10000 : 0;
    assert_true((double)taken < 10 * before * 1.05 + b.burst); /* ten seconds' worth */
    assert_true((double)taken > 10 * before * 0.5);
    mr_budget_quiet(&b, 5 * MS); /* that is what they take without background: nothing is felt */
    before = b.rate;
    for (unsigned i = 0; i < 100; i++, now += 10 * MS) {
        while (mr_budget_take(&b, 1000000, now))
            ;
        mr_budget_latency(&b, 5 * MS, 1.5, now);
    }
    assert_true(b.rate > before);
}

/* ---- devices ---- */

static struct mr_traffic *device_of(const char *spec, const char *path, struct mr_store **out)
{
    struct mr_error err;
    assert_int_equal(mr_store_open(spec, out, &err), 0);
    return mr_traffic_get(*out, path);
}

static void an_emulated_device_is_one_by_its_group(void **state)
{
    (void)state;
    char group[128];
    struct mr_store *s[6];
    snprintf(group, sizeof group, "throttle(bandwidth=1MB,group=traffic-%d):posix", (int)getpid());
    struct mr_traffic *a = device_of(group, "/tmp", &s[0]), *b = device_of(group, "/dev/shm", &s[1]);
    struct mr_traffic *alone = device_of("throttle(bandwidth=1MB):posix", "/tmp", &s[2]);
    struct mr_traffic *disk = device_of("posix", "/tmp", &s[3]);
    struct mr_traffic *below = device_of("trace:posix", "/tmp/not/there/yet", &s[4]);
    struct mr_traffic *none = device_of("memory", "/tmp", &s[5]);
    assert_non_null(a);
    assert_ptr_equal(a, b);
    assert_non_null(alone);
    assert_ptr_not_equal(alone, a);
    assert_non_null(disk);
    assert_ptr_not_equal(disk, a);
    assert_ptr_equal(below, disk);
    assert_null(none);
    struct mr_traffic *file = mr_traffic_get(NULL, "/tmp");
    assert_ptr_equal(file, disk);
    struct mr_traffic *all[] = {a, b, alone, disk, below, none, file};
    for (unsigned i = 0; i < MR_ARRAY_LEN(all); i++)
        mr_traffic_put(all[i]);
    for (unsigned i = 0; i < 6; i++)
        mr_store_close(s[i]);
}

/* ---- many threads ---- */

struct busy {
    struct mr_traffic *d;
    _Atomic uint64_t reads, ns;
    _Atomic unsigned reading;
    atomic_bool stop;
};

static void look_busy(void *user, uint64_t now_ns, struct mr_demand *out)
{
    struct busy *b = user;
    (void)now_ns;
    *out = (struct mr_demand){.reads = b->reads, .read_ns = b->ns, .threads = 2, .reading = b->reading};
}

static void *read_main(void *arg)
{
    struct busy *b = arg;
    for (unsigned i = 0; i < 300; i++) {
        struct mr_traffic_reader *r = i % 50 == 0 ? mr_traffic_join(b->d, look_busy, b) : NULL;
        b->reading++;
        mr_clock_sleep_until(mr_clock_real(), mr_now_ns() + MS / 10, NULL);
        b->reading--;
        b->reads++;
        b->ns += MS / 10;
        mr_traffic_leave(r);
    }
    return NULL;
}

static void *move_main(void *arg)
{
    struct busy *b = arg;
    for (unsigned i = 0; !b->stop; i++) {
        uint64_t now = mr_now_ns(), n = ask(b->d, (enum mr_traffic_class)(i % MR_TRAFFIC_CLASSES), 8 * MR_MIB, now);
        mr_clock_sleep_until(mr_clock_real(), now + MS / 4, NULL);
        if (n)
            mr_traffic_done(b->d, n, now, mr_now_ns());
    }
    return NULL;
}

static void threads_may_do_all_of_it_at_once(void **state)
{
    (void)state;
    struct busy b = {.d = mr_traffic_create()};
    struct mr_traffic_state x;
    pthread_t reads[2], moves[3];
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&moves[i], NULL, move_main, &b), 0);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&reads[i], NULL, read_main, &b), 0);
    for (unsigned i = 0; i < 2; i++)
        pthread_join(reads[i], NULL);
    b.stop = true;
    for (unsigned i = 0; i < 3; i++)
        pthread_join(moves[i], NULL);
    mr_traffic_state(b.d, &x);
    assert_int_equal(x.outstanding, 0);
    assert_true(x.granted[MR_TRAFFIC_DRAIN] > 0);
    mr_traffic_put(b.d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_readers_everything_goes_at_once),
        cmocka_unit_test(a_drain_takes_what_a_training_leaves),
        cmocka_unit_test(a_drain_beside_a_starved_training_gets_its_floor),
        cmocka_unit_test(a_drain_beside_a_busy_training_finds_its_pace),
        cmocka_unit_test(a_drain_does_not_yield_to_who_waits_for_something_else),
        cmocka_unit_test(a_reader_that_is_slowed_down_is_noticed),
        cmocka_unit_test(fills_go_before_copies_before_drains),
        cmocka_unit_test(who_is_waited_for_goes_at_once),
        cmocka_unit_test(a_budget_follows_latency),
        cmocka_unit_test(an_emulated_device_is_one_by_its_group),
        cmocka_unit_test(threads_may_do_all_of_it_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
