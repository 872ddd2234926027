/* The advisor over explanations made by hand: the right class, the right first fix, seconds that the arithmetic of the
 * case gives, and no finding where nobody waits. */
#include "explain_testlib.h"

#include "advise/advise_internal.h"
#include "conf/job_options.h"
#include "conf/workload_apply.h"
#include "explain/explain_settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

/* What is shown and what is tried are the changes: each of them stands in the snippet of its framework, and those of
 * the workload in the command, under a name that 'run' takes. */
static void check_changes(const struct mr_explanation *x, const struct mr_finding *f)
{
    bool shown[MR_IDIOM_COUNT] = {false};
    for (size_t i = 0; i < f->changes; i++) {
        const struct mr_change *c = &f->change[i];
        const char *dot = c->key ? strrchr(c->key, '.') : NULL, *leaf = dot ? dot + 1 : c->key;
        assert_non_null(c->target);
        assert_non_null(c->to);
        assert_true(c->kind == MR_CHANGE_CODE || c->kind == MR_CHANGE_STORAGE || c->key);
        assert_int_equal(c->kind == MR_CHANGE_OPTION, c->framework == MR_IDIOM_MILLRACE);
        assert_int_equal(c->kind == MR_CHANGE_STORAGE, c->framework == MR_IDIOM_ANY);
        if (c->kind != MR_CHANGE_OPTION) {
            shown[c->framework] = true;
            assert_non_null(f->snippet[c->framework]);
            if (!c->key)
                assert_non_null(strstr(f->snippet[c->framework], c->to));
            continue;
        }
        if (f->command && !strncmp(f->command, "millrace run", 12))
            assert_non_null(strstr(f->command, c->to));
        if (!strncmp(c->key, "--", 2)) {
            assert_non_null(mr_option_find(&mr_job_options_table, c->key + 2));
            continue;
        }
        char section[64];
        snprintf(section, sizeof section, "%.*s", (int)(dot - c->key), c->key);
        int at = mr_workload_section_index(section);
        assert_true(at >= 0);
        assert_non_null(mr_option_find(mr_workload_sections[at].table, leaf));
        shown[c->framework] = true;
        assert_non_null(strstr(f->snippet[MR_IDIOM_MILLRACE], leaf));
        assert_non_null(strstr(f->snippet[MR_IDIOM_MILLRACE], c->to));
    }
    for (unsigned k = 0; k < MR_IDIOM_COUNT; k++)
        assert_int_equal(f->snippet[k] != NULL, shown[k]);
    assert_true(x->findings > 0);
}

static void advise(struct mr_explanation *x)
{
    struct mr_error err = {0};
    assert_int_equal(mr_advise(x, &err), 0);
    assert_non_null(x->verdict.line[0]);
    for (size_t i = 0; i < x->findings; i++) {
        const struct mr_finding *f = &x->finding[i];
        assert_non_null(f->title);
        assert_non_null(f->fix);
        assert_non_null(f->formula);
        assert_non_null(f->evidence);
        assert_true(f->confidence > 0 && f->confidence <= 1);
        assert_false(f->command && (strstr(f->command, "millrace try") || strstr(f->command, "millrace pack")));
        check_changes(x, f);
    }
    assert_int_equal(x->findings + x->silences, mr_rule_count);
}

static void assert_first(const struct mr_explanation *x, const char *id)
{
    assert_true(x->findings > 0);
    assert_string_equal(x->finding[0].id, id);
    assert_non_null(x->verdict.line[2]);
    assert_non_null(strstr(x->verdict.line[2], id));
}

static void assert_near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance * fabs(want)))
        fail_msg("%g, not %g", got, want);
}

static void xt_file(struct mr_explanation *x, const char *path, uint64_t size, uint64_t bytes, uint64_t reads,
                    uint32_t ranks)
{
    x->file = xt_alloc(x, sizeof(*x->file));
    x->files = x->all_files = 1;
    x->file[0] = (struct mr_explain_file){.path = path,
                                          .size = size,
                                          .unique_bytes = size,
                                          .read_bytes = bytes,
                                          .reads = reads,
                                          .ranks = ranks,
                                          .calls = reads};
}

/* 100 steps of 0.1 s; each batch takes `read` + `cpu` on one worker. */
static struct mr_explanation *starved(unsigned workers, double ahead, double read, double cpu,
                                      enum mr_stall_cause cause, double stall_s)
{
    struct mr_explanation *x = xt_new(1, 100, 0.1);
    x->facts.framework = "pytorch";
    x->facts.program = "python train.py";
    x->facts.cpus_per_rank = 4;
    xt_stall(x, cause, stall_s);
    xt_loading(x, workers, ahead, read, cpu, cause == MR_STALL_NOT_STARTED ? 0.4 : 1);
    return x;
}

/* A trial run of a minute or two has a good part of start-up: imports, a model. */
static void only_a_long_startup_is_startup_bound(void **state)
{
    static const struct {
        double train, startup;
        unsigned verdict;
    } runs[] = {{30, 40, MR_VERDICT_HEALTHY}, {100, 70, MR_VERDICT_STARTUP}, {1000, 70, MR_VERDICT_HEALTHY}};
    (void)state;
    for (size_t i = 0; i < MR_ARRAY_LEN(runs); i++) {
        struct mr_explanation *x = xt_new(1, 100, runs[i].train / 100);
        xt_time(x, MR_TIME_STARTUP, runs[i].startup);
        advise(x);
        assert_int_equal(x->verdict.verdict, runs[i].verdict);
        mr_explanation_free(x);
    }
}

static void healthy_run_has_no_finding_above_note(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(2, 4, 0.05, 0.05, MR_STALL_STORAGE, 0.2);
    advise(x);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_HEALTHY);
    assert_null(x->verdict.line[2]);
    for (size_t i = 0; i < x->findings; i++)
        assert_int_equal(x->finding[i].severity, MR_SEVERITY_NOTE);
    mr_explanation_free(x);
}

/* The figure of the verdict is that of the table below it, also where the first batch had a part in it. */
static void verdict_says_the_seconds_of_the_table(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(2, 4, 0.05, 0.05, MR_STALL_WORKER, 8);
    assert_true(x->steps > 0);
    x->step[0].stall[MR_STALL_WORKER] = 2000000000;
    advise(x);
    assert_non_null(strstr(x->verdict.line[1], "8.00 s"));
    mr_explanation_free(x);
}

static void without_steps_is_incomplete(void **state)
{
    (void)state;
    struct mr_explanation *x = xt_new(1, 0, 0.1);
    x->duration_ns = XT_NS(10);
    advise(x);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_INCOMPLETE);
    assert_non_null(x->verdict.missing);
    assert_int_equal(x->findings, 0);
    mr_explanation_free(x);
}

