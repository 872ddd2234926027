/* The harness: cases, rounds, rows. A measurement is a function that does one run and says how much it did and how long
 * it took. bench_compare runs product and floor alternately, so that both see the same machine, and adds one row. */
#ifndef MR_BENCH_BENCH_H
#define MR_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bench_options {
    const char *dir;      /* temporary files; emptied */
    const char *millrace; /* the program, for start-up time */
    const char *out;      /* Markdown copy of the table, or NULL */
    const char *only;     /* rows whose name contains it, or one of several texts with '|' in between */
    const char *self;     /* this program, for child runs */
    unsigned rounds;
    bool quick; /* one round each: does everything run? */
    bool hot;   /* the floor of generation writes from a cached buffer, see floors.h */
};

/* Wall-clock and CPU seconds (of all threads, user and system). CPU seconds hardly depend on what else the machine
 * does. */
struct bench_time {
    double wall_s, cpu_s;
};
struct bench_time bench_clock(void);
struct bench_time bench_since(struct bench_time start);

/* One run. `units` (bytes, images, samples) per second is the figure. */
struct bench_run {
    double units;
    struct bench_time time;
};
typedef void bench_fn(void *user, unsigned threads, struct bench_run *out);

/* Prints and exits 1: a benchmark that cannot measure has no result. */
void bench_die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

bool bench_wanted(const struct bench_options *o, const char *name);
/* budget: smallest acceptable product/floor ratio; 0 = none. `divide` turns units per second into the figure shown. */
void bench_compare(const struct bench_options *o, const char *name, unsigned threads, bench_fn *product,
                   bench_fn *floor, void *user, double divide, const char *unit, double budget);
/* A row without floor: value against a limit (0 = none). */
void bench_value(const char *name, double value, const char *unit, bool at_most, double limit);
/* A row that says that this build or machine lacks something: a format, O_DIRECT. */
void bench_absent(const char *name, const char *what);
/* A row for something that does not work at all; counts as a miss. */
void bench_failed(const char *name, const char *why);
/* Runs fn(user, thread) on `threads` threads that start together; the time from then to the last one's end. */
struct bench_time bench_threads(unsigned threads, void (*fn)(void *user, unsigned thread), void *user);
void bench_remove_tree(const char *path); /* a missing one is fine */

/* Children: `self --child KIND ...`; peak memory comes from wait4. */
struct bench_child {
    double seconds, peak_bytes, value; /* value: the number the child printed */
};
void bench_spawn(char *const *argv, struct bench_child *out);
int bench_child_main(int argc, char **argv);

void bench_generate_all(const struct bench_options *o);
void bench_read_all(const struct bench_options *o);
void bench_loader_all(const struct bench_options *o);
void bench_misc_all(const struct bench_options *o);
void bench_ssd_all(const struct bench_options *o);

#endif
