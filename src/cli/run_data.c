/* The data set of a run: found, made when that is allowed, and taken as it is. */
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "cli/run_internal.h"
#include "dataset/dataset_parts.h"
#include "dataset/generate.h"
#include "dataset/journal.h"
#include "format/format.h"
#include "store/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

void mr_run_note(struct mr_strings *list, struct mr_arena *a, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const char **grown = mr_arena_alloc(a, (list->n + 1) * sizeof(*grown));
    const char *copy = mr_arena_strdup(a, text);
    if (!grown || !copy)
        return;
    if (list->n)
        memcpy(grown, list->item, list->n * sizeof(*grown));
    grown[list->n++] = copy;
    list->item = grown;
}

/* A launcher's variables would make the child think it is one of the job's ranks, and those that ask for a search would
 * make it search, too; the notes on the workload were told by this process. */
static char **own_environment(void)
{
    static const char *const not_for_it[] = {"OMPI_",
                                             "PMI_",
                                             "PMIX_",
                                             "SLURM_",
                                             "MPI_",
                                             "HYDRA_",
                                             "MILLRACE_RUN_SWEEP=",
                                             "MILLRACE_RUN_FIND_MAX_ACCELERATORS=",
                                             "MILLRACE_RUN_JSON=",
                                             NULL};
    size_t n = 0, kept = 0;
    while (environ[n])
        n++;
    char **env = calloc(n + 2, sizeof(*env));
    for (size_t i = 0; env && i < n; i++) {
        bool drop = false;
        for (const char *const *l = not_for_it; *l; l++)
            drop |= strncmp(environ[i], *l, strlen(*l)) == 0;
        if (!drop)
            env[kept++] = environ[i];
    }
    if (env)
        env[kept] = (char *)(uintptr_t)(MR_CLI_NOTES_TOLD "=1");
    return env;
}

static int wait_for(pid_t child, const atomic_bool *stop)
{
    int status;
    bool told = false;
    for (;;) {
        pid_t done = waitpid(child, &status, WNOHANG);
        if (done == child)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (done < 0 && errno != EINTR)
            return -errno;
        if (!told && stop && atomic_load(stop)) {
            kill(child, SIGTERM);
            told = true;
        }
        usleep(5000);
    }
}

int mr_run_self(char *const *words, int stdout_fd, const atomic_bool *stop, struct mr_error *err)
{
    fflush(NULL);
    char **env = own_environment();
    pid_t parent = getpid();
    pid_t child = env ? fork() : -1;
    if (child < 0) {
        int code = -errno;
        free(env);
        return mr_error_set(err, code, "cannot start another 'millrace'");
    }
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM); /* nobody is left who would use what it makes */
        if (getppid() != parent)
            _exit(1);
        int out = stdout_fd >= 0 ? stdout_fd : open("/dev/null", O_WRONLY);
        size_t n = 0;
        while (words[n])
            n++;
        char **argv = calloc(n + 2, sizeof(*argv));
        if (!argv || out < 0 || dup2(out, STDOUT_FILENO) < 0)
            _exit(1);
        argv[0] = (char *)(uintptr_t) "millrace";
        memcpy(argv + 1, words, n * sizeof(*argv));
        execve("/proc/self/exe", argv, env);
        _exit(1);
    }
    free(env);
    return wait_for(child, stop);
}

/* ---- generating ---- */

/* 'gen' with the same workload and overrides, which a reader of the message can type as it is. */
static char **gen_words(const struct run *r)
{
    const struct mr_strings *ov = &r->ctx->overrides;
    char **words = mr_arena_alloc(r->ctx->arena, (ov->n + 12) * sizeof(*words));
    size_t n = 0;
    if (!words)
        return NULL;
    words[n++] = (char *)(uintptr_t) "gen";
    words[n++] = (char *)(uintptr_t)r->data;
    if (*r->opt->workload) {
        words[n++] = (char *)(uintptr_t) "--workload";
        words[n++] = (char *)(uintptr_t)r->opt->workload;
    }
    if (*r->opt->config_dir) {
        words[n++] = (char *)(uintptr_t) "--config-dir";
        words[n++] = (char *)(uintptr_t)r->opt->config_dir;
    }
    if (r->opt->lenient)
        words[n++] = (char *)(uintptr_t) "--lenient";
    for (unsigned i = 0; i < ov->n; i++)
        words[n++] = (char *)(uintptr_t)ov->item[i];
    words[n] = NULL;
    return words;
}

static int generate(struct run *r, struct mr_error *err)
{
    char **words = gen_words(r);
    if (!words)
        return mr_error_set(err, -ENOMEM, "cannot start the generator");
    int status = mr_run_self(words, -1, r->ctx->stop, err);
    if (status < 0)
        return status;
    if (atomic_load(r->ctx->stop))
        return mr_error_plain(err, MR_E_INTERRUPTED, "interrupted while generating the data set");
    if (status == 0)
        return 0;
    return mr_error_plain(err, status == 2 ? MR_E_CONFIG : -EIO, "the data set could not be generated (exit status %d)",
                          status);
}