static void missing_ranks_and_lost_events_are_incomplete(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(1, 2, 0.2, 0, MR_STALL_STORAGE, 10);
    x->trust.ranks_missing = 3;
    advise(x);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_INCOMPLETE);
    assert_non_null(strstr(x->verdict.missing, "3 ranks"));
    mr_explanation_free(x);
    x = starved(1, 2, 0.2, 0, MR_STALL_STORAGE, 10);
    x->trust.lost = 200;
    advise(x);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_INCOMPLETE);
    mr_explanation_free(x);
}

/* Storage-starved: one reader, reads of 0.3 s against 0.1 s of compute; more readers help as far as anybody knows. */
static void slow_reads_ask_for_readers(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(1, 2, 0.3, 0.01, MR_STALL_STORAGE, 21);
    advise(x);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_INPUT);
    assert_int_equal(x->verdict.cause, MR_STALL_STORAGE);
    assert_first(x, "TH1");
    assert_near(x->finding[0].saves_s, 20.7, 0.02);
    assert_int_equal(x->finding[0].severity, MR_SEVERITY_CRITICAL);
    assert_null(xt_finding(x, "PF1"));
    assert_null(xt_finding(x, "TH2"));
    mr_explanation_free(x);
}

static void storage_at_its_limit_is_named_with_its_rate(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(2, 4, 0.5, 0.01, MR_STALL_STORAGE, 15);
    x->facts.demand_bytes_per_s = 100e6;
    x->facts.streams[0] = 2;
    x->facts.streams[1] = 8;
    x->facts.stream_bytes_per_s[0] = 40e6;
    x->facts.stream_bytes_per_s[1] = 41e6;
    advise(x);
    assert_first(x, "TH4");
    assert_non_null(strstr(x->finding[0].title, "the storage is the limit: 41 MB/s"));
    assert_non_null(strstr(x->verdict.line[1], "The storage is the limit: 41 MB/s"));
    assert_null(xt_finding(x, "TH1"));
    mr_explanation_free(x);
}

static struct mr_explanation *at_its_limit(void)
{
    struct mr_explanation *x = starved(2, 4, 0.5, 0.01, MR_STALL_STORAGE, 15);
    x->facts.demand_bytes_per_s = 100e6;
    x->facts.streams[0] = 2;
    x->facts.streams[1] = 8;
    x->facts.stream_bytes_per_s[0] = 40e6;
    x->facts.stream_bytes_per_s[1] = 41e6;
    return x;
}

/* One rank comes last for want of bytes: another one would, if it did not. */
static void want_of_bytes_is_no_straggler(void **state)
{
    (void)state;
    struct mr_explanation *x = at_its_limit();
    struct mr_explain_culprit c = {.rank = 0, .steps = 95, .waited_ns = XT_NS(5), .lost_ns = XT_NS(5)};
    c.cause[MR_TIME_STALL] = c.stall[MR_STALL_STORAGE] = XT_NS(5);
    x->ranks = 2;
    x->rank = xt_alloc(x, 2 * sizeof(*x->rank));
    memset(x->rank, 0, 2 * sizeof(*x->rank));
    x->rank[0].steps = x->rank[1].steps = 100;
    x->culprit = &c;
    x->culprits = 1;
    advise(x);
    assert_non_null(xt_finding(x, "TH4"));
    assert_null(xt_finding(x, "TL2"));
    assert_int_equal(x->verdict.verdict, MR_VERDICT_INPUT);
    assert_null(strstr(x->verdict.line[0], "Rank 0"));
    assert_non_null(strstr(x->verdict.line[0], "for ranks that waited for data"));
    mr_explanation_free(x);
}

/* A rank that waits for data keeps the others waiting at the barrier: what shortens the waits shortens both. */
static void barriers_behind_waits_go_with_the_waits(void **state)
{
    double saves[2];
    (void)state;
    for (int held = 0; held < 2; held++) {
        struct mr_explanation *x = starved(1, 0, 0.05, 0, MR_STALL_STORAGE, 5);
        struct mr_explain_culprit c[4] = {{.rank = 0}, {.rank = 1}, {.rank = 2}, {.rank = 3}};
        x->ranks = 4; /* each comes last in every fourth step, and costs the others 0.5 s */
        x->rank = xt_alloc(x, 4 * sizeof(*x->rank));
        memset(x->rank, 0, 4 * sizeof(*x->rank));
        for (int i = 0; i < 4; i++) {
            x->rank[i].steps = 100;
            c[i].steps = 25;
            c[i].lost_ns = c[i].cause[MR_TIME_STALL] = c[i].stall[MR_STALL_STORAGE] = XT_NS(0.5);
            c[i].waited_ns = XT_NS(1.5);
        }
        x->culprit = c;
        x->culprits = held ? 4 : 0;
        x->ns[MR_TIME_BARRIER] = XT_NS(1.5); /* 4 x 0.5 s for three of four ranks */
        advise(x);
        assert_int_equal(x->verdict.verdict, MR_VERDICT_INPUT);
        assert_null(xt_finding(x, "TL2"));
        assert_true(!!strstr(x->verdict.line[0], "for ranks that waited") == held);
        const struct mr_finding *f = xt_finding(x, "PF1");
        assert_non_null(f);
        saves[held] = f ? f->saves_s : NAN;
        mr_explanation_free(x);
    }
    assert_near(saves[1] / saves[0], 1 + 1.5 / 5, 0.06);
}

/* Two CPUs make a batch in 35 ms, one computes in 2: a queue of 36 batches would never fill. */
static void workers_that_cannot_keep_up_get_no_deep_queue(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(0, 0, 0.001, 0.069, MR_STALL_DECODE, 8);
    x->facts.compute_s = 0.002;
    x->facts.cpus_per_rank = 2;
    advise(x);
    const struct mr_finding *f = xt_finding(x, "PF1");
    assert_non_null(f);
    const char *ahead = f ? strstr(f->fix, "batches ahead -> ") : NULL;
    assert_non_null(ahead);
    assert_true(ahead && atoi(ahead + strlen("batches ahead -> ")) <= 6);
    mr_explanation_free(x);
}

