/* The options of a job as option rows. A command puts them into its table with the offset of its struct mr_job_options;
 * mr_job_options_table is the same for code that has no command line (sweeps, saved options, commands that findings
 * suggest). To add one: a field and a row here; where it stands for a key of the workload, a line in
 * mr_job_option_pairs. */
#ifndef MR_CONF_JOB_OPTIONS_H
#define MR_CONF_JOB_OPTIONS_H

#include "conf/option.h"

#include <jansson.h>

/* What is asked of a job beyond its workload. Each field has a row below. */
struct mr_job_options {
    const char *workload, *config_dir, *data, *out, *store, *checkpoint_store, *checkpoint_folder, *burst_buffer,
        *system, *trace, *policy, *tiers, *peers;
    bool lenient, allow_plugins, verify, generate, strict_trust, expect, probe, overwrite, copy_to_device,
        preprocess_sleep, cache_each_epoch, ceiling;
    int compute, cache, io; /* enums of trainer.h and loader.h */
    int64_t ranks, threads, lookahead, seed, keep_last;
    double scale; /* of checkpoints */
    uint64_t checkpoint_every_ns, max_time_ns, stall_after_ns, rank_timeout_ns;
};

extern const struct mr_option_table mr_job_options_table;
/* Names of the choices, in the order of the enums. */
extern const char *const mr_job_computes[], *const mr_job_caches[], *const mr_job_ios[];

/* Options that stand for a key of the workload and win over it. */
struct mr_job_option_pair {
    const char *option, *key;
    bool is_override; /* given to the workload as key=value; else the job itself prefers the option */
};
extern const struct mr_job_option_pair mr_job_option_pairs[]; /* ends with option NULL */

/* {"ranks": "4", ...}: every option as text; NULL when out of memory. */
json_t *mr_job_options_to_json(const struct mr_job_options *opt);
/* Back again. Options that are missing (an older version wrote it) have their defaults. Errors: those of
 * mr_option_parse. */
int mr_job_options_from_json(const json_t *given, struct mr_arena *a, struct mr_job_options *out, struct mr_error *err);

#define MR_JOB_ROW(at, k, field, t, d, ...)                                                                            \
    {                                                                                                                  \
        .key = k, .type = MR_OPT_##t, .offset = (at) + offsetof(struct mr_job_options, field), .def = d, __VA_ARGS__   \
    }

