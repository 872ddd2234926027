/* What the advisor must say of the workloads whose analyses were published: each preset is run as `workloads check`
 * does it (ranks as threads, emulated storage), explained from its trace and advised, as it is and with a tenth of the
 * compute, which makes most of them wait for data. The machine is that of the source, not this one: its nodes, cores,
 * memory and Lustre layout are set, since no preset can carry them. Every command that a finding suggests is resolved as
 * printed: the same workload but for the change. MR_GOLDEN_SHOW=1 prints every finding. test-label: timing */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "advise/advise.h"
#include "base/temp_folder.h"
#include "explain/explain.h"
#include "preset/check.h"
#include "preset/check_storage.h"
#include "run_command_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum machine { THETA, CORI, LOCAL };

struct row {
    const char *preset, *listed, *top, *never; /* ids; A/B: either. `top`: of three, with a tenth of the compute */
    enum machine machine;
    bool quiet;            /* as it is, nothing above a note */
    bool slow;             /* for test-full only */
    int64_t ahead;         /* batches + 1; 0: the preset's */
    double compute, scale; /* times the preset's; 0: 1. Scale of its data; 0: its own */
    double step_s;         /* compute of a step where the preset has none */
    double faster;         /* what makes it wait for data; 0: compute / 10 */
};

/* "random" of the published matrix is no rule of ours for traces: no finding says it of a read pattern.
 * imagenet: 64 readers and one batch ahead hide the reads even behind a tenth of the compute, and readers are idle when
 * they no longer do: more of them (TH1) and other storage (CA3) are no advice then.
 * ffn: compute that gives the share of I/O that the source reports, 7 %; its other figures do not describe one run.
 * climate: compute is 32 times what four readers need for a sample, as published (13,906 s of training, 432 s of I/O
 * alone). MD1 of imagenet is not asked for: emulated storage opens files in no time. */
static const struct row rows[] = {
    {.preset = "imagenet-theta",
     .listed = "PF1 TH1 TH3 ST1 CA2/CA3",
     .top = "PF1",
     .never = "RND1",
     .faster = 300,
     .slow = true},
    {.preset = "cosmictagger-theta", .listed = "SZ1 CA1 PF1 TH1 SH2 CA4", .top = "SZ1 CA1", .never = "SH1 RND1"},
    {.preset = "ffn-theta",
     .listed = "SZ1 SH1 CA3 TH1 CA4",
     .top = "SH1 SZ1",
     .never = "SH2",
     .compute = 0.003,
     .scale = 0.3,
     .slow = true},
    {.preset = "climateseg-theta", .listed = "MD2", .top = "MD2", .never = "SZ1", .quiet = true},
    {.preset = "cosmoflow-theta", .listed = "SZ2 TH1 TH2 PF1", .top = "TH1 PF1", .never = "MD1", .slow = true},
    {.preset = "candle-nt3", .listed = "SH2 FM1", .top = "", .never = "", .quiet = true, .slow = true},
    {.preset = "l2hmc", .listed = "CK1", .top = "CK1", .never = "PF1 TH1 TH2 SZ1 MD1 CA2 CA3", .machine = LOCAL},
    {.preset = "bert-mrpc", .listed = "FM1", .top = "FM1", .never = "", .machine = LOCAL},
    {.preset = "frnn", .listed = "PF1", .top = "PF1", .never = "SZ1 SZ2 RND1", .machine = LOCAL, .slow = true},
    {.preset = "hepcnn-cori-local", .listed = "PF1 CA2", .top = "PF1", .never = "SH3", .machine = CORI, .slow = true},
    {.preset = "hepcnn-cori-global", .listed = "PF1 CA2 SH3", .top = "PF1", .never = "", .machine = CORI, .slow = true},
    {.preset = "climate-cori",
     .listed = "ST2",
     .top = "",
     .never = "",
     .machine = CORI,
     .quiet = true,
     .step_s = 0.73,
     .slow = true},
    {.preset = "tf-alexnet", .listed = "PF1", .top = "PF1", .never = "", .machine = LOCAL, .ahead = 1, .slow = true},
    {.preset = "tf-ckpt", .listed = "CK1", .top = "CK1", .never = "", .machine = LOCAL},
};

struct golden {
    struct mr_arena arena;
    struct mr_strings search;
    char folder[4096];
    struct mr_workload *w;
    struct mr_check_shape shape;
    struct mr_check_data data;
    struct recorded started; /* the run that the suggested commands repeat */
    const char *command;
};