/* Where our loader reads what PyTorch's does, it is what stages onto a disk. */
static void our_loader_stages_pictures(void **state)
{
    (void)state;
    for (int pictures = 0; pictures < 2; pictures++) {
        struct mr_explanation *x = starved(2, 4, 0.09, 0.01, MR_STALL_STORAGE, 8);
        x->facts.format = pictures ? "jpg" : "npz";
        x->facts.epochs = 3;
        x->facts.read_bytes = 3e9;
        x->facts.dataset_bytes = x->facts.node_epoch_bytes = 1e9;
        x->facts.local_free_bytes = 1e12;
        for (size_t i = 0; i < x->steps; i++)
            x->step[i].epoch = (uint32_t)(3 * i / x->steps);
        advise(x);
        const struct mr_finding *f = xt_finding(x, "CA3");
        assert_non_null(f);
        const char *snippet = f ? f->snippet[MR_IDIOM_PYTORCH] : NULL;
        assert_true(snippet && !!strstr(snippet, "tiers='ssd=/tmp/cache:2GiB'") == pictures);
        mr_explanation_free(x);
    }
}

/* Advice about pictures is for pictures; a file of the start-up is no data that ranks share. */
static void advice_is_of_the_data_in_use(void **state)
{
    (void)state;
    for (int pictures = 0; pictures < 2; pictures++) {
        struct mr_explanation *x = starved(4, 8, 0.01, 0.49, MR_STALL_DECODE, 8);
        x->facts.format = pictures ? "jpg" : "csv";
        x->facts.worker_cpu = 1;
        x->facts.ranks = 2;
        x->facts.read_bytes = 0;
        xt_file(x, "/etc/ssl/openssl.cnf", 12000, 36000, 3, 2);
        advise(x);
        const struct mr_finding *f = xt_finding(x, "CPU1");
        assert_non_null(f);
        assert_true(f && !!strstr(f->fix, "pictures") == pictures);
        assert_true(f && (f->snippet[MR_IDIOM_PYTORCH] != NULL) == pictures);
        assert_null(xt_finding(x, "SH4"));
        mr_explanation_free(x);
    }
}

/* 17 of 19 MB/s in use: larger reads have lower latency and no more bytes. */
static void larger_reads_get_no_more_than_the_storage_has(void **state)
{
    (void)state;
    double saves[2];
    for (int limited = 0; limited < 2; limited++) {
        struct mr_explanation *x = starved(2, 4, 0.5, 0.01, MR_STALL_STORAGE, 15);
        x->read_sizes.ops[12] = 50000;
        x->read_sizes.bytes[12] = 50000 * 4096ull;
        x->read_sizes.dur_ns[12] = XT_NS(50);
        x->facts.batch = 1;
        x->facts.sample_bytes = 4.25e6;
        x->facts.demand_bytes_per_s = limited ? 15.5e6 : 1;
        x->facts.streams[0] = 2;
        x->facts.streams[1] = 8;
        x->facts.stream_bytes_per_s[0] = limited ? 17e6 : 1e9;
        x->facts.stream_bytes_per_s[1] = limited ? 19e6 : 1e9;
        advise(x);
        assert_non_null(xt_finding(x, "SZ1"));
        saves[limited] = xt_finding(x, "SZ1")->saves_s;
        mr_explanation_free(x);
    }
    assert_true(saves[0] > 10 && saves[1] < 3);
}

/* Pictures are not read by h5py. */
static void snippets_are_of_the_format_in_use(void **state)
{
    (void)state;
    const char *formats[] = {NULL, "hdf5", "jpeg"};
    for (int k = 0; k < 3; k++) {
        struct mr_explanation *x = starved(2, 4, 0.5, 0.01, MR_STALL_STORAGE, 15);
        x->read_sizes.ops[12] = 50000;
        x->read_sizes.bytes[12] = 50000 * 4096ull;
        x->read_sizes.dur_ns[12] = XT_NS(50);
        x->facts.format = formats[k];
        advise(x);
        const struct mr_finding *f = xt_finding(x, "SZ1");
        assert_non_null(f);
        assert_int_equal(f->snippet[1] != NULL, k < 2);
        assert_int_equal(f->snippet[2] != NULL, k < 1);
        mr_explanation_free(x);
    }
}

static const struct mr_change *change_of(const struct mr_finding *f, const char *key)
{
    for (size_t i = 0; i < f->changes; i++)
        if (f->change[i].key && !strcmp(f->change[i].key, key))
            return &f->change[i];
    fail_msg("%s does not change %s", f->id, key);
    return NULL;
}

static void assert_change(const struct mr_finding *f, const char *key, uint8_t kind, const char *target,
                          const char *from, const char *to)
{
    const struct mr_change *c = change_of(f, key);
    assert_int_equal(c->kind, kind);
    assert_string_equal(c->target, target);
    assert_int_equal(!c->from, !from);
    if (from)
        assert_string_equal(c->from, from);
    assert_string_equal(c->to, to);
}

/* Typed, with the values before: snippets are made of them. */
static void a_change_is_data_from_which_the_text_is_made(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(1, 2, 0.01, 0.2, MR_STALL_DECODE, 11);
    advise(x);
    const struct mr_finding *f = xt_finding(x, "TH2");
    assert_change(f, "reader.read_threads", MR_CHANGE_OPTION, "workload", "1", "3");
    assert_change(f, "reader.prefetch_size", MR_CHANGE_OPTION, "workload", "2", "6");
    assert_change(f, "num_workers", MR_CHANGE_INJECTION, "torch.utils.data.DataLoader", "1", "3");
    assert_change(f, "prefetch_factor", MR_CHANGE_INJECTION, "torch.utils.data.DataLoader", "2", "2");
    assert_change(f, "persistent_workers", MR_CHANGE_INJECTION, "torch.utils.data.DataLoader", NULL, "true");
    assert_string_equal(f->snippet[MR_IDIOM_MILLRACE], "reader:\n  read_threads: 3\n  prefetch_size: 6");
    assert_string_equal(f->snippet[MR_IDIOM_PYTORCH],
                        "DataLoader(..., num_workers=3, prefetch_factor=2, persistent_workers=True)");
    assert_string_equal(f->snippet[MR_IDIOM_TENSORFLOW], "ds.map(load, num_parallel_calls=3).prefetch(6)");
    assert_string_equal(f->command, "millrace trace -o after.mrt -- python train.py");
    mr_explanation_free(x);
}

/* Sections within sections, values that YAML would read otherwise, options that win over keys. */
static void changes_of_a_workload_are_yaml_and_a_command(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(4, 8, 0.3, 0.01, MR_STALL_STORAGE, 12);
    x->facts.framework = "millrace";
    x->facts.workload = "w.yaml --tiers ram=1MiB";
    x->facts.epochs = 4;
    x->facts.dataset_bytes = x->facts.node_epoch_bytes = x->facts.epoch_bytes = 1e9;
    x->facts.read_bytes = 4e9;
    x->facts.local_free_bytes = 1e12;
    advise(x);
    const struct mr_finding *f = xt_finding(x, "CA3");
    assert_non_null(f);
    assert_string_equal(f->snippet[MR_IDIOM_MILLRACE], "reader:\n  tiers: 'ssd=/tmp/cache:2GiB'");
    assert_string_equal(f->command, "millrace run w.yaml --tiers ssd=/tmp/cache:2GiB");
    mr_explanation_free(x);
}

