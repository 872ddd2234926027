/* Making a data set: see bench_case.h. */
#include "bench_case.h"

bool bench_case_possible(const struct bench_case *c)
{
    if (mr_format_find(c->format, NULL))
        return true;
    bench_absent(c->name, c->format);
    return false;
}

int bench_case_try(const struct bench_case *c, const char *folder, unsigned threads, struct bench_time *time,
                   struct mr_error *err)
{
    struct mr_arena arena = {0};
    struct mr_gen_spec spec;
    struct mr_gen_plan plan;
    struct mr_store *store = NULL;
    struct mr_gen *g = NULL;
    int rc = mr_options_defaults(&mr_gen_spec_table, &arena, &spec, err);
    spec.format = c->format;
    spec.files = c->files;
    spec.samples_per_file = c->samples_per_file;
    spec.size_bytes = c->size_bytes;
    for (unsigned i = 0; rc >= 0 && i < 3 && c->extra[i][0]; i++)
        rc = mr_option_parse(&mr_gen_spec_table, mr_option_find(&mr_gen_spec_table, c->extra[i][0]), c->extra[i][1],
                             &arena, &spec, err);
    struct bench_time start = bench_clock();
    if (rc >= 0)
        rc = mr_gen_plan_resolve(&spec, "train", &plan, err);
    if (rc >= 0)
        rc = mr_store_open("posix", &store, err);
    struct mr_gen_options options = {.store = store, .folder = folder, .plan = &plan, .world = 1, .threads = threads};
    if (rc >= 0)
        rc = mr_gen_open(&options, &g, err);
    if (rc >= 0)
        rc = mr_gen_prepare(g, err);
    if (rc >= 0)
        rc = mr_gen_run(g, err);
    if (rc >= 0)
        rc = mr_gen_finish(g, err);
    *time = bench_since(start);
    mr_gen_close(g);
    mr_store_close(store);
    mr_arena_done(&arena);
    return rc;
}

struct bench_time bench_case_generate(const struct bench_case *c, const char *folder, unsigned threads)
{
    struct mr_error err = {0};
    struct bench_time time = {0};
    if (bench_case_try(c, folder, threads, &time, &err) < 0)
        bench_die("cannot generate '%s': %s", c->name, err.message);
    return time;
}