#define MR_JOB_OPTION_ROWS(at)                                                                                         \
    MR_JOB_ROW(at, "workload", workload, STRING, "", .flags = MR_OPTF_POSITIONAL,                                      \
               .doc = "A preset's name or a workload file; the same as workload=NAME."),                               \
        MR_JOB_ROW(                                                                                                    \
            at, "ranks", ranks, INT, "0", .min = 0, .max = 1e6,                                                        \
            .doc =                                                                                                     \
                "Ranks of the job (one emulated accelerator each), started on this machine; 0: what mpirun or srun "   \
                "started, else "                                                                                       \
                "what the workload was described with, else 1."),                                                      \
        MR_JOB_ROW(at, "data", data, STRING, "", .short_flag = 'd',                                                    \
                   .doc = "Folder of the data set; default: the workload's data_folder."),                             \
        MR_JOB_ROW(at, "out", out, STRING, "", .short_flag = 'o', .flags = MR_OPTF_RESULT,                             \
                   .doc =                                                                                              \
                       "Folder of the results; default: the workload's output.folder, else a new one in results/."),   \
        MR_JOB_ROW(at, "overwrite", overwrite, BOOL, "false", .flags = MR_OPTF_RESULT,                                 \
                   .doc = "Replaces the results of another run that lie in the folder; without it they are kept and "  \
                          "the run is refused."),                                                                      \
        MR_JOB_ROW(at, "trace", trace, STRING, "", .flags = MR_OPTF_RESULT,                                            \
                   .doc = "Writes every event of loader, trainer and checkpoints to this file; without it the steps "  \
                          "go to trace.mrt in the results folder.",                                                    \
                   .example = "--trace run.mrt"),                                                                      \
        MR_JOB_ROW(at, "generate", generate, BOOL, "false", .short_flag = 'g',                                         \
                   .doc = "Makes the data set if it is not there; workflow.generate_data=true does the same."),        \
        MR_JOB_ROW(at, "threads", threads, INT, "0", .min = 0, .max = 4096, .short_flag = 't',                         \
                   .doc = "Reading threads per rank; 0: the workload's read_threads."),                                \
        MR_JOB_ROW(at, "lookahead", lookahead, INT, "-1", .min = -1, .max = 1e6,                                       \
                   .doc = "Batches read ahead of the trainer; -1: the workload's prefetch_size."),                     \
        MR_JOB_ROW(at, "policy", policy, STRING, "",                                                                   \
                   .doc = "Prefetching and caching policy: naive, staging, lbann-dynamic, nopfs, millrace; "           \
                          "perfect (upper bound: reuses prepared batches, so loading costs nothing). Default: "        \
                          "reader.policy of the workload, else millrace with --tiers, else staging.",                  \
                   .example = "--policy millrace"),                                                                    \
        MR_JOB_ROW(at, "tiers", tiers, STRING, "",                                                                     \
                   .doc = "What a node may use to keep samples in: memory, SSD folders; 'auto' chooses from the "      \
                          "machine. Default: reader.tiers, else auto with a policy that keeps samples. See "           \
                          "doc/guides/tiers.md.",                                                                      \
                   .example = "--tiers ram=2GiB,ssd=/nvme/cache:100GiB"),                                              \
        MR_JOB_ROW(at, "peers", peers, STRING, "",                                                                     \
                   .doc = "on, off or auto: nodes ask each other for samples before they read the source. Default: "   \
                          "reader.peers."),                                                                            \
        MR_JOB_ROW(at, "store", store, STRING, "posix", .short_flag = 's',                                             \
                   .doc = "Storage stack the samples are read through; {rank} in it becomes the rank's number. See "   \
                          "'millrace help "                                                                            \
                          "store'.",                                                                                   \
                   .example = "throttle(bandwidth=163MB,latency=8ms):posix"),                                          \
        MR_JOB_ROW(at, "io", io, ENUM, "auto", .choices = mr_job_ios,                                                  \
                   .doc = "How reads are issued: by threads, or through a queue of many; auto takes the queue for "    \
                          "direct reads."),                                                                            \
        MR_JOB_ROW(at, "checkpoint_store", checkpoint_store, STRING, "posix",                                          \
                   .doc = "Storage stack checkpoints are written through."),                                           \
        MR_JOB_ROW(at, "checkpoint_folder", checkpoint_folder, STRING, "",                                             \
                   .doc = "Folder of the checkpoints; default: the workload's checkpoint_folder."),                    \
        MR_JOB_ROW(at, "burst_buffer", burst_buffer, STRING, "",                                                       \
                   .doc = "Fast folder that checkpoints are written to first, then copied to the checkpoint folder "   \
                          "while training "                                                                            \
                          "goes on; "                                                                                  \
                          "default: the workload's checkpoint.burst_buffer.folder.",                                   \
                   .example = "--burst-buffer /nvme/ckpt checkpoint.burst_buffer.capacity=100GiB"),                    \
        MR_JOB_ROW(at, "checkpoint_every", checkpoint_every_ns, DURATION, "0",                                         \
                   .doc = "Writes a checkpoint after the first step that ends so long after the last one, in place "   \
                          "of the workload's "                                                                         \
                          "schedule; needs workflow.checkpoint.",                                                      \
                   .example = "--checkpoint-every 30s"),                                                               \
        MR_JOB_ROW(at, "keep_last", keep_last, INT, "0", .min = 0, .max = 1e6,                                         \
                   .doc = "Checkpoints kept; older ones are removed after a successful save. 0: all."),                \
        MR_JOB_ROW(at, "scale", scale, DOUBLE, "1", .min = 1e-9, .max = 1,                                             \
                   .doc = "Checkpoints have this share of their true size: a model that is too large for this "        \
                          "machine.",                                                                                  \
                   .example = "llama3_70b --scale 0.001"),                                                             \
        MR_JOB_ROW(at, "compute", compute, ENUM, "sleep", .choices = mr_job_computes,                                  \
                   .doc = "How compute time is spent: asleep, as on an accelerator; spinning; or multiplying "         \
                          "matrices on the CPU."),                                                                     \
        MR_JOB_ROW(at, "preprocess_sleep", preprocess_sleep, BOOL, "false",                                            \
                   .doc = "Emulated preprocessing sleeps, as DLIO's does; by default it uses the CPU, as real "        \
                          "preprocessing does."),                                                                      \
        MR_JOB_ROW(at, "copy_to_device", copy_to_device, BOOL, "false",                                                \
                   .doc = "Copies every batch once more, as a transfer to the accelerator would."),                    \
        MR_JOB_ROW(at, "cache", cache, ENUM, "asis", .choices = mr_job_caches,                                         \
                   .doc = "Page cache before the run: as it is, cold (the data set's pages dropped, no root needed), " \
                          "or warm (all "                                                                              \
                          "read)."),                                                                                   \
        MR_JOB_ROW(at, "cache_each_epoch", cache_each_epoch, BOOL, "false",                                            \
                   .doc = "Does the same before every epoch."),                                                        \
        MR_JOB_ROW(at, "strict_trust", strict_trust, BOOL, "false",                                                    \
                   .doc = "Exit status 6 when the result cannot be trusted: other data than the workload's, data in "  \
                          "the page cache, too few steps, a harness near its limit, and so on."),                      \
        MR_JOB_ROW(at, "expect", expect, BOOL, "false",                                                                \
                   .doc = "Exit status 3 when the AU is below the workload's metric.au, 6 when it is not, but the "    \
                          "result cannot be trusted."),                                                                \
        MR_JOB_ROW(at, "ceiling", ceiling, BOOL, "true",                                                               \
                   .doc = "Measures after the run what the harness can do without any storage, for the trust block; "  \
                          "takes up to "                                                                               \
                          "0.2 s."),                                                                                   \
        MR_JOB_ROW(at, "probe", probe, BOOL, "true",                                                                   \
                   .doc = "After a run that waited for reads: reads for up to 2 s with more threads, to tell whether " \
                          "they would help or the storage is the limit."),                                             \
        MR_JOB_ROW(at, "verify", verify, BOOL, "false",                                                                \
                   .doc = "Checks the checksums and, for generated sets, every byte of every sample."),                \
        MR_JOB_ROW(at, "seed", seed, INT, "-1", .min = -1, .max = 9e15,                                                \
                   .doc = "Seed of order and compute times; -1: the workload's train.seed, or the time where it "      \
                          "shuffles at random."),                                                                      \
        MR_JOB_ROW(at, "max_time", max_time_ns, DURATION, "0",                                                         \
                   .doc = "Ends the run after the first step past this time; 0: when all steps are done.",             \
                   .example = "--max-time 60s"),                                                                       \
        MR_JOB_ROW(at, "stall_after", stall_after_ns, DURATION, "30s", .min = 0.01, .max = 1e6,                        \
                   .doc =                                                                                              \
                       "Says what every rank waits for when no step has ended for so long, and again after as long."), \
        MR_JOB_ROW(at, "rank_timeout", rank_timeout_ns, DURATION, "10m", .min = 0, .max = 1e6,                         \
                   .doc = "Ends the job when the process of a rank does nothing for so long (stopped, or its machine " \
                          "hangs; a long step or checkpoint is none of that); says so after 10 s. 0: waits for ever.", \
                   .example = "--rank-timeout 2m"),                                                                    \
        MR_JOB_ROW(                                                                                                    \
            at, "system", system, STRING, "",                                                                          \
            .doc = "Storage model of a virtual run: a name in workloads/systems or a file; default: the workload's."), \
        MR_JOB_ROW(at, "config_dir", config_dir, STRING, "",                                                           \
                   .doc = "Folder with workload files, searched first; workload/NAME.yaml inside it is found, too.",   \
                   .example = "--config-dir my/configs"),                                                              \
        MR_JOB_ROW(at, "lenient", lenient, BOOL, "false", .doc = "Unknown keys are noted and ignored."),               \
        MR_JOB_ROW(at, "allow_plugins", allow_plugins, BOOL, "false",                                                  \
                   .doc = "Loads the plug-ins that the workload file names. They are code that runs with your "        \
                          "rights: read a file of somebody else's first.")

#endif