/* What 'run' prints as a bound, no advice promises to beat. */
static void no_prediction_beats_the_printed_bound(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(1, 2, 0.3, 0.01, MR_STALL_STORAGE, 21);
    x->facts.bound_spare_s = 0.3;
    advise(x);
    for (size_t i = 0; i < x->findings; i++)
        assert_false(x->finding[i].saves_s > 0.3 + 1e-9);
    mr_explanation_free(x);
}

/* 'run' refuses reader.read_type=memory beside tiers, so no finding suggests it there. */
static void commands_are_whole_and_refused_by_nobody(void **state)
{
    (void)state;
    const char *workload[] = {"w.yaml --threads 2", "w.yaml --tiers ram=1GiB", "w.yaml reader.policy=nopfs"};
    for (int k = 0; k < 3; k++) {
        struct mr_explanation *x = at_its_limit();
        x->facts.framework = "millrace";
        x->facts.workload = workload[k];
        advise(x);
        const struct mr_finding *f = xt_finding(x, "TH4");
        assert_non_null(f);
        assert_true(k ? !f->command && !f->snippet[0] : f->command && strstr(f->command, "read_type=memory"));
        mr_explanation_free(x);
    }
    const char *beside[] = {"w.yaml", "w.yaml reader.file_access=collective", "w.yaml reader.read_type=memory"};
    for (int k = 0; k < 3; k++) { /* nor tiers beside ranks that read for others */
        struct mr_explanation *x = at_its_limit();
        x->facts.framework = "millrace";
        x->facts.workload = beside[k];
        x->facts.dataset_bytes = x->facts.node_epoch_bytes = x->facts.epoch_bytes = 1e9;
        x->facts.read_bytes = 4e9;
        x->facts.local_free_bytes = 1e12;
        advise(x);
        assert_int_equal(xt_finding(x, "CA3")->command != NULL, k == 0);
        mr_explanation_free(x);
    }
    struct mr_explanation *x = starved(1, 2, 0.3, 0.01, MR_STALL_STORAGE, 21);
    x->facts.program_cut = true; /* half a command line is none */
    advise(x);
    for (size_t i = 0; i < x->findings; i++)
        assert_null(x->finding[i].command);
    mr_explanation_free(x);
}

/* Locks and servers that serve one at a time gain nothing from more workers: a number "at best" is no headline. */
static void waits_for_neither_storage_nor_cpu_are_a_trial(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(2, 4, 0.001, 0.4, MR_STALL_WORKER, 15);
    x->facts.worker_cpu = 0.02;
    advise(x);
    const struct mr_finding *f = xt_finding(x, "TH2");
    assert_non_null(f);
    assert_true(f->saves_s > 5 && mr_finding_is_bound(f));
    assert_non_null(strstr(x->verdict.line[2], "Worth a trial (TH2)"));
    mr_explanation_free(x);
}

static void storage_that_grows_asks_for_readers(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(2, 4, 0.5, 0.01, MR_STALL_STORAGE, 15);
    x->facts.demand_bytes_per_s = 100e6;
    x->facts.streams[0] = 2;
    x->facts.streams[1] = 8;
    x->facts.stream_bytes_per_s[0] = 40e6;
    x->facts.stream_bytes_per_s[1] = 150e6;
    advise(x);
    assert_first(x, "TH1");
    assert_null(xt_finding(x, "TH4"));
    mr_explanation_free(x);
}

static void slow_decode_with_free_cpus_asks_for_workers(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(1, 2, 0.01, 0.2, MR_STALL_DECODE, 11);
    advise(x);
    assert_first(x, "TH2");
    assert_non_null(strstr(x->finding[0].fix, "workers 1 -> 3"));
    assert_non_null(strstr(x->finding[0].snippet[1], "num_workers=3"));
    assert_near(x->finding[0].saves_s, 10.8, 0.03);
    assert_null(xt_finding(x, "CPU1"));
    mr_explanation_free(x);
}

static void slow_decode_without_a_free_cpu_asks_for_a_cheaper_one(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(4, 8, 0.01, 1.0, MR_STALL_DECODE, 15);
    x->facts.worker_cpu = 0.98;
    advise(x);
    assert_first(x, "CPU1");
    assert_non_null(strstr(x->finding[0].title, "more storage will not help"));
    assert_non_null(strstr(x->verdict.line[1], "more storage will not help"));
    assert_null(xt_finding(x, "TH2"));
    assert_null(xt_finding(x, "TH1"));
    mr_explanation_free(x);
}

/* Pictures that PyTorch's workers decode: our loader, by its published rate as a trial, by a measured one as a number. */
static void decoding_of_pictures_asks_for_our_loader(void **state)
{
    (void)state;
    for (int k = 0; k < 3; k++) {
        struct mr_explanation *x = starved(4, 8, 0.01, 1.0, MR_STALL_DECODE, 15);
        x->facts.worker_cpu = 0.98;
        x->facts.batch = 32;
        xt_file(x, k < 2 ? "/data/a.JPG" : "/data/a.csv", 1000000, 1000000, 1, 1);
        x->facts.our_sample_s = k ? 0.3 / 32 : (double)NAN; /* of a batch 0.3 s of a CPU: less than 4 x 0.1 s */
        advise(x);
        const struct mr_finding *f = xt_finding(x, "LD1");
        assert_int_equal(f != NULL, k < 2);
        if (f) {
            assert_int_equal(mr_finding_is_bound(f), k == 0);
            assert_change(f, "loader", MR_CHANGE_INJECTION, "torch.utils.data.DataLoader",
                          "torch.utils.data.DataLoader", "millrace.torch.DataLoader");
            assert_string_equal(f->snippet[MR_IDIOM_PYTORCH],
                                "from millrace.torch import DataLoader    # the same arguments");
        }
        if (k == 1) { /* all of the wait but the first batch */
            assert_first(x, "LD1");
            assert_near(f->saves_s, 14.9, 0.02);
            assert_non_null(strstr(f->title, "427 pictures/s with 4 threads"));
        }
        mr_explanation_free(x);
    }
}

/* Workers that sleep take no CPU: more of them than CPUs help. */
static void sleeping_workers_are_not_cpu_bound(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(4, 8, 0.01, 1.0, MR_STALL_DECODE, 15);
    x->facts.worker_cpu = 0.02;
    advise(x);
    assert_first(x, "TH2");
    assert_null(xt_finding(x, "CPU1"));
    mr_explanation_free(x);
}

