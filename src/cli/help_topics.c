/* Topics of `millrace help` that are not commands. */
#include "cli/help_topics.h"

#include "cli/help.h"
#include "conf/workload.h"
#include "format/format.h"
#include "policy/policy_list.h"
#include "store/store.h"

#include <millrace/plugin.h>
#include <millrace/plugin_checkpoint.h>

static void print_topics(FILE *out)
{
    fputs("topics ('millrace help TOPIC'):\n", out);
    for (const struct mr_help_topic *t = mr_help_topics; t->name; t++)
        fprintf(out, "  %-14s %s\n", t->name, t->summary);
    fputs("Every command is a topic, too.\n", out);
}

/* The key reference: every section of a workload, from the tables. */
static void print_config(FILE *out)
{
    mr_help_wrap(
        out,
        "Keys of a workload file. Sections are DLIO's; on the command line a key is written section.key=value, "
        "with or without 'workload.' before it. Precedence: default < file < environment < override.\n",
        0);
    for (int i = 0; mr_workload_sections[i].table; i++) {
        const struct mr_option_table *t = mr_workload_sections[i].table;
        fprintf(out, "\n%s%s - %s\n", *t->section ? t->section : "(top level)", *t->section ? ":" : "", t->doc);
        mr_help_options(out, t, false);
    }
    fputs("\nx-millrace: - What DLIO has no key for; it ignores the block\n"
          "  source: TEXT          Where the figures come from.\n"
          "  ranks: N              Ranks they were taken with; the default of '--ranks'.\n"
          "  scale: N | MAP        Default down-scaling, {default: 0.01, keep: [batch_size]}.\n"
          "  storage_model: NAME   Storage to emulate so that the figures reproduce.\n"
          "  variants: MAP         {NAME: {ranks: N, storage_model: NAME, SECTION: MAP}}: what differs, for "
          "expectations.\n"
          "  expect: LIST          Checks: {metric: NAME, eq|ge|le: N, tol: 1%, class: exact|shaped|native}.\n"
          "  notes: TEXT | LIST    Remarks.\n"
          "  SECTION: MAP          Any section above, for keys that only Millrace has.\n",
          out);
}

static void print_formats(FILE *out)
{
    fputs("formats of data sets:\n", out);
    for (const struct mr_format_ops *const *f = mr_format_registry(); *f; f++) {
        fprintf(out, "  %-20s %s\n", (*f)->name, (*f)->extensions ? (*f)->extensions : "");
        mr_help_wrap(out, (*f)->doc, 8);
    }
}

/* Backends and shims, from their tables. */
static void print_store_part(FILE *out, const struct mr_store_ops *s)
{
    /* Store options come from the stack's text only, so they have no variables to show. */
    struct mr_option_table t = s->options;
    t.section = "";
    fprintf(out, "\n%s\n", s->name);
    mr_help_wrap(out, s->doc, 4);
    if (t.options)
        mr_help_options(out, &t, false);
}

static void print_store(FILE *out)
{
    mr_help_wrap(
        out,
        "A storage stack is one backend with any number of shims in front of it, the leftmost outermost; options stand "
        "in parentheses, or after a comma for a backend:\n\n"
        "  posix\n  uring,direct=true\n  throttle(bandwidth=163MB,latency=8ms):posix\n"
        "  trace(file=\"a,b.mrt\"):posix\n",
        0);
    for (int shims = 0; shims < 2; shims++) {
        fprintf(out, "\n%s:\n", shims ? "shims" : "backends");
        for (const struct mr_store_ops *const *s = mr_store_registry(); *s; s++)
            if ((*s)->is_shim == (shims == 1))
                print_store_part(out, *s);
    }
}

static void print_policies(FILE *out)
{
    fputs("policies: where samples are kept and fetched from\n", out);
    for (int i = 0; i < mr_policy_count(); i++)
        fprintf(out, "  %-22s %s%s\n", mr_policy_name((enum mr_policy_id)i), mr_policy_doc((enum mr_policy_id)i),
                mr_policy_reorders((enum mr_policy_id)i) ? " (changes the order of samples)" : "");
}

static void print_plugins(FILE *out)
{
    mr_help_wrap(
        out,
        "A plug-in is a shared object of yours with stores, formats, policies or checkpoint engines. It is found "
        "through "
        "the environment variable MILLRACE_PLUGIN_PATH (shared objects or folders of them, separated by ':') or "
        "through "
        "the key 'plugin' of a workload file (with --allow-plugins), also as an override: plugin=./mine.so. What it "
        "brings is then used by "
        "its "
        "name, like what is built in: --format, --store, --policy, checkpoint.engine.\n\n"
        "It exports one symbol, 'mr_plugin', made by MR_PLUGIN_DEFINE of <millrace/plugin.h>, and calls the functions "
        "of "
        "the program that loads it:\n\n"
        "  cc -shared -fPIC -I PREFIX/include -o mine.so mine.c\n\n"
        "The headers <millrace/plugin_store.h>, plugin_format.h, plugin_policy.h and plugin_checkpoint.h are the "
        "manual; "
        "examples/plugins has a skeleton of each kind. abi and size, kind, name and operations are checked; a plug-in "
        "that fails a check is refused with the reason.\n",
        0);
    fputs("\nloaded:\n", out);
    for (unsigned i = 0; mr_plugin_get(i); i++) {
        const struct mr_plugin_info *p = mr_plugin_get(i);
        fprintf(out, "  %-18s %-20s %s\n", p->kind, p->name, p->file);
        mr_help_wrap(out, p->doc, 8);
    }
    if (!mr_plugin_get(0))
        fputs("  none\n", out);
    fputs("\ncheckpoint engines:\n", out);
    for (const struct mr_checkpoint_engine_ops *const *e = mr_checkpoint_engine_registry(); *e; e++) {
        fprintf(out, "  %s\n", (*e)->name);
        mr_help_wrap(out, (*e)->doc, 8);
    }
}

