/* What a run says while it runs: on a terminal one line rewritten five times a second, elsewhere a line every ten
 * seconds. When no rank has finished a step for --stall-after (30 s), it says what every rank waits for. Reads the
 * board only. */
#include "base/clock.h"
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "report/run_live.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define LINE_EVERY_NS (10 * MR_NS_PER_S)
#define SHARES_NS MR_NS_PER_S /* shares are those of the last second or so */

/* What shares are differences of. */
struct sums {
    uint64_t at_ns, cpu_ns, read_ns, all_ns, disk_ms;
};

struct run_live {
    const struct mr_job *job;
    bool tty, drawn;
    uint64_t start_ns, next_line_ns;
    uint64_t seen_steps, seen_checkpoints, moved_ns; /* progress of all ranks together */
    uint64_t last_ns, last_samples, last_bytes;
    char disk[64];           /* the file in /sys that tells how long the data's disk was busy; "": there is none */
    struct sums before, now; /* about a second apart */
};

/* Network file systems, memory and layers over others have no disk of their own. */
static void find_disk(struct run_live *l)
{
    struct stat st;
    if (stat(l->job->data, &st) == 0 && major(st.st_dev))
        snprintf(l->disk, sizeof l->disk, "/sys/dev/block/%u:%u/stat", major(st.st_dev), minor(st.st_dev));
    if (*l->disk && access(l->disk, R_OK) != 0)
        l->disk[0] = '\0';
}

/* Milliseconds in which requests were on their way: the tenth number. */
static uint64_t disk_busy_ms(const struct run_live *l)
{
    unsigned long long ms = 0;
    FILE *f = *l->disk ? fopen(l->disk, "re") : NULL;
    if (f && fscanf(f, "%*u %*u %*u %*u %*u %*u %*u %*u %*u %llu", &ms) != 1)
        ms = 0;
    if (f)
        fclose(f);
    return ms;
}

void *mr_run_live_start(const struct mr_job *j)
{
    struct run_live *l = calloc(1, sizeof(*l));
    if (!l)
        return NULL;
    l->job = j;
    l->tty = isatty(STDERR_FILENO) == 1;
    l->start_ns = l->moved_ns = l->last_ns = mr_now_ns();
    l->next_line_ns = l->start_ns + LINE_EVERY_NS;
    find_disk(l);
    l->before = l->now = (struct sums){.at_ns = l->start_ns, .disk_ms = disk_busy_ms(l)};
    return l;
}

void mr_run_live_end(void *live)
{
    struct run_live *l = live;
    if (l && l->drawn)
        fputs("\r\033[K", stderr);
    free(l);
}

static void say_waiting(struct run_live *l, uint64_t now)
{
    const struct mr_bench_board *b = l->job->result.board;
    char text[MR_HUMAN_LEN];
    fprintf(stderr, "%smillrace: no step has ended for %s\n", l->drawn ? "\n" : "",
            mr_human_ns((double)(now - l->moved_ns), text));
    for (uint32_t r = 0; r < b->world && r < 64; r++) {
        const struct mr_bench_rank *k = &b->ranks[r];
        uint64_t since = atomic_load(&k->since_ns); /* once: the rank goes on meanwhile */
        enum mr_bench_state state = (enum mr_bench_state)atomic_load(&k->state);
        double age_s = (double)(now - MR_MIN(now, since)) / 1e9;
        if (k->pid || mr_job_read_state(l->job, r, &state, &age_s)) /* a rank of MPI has no place on this board */
            fprintf(stderr, "  rank %u: %s for %s\n", r, mr_bench_state_text(state), mr_human_ns(age_s * 1e9, text));
    }
}

static void watch_progress(struct run_live *l, uint64_t now)
{
    const struct mr_bench_board *b = l->job->result.board;
    uint64_t steps = 0, checkpoints = 0;
    for (uint32_t r = 0; r < b->world; r++) {
        steps += atomic_load(&b->ranks[r].n_steps);
        checkpoints += atomic_load(&b->ranks[r].n_checkpoints);
    }
    if (steps != l->seen_steps || checkpoints != l->seen_checkpoints) {
        l->seen_steps = steps;
        l->seen_checkpoints = checkpoints;
        l->moved_ns = now;
    } else if (now - l->moved_ns >= l->job->opt.stall_after_ns) {
        say_waiting(l, now);
        l->moved_ns = now; /* and again after as long */
        l->drawn = false;
    }
}

static void take_sums(struct run_live *l, uint64_t now)
{
    const struct mr_loader_stats *t = &l->job->result.board->ranks[l->job->comm->rank].loader.stats;
    struct sums s = {.at_ns = now,
                     .cpu_ns = t->cpu_ns,
                     .read_ns = t->read_ns,
                     .all_ns = t->read_ns + t->decode_ns + t->transform_ns + t->idle_ns,
                     .disk_ms = disk_busy_ms(l)};
    if (now - l->now.at_ns >= SHARES_NS)
        l->before = l->now;
    if (now - l->now.at_ns >= SHARES_NS || l->now.at_ns == l->start_ns)
        l->now = s;
}