static void idle_readers_ask_for_look_ahead(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(4, 1, 0.18, 0.02, MR_STALL_NOT_STARTED, 9);
    x->facts.storage_busy = 0.38;
    advise(x);
    assert_int_equal(x->verdict.cause, MR_STALL_NOT_STARTED);
    assert_first(x, "PF1");
    assert_near(x->finding[0].saves_s, 9, 0.03);
    assert_non_null(strstr(x->verdict.line[1], "requested too late"));
    mr_explanation_free(x);
}

static void loading_in_the_loop_asks_for_workers_ahead(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(0, 0, 0.05, 0.05, MR_STALL_STORAGE, 10);
    advise(x);
    assert_first(x, "PF1");
    assert_near(x->finding[0].saves_s, 9.9, 0.02);
    assert_non_null(strstr(x->finding[0].title, "loads each batch itself"));
    mr_explanation_free(x);
}

/* In our loader all readers work on one batch. */
static void own_loader_counts_readers_together(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(4, 0, 0.3, 0.02, MR_STALL_STORAGE, 8);
    x->facts.framework = "millrace";
    x->facts.workload = "w.yaml --threads 4 --store \"throttle(latency=1ms, a):posix\" reader.prefetch_size=0 "
                        "train.epochs=2 reader.read_threads=4";
    advise(x);
    assert_first(x, "PF1");
    assert_near(x->finding[0].saves_s, 7.92, 0.02);
    assert_non_null(strstr(x->finding[0].command, /* as it was started, and nothing set twice */
                           "millrace run w.yaml --store \"throttle(latency=1ms, a):posix\" train.epochs=2 "
                           "reader.read_threads=4 reader.prefetch_size="));
    mr_explanation_free(x);
}

static void checkpoints_ask_for_a_burst_buffer(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(2, 4, 0.05, 0.05, MR_STALL_STORAGE, 0.1);
    xt_checkpoints(x, 4, 4, 100000000);
    x->facts.fast_write_bytes_per_s = 1e9;
    x->facts.framework = "millrace";
    advise(x);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_CHECKPOINT);
    assert_first(x, "CK1");
    assert_string_equal(x->finding[0].snippet[MR_IDIOM_MILLRACE],
                        "checkpoint:\n  burst_buffer:\n    folder: /tmp/ckpt");
    assert_near(x->finding[0].saves_s, 3.6, 0.01); /* 100 MB/s -> 1 GB/s */
    mr_explanation_free(x);
}

/* A program of somebody else's: our saver needs no other place to write to. */
static void saves_of_a_program_ask_for_our_saver(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(2, 4, 0.05, 0.05, MR_STALL_STORAGE, 0.1);
    xt_checkpoints(x, 4, 4, 100000000);
    advise(x);
    assert_first(x, "CK2");
    assert_change(&x->finding[0], "saver", MR_CHANGE_INJECTION, "torch.save", "torch.save",
                  "millrace.checkpoint.Saver");
    mr_explanation_free(x);
}

/* Written behind the last save of all, nothing hides it: the end of training is not the end of the program. */
static void the_last_save_is_waited_for(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(2, 4, 0.05, 0.05, MR_STALL_STORAGE, 0.1);
    xt_checkpoints(x, 4, 4, 100000000);
    x->checkpoint[3].end_ns = x->step[x->steps - 1].end_ns;
    x->checkpoint[3].start_ns = x->checkpoint[3].end_ns - XT_NS(1);
    x->duration_ns += XT_NS(5); /* to end the process */
    advise(x);
    assert_near(xt_finding(x, "CK2")->saves_s, 3, 0.05);
    mr_explanation_free(x);
}

/* Without the opens nothing is left to wait for: more than open and stat themselves took of the wait. */
static void fewer_opens_shorten_all_waits(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(1, 2, 0.3, 0.01, MR_STALL_METADATA, 12);
    xt_stall(x, MR_STALL_STORAGE, 9);
    x->batch = xt_alloc(x, x->steps * sizeof(*x->batch));
    for (uint32_t i = 0; i < x->steps; i++)
        x->batch[x->batches++] =
            (struct mr_explain_batch){.step = i, .known = true, .meta_s = 0.22f, .read_s = 0.08f, .cpu_s = 0.01f};
    x->facts.opens_per_sample = 1;
    x->facts.sample_bytes = 4000;
    x->wait[MR_WAIT_METADATA] = XT_NS(12);
    advise(x);
    assert_near(xt_finding(x, "MD1")->saves_s, 20.9, 0.02);
    mr_explanation_free(x);
}

/* Small files that are read at once need packing, not larger reads. */
static void small_files_ask_for_shards_not_for_larger_reads(void **state)
{
    (void)state;
    for (int opens = 0; opens < 2; opens++) {
        struct mr_explanation *x = starved(2, 4, 0.5, 0.01, MR_STALL_STORAGE, 15);
        xt_reads(x, 50000, 4096, 0.001);
        x->facts.opens = opens ? 50000 : 10;
        advise(x);
        assert_int_equal(xt_finding(x, "SZ1") != NULL, !opens);
        mr_explanation_free(x);
    }
}

/* A number is printed where its interval is within a quarter of it; else the finding is a trial. */
static void numbers_are_narrow_or_trials(void **state)
{
    (void)state;
    const struct mr_finding narrow = {.saves_s = 4, .saves_low_s = 3.1, .saves_high_s = 5},
                            wide = {.saves_s = 4, .saves_low_s = 1.9, .saves_high_s = 4.2},
                            none = {.saves_s = 0, .saves_low_s = 0, .saves_high_s = 1};
    assert_false(mr_finding_is_bound(&narrow));
    assert_true(mr_finding_is_bound(&wide));
    assert_false(mr_finding_is_bound(&none));
    struct mr_explanation *x = starved(0, 0, 0.3, 0.01, MR_STALL_STORAGE, 31); /* a loop: 0.1 s of 0.3 is certain */
    advise(x);
    assert_non_null(strstr(x->verdict.line[2], "Worth a trial (PF1)"));
    assert_non_null(strstr(x->verdict.line[2], "at least -"));
    mr_explanation_free(x);
}

static void checkpoints_of_unknown_size_ask_for_nothing(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(2, 4, 0.05, 0.05, MR_STALL_STORAGE, 0.1);
    xt_checkpoints(x, 4, 4, 0); /* spans alone: a rate of 0 MB/s would be infinitely slow */
    advise(x);
    assert_null(xt_finding(x, "CK1"));
    mr_explanation_free(x);
}

