/* Tiers with SSD folders: what does not fit memory stays there and is not read from the source again; the next run,
 * with another number of ranks, reads nothing from the source at all; damaged entries are fetched again and counted; a
 * folder that is full or cannot be written costs reads, nothing else. test-label: concurrent */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "loader_fixture.h"
#include "tier_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#define SAMPLES 300u
#define BYTES 5000u

static uint64_t *sum, samples, set_bytes;
static char folder[400], spec[600];

static struct tier_case on_ssd(const char *ram, const char *capacity)
{
    snprintf(spec, sizeof spec, "%sssd=%s:%s,staging=512KiB", ram, folder, capacity);
    return (struct tier_case){.set = "raw",
                              .store = "throttle(bandwidth=10MB):posix", /* a source that is slower than the SSD */
                              .policy = "millrace",
                              .spec = spec,
                              .batch = 8,
                              .epochs = 4,
                              .samples = SAMPLES,
                              .threads = 2,
                              .sum = sum};
}

static void new_folder(const char *name)
{
    snprintf(folder, sizeof folder, "%s/%s", root, name);
    assert_int_equal(mkdir(folder, 0700), 0);
}

static void what_memory_does_not_hold_is_on_the_ssd(void **state)
{
    (void)state;
    new_folder("part");
    struct tier_case c = on_ssd("ram=500000,", "64MiB");
    for (uint32_t world = 1; world <= 2; world++) {
        struct shared_figures *f = run_ranks(&c, world, 0, 0, SAMPLES / world * c.epochs);
        assert_int_equal(f[0].stats.source_reads,
                         world == 1 ? SAMPLES : 0); /* the second run has the first one's, those in memory too */
        assert_true(f[0].stats.from[MR_TIER_SSD].samples > SAMPLES);
        assert_int_equal(f[0].stats.corrupt, 0);
        done_figures(f, world);
    }
}

static void the_next_run_reads_nothing_from_the_source(void **state)
{
    (void)state;
    new_folder("next");
    struct tier_case c = on_ssd("", "64MiB");
    c.epochs = 2;
    struct shared_figures *f = run_ranks(&c, 2, 0, 0, SAMPLES / 2 * c.epochs);
    assert_int_equal(f[0].stats.source_reads, SAMPLES);
    done_figures(f, 2);
    for (uint32_t world = 1; world <= 3; world += 2) {
        f = run_ranks(&c, world, 0, 0, (SAMPLES + world - 1) / world * c.epochs);
        assert_int_equal(f[0].stats.source_bytes, 0);
        done_figures(f, world);
    }
}

/* Writes over some bytes of every file of samples. */
static unsigned damage(const char *path)
{
    unsigned n = 0;
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        char name[800];
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        size_t len = strlen(name);
        if (e->d_type == DT_DIR && e->d_name[0] != '.')
            n += damage(name);
        if (len > 4 && !strcmp(name + len - 4, ".seg")) {
            int fd = open(name, O_RDWR);
            for (unsigned i = 0; i < 5; i++)
                n += pwrite(fd, "damage", 6, 8192 * (1 + (off_t)i * 7) + 100) == 6;
            close(fd);
        }
    }
    if (d)
        closedir(d);
    return n;
}

static void damaged_entries_are_fetched_again(void **state)
{
    (void)state;
    new_folder("damaged");
    struct tier_case c = on_ssd("", "64MiB");
    c.epochs = 1;
    done_figures(run_ranks(&c, 1, 0, 0, SAMPLES), 1);
    unsigned n = damage(folder);
    assert_true(n >= 5);
    struct shared_figures *f = run_ranks(&c, 1, 0, 0, SAMPLES);
    assert_int_equal(f[0].delivered, SAMPLES);
    assert_in_range(f[0].stats.corrupt, 5, n); /* files need not be full */
    assert_int_equal(f[0].stats.refetched, f[0].stats.corrupt);
    assert_int_equal(f[0].stats.source_reads, f[0].stats.corrupt);
    done_figures(f, 1);
    f = run_ranks(&c, 1, 0, 0, SAMPLES); /* and repaired */
    assert_int_equal(f[0].stats.source_reads, 0);
    done_figures(f, 1);
}

static void a_small_folder_keeps_a_part(void **state)
{
    (void)state;
    new_folder("small");
    struct tier_case c = on_ssd("", "1MiB"); /* 128 samples of two blocks each at most */
    struct shared_figures *f = run_ranks(&c, 2, 0, 0, SAMPLES / 2 * c.epochs);
    assert_int_equal(f[0].delivered, SAMPLES / 2 * c.epochs);
    assert_true(f[0].stats.source_reads < SAMPLES * c.epochs);
    done_figures(f, 2);
}

static void a_folder_that_cannot_be_written_costs_reads_only(void **state)
{
    (void)state;
    new_folder("readonly");
    struct tier_case c = on_ssd("", "64MiB");
    c.epochs = 2;
    if (getuid() == 0)
        skip(); /* root may write anywhere */
    assert_int_equal(chmod(folder, 0500), 0);
    struct shared_figures *f = run_ranks(&c, 1, 0, 0, SAMPLES * c.epochs);
    assert_int_equal(f[0].delivered, SAMPLES * c.epochs);
    done_figures(f, 1);
    chmod(folder, 0700);
}

static int set_up(void **state)
{
    (void)state;
    open_root("tier-ssd");
    make_set("raw", "raw", SAMPLES, 1, BYTES, 0);
    sum = sums_of("raw", 0, &samples, &set_bytes);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(sum);
    remove_root();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_memory_does_not_hold_is_on_the_ssd),
        cmocka_unit_test(the_next_run_reads_nothing_from_the_source),
        cmocka_unit_test(damaged_entries_are_fetched_again),
        cmocka_unit_test(a_small_folder_keeps_a_part),
        cmocka_unit_test(a_folder_that_cannot_be_written_costs_reads_only),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