static const char metrics_text[] =
    "Figures of 'millrace run', on the terminal and in summary.json; doc/reference/metrics.md defines all of them.\n\n"
    "  AU             share of the steps' time that the accelerators computed; 'millrace help au'\n"
    "  samples/s      samples of all ranks over the wall clock of training\n"
    "  read rate      bytes really read over the same time (MB/s: powers of 1000, MiB/s: of 1024)\n"
    "  stall          time a step waited for its batch: median, 99th percentile, longest\n"
    "  time split     compute, data stall, checkpoint, barrier, copy, other: shares of the run, sum 100 %\n"
    "  at most Nx     how much faster the run were without any data stall and checkpoint\n"
    "  demand         what the ranks would read per second if they never waited\n"
    "  supply         what they got per second in the steps that stalled\n"
    "  headroom       supply / demand; below 1 storage or decoding cannot keep up\n"
    "  imbalance      how far the slowest rank of a step is from the mean\n"
    "  by DLIO        the same run by DLIO's formulas, to compare with results of DLIO\n"
    "  trust, doubt   what the machine, the page cache and the harness did to the figures\n\n"
    "Ratios are between 0 and 1 in JSON and percent on the terminal. Names in JSON end in their unit: _s, _bytes, "
    "_bytes_per_s.\n";

static const char au_text[] =
    "AU, accelerator utilisation, is the share of a training step's time that the accelerator computes:\n\n"
    "  AU = sum of compute / sum of (load + copy + compute + barrier)\n\n"
    "per rank over all training steps but the first, then the mean over ranks. Checkpoints and evaluation are not in "
    "it. Millrace sleeps the compute time of the workload, so AU says what the storage does to the accelerators, not "
    "how fast they are.\n\n"
    "MLPerf Storage asks for 90 % (unet3d, resnet50) or 70 % (cosmoflow); the key is metric.au. A step of compute time "
    "C that must reach 90 % may wait at most C / 9 for its data: unet3d_h100 computes 0.323 s and may wait 0.036 s.\n\n"
    "A high AU proves storage fast enough only when the data was really read from it: see 'trust' and 'doubt' below "
    "the "
    "figures, --cache cold and --strict-trust. 'millrace run --find-max-accelerators' searches how many ranks keep the "
    "workload's AU.\n\n"
    "  millrace run unet3d_h100 --data /data/unet3d --cache cold --strict-trust\n";

const struct mr_help_topic mr_help_topics[] = {
    {"formats", "the file formats", NULL, print_formats},
    {"policies", "placement and prefetch policies", NULL, print_policies},
    {"store", "storage stacks: backends, shims and their options", NULL, print_store},
    {"plugins", "stores, formats, policies and checkpoint engines of yours", NULL, print_plugins},
    {"config", "every key of a workload file", NULL, print_config},
    {"topics", "the list of topics", NULL, print_topics},
    {"units", "how to write sizes, times, numbers, lists and distributions",
     "Sizes: 4096 (bytes), 256KiB, 1.5GiB (powers of 1024; K, M, G, T alone mean the same), 100MB (powers of 1000).\n"
     "Times: 1.3 or 1.3s (seconds), 200ms, 50us, 10ns, 5min, 2h, 1d.\n"
     "Numbers: 1000, 1_000, 1e6, 12.5, 90%. Infinity, not-a-number and hexadecimal are refused.\n"
     "Switches: true false, yes no, on off, 1 0.\n"
     "Lists: [a, b, \"c d\"]. Dimensions: [224, 224, 3] or 224x224x3.\n"
     "Distributions of time: a number of seconds, or {type: normal, mean: 1.0, stdev: 0.1}, {type: uniform, min: 1, "
     "max: 2}, {type: gamma, shape: 2, scale: 0.5}, {type: exponential, scale: 1}, {type: poisson, lam: 3}.\n",
     NULL},
    {"metrics", "what the figures of a run mean", metrics_text, NULL},
    {"au", "accelerator utilisation: what it is, and what 90 % asks of the storage", au_text, NULL},
    {"exit-status", "what the exit status means",
     "  0    success\n  1    internal error\n  2    wrong usage or configuration\n  3    a budget or expectation was "
     "not met\n"
     "  4    a bad input file\n  5    an I/O error, also when standard output cannot be written\n"
     "  6    an incomplete or untrusted result\n  130  interrupted\n",
     NULL},
    {"environment", "environment variables",
     "Every option has a variable MILLRACE_<COMMAND>_<OPTION>, and every configuration key has "
     "MILLRACE_<SECTION>_<KEY> "
     "(for example MILLRACE_READER_BATCH_SIZE); both stand below the command line and above the workload file.\n"
     "MILLRACE_WORKLOADS is a folder with workload files, searched after --config-dir.\n"
     "MILLRACE_PLUGIN_PATH lists plug-ins, or folders of them, separated by ':'; see 'millrace help plugins'.\n",
     NULL},
    {NULL, NULL, NULL, NULL},
};