/* "decode: workers 97 % CPU, disk 31 % busy". The loader's sums may go back when another feed begins. */
static void put_limiter(struct run_live *l, uint64_t now, struct mr_strbuf *out)
{
    const struct mr_bench_loader_stats *s = &l->job->result.board->ranks[l->job->comm->rank].loader;
    take_sums(l, now);
    const struct sums *a = &l->before, *b = &l->now;
    double dt = (double)(b->at_ns - a->at_ns), all = (double)(b->all_ns - MR_MIN(a->all_ns, b->all_ns));
    if (dt <= 0 || all <= 0 || !s->limiter[0] || !s->stats.threads)
        return;
    double cpu = (double)(b->cpu_ns - MR_MIN(a->cpu_ns, b->cpu_ns)) / (dt * s->stats.threads);
    mr_strbuf_printf(out, " | %s: workers %.0f %% CPU, ", strcmp(s->limiter, "consumer") ? s->limiter : "compute",
                     100 * fmin(1, cpu));
    if (*l->disk)
        mr_strbuf_printf(out, "disk %.0f %% busy", fmin(100, 100e6 * (double)(b->disk_ms - a->disk_ms) / dt));
    else
        mr_strbuf_printf(out, "%.0f %% reading", 100 * (double)(b->read_ns - MR_MIN(a->read_ns, b->read_ns)) / all);
}

/* Where a run stands: in its epochs, or in its checkpoints when there is nothing else. */
static void put_place(const struct mr_job *j, const struct mr_step *last, struct mr_strbuf *out)
{
    uint64_t saved = atomic_load(&j->result.board->ranks[j->comm->rank].n_checkpoints);
    const struct mr_plan_checkpoint *c = &j->plan.checkpoint;
    if (j->w->workflow.train)
        mr_strbuf_printf(out, "epoch %u/%lld step %u/%llu", last ? last->epoch + 1 : 1, (long long)j->w->train.epochs,
                         last ? last->step + 1 : 0, (unsigned long long)j->plan.steps_per_epoch);
    else
        mr_strbuf_printf(out, "checkpoint %llu/%llu", (unsigned long long)saved,
                         (unsigned long long)(c->writes + c->reads));
}

static void put_line(struct run_live *l, uint64_t now, struct mr_strbuf *out)
{
    const struct mr_job *j = l->job;
    const struct mr_bench_rank *me = &j->result.board->ranks[j->comm->rank];
    uint64_t samples = 0, bytes = 0, compute = 0, wall = 0;
    char rate[MR_HUMAN_LEN], eta[MR_HUMAN_LEN];
    for (uint32_t k = 0; k < j->result.board->world; k++) {
        samples += atomic_load(&j->result.board->ranks[k].samples);
        bytes += atomic_load(&j->result.board->ranks[k].read_bytes);
        compute += atomic_load(&j->result.board->ranks[k].compute_ns);
        wall += atomic_load(&j->result.board->ranks[k].wall_ns);
    }
    double dt = (double)(now - l->last_ns) / 1e9;
    uint64_t n = atomic_load(&me->n_steps);
    const struct mr_step *last =
        n ? &j->result.board->steps[(uint64_t)j->comm->rank * j->result.board->step_cap + n - 1] : NULL;
    double done = (double)n / (double)MR_MAX(j->result.board->step_cap, 1u);
    double elapsed = (double)(now - l->start_ns), left = elapsed * (1 - done) / fmax(done, 1e-9);
    put_place(j, last, out);
    if (j->opt.max_time_ns)
        left = fmin(left, fmax(0, (double)j->opt.max_time_ns - elapsed));
    if (n)
        mr_strbuf_printf(out, " | ETA %s", mr_human_ns(left, eta));
    if (wall)
        mr_strbuf_printf(out, " | AU %.1f %%", 100 * (double)compute / (double)wall);
    if (dt > 0 && j->w->workflow.train)
        mr_strbuf_printf(out, " | %.0f samples/s %s", (double)(samples - l->last_samples) / dt,
                         mr_human_rate((double)(bytes - l->last_bytes) / dt, rate));
    if (j->w->workflow.train)
        mr_strbuf_printf(out, " | queue %.1f", me->loader.stats.ready_mean);
    put_limiter(l, now, out);
    mr_strbuf_printf(out, " | %s", mr_bench_state_text((enum mr_bench_state)atomic_load(&me->state)));
    l->last_ns = now;
    l->last_samples = samples;
    l->last_bytes = bytes;
}

/* A line that is longer would be continued on the next one, where nothing rewrites it. */
static int terminal_columns(void)
{
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 10 ? w.ws_col - 1 : 200;
}

void mr_run_live_tick(void *live)
{
    struct run_live *l = live;
    uint64_t now = mr_now_ns();
    struct mr_strbuf line = {0};
    watch_progress(l, now);
    if (!mr_log_shows(MR_LOG_NOTE) || l->job->req.is_quiet || (!l->tty && now < l->next_line_ns))
        return; /* quiet, or not yet */
    l->next_line_ns = now + LINE_EVERY_NS;
    put_line(l, now, &line);
    if (line.text && l->tty)
        fprintf(stderr, "\r%.*s\033[K", terminal_columns(), line.text);
    else if (line.text)
        fprintf(stderr, "millrace: %s\n", line.text);
    fflush(stderr);
    l->drawn = l->tty;
    mr_strbuf_done(&line);
}