static void small_slow_reads_are_found_within_the_stall(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(1, 2, 0.3, 0.01, MR_STALL_STORAGE, 21);
    xt_reads(x, 66000, 4096, 450e-6);
    advise(x);
    const struct mr_finding *f = xt_finding(x, "SZ1");
    assert_non_null(f);
    assert_true(f->saves_s > 15 && f->saves_s <= 21);
    double adds = 0;
    for (size_t i = 0; i < x->findings; i++)
        adds += x->finding[i].adds_s;
    assert_true(adds <= 21.01); /* A2 */
    mr_explanation_free(x);
}

static void hidden_patterns_are_notes_only(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(2, 4, 0.05, 0.05, MR_STALL_STORAGE, 0);
    xt_reads(x, 66000, 4096, 450e-6);
    advise(x);
    const struct mr_finding *f = xt_finding(x, "SZ1");
    assert_non_null(f);
    assert_true(f->potential);
    assert_int_equal(f->severity, MR_SEVERITY_NOTE);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_HEALTHY);
    mr_explanation_free(x);
}

static void many_opens_are_metadata_bound(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(1, 2, 0.3, 0.01, MR_STALL_METADATA, 21);
    x->facts.opens_per_sample = 1;
    x->facts.sample_bytes = 100000;
    x->wait[MR_WAIT_METADATA] = XT_NS(21);
    advise(x);
    const struct mr_finding *f = xt_finding(x, "MD1");
    assert_non_null(f);
    assert_near(f->saves_s, 21, 0.01);
    mr_explanation_free(x);
}

static void every_rule_can_be_explained(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(1, 2, 0.3, 0.01, MR_STALL_STORAGE, 21);
    struct mr_error err = {0};
    char *text = NULL;
    advise(x);
    for (unsigned i = 0; i < mr_rule_count; i++) {
        assert_int_equal(mr_advise_text(x, mr_rules[i].id, &text, &err), 0);
        assert_non_null(strstr(text, mr_rules[i].id));
        assert_non_null(strstr(text, "fires when"));
        free(text);
    }
    assert_int_equal(mr_advise_text(x, "TH1", &text, &err), 0);
    assert_non_null(strstr(text, "computed as"));
    assert_non_null(strstr(text, "num_workers="));
    assert_non_null(strstr(text, "CPU1"));
    free(text);
    assert_int_equal(mr_advise_text(x, "XY9", &text, &err), MR_E_USAGE);
    mr_explanation_free(x);
}

/* ---- rules that need more than the pipeline ---- */

/* Two epochs, reads of which the second could come from memory. */
static void data_that_fit_into_memory_are_cached(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(2, 4, 0.6, 0.01, MR_STALL_STORAGE, 20);
    for (size_t i = 50; i < 100; i++)
        x->step[i].epoch = 1;
    x->facts.epochs = 2;
    x->facts.dataset_bytes = x->facts.node_epoch_bytes = 1e9;
    x->facts.read_bytes = 2e9;
    x->facts.memory_free_bytes = 16e9;
    x->facts.batch = 100;
    x->facts.sample_bytes = 200e3;
    x->facts.demand_bytes_per_s = 200e6;
    x->facts.streams[0] = 2;
    x->facts.streams[1] = 8;
    x->facts.stream_bytes_per_s[0] = x->facts.stream_bytes_per_s[1] = 66e6;
    advise(x);
    assert_first(x, "CA2");
    assert_near(x->finding[0].saves_s, 10, 0.05); /* all of the second epoch's waits */
    x->facts.from[0] = x->facts.from[3] = 0.5;    /* tiers do it already */
    x->facts.from[1] = x->facts.from[2] = 0;
    advise(x);
    assert_null(xt_finding(x, "CA2"));
    x->facts.from[0] = NAN;
    x->facts.memory_free_bytes = 0.5e9;
    advise(x);
    assert_null(xt_finding(x, "CA2"));
    mr_explanation_free(x);
}

static void every_rank_reading_everything_is_a_fault_only_where_they_should_not(void **state)
{
    (void)state;
    struct mr_explanation *x = xt_new(4, 100, 0.1);
    xt_stall(x, MR_STALL_STORAGE, 10);
    xt_loading(x, 1, 2, 0.2, 0, 1);
    x->facts.same_offsets = 1;
    x->facts.dataset_bytes = 1e8;
    x->facts.epoch_bytes = x->facts.read_bytes = 4e8;
    advise(x);
    assert_non_null(xt_finding(x, "SH2"));
    assert_null(xt_finding(x, "SH1"));
    x->facts.sharded = true;
    advise(x);
    assert_non_null(xt_finding(x, "SH1"));
    assert_null(xt_finding(x, "SH2"));
    x->facts.same_offsets = NAN;
    x->facts.shared_share = 1;
    x->facts.epoch_bytes = 1e8; /* seen by all over the epochs, by one in each */
    advise(x);
    assert_null(xt_finding(x, "SH1"));
    mr_explanation_free(x);
}

static void epochs_that_start_slowly_ask_for_persistent_workers(void **state)
{
    (void)state;
    struct mr_explanation *x = starved(4, 8, 0.05, 0.05, MR_STALL_WORKER, 4);
    x->facts.epochs = 5;
    x->facts.step_s = 0.1;
    x->facts.first_step_s = 1.1;
    for (size_t i = 0; i < x->steps; i++)
        x->step[i].epoch = (uint32_t)(i / 20);
    advise(x);
    assert_first(x, "EP1");
    assert_near(x->finding[0].saves_s, 3.5, 0.02); /* 4 starts; each epoch still waits for its first batch */
    assert_non_null(strstr(x->finding[0].snippet[1], "persistent_workers"));
    mr_explanation_free(x);
}

static void tiny_reads_of_a_small_file_are_a_note(void **state)
{
    (void)state;
    struct mr_explanation *x = xt_new(1, 100, 0.1);
    xt_file(x, "stats.h5", 4096, 25000, 50, 1);
    x->file[0].streamed = 49;
    x->file[0].consecutive = 6;
    x->file[0].dur_ns = 1000000;
    advise(x);
    assert_non_null(xt_finding(x, "MD2"));
    assert_int_equal(xt_finding(x, "MD2")->severity, MR_SEVERITY_NOTE);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_HEALTHY);
    mr_explanation_free(x);
}

static void mapped_files_that_nobody_saw_being_read_are_told(void **state)
{
    (void)state;
    struct mr_explanation *x = xt_new(1, 100, 0.1);
    x->facts.program = "python train.py";
    x->facts.mapped_bytes = 625e6;
    x->facts.read_bytes = 1000;
    advise(x);
    assert_non_null(xt_finding(x, "VIS1"));
    assert_non_null(strstr(xt_finding(x, "VIS1")->command, "--mmap"));
    mr_explanation_free(x);
}

