/* The end of a traced process, by exit or by exec, and its return where exec fails. */
#include "tracer/tracer_internal.h"
#include "tracer/tracer_sys.h"

#include <string.h>

/* Whether a thread runs, wants to run or waits for a disk, not for something that may never come. */
static bool is_busy(uint32_t tid)
{
    char path[64], text[256];
    size_t n = mr_copy_text(path, sizeof(path), "/proc/self/task/");
    n += mr_decimal(path + n, tid);
    mr_copy_text(path + n, sizeof(path) - n, "/stat");
    uint32_t len = mr_read_small_file(path, text, sizeof(text) - 1);
    text[len] = 0;
    const char *state = strrchr(text, ')');
    return state && state[1] == ' ' && (state[2] == 'R' || state[2] == 'D');
}

/* How many other threads have rings, what they have recorded so far, and how many of them are busy if that is asked
 * for. */
static unsigned others(uint64_t *records, unsigned *busy)
{
    unsigned n = 0;
    *records = 0;
    for (uint32_t g = 0; g < mr_process.segments; g++)
        for (unsigned i = 0; i < mr_ring_slots(mr_process.segment[g]); i++) {
            struct mr_slot *s = mr_ring_slot(mr_process.segment[g], i);
            if (s == mr_tls.slot || atomic_load(&s->state) != MR_SLOT_LIVE)
                continue;
            *records += atomic_load(&s->head);
            if (busy)
                *busy += is_busy(s->tid);
            n++;
        }
    return n;
}

/* Whether other threads are still recording. They will until the process is gone, so their rings must stay for
 * `millrace recover`. */
static bool others_record(void)
{
    uint64_t before, after;
    unsigned busy = 0;
    return others(&before, &busy) && (busy || (others(&after, NULL) && before != after));
}

void mr_before_exit(void)
{
    if (!mr_live.alive || mr_tls.vforked)
        return;
    if (mr_mode() != MR_MODE_SELF || (!mr_process.late && others_record())) {
        atomic_store(&mr_process.segment[0]->state, MR_RING_EXITED);
        return;
    }
    int keep = errno;
    uint32_t busy = mr_tls.busy;
    uint64_t signals = mr_signals_block(); /* nobody would store what a handler parks */
    mr_tls.busy = 1;
    mr_process.late = true;
    mr_tls.limit = 0;
    mr_drain_all(MR_HOW_EXIT);
    mr_tls.busy = busy;
    mr_signals_restore(signals);
    errno = keep;
}

static bool drained_for_exec;

void mr_before_exec(void)
{
    if (!mr_live.alive || mr_tls.vforked)
        return;
    uint64_t ignored;
    drained_for_exec = mr_mode() == MR_MODE_SELF && !others(&ignored, NULL); /* they go on if exec fails */
    if (drained_for_exec) {
        uint32_t busy = mr_tls.busy;
        uint64_t signals = mr_signals_block();
        mr_tls.busy = 1;
        drained_for_exec = mr_drain_all(MR_HOW_EXEC);
        mr_tls.busy = busy;
        mr_signals_restore(signals);
    }
    atomic_store(&mr_process.segment[0]->state, MR_RING_EXEC);
}

/* The rings were drained and removed before an exec that failed: the process continues and needs them again. */
static void rings_again(void)
{
    int rc = 0;
    uint32_t busy = mr_tls.busy;
    uint64_t signals = mr_signals_block();
    mr_tls.busy = 1;
    mr_spin_lock(&mr_process.claim_lock);
    for (uint32_t g = 0; g < mr_process.segments && !rc; g++)
        rc = mr_segment_again(g);
    mr_spin_unlock(&mr_process.claim_lock);
    mr_tls.limit = 0; /* memory that was there is not */
    mr_tls.busy = busy;
    mr_signals_restore(signals);
    if (rc)
        mr_stop_tracing("cannot create the ring file in the trace folder", rc);
}

void mr_after_exec(void)
{
    if (!mr_live.alive || mr_tls.vforked)
        return;
    bool counted = mr_exec_withdraw() && drained_for_exec;
    mr_process.events -= counted;
    atomic_store(&mr_process.segment[0]->state, MR_RING_RUNNING);
    if (drained_for_exec && !mr_process.late) /* at the end of the program every event is written at once */
        rings_again();
}