/* As a user could have started it: options of every kind, and keys that findings change. */
static void record_start(struct golden *g, const struct row *r)
{
    struct mr_error err = {0};
    char *words[] = {(char *)r->preset,
                     "--seed",
                     "7",
                     "--max-time",
                     "90s",
                     "--copy-to-device",
                     "--preprocess-sleep",
                     "--cache",
                     "cold",
                     "--cache-each-epoch",
                     "--verify",
                     "--no-ceiling",
                     "--threads",
                     "3",
                     "--lookahead",
                     "1",
                     "--store",
                     "throttle(latency=1ms, bandwidth=1GB):posix",
                     "--data",
                     "my data",
                     "--tiers",
                     "ram=1GiB",
                     "--out",
                     "results/a",
                     "reader.transfer_size=65536",
                     "dataset.num_samples_per_file=4",
                     "train.epochs=3",
                     "~reader.sample_shuffle"};
    if (record_words(sizeof(words) / sizeof(*words), words, &g->arena, &g->started, &err))
        fail_msg("%s: %s", r->preset, err.message);
    g->command = mr_run_command(g->started.options, g->started.config, &g->arena);
    assert_non_null(g->command);
}

/* Run as printed, each is the run that was started but for the change. */
static void check_commands(struct golden *g, const struct mr_explanation *x)
{
    static const char run[] = "millrace run ";
    for (size_t i = 0; i < x->findings; i++) {
        const char *command = x->finding[i].command;
        if (command && !strncmp(command, run, strlen(run)))
            check_same_run(&g->started, g->command, command + strlen(run), &g->arena);
    }
}

static void open_preset(struct golden *g, const struct row *r)
{
    struct mr_error err = {0};
    g->search = (struct mr_strings){.n = 1, .item = mr_arena_alloc(&g->arena, sizeof(*g->search.item))};
    g->search.item[0] = MR_SOURCE_DIR "/workloads";
    struct mr_workload_request req = {.workload = r->preset, .search_path = g->search};
    assert_int_equal(mr_workload_resolve(&req, &g->arena, &g->w, &err), 0);
    assert_int_equal(mr_check_scale(g->w, r->scale, &g->shape, &err), 0);
    assert_int_equal(mr_temp_folder_make("", "golden", g->folder, sizeof g->folder, &err), 0);
    if (g->shape.reads && mr_check_data_make(&g->shape, g->folder, NULL, &g->arena, &g->data, &err))
        fail_msg("%s: %s", r->preset, err.message);
}

/* One rank on each node, as in the sources. */
static void set_machine(struct mr_explain_facts *f, enum machine m)
{
    f->fast_write_bytes_per_s = 1e10; /* a burst buffer in memory: faster than any disk the test runs on */
    if (m == LOCAL)
        return;
    f->nodes = f->ranks;
    f->cpus_per_node = f->cpus_per_rank = m == THETA ? 128 : 68; /* threads of OpenMP; cores */
    f->memory_bytes = f->memory_free_bytes = m == THETA ? 192e9 : 96e9;
    f->local_free_bytes = m == THETA ? 128e9 : NAN;
    f->node_epoch_bytes = f->epoch_bytes / f->nodes;
    f->device = "lustre";
    f->stripe_count = 1;
    f->stripe_bytes = 1048576;
}

static struct mr_explanation *explain(struct golden *g, const struct row *r, double faster)
{
    struct mr_check_variant v = {.threads = -1, .prefetch = r->ahead - 1, .slowdown = g->w->pattern.slowdown};
    struct mr_check_shape shape = g->shape;
    struct mr_check_run run;
    struct mr_explanation *x = NULL;
    struct mr_trace *t = NULL;
    struct mr_error err = {0};
    char path[4200];
    shape.step_s = (r->step_s > 0 ? r->step_s : shape.step_s * (r->compute > 0 ? r->compute : 1)) / faster;
    assert_int_equal(mr_check_storage(g->w->extra.storage_model, v.slowdown, &g->search, &g->arena, &v.storage, &err),
                     0);
    if (mr_check_execute(&shape, g->shape.reads ? &g->data : NULL, &v, g->folder, NULL, &run, &err))
        fail_msg("%s: %s", r->preset, err.message);
    mr_check_run_done(&run);
    snprintf(path, sizeof path, "%s/run.mrt", g->folder);
    assert_int_equal(mr_trace_create(&t, &err), 0);
    assert_int_equal(mr_trace_add(t, path, &err), 0);
    assert_int_equal(mr_trace_finish(t, &err), 0);
    struct mr_explain_options opt = {.rank = -1, .step_from = -1, .source = r->preset};
    if (mr_explain(t, &opt, &x, &err))
        fail_msg("%s: %s", r->preset, err.message);
    mr_trace_free(t);
    set_machine(&x->facts, r->machine);
    x->facts.workload = g->command;
    assert_int_equal(mr_advise(x, &err), 0);
    return x;
}