/* What the rank that the others wait for does is what all of them lose by. */
static void a_rank_is_blamed_for_what_it_did(void **state)
{
    static const struct {
        uint8_t did, verdict;
        const char *says;
    } cases[] = {{MR_TIME_STALL, MR_VERDICT_INPUT, "Input-bound. Rank 1 waited for data"},
                 {MR_TIME_CHECKPOINT, MR_VERDICT_CHECKPOINT, "Checkpoint-bound. Rank 1 saved checkpoints"},
                 {MR_TIME_COMPUTE, MR_VERDICT_IMBALANCE, "Imbalance-bound. Ranks waited for other ranks"}};
    (void)state;
    for (unsigned i = 0; i < MR_ARRAY_LEN(cases); i++) {
        struct mr_explanation *x = xt_new(2, 100, 0.1);
        xt_time(x, MR_TIME_BARRIER, 2.5); /* 5 s of rank 0 */
        x->ns[cases[i].did] += XT_NS(2.5);
        x->rank[1].ns[cases[i].did] += XT_NS(5);
        struct mr_explain_culprit c = {.rank = 1, .steps = 95, .waited_ns = XT_NS(5), .lost_ns = XT_NS(5)};
        c.cause[cases[i].did] = XT_NS(5);
        c.stall[MR_STALL_STORAGE] = cases[i].did == MR_TIME_STALL ? XT_NS(5) : 0;
        x->culprit = &c;
        x->culprits = 1;
        advise(x);
        assert_int_equal(x->verdict.verdict, cases[i].verdict);
        assert_non_null(strstr(x->verdict.line[0], cases[i].says));
        const struct mr_finding *f = xt_finding(x, "TL2");
        assert_non_null(f);
        assert_true(!!strstr(f->title, "(storage)") == (cases[i].did == MR_TIME_STALL));
        mr_explanation_free(x);
    }
}

/* A healthy training whose evaluation is starved: its loader is another one, and only that needs workers. */
static void a_starved_evaluation_needs_its_own_workers(void **state)
{
    (void)state;
    struct mr_explanation *x = xt_new(1, 100, 0.1);
    xt_loading(x, 4, 8, 0.001, 0.05, 0.2);
    for (size_t i = 80; i < 100; i++) {
        x->step[i].phase = MR_EXPLAIN_EVAL;
        x->step[i].ns[MR_TIME_STALL] = x->step[i].stall[MR_STALL_DECODE] = XT_NS(0.15);
        x->stall[MR_STALL_DECODE] += XT_NS(0.15);
        x->ns[MR_TIME_STALL] += XT_NS(0.15);
    }
    x->facts.cpus_per_rank = 16;
    x->facts.evaluation_workers = 2;
    x->facts.evaluation_load_s = 0.5;
    x->facts.evaluation_compute_s = 0.1;
    advise(x);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_INPUT);
    assert_near(x->verdict.stall_s, 3, 1e-6);
    assert_near(x->verdict.evaluation_s, 3, 1e-6);
    assert_first(x, "EV1");
    assert_near(x->finding[0].saves_s, 2.5, 0.1); /* 5 workers keep up once they have begun */
    assert_string_equal(x->finding[0].fix, "the evaluation's loader: workers 2 -> 5");
    for (size_t i = 1; i < x->findings; i++)
        assert_int_equal(x->finding[i].severity, MR_SEVERITY_NOTE); /* training lacks nothing */
    mr_explanation_free(x);
}

/* Saves of 1 s, every 1.2 s: writing beside training would never be done in time. Every 5 s it would. */
static void saves_that_follow_at_once_want_to_be_fewer(void **state)
{
    (void)state;
    for (unsigned slow = 0; slow < 2; slow++) {
        struct mr_explanation *x = xt_new(1, slow ? 400 : 20, 0.1);
        xt_checkpoints(x, 10, 10, 10ull << 30);
        advise(x);
        assert_int_equal(x->verdict.verdict, MR_VERDICT_CHECKPOINT);
        assert_int_equal(xt_finding(x, "CK4") == NULL, slow);
        if (!slow) {
            assert_first(x, "CK4");
            assert_true(x->finding[0].saves_s > 9.9);
        }
        mr_explanation_free(x);
    }
}

/* One reader tells nothing about several: that reading goes on beside computing is certain, more is not. */
static void what_nobody_tried_is_at_best(void **state)
{
    (void)state;
    struct mr_explanation *x = xt_new(1, 100, 0.01);
    xt_loading(x, 0, 0, 0.04, 0.001, 1);
    xt_stall(x, MR_STALL_STORAGE, 4.1);
    x->facts.compute_s = 0.01;
    x->facts.cpus_per_rank = 8;
    advise(x);
    assert_first(x, "PF1");
    assert_true(x->finding[0].saves_s > 3);
    assert_true(x->finding[0].saves_low_s < 1.1); /* what computing hides */
    assert_non_null(strstr(x->finding[0].title, "was not tried"));
    mr_explanation_free(x);
}

static void two_steps_are_too_few_to_judge(void **state)
{
    (void)state;
    for (unsigned steps = 2; steps < 4; steps++) {
        struct mr_explanation *x = xt_new(1, steps, 1);
        advise(x);
        assert_int_equal(x->verdict.verdict, steps < 3 ? MR_VERDICT_INCOMPLETE : MR_VERDICT_HEALTHY);
        mr_explanation_free(x);
    }
}

static void a_rank_that_is_always_last_is_named(void **state)
{
    (void)state;
    struct mr_explanation *x = xt_new(4, 100, 0.1);
    xt_time(x, MR_TIME_BARRIER, 5);
    struct mr_explain_culprit c = {.rank = 2, .steps = 95, .waited_ns = XT_NS(15), .lost_ns = XT_NS(4.8)};
    x->culprit = &c;
    x->culprits = 1;
    advise(x);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_IMBALANCE);
    assert_first(x, "TL2");
    assert_near(x->finding[0].saves_s, 4.8, 0.01);
    mr_explanation_free(x);
}

/* Whatever is unknown, nothing is claimed (A3). */
static void unknown_facts_make_no_rule_fire(void **state)
{
    (void)state;
    struct mr_explanation *x = xt_new(2, 10, 0.1);
    xt_stall(x, MR_STALL_UNKNOWN, 3);
    advise(x);
    assert_int_equal(x->verdict.verdict, MR_VERDICT_INPUT);
    assert_int_equal(x->findings, 0);
    mr_explanation_free(x);
}

static bool fires(const struct mr_explanation *x, const char *id)
{
    for (size_t i = 0; i < x->findings; i++)
        if (!strcmp(x->finding[i].id, id))
            return true;
    return false;
}