/* A generator was here and has not finished: it goes on where it was. */
static bool is_unfinished(const char *folder)
{
    char manifest[8300], journal[8300];
    snprintf(manifest, sizeof manifest, "%s/" MR_MANIFEST_NAME, folder);
    snprintf(journal, sizeof journal, "%s/" MR_JOURNAL_FOLDER, folder);
    return access(manifest, F_OK) != 0 && access(journal, F_OK) == 0;
}

static int missing(const struct run *r, const char *path, struct mr_error *err)
{
    struct mr_strbuf s = {0};
    char **words = gen_words(r);
    for (size_t i = 0; words && words[i]; i++)
        mr_strbuf_printf(&s, " %s", words[i]);
    bool begun = is_unfinished(path);
    mr_error_plain(err, -ENOENT, begun ? "the data set in '%s' is not finished" : "there is no data set in '%s'", path);
    mr_error_hint(err,
                  begun ? "finish it with 'millrace%s', or let the run do it with --generate"
                        : "make it with 'millrace%s', or let the run do it with --generate",
                  s.text ? s.text : " gen");
    mr_strbuf_done(&s);
    return -ENOENT;
}

/* ---- looking ---- */

static int look(const char *path, struct mr_dataset_info *info, struct mr_error *err)
{
    struct mr_dataset *ds;
    int rc = mr_dataset_open(path, NULL, &ds, err);
    if (rc)
        return rc;
    mr_dataset_get_info(ds, info);
    mr_dataset_close(ds);
    return 0;
}