/* ---- what was said ---- */

static void show(const struct mr_explanation *x, const struct row *r, double faster)
{
    if (!getenv("MR_GOLDEN_SHOW"))
        return;
    printf("== %s%s\n   %s\n   %s\n   %s\n", r->preset, faster > 1 ? ", compute / 10" : "", x->verdict.line[0],
           x->verdict.line[1] ? x->verdict.line[1] : "-", x->verdict.line[2] ? x->verdict.line[2] : "-");
    for (size_t i = 0; i < x->findings; i++)
        printf("   %-5s %-8s %s%8.3f s  %s\n         %s\n", x->finding[i].id, mr_severity_name(x->finding[i].severity),
               x->finding[i].potential ? "(potential) " : "", x->finding[i].saves_s, x->finding[i].title,
               x->finding[i].command ? x->finding[i].command : "-");
    for (size_t i = 0; i < x->silences; i++)
        if (strstr(r->listed, x->silence[i].id) || strstr(r->top, x->silence[i].id))
            printf("   silent %-5s %s\n", x->silence[i].id, x->silence[i].why);
}

static bool among(const struct mr_explanation *x, const char *id, size_t len, size_t first)
{
    for (size_t i = 0; i < x->findings && i < first; i++)
        if (strlen(x->finding[i].id) == len && !strncmp(x->finding[i].id, id, len))
            return true;
    return false;
}

/* Each word of `ids` (or one of those joined by '/') is among the first findings; `want` false: none is. */
static void check_ids(const struct mr_explanation *x, const struct row *r, const char *ids, size_t first, bool want,
                      const char *what)
{
    for (const char *p = ids; *p; p += strspn(p, " ")) {
        size_t word = strcspn(p, " ");
        bool any = false;
        for (const char *q = p; q < p + word; q += strspn(q, "/")) {
            size_t len = strcspn(q, " /");
            any |= among(x, q, len, first);
            q += len;
        }
        if (any != want)
            fail_msg("%s: %.*s %s", r->preset, (int)word, p, what);
        p += word;
    }
}

static void check_row(const struct row *r)
{
    struct golden *g = calloc(1, sizeof(*g));
    assert_non_null(g);
    open_preset(g, r);
    record_start(g, r);
    for (unsigned k = 0; k < 2; k++) {
        double faster = !k ? 1 : r->faster > 0 ? r->faster : 10;
        struct mr_explanation *x = explain(g, r, faster);
        show(x, r, faster);
        check_commands(g, x);
        if (!k)
            check_ids(x, r, r->listed, SIZE_MAX, true, "is not listed");
        else
            check_ids(x, r, r->top, 3, true, "is not among the first three");
        check_ids(x, r, r->never, SIZE_MAX, false, "must not be listed");
        for (size_t i = 0; i < x->findings; i++)
            if (!k && r->quiet && x->finding[i].severity > MR_SEVERITY_NOTE)
                fail_msg("%s: %s is %s", r->preset, x->finding[i].id, mr_severity_name(x->finding[i].severity));
        mr_explanation_free(x);
    }
    if (g->shape.reads)
        mr_check_data_done(&g->data);
    struct mr_error err;
    mr_temp_folder_remove(g->folder, &err);
    recorded_done(&g->started);
    mr_arena_done(&g->arena);
    free(g);
}

static void golden(void **state)
{
    const struct row *r = *state;
    const char *only = getenv("MR_GOLDEN_ONLY");
    if ((only && !strstr(r->preset, only)) || (!only && r->slow && !getenv("MR_TEST_FULL")))
        skip();
    check_row(r);
}

int main(void)
{
    struct CMUnitTest tests[sizeof(rows) / sizeof(*rows)];
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        tests[i] = (struct CMUnitTest){.name = rows[i].preset, .test_func = golden, .initial_state = (void *)&rows[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