/* What requests to object storage wait for decides which rule fires; none does where there were none. */
static void requests_to_object_storage_are_judged_by_what_they_wait_for(void **state)
{
    static const struct {
        struct mr_explain_objects o;
        const char *fires; /* of OB1 to OB5 */
    } rows[] = {
        {{.client = NULL, .requests = 1000}, ""},
        {{.client = "boto3", .requests = 20, .bytes = 2e6, .first_byte_s = 9, .answer_s = 10, .in_flight = 1}, ""},
        {{.client = "boto3", .requests = 1000, .bytes = 1e8, .first_byte_s = 9, .answer_s = 10, .in_flight = 2}, "12"},
        {{.client = "boto3", .requests = 1000, .bytes = 1e8, .first_byte_s = 9, .answer_s = 10, .in_flight = 40}, "1"},
        {{.client = "boto3", .requests = 100, .bytes = 1e9, .first_byte_s = 1, .answer_s = 10, .in_flight = 1}, "3"},
        {{.client = "boto3", .requests = 100, .bytes = 1e9, .first_byte_s = 1, .answer_s = 10, .in_flight = 9}, ""},
        {{.client = "boto3",
          .requests = 100,
          .bytes = 1e9,
          .first_byte_s = 1,
          .answer_s = 10,
          .in_flight = 9,
          .connections = 90},
         "4"},
        {{.client = "millrace",
          .requests = 100,
          .bytes = 1e9,
          .first_byte_s = 1,
          .answer_s = 10,
          .in_flight = 9,
          .retries = 5},
         "5"},
    };
    (void)state;
    for (size_t i = 0; i < MR_ARRAY_LEN(rows); i++) {
        struct mr_explanation *x = starved(2, 4, 0.05, 0.05, MR_STALL_NETWORK, 5);
        x->facts.objects = rows[i].o;
        advise(x);
        for (char k = '1'; k <= '5'; k++) {
            char id[] = {'O', 'B', k, 0};
            if (fires(x, id) != (strchr(rows[i].fires, k) != NULL))
                fail_msg("row %zu: %s %s", i, id, fires(x, id) ? "fires" : "is silent");
        }
        mr_explanation_free(x);
    }
}

/* The beginning of an attribute lustre.lov: magic, pattern, two numbers of the object, size and count of stripes. */
static void stripes_of_a_file_are_read(void **state)
{
    uint32_t words[12] = {0x0BD10BD0, 1, 7, 0, 9, 0, 1 << 20, 4};
    double count = -1, bytes = -1;
    (void)state;
    assert_true(mr_lustre_stripes(words, sizeof words, &count, &bytes));
    assert_true(count == 4 && bytes == 1 << 20);
    words[0] = 0x0BD60BD0; /* in parts */
    assert_false(mr_lustre_stripes(words, sizeof words, &count, &bytes));
    words[0] = 0x0BD30BD0;
    assert_false(mr_lustre_stripes(words, 29, &count, &bytes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stripes_of_a_file_are_read),
        cmocka_unit_test(only_a_long_startup_is_startup_bound),
        cmocka_unit_test(healthy_run_has_no_finding_above_note),
        cmocka_unit_test(verdict_says_the_seconds_of_the_table),
        cmocka_unit_test(without_steps_is_incomplete),
        cmocka_unit_test(missing_ranks_and_lost_events_are_incomplete),
        cmocka_unit_test(slow_reads_ask_for_readers),
        cmocka_unit_test(storage_at_its_limit_is_named_with_its_rate),
        cmocka_unit_test(storage_that_grows_asks_for_readers),
        cmocka_unit_test(want_of_bytes_is_no_straggler),
        cmocka_unit_test(barriers_behind_waits_go_with_the_waits),
        cmocka_unit_test(workers_that_cannot_keep_up_get_no_deep_queue),
        cmocka_unit_test(advice_is_of_the_data_in_use),
        cmocka_unit_test(our_loader_stages_pictures),
        cmocka_unit_test(larger_reads_get_no_more_than_the_storage_has),
        cmocka_unit_test(snippets_are_of_the_format_in_use),
        cmocka_unit_test(a_change_is_data_from_which_the_text_is_made),
        cmocka_unit_test(changes_of_a_workload_are_yaml_and_a_command),
        cmocka_unit_test(no_prediction_beats_the_printed_bound),
        cmocka_unit_test(commands_are_whole_and_refused_by_nobody),
        cmocka_unit_test(waits_for_neither_storage_nor_cpu_are_a_trial),
        cmocka_unit_test(slow_decode_with_free_cpus_asks_for_workers),
        cmocka_unit_test(slow_decode_without_a_free_cpu_asks_for_a_cheaper_one),
        cmocka_unit_test(decoding_of_pictures_asks_for_our_loader),
        cmocka_unit_test(sleeping_workers_are_not_cpu_bound),
        cmocka_unit_test(idle_readers_ask_for_look_ahead),
        cmocka_unit_test(loading_in_the_loop_asks_for_workers_ahead),
        cmocka_unit_test(own_loader_counts_readers_together),
        cmocka_unit_test(checkpoints_ask_for_a_burst_buffer),
        cmocka_unit_test(saves_of_a_program_ask_for_our_saver),
        cmocka_unit_test(the_last_save_is_waited_for),
        cmocka_unit_test(fewer_opens_shorten_all_waits),
        cmocka_unit_test(small_files_ask_for_shards_not_for_larger_reads),
        cmocka_unit_test(numbers_are_narrow_or_trials),
        cmocka_unit_test(checkpoints_of_unknown_size_ask_for_nothing),
        cmocka_unit_test(small_slow_reads_are_found_within_the_stall),
        cmocka_unit_test(hidden_patterns_are_notes_only),
        cmocka_unit_test(many_opens_are_metadata_bound),
        cmocka_unit_test(every_rule_can_be_explained),
        cmocka_unit_test(data_that_fit_into_memory_are_cached),
        cmocka_unit_test(every_rank_reading_everything_is_a_fault_only_where_they_should_not),
        cmocka_unit_test(epochs_that_start_slowly_ask_for_persistent_workers),
        cmocka_unit_test(tiny_reads_of_a_small_file_are_a_note),
        cmocka_unit_test(mapped_files_that_nobody_saw_being_read_are_told),
        cmocka_unit_test(a_rank_is_blamed_for_what_it_did),
        cmocka_unit_test(a_starved_evaluation_needs_its_own_workers),
        cmocka_unit_test(saves_that_follow_at_once_want_to_be_fewer),
        cmocka_unit_test(what_nobody_tried_is_at_best),
        cmocka_unit_test(two_steps_are_too_few_to_judge),
        cmocka_unit_test(a_rank_that_is_always_last_is_named),
        cmocka_unit_test(unknown_facts_make_no_rule_fire),
        cmocka_unit_test(requests_to_object_storage_are_judged_by_what_they_wait_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