static bool is_empty(const char *folder)
{
    DIR *d = opendir(folder);
    const struct dirent *e = d ? readdir(d) : NULL;
    while (e && (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")))
        e = readdir(d);
    if (d)
        closedir(d);
    return d && !e;
}

static int find_split(struct run *r, const char *split, struct mr_dataset_info *info, bool *made, struct mr_error *err)
{
    char path[8192];
    struct mr_error first;
    snprintf(path, sizeof path, "%s/%s", r->data, split);
    int rc = look(path, info, &first);
    if (rc == 0)
        return 0;
    bool absent = rc == -ENOENT || rc == MR_E_INCOMPLETE || rc == MR_E_USAGE || access(path, F_OK) != 0 ||
                  is_empty(path) || is_unfinished(path);
    if (!absent) {
        *err = first;
        return rc;
    }
    if (!*made && (r->opt->generate || r->w->workflow.generate_data)) {
        *made = r->made_data = true;
        rc = generate(r, err);
        return rc ? rc : look(path, info, err);
    }
    return missing(r, path, err);
}

static void note(struct run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void note(struct run *r, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    for (unsigned i = 0; i < r->notes.n; i++)
        if (strcmp(r->notes.item[i], text) == 0)
            return; /* looked at before */
    mr_run_note(&r->notes, r->ctx->arena, "%s", text);
    mr_log(MR_LOG_NOTE, "%s", text);
}

/* Mean bytes of a sample, as the workload counts them; 0: not known (samples of several shapes). */
static double sample_mean(const struct mr_dataset_info *in)
{
    if (!strcmp(in->format, "jpeg") || !strcmp(in->format, "png"))
        return in->samples ? (double)in->sample_bytes / (double)in->samples : 0;
    double bytes = in->n_dims ? strtod(in->dtype + (in->dtype[0] != '\0'), NULL) : 0; /* u1, f4, c16 */
    for (unsigned i = 0; i < in->n_dims; i++)
        bytes *= (double)in->dims[i];
    return bytes;
}

/* What a sample is. DLIO's rates are computed with the size that the workload says. */
static void fit_kind(struct run *r, const char *set, const struct mr_dataset_info *in)
{
    const char *says = mr_conf_format_name((enum mr_conf_format)r->w->dataset.format);
    const struct mr_format_ops *want = mr_format_find(says, NULL);
    double mean = sample_mean(in), asked = mr_workload_record_bytes(r->w);
    if (want && strcmp(want->name, in->format) != 0)
        note(r, "the %s set holds %s files, the workload says %s; the set counts", set, in->format, says);
    if (mean > 0 && r->w->dataset.record_length_bytes_stdev == 0 && (mean > 1.2 * asked || mean < asked / 1.2))
        note(r,
             "the samples of the %s set have %.0f bytes, the workload says %.0f; DLIO's MB/s are computed with the "
             "latter",
             set, mean, asked);
}

/* A larger set than the workload asks for serves with its first files, as in DLIO. Numbers that nobody has chosen do
 * not count. */
static int take_first(struct run *r, bool eval, struct mr_dataset_info *in, struct mr_error *err)
{
    const struct mr_conf_dataset *d = &r->w->dataset;
    uint64_t files = (uint64_t)(eval ? d->num_files_eval : d->num_files_train);
    char path[8192];
    if (!mr_workload_is_set(r->w, "dataset", eval ? "num_files_eval" : "num_files_train") || !files ||
        files >= in->files)
        return 0;
    note(r, "the %s set has %llu files, the workload says %llu: the first %llu are read",
         eval ? "evaluation" : "training", (unsigned long long)in->files, (unsigned long long)files,
         (unsigned long long)files);
    r->first_files[eval] = files;
    snprintf(path, sizeof path, "%s/%s@files=%llu", r->data, eval ? "valid" : "train", (unsigned long long)files);
    return look(path, in, err);
}

/* The set is what is read; where the workload says something else, the result says so. */
static void fit(struct run *r, bool eval, const struct mr_dataset_info *in)
{
    struct mr_conf_dataset *d = &r->w->dataset;
    int64_t *files = eval ? &d->num_files_eval : &d->num_files_train;
    uint64_t want = (uint64_t)*files * (uint64_t)d->num_samples_per_file;
    const char *set = eval ? "evaluation" : "training";
    fit_kind(r, set, in);
    if (want == in->samples)
        return;
    note(r, "the %s set has %llu samples, the workload says %llu; the set counts", set, (unsigned long long)in->samples,
         (unsigned long long)want);
    if (in->samples % (uint64_t)d->num_samples_per_file == 0) {
        *files = (int64_t)(in->samples / (uint64_t)d->num_samples_per_file);
        return;
    }
    if (!eval) { /* count single samples */
        d->num_files_eval *= d->num_samples_per_file;
        d->num_samples_per_file = 1;
    }
    *files = (int64_t)(in->samples / (uint64_t)d->num_samples_per_file);
}

int mr_run_remove_data(const struct run *r, struct mr_error *err)
{
    struct mr_store *s;
    char path[4200];
    bool removed;
    int rc = mr_store_open("posix", &s, err);
    if (rc < 0)
        return rc;
    for (int i = 0; rc >= 0 && i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", r->data, i ? "valid" : "train");
        if (access(path, F_OK) == 0)
            rc = mr_gen_remove(s, path, &removed, err);
    }
    mr_store_close(s);
    return rc < 0 ? rc : 0;
}

/* pattern.header_file: a file apart, of which only the size matters. */
static int find_header(struct run *r, struct mr_error *err)
{
    const struct mr_conf_pattern *c = &r->w->pattern;
    struct mr_store *s = NULL;
    char path[4200];
    snprintf(path, sizeof path, "%s/header", r->data);
    if (!r->w->workflow.train || !c->header_file || !c->header_reads || access(path, F_OK) == 0)
        return 0;
    if (!r->opt->generate && !r->w->workflow.generate_data) {
        mr_error_plain(err, -ENOENT, "there is no header file '%s'", path);
        return mr_error_hint(err, "let the run make it with --generate"), -ENOENT;
    }
    void *content = calloc(1, c->header_file);
    int rc = content ? mr_store_open("posix", &s, err) : mr_error_set(err, -ENOMEM, "cannot make '%s'", path);
    if (!rc)
        rc = mr_store_mkdirs(s, r->data, err);
    if (!rc)
        rc = mr_store_write_file(s, path, content, c->header_file, err);
    mr_store_close(s);
    free(content);
    return rc;
}

static void choose_data(struct run *r)
{
    snprintf(r->data, sizeof r->data, "%s", *r->opt->data ? r->opt->data : r->w->dataset.data_folder);
    for (size_t n = strlen(r->data); n > 1 && r->data[n - 1] == '/'; n--)
        r->data[n - 1] = '\0';
}

bool mr_run_fit_data(struct run *r)
{
    char path[8192];
    struct mr_error ignored;
    choose_data(r);
    snprintf(path, sizeof path, "%s/train", r->data);
    if (!r->w->workflow.train || r->w->dataset.format == MR_CF_SYNTHETIC || look(path, &r->info, &ignored) != 0 ||
        take_first(r, false, &r->info, &ignored) != 0)
        return false;
    fit(r, false, &r->info);
    return true;
}

int mr_run_prepare_data(struct run *r, struct mr_error *err)
{
    const struct mr_workload *w = r->w;
    bool made = false;
    choose_data(r);
    int rc = find_header(r, err);
    if (rc || w->dataset.format == MR_CF_SYNTHETIC || !(w->workflow.train || w->workflow.generate_data))
        return rc;
    rc = find_split(r, "train", &r->info, &made, err);
    rc = rc ? rc : take_first(r, false, &r->info, err);
    if (rc)
        return rc;
    fit(r, false, &r->info);
    struct mr_dataset_info eval;
    if (!w->workflow.evaluation || w->dataset.num_files_eval == 0)
        return 0;
    rc = find_split(r, "valid", &eval, &made, err);
    rc = rc ? rc : take_first(r, true, &eval, err);
    if (!rc)
        fit(r, true, &eval);
    return rc;
}
