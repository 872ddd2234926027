/* What a run says while it runs: on a terminal one line rewritten five times a second, elsewhere a line every ten
 * seconds. When no rank has finished a step for --stall-after (30 s), it says what every rank waits for. Reads the board only. */
#include "base/clock.h"
#include "base/common.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "cli/run_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_EVERY_NS (10 * MR_NS_PER_S)

struct run_live {
    struct run *run;
    bool tty, drawn;
    uint64_t start_ns, next_line_ns;
    uint64_t seen_steps, seen_checkpoints, moved_ns; /* progress of all ranks together */
    uint64_t last_ns, last_samples, last_bytes;
};

struct run_live *mr_run_live_create(struct run *r)
{
    struct run_live *l = calloc(1, sizeof(*l));
    if (!l)
        return NULL;
    l->run = r;
    l->tty = isatty(STDERR_FILENO) == 1;
    l->start_ns = l->moved_ns = l->last_ns = mr_now_ns();
    l->next_line_ns = l->start_ns + LINE_EVERY_NS;
    return l;
}

void mr_run_live_free(struct run_live *l)
{
    if (l && l->drawn)
        fputs("\r\033[K", stderr);
    free(l);
}

static void say_waiting(struct run_live *l, uint64_t now)
{
    const struct mr_bench_board *b = l->run->board;
    fprintf(stderr, "%smillrace: no step has ended for %.0f s\n", l->drawn ? "\n" : "",
            (double)(now - l->moved_ns) / 1e9);
    for (uint32_t r = 0; r < b->world && r < 64; r++) {
        const struct mr_bench_rank *k = &b->ranks[r];
        uint64_t since = atomic_load(&k->since_ns); /* once: the rank goes on meanwhile */
        enum mr_bench_state state = (enum mr_bench_state)atomic_load(&k->state);
        double age_s = (double)(now - MR_MIN(now, since)) / 1e9;
        if (k->pid || mr_run_read_state(l->run, r, &state, &age_s)) /* a rank of MPI has no place on this board */
            fprintf(stderr, "  rank %u: %s for %.0f s\n", r, mr_bench_state_text(state), age_s);
    }
}

static void watch_progress(struct run_live *l, uint64_t now)
{
    const struct mr_bench_board *b = l->run->board;
    uint64_t steps = 0, checkpoints = 0;
    for (uint32_t r = 0; r < b->world; r++) {
        steps += atomic_load(&b->ranks[r].n_steps);
        checkpoints += atomic_load(&b->ranks[r].n_checkpoints);
    }
    if (steps != l->seen_steps || checkpoints != l->seen_checkpoints) {
        l->seen_steps = steps;
        l->seen_checkpoints = checkpoints;
        l->moved_ns = now;
    } else if (now - l->moved_ns >= l->run->opt->stall_after_ns) {
        say_waiting(l, now);
        l->moved_ns = now; /* and again after as long */
        l->drawn = false;
    }
}

/* "decode: workers 97 % CPU, disk 31 % busy": shares of the engine threads' time. */
static void put_limiter(const struct mr_bench_loader_stats *s, struct mr_strbuf *out)
{
    const struct mr_loader_stats *t = &s->stats;
    double all = (double)(t->read_ns + t->decode_ns + t->transform_ns + t->idle_ns);
    if (all <= 0 || !s->limiter[0])
        return;
    mr_strbuf_printf(out, " | %s: workers %.0f %% reading, %.0f %% decoding, %.0f %% idle",
                     strcmp(s->limiter, "consumer") ? s->limiter : "compute", 100 * (double)t->read_ns / all,
                     100 * (double)(t->decode_ns + t->transform_ns) / all, 100 * (double)t->idle_ns / all);
}

static void put_line(struct run_live *l, uint64_t now, struct mr_strbuf *out)
{
    const struct run *r = l->run;
    const struct mr_bench_rank *me = &r->board->ranks[r->comm->rank];
    uint64_t samples = 0, bytes = 0, compute = 0, wall = 0;
    char rate[MR_HUMAN_LEN], eta[MR_HUMAN_LEN];
    for (uint32_t k = 0; k < r->board->world; k++) {
        samples += atomic_load(&r->board->ranks[k].samples);
        bytes += atomic_load(&r->board->ranks[k].read_bytes);
        compute += atomic_load(&r->board->ranks[k].compute_ns);
        wall += atomic_load(&r->board->ranks[k].wall_ns);
    }
    double dt = (double)(now - l->last_ns) / 1e9;
    uint64_t n = atomic_load(&me->n_steps);
    const struct mr_step *last = n ? &r->board->steps[(uint64_t)r->comm->rank * r->board->step_cap + n - 1] : NULL;
    double done = (double)n / (double)MR_MAX(r->board->step_cap, 1u);
    double elapsed = (double)(now - l->start_ns);
    mr_strbuf_printf(out, "epoch %u/%lld step %u/%llu", last ? last->epoch + 1 : 1, (long long)r->w->train.epochs,
                     last ? last->step + 1 : 0, (unsigned long long)r->plan.steps_per_epoch);
    if (n)
        mr_strbuf_printf(out, " | ETA %s", mr_human_ns(elapsed * (1 - done) / fmax(done, 1e-9), eta));
    if (wall)
        mr_strbuf_printf(out, " | AU %.1f %%", 100 * (double)compute / (double)wall);
    if (dt > 0)
        mr_strbuf_printf(out, " | %.0f samples/s %s", (double)(samples - l->last_samples) / dt,
                         mr_human_rate((double)(bytes - l->last_bytes) / dt, rate));
    mr_strbuf_printf(out, " | %s, queue %.1f", mr_bench_state_text((enum mr_bench_state)atomic_load(&me->state)),
                     me->loader.stats.ready_mean);
    put_limiter(&me->loader, out);
    l->last_ns = now;
    l->last_samples = samples;
    l->last_bytes = bytes;
}

void mr_run_live_tick(void *live)
{
    struct run_live *l = live;
    uint64_t now = mr_now_ns();
    struct mr_strbuf line = {0};
    watch_progress(l, now);
    if (!mr_log_shows(MR_LOG_NOTE) || (!l->tty && now < l->next_line_ns))
        return; /* quiet, or not yet */
    l->next_line_ns = now + LINE_EVERY_NS;
    put_line(l, now, &line);
    if (line.text && l->tty)
        fprintf(stderr, "\r%.160s\033[K", line.text);
    else if (line.text)
        fprintf(stderr, "millrace: %s\n", line.text);
    fflush(stderr);
    l->drawn = l->tty;
    mr_strbuf_done(&line);
}
