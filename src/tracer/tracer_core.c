/* Recording: the slow side of mr_put, ring slots, what happens when a ring is full. Invariants in tracer_core.h. */
#include "tracer/tracer_internal.h"
#include "tracer/tracer_sys.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

__thread _Alignas(64) struct mr_tls mr_tls __attribute__((tls_model("initial-exec")));
_Alignas(4096) struct mr_live mr_live;
_Alignas(64) struct mr_core mr_core;
struct mr_process mr_process;
_Atomic uint32_t mr_off;
static pthread_key_t end_key;
static bool end_key_made;

void mr_yield(void)
{
    mr_sys0(SYS_sched_yield);
}

uint64_t mr_signals_block(void)
{
    /* Not the ones that the program's own instructions raise: blocked, they would end it; nor SIGSYS, by which stray
     * calls come. */
    const uint64_t keep_out = 1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1) | 1ull << (SIGILL - 1) |
                              1ull << (SIGFPE - 1) | 1ull << (SIGTRAP - 1) | 1ull << (SIGSYS - 1);
    uint64_t all = ~keep_out, before = 0;
    mr_sys4(SYS_rt_sigprocmask, SIG_BLOCK, &all, &before, sizeof(all));
    return before;
}

void mr_signals_restore(uint64_t before)
{
    mr_sys4(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof(before));
}

unsigned mr_slot_index(const struct mr_slot *slot)
{
    for (uint32_t s = 0; s < mr_process.segments; s++) {
        const struct mr_slot *first = mr_ring_slot(mr_process.segment[s], 0);
        if (slot >= first && slot < first + MR_RING_SLOTS)
            return s * MR_RING_SLOTS + (unsigned)(slot - first);
    }
    return 0;
}

#define POPULATE                                                                                                       \
    8192u /* cells made present at a time: 64 KiB, which is then still in the cache when it is written to */

/* As mr_populate. When the file system is full, asks the collector to give memory back and waits for it. */
static bool populate_or_wait(const void *at, size_t bytes)
{
    const struct timespec nap = {.tv_nsec = 10000000};
    for (unsigned tries = 0; tries < 200; tries++) {
        if (mr_populate(at, bytes))
            return true;
        if (mr_mode() != MR_MODE_COLLECTED)
            break;
        atomic_store(&mr_process.segment[0]->starved, 1);
        mr_sys2(SYS_nanosleep, &nap, NULL);
    }
    mr_stop_tracing("no space left for the rings", 0);
    return false;
}

/* Makes more cells of a slot present. Beyond tail + MR_RING_CELLS nothing may be written, so there is nothing to do. */
static bool populate_more(struct mr_slot *s, uint64_t tail)
{
    uint64_t from = s->populated,
             to = from + MR_MIN(MR_MAX(from, POPULATE / 8), POPULATE); /* little for a short life */
    to = MR_MIN(to, (tail + MR_RING_CELLS) / MR_PAGE_CELLS * MR_PAGE_CELLS);
    to = MR_MIN(to, (from / MR_RING_CELLS + 1) * MR_RING_CELLS);
    if (to <= from)
        return true;
    if (!populate_or_wait(&s->cell[from & (MR_RING_CELLS - 1)], (to - from) * sizeof(s->cell[0])))
        return false;
    s->populated = to;
    return true;
}

static struct mr_slot *claim_in(struct mr_ring_header *h)
{
    for (unsigned i = 0; i < MR_RING_SLOTS; i++) {
        struct mr_slot *s = mr_ring_slot(h, i);
        if (i >= h->slots_present) { /* under claim_lock */
            if (!populate_or_wait(s, offsetof(struct mr_slot, cell)))
                return NULL;
            __atomic_store_n(&h->slots_present, i + 1, __ATOMIC_RELEASE);
        }
        uint32_t state = atomic_load_explicit(&s->state, memory_order_acquire);
        if (state == MR_SLOT_FREE && atomic_compare_exchange_strong(&s->state, &state, MR_SLOT_LIVE))
            return s;
    }
    return NULL;
}

struct mr_slot *mr_slot_claim(void)
{
    struct mr_slot *s = NULL;
    mr_spin_lock(&mr_process.claim_lock);
    for (uint32_t i = 0; i < mr_process.segments && !s; i++)
        s = claim_in(mr_process.segment[i]);
    if (!s && mr_process.segments < MR_RING_SEGMENTS && mr_segment_open(mr_process.segments) == 0)
        s = claim_in(mr_process.segment[mr_process.segments - 1]);
    mr_spin_unlock(&mr_process.claim_lock);
    if (s)
        s->tid = (uint32_t)mr_sys0(SYS_gettid);
    for (unsigned c = 0; s && mr_core.sample && c < MR_SLOT_CALLS; c++) /* of the thread that had it before */
        atomic_store_explicit(&s->made[c], 0, memory_order_relaxed);
    return s;
}

/* A thread ends: its slot may be reused once drained. Other destructors may still do I/O; they get a new slot. */
static void thread_end(void *arg)
{
    struct mr_tls *t = &mr_tls;
    (void)arg;
    if (!t->slot || t->epoch != mr_core.epoch || !mr_live.alive)
        return;
    mr_names_abandon();                    /* a thread may be cancelled anywhere */
    uint64_t signals = mr_signals_block(); /* nobody would store what a handler parks; afterwards it gets a new slot */
    t->busy = 1;
    struct mr_slot *s = t->slot;
    t->slot = NULL;
    t->limit = 0;
    atomic_store_explicit(&s->state, MR_SLOT_DONE, memory_order_release);
    if (mr_mode() == MR_MODE_SELF && mr_slot_drain(s, mr_slot_index(s), false))
        atomic_store_explicit(&s->state, MR_SLOT_FREE, memory_order_release);
    t->busy = 0;
    mr_signals_restore(signals);
}

static uint64_t ring_capacity(void)
{
    return mr_mode() == MR_MODE_SELF ? MR_BLOCK_CELLS : MR_RING_CELLS - MR_ROOM;
}

/* Memory is present up to here in this lap, less the room for an event. */
static uint64_t present_for(const struct mr_slot *s, uint64_t head)
{
    uint64_t lap_end = (head / MR_RING_CELLS + 1) * MR_RING_CELLS, present = MR_MIN(s->populated, lap_end);
    return present > MR_ROOM ? present - MR_ROOM : 0;
}

/* The thread may write up to `limit` without looking again, where memory is present. */
static void set_limit(struct mr_tls *t, uint64_t limit)
{
    t->lap = (char *)t->slot->cell - t->head / MR_RING_CELLS * MR_RING_CELLS * sizeof(t->slot->cell[0]);
    t->limit = MR_MIN(limit, present_for(t->slot, t->head));
}

static uint32_t missed; /* calls of a handler in a child that could not begin */

static bool thread_begin(struct mr_tls *t)
{
    uint64_t signals = mr_signals_block();
    t->slot = mr_slot_claim();
    mr_signals_restore(signals);
    if (!t->slot) {
        t->limit = 0;
        return false;
    }
    if (MR_UNLIKELY(missed)) {
        atomic_fetch_add(&t->slot->lost, missed);
        missed = 0;
    }
    t->epoch = mr_core.epoch;
    t->head = atomic_load_explicit(&t->slot->head, memory_order_relaxed);
    t->last_file = 0;
    t->freed = 0; /* of this slot; another one may have stood at the same position */
    t->limit = 0; /* the first event looks */
    if (!end_key_made)
        end_key_made = pthread_key_create(&end_key, thread_end) == 0;
    if (end_key_made)
        pthread_setspecific(end_key, t->slot);
    return true;
}

/* Returns the position after it. */
static uint64_t write_record(struct mr_slot *s, uint64_t at, const struct mr_raw *r)
{
    for (unsigned i = 0; i < MR_RECORD_CELLS; i++)
        s->cell[at++ & (MR_RING_CELLS - 1)] = r->word[i];
    return at;
}

static uint64_t write_more(struct mr_slot *s, uint64_t at, const struct mr_extra *e)
{
    struct mr_raw more = mr_raw_more(e);
    return write_record(s, at, &more);
}

/* R7: goes on at the start of the ring, where memory is present and, in a small ring, in the cache. */
static void start_over(struct mr_tls *t, bool all_present)
{
    struct mr_slot *s = t->slot;
    uint64_t base = t->head / MR_RING_CELLS * MR_RING_CELLS, next = base + MR_RING_CELLS;
    s->cell[t->head & (MR_RING_CELLS - 1)] = MR_RAW_SKIP;
    s->populated = all_present ? next + (s->populated - base) : next;
    atomic_store_explicit(&s->skip_at, t->head + 1, memory_order_relaxed);
    atomic_store_explicit(&s->head, next, memory_order_release);
    t->head = next;
}

/* The memory that is present ends here: starts over if the first block of this lap is drained, else takes more memory.
 */
static bool more_memory(struct mr_tls *t, uint64_t tail)
{
    struct mr_slot *s = t->slot;
    uint64_t base = t->head / MR_RING_CELLS * MR_RING_CELLS,
             freed = atomic_load_explicit(&s->freed, memory_order_relaxed);
    bool lap_end = s->populated % MR_RING_CELLS == 0, whole_blocks = s->populated % MR_BLOCK_CELLS == 0;
    if (!lap_end && whole_blocks && s->populated > t->head && tail >= base + MR_BLOCK_CELLS) {
        start_over(t, freed <= base);
        return true;
    }
    if (lap_end && s->populated && freed + MR_RING_CELLS <= s->populated) {
        s->populated += MR_RING_CELLS; /* the whole ring is present */
        return true;
    }
    return populate_more(s, tail);
}

/* Makes room for an event. With a collector, waits while it is just draining this slot; otherwise the caller encodes
 * its own page. False: there is none, the event is counted as lost. */
static bool make_room(struct mr_tls *t)
{
    struct mr_slot *s = t->slot;
    for (unsigned tries = 0; tries < 20000; tries++) {
        uint64_t tail = atomic_load_explicit(&s->tail, memory_order_acquire),
                 freed = atomic_load_explicit(&s->freed, memory_order_relaxed);
        if (mr_mode() == MR_MODE_OFF) { /* the collector could not write; it has said so */
            atomic_store(&mr_off, 1);
            mr_set_active(false);
            mr_live.alive = 0;
            return false;
        }
        if (freed != t->freed) { /* R6: what was present may be gone */
            s->populated = MR_MIN(s->populated, t->head / MR_PAGE_CELLS * MR_PAGE_CELLS);
            t->freed = freed;
        }
        for (uint64_t before = UINT64_MAX; t->head + MR_ROOM >= s->populated && before != s->populated;) {
            before = s->populated;
            if (!more_memory(t, tail))
                return false;
        }
        uint64_t capacity = mr_process.late ? MR_BLOCK_CELLS : ring_capacity(), used = t->head - tail;
        if (used - mr_slot_gap(s, tail, t->head) < capacity && used < MR_RING_CELLS - MR_ROOM) {
            uint64_t limit =
                MR_MIN(tail + mr_slot_gap(s, tail, t->head) + ring_capacity(), tail + MR_RING_CELLS - MR_ROOM);
            set_limit(t, mr_process.late ? 0 : limit);
            return true;
        }
        mr_slot_drain(s, mr_slot_index(s), true);
        if (atomic_load_explicit(&s->tail, memory_order_acquire) == tail) {
            if (!mr_live.alive)
                return false;
            if (mr_mode() == MR_MODE_SELF &&
                used < MR_RING_CELLS - POPULATE) { /* no descriptor or no memory: tries again later */
                set_limit(t, t->head + POPULATE / 2);
                return true;
            }
            if (mr_mode() == MR_MODE_SELF && tries > 20) {
                mr_stop_tracing("a full ring cannot be written", -EMFILE);
                return false;
            }
            const struct timespec nap = {.tv_nsec = 50000};
            mr_sys2(SYS_nanosleep, &nap, NULL);
        }
    }
    return false;
}

static unsigned gather_wide(uint64_t dur, uint64_t offset, int64_t result, struct mr_extra *wide)
{
    unsigned n = 0;
    if (dur >> 32)
        wide[n++] = (struct mr_extra){.type = MR_MORE_DURATION, .value = dur};
    if (!MR_RAW_FITS48(offset))
        wide[n++] = (struct mr_extra){.type = MR_MORE_OFFSET, .value = offset};
    if (!MR_RAW_FITS48(result))
        wide[n++] = (struct mr_extra){.type = MR_MORE_RESULT, .value = (uint64_t)result};
    return n;
}

static void store(struct mr_tls *t, const struct mr_raw *r, const struct mr_extra *wide, unsigned wides,
                  const struct mr_extra *extra, unsigned extras)
{
    uint64_t h = write_record(t->slot, t->head, r);
    for (unsigned i = 0; i < wides; i++)
        h = write_more(t->slot, h, &wide[i]);
    for (unsigned i = 0; i < extras; i++)
        h = write_more(t->slot, h, &extra[i]);
    t->last_file = 0;
    atomic_store_explicit(&t->slot->head, h, memory_order_release);
    t->head = h;
}

static void lose(struct mr_tls *t)
{
    if (t->slot)
        atomic_fetch_add(&t->slot->lost, 1);
    else if (mr_process.segment[0])
        atomic_fetch_add(&mr_process.segment[0]->lost, 1);
}

#define SAMPLE_AFTER 1000 /* calls of a kind that a thread makes before sampling begins */

/* Sampling: counts the call; true if it is not to be stored. */
static bool left_out(struct mr_slot *s, unsigned call)
{
    uint32_t made = atomic_load_explicit(&s->made[call], memory_order_relaxed);
    atomic_store_explicit(&s->made[call], made + 1, memory_order_relaxed);
    if (made < SAMPLE_AFTER || made % mr_core.sample == 0)
        return false;
    uint64_t skipped = atomic_load_explicit(&s->skipped[call], memory_order_relaxed);
    atomic_store_explicit(&s->skipped[call], skipped + 1, memory_order_relaxed);
    return true;
}

/* A signal handler interrupted the tracer on this thread: park the event. Extras do not fit there and are left out. */
static void park(struct mr_tls *t, const struct mr_raw *r)
{
    uint32_t n = t->pendings;
    if (n < MR_PENDING) {
        t->pending[n] = *r;
        t->pendings = n + 1;
    } else {
        lose(t);
    }
}

static bool have_room(struct mr_tls *t)
{
    if (!t->slot || t->epoch != mr_core.epoch) {
        memset(t->pending, 0, sizeof(t->pending));
        if (!thread_begin(t))
            return false;
    }
    return t->head < t->limit || make_room(t);
}

/* The kernel's signal frame is larger than this on every machine; the frames of our own functions are smaller. */
#define SIGNAL_FRAME_BYTES 512

static void put_in_order(struct mr_tls *t)
{
    if (t->slot && t->epoch == mr_core.epoch)
        t->head = atomic_load_explicit(&t->slot->head, memory_order_relaxed);
    t->last_file = 0;
    mr_names_abandon();
    t->busy = 0;
}

bool mr_abandoned(const void *frame)
{
    struct mr_tls *t = &mr_tls;
    stack_t alternate = {.ss_flags = 0};
    int32_t below =
        (int32_t)(t->busy - ((uint32_t)(uintptr_t)frame | 1)); /* how far we are below the frame that entered */
    if (t->busy == 1 || below >= SIGNAL_FRAME_BYTES)
        return false;
    if (mr_sys2(SYS_sigaltstack, NULL, &alternate) == 0 && alternate.ss_flags & SS_ONSTACK)
        return false; /* a handler on another stack: the addresses say nothing */
    put_in_order(t);
    return true;
}

/* A jump to a frame above the one that entered leaves the tracer for good. */
void mr_before_jump(uintptr_t stack_pointer)
{
    struct mr_tls *t = &mr_tls;
    stack_t alternate = {.ss_flags = 0};
    if (t->busy <= 1 || !mr_live.alive)
        return;
    bool onstack = mr_sys2(SYS_sigaltstack, NULL, &alternate) == 0 && alternate.ss_flags & SS_ONSTACK;
    bool within = onstack && stack_pointer - (uintptr_t)alternate.ss_sp < alternate.ss_size;
    if (!within && (int32_t)((uint32_t)stack_pointer - t->busy) >= 0)
        put_in_order(t);
}

void mr_flush_pending(void)
{
    struct mr_tls *t = &mr_tls;
    if (!t->pendings)
        return;
    uint64_t signals = mr_signals_block(); /* a handler would park into what is being moved */
    while (t->pendings && !t->busy) {
        t->busy = mr_mark();
        atomic_signal_fence(memory_order_seq_cst);
        struct mr_raw r = t->pending[0];
        t->pendings--;
        memmove(t->pending, t->pending + 1, t->pendings * sizeof(r));
        if (have_room(t))
            store(t, &r, NULL, 0, NULL, 0);
        else
            lose(t);
        atomic_signal_fence(memory_order_seq_cst);
        t->busy = 0;
    }
    mr_signals_restore(signals);
}

void mr_put_slow(uint64_t t0, uint64_t t1, unsigned call, uint32_t file, uint32_t fd1, uint64_t offset, int64_t result,
                 const struct mr_extra *extra, unsigned extras)
{
    struct mr_tls *t = &mr_tls;
    struct mr_extra wide[3];
    int keep = errno;
    if (!mr_core.call_on[call] || !mr_live.alive || file == MR_FILE_EXCLUDED)
        return;
    if (extras > MR_EXTRAS)
        extras = MR_EXTRAS;
    unsigned wides = gather_wide(t1 - t0, offset, result, wide);
    struct mr_raw r = mr_raw_of(t0, t1 - t0, call, file, fd1, offset, result);
    if (t->busy && !mr_abandoned(__builtin_frame_address(0))) {
        park(t, &r);
        return;
    }
    t->busy = mr_mark();
    atomic_signal_fence(memory_order_seq_cst);
    if (MR_UNLIKELY(!mr_live.alive)) { /* a handler that came before has forked, and this is its child */
        t->busy = 0;
        return;
    }
    bool room = have_room(t);
    if (room && mr_core.call_on[call] == 2 && left_out(t->slot, call))
        ;
    else if (room)
        store(t, &r, wide, wides, extra, extras);
    else
        lose(t);
    if (mr_process.late && t->slot)
        mr_slot_drain(t->slot, mr_slot_index(t->slot), false);
    atomic_signal_fence(memory_order_seq_cst);
    t->busy = 0;
    mr_flush_pending();
    errno = keep;
}

void mr_exec_prepare(const struct mr_exec *e)
{
    struct mr_tls *t = &mr_tls;
    if (!mr_core.call_on[e->call] || !mr_live.alive)
        return;
    if (!t->busy || mr_abandoned(__builtin_frame_address(
                        0))) { /* else a handler has interrupted the tracer, which has a slot or was about to */
        t->busy = mr_mark();
        atomic_signal_fence(memory_order_seq_cst);
        have_room(t);
        atomic_signal_fence(memory_order_seq_cst);
        t->busy = 0;
        mr_flush_pending();
    }
    if (!t->slot || t->epoch != mr_core.epoch)
        return;
    t->slot->exec = mr_raw_of(e->t0, 0, e->call, e->file, e->fd1, MR_NO_OFFSET, 0);
    atomic_store_explicit(&t->slot->exec_set, 1, memory_order_release);
}

bool mr_exec_withdraw(void)
{
    struct mr_tls *t = &mr_tls;
    return t->slot && t->epoch == mr_core.epoch && atomic_exchange(&t->slot->exec_set, 0);
}

/* Not with --strays, which tells our own system calls by the instruction's address. */
static const char *found; /* looked up once: a child may be forked where nothing can be */
static const char never = 0;
static const char *find_alone(void)
{
    if (!found)
        found = !mr_config.strays && mr_data_calls_are_plain() ? dlsym(RTLD_DEFAULT, "__libc_single_threaded") : NULL;
    if (!found)
        found = &never; /* also a C library before 2.32 */
    return found;
}

void mr_never_direct(void)
{
    found = &never;
    if (mr_live.alone)
        mr_live.alone = found;
}

void mr_set_active(bool active)
{
    bool one_clock = mr_core.use_tsc;
#if !defined(__x86_64__)
    one_clock = true; /* stamps have no other */
#endif
    static const unsigned hot[] = {MR_CALL_read, MR_CALL_write, MR_CALL_pread, MR_CALL_pwrite, MR_CALL_lseek};
    bool plain = active && one_clock;
    for (unsigned i = 0; i < MR_ARRAY_LEN(hot); i++)
        plain = plain && mr_core.call_on[hot[i]] == 1;
    mr_live.file_of = mr_core.file_of;
    mr_live.alone = find_alone();
    mr_live.active = active;
    atomic_signal_fence(memory_order_seq_cst);
    mr_live.plain = plain ? MR_MIN(mr_core.files, MR_FD_STORED) : 0;
}

void mr_switch(bool on)
{
    mr_core.switched_on = on;
    mr_streams_forget();
    mr_set_active(on);
}

/* A child that was forked by a handler which interrupted the tracer will go on with that, on its parent's rings: it
 * gets memory of its own there. */
static void keep_apart(void)
{
    static uint32_t done; /* in this epoch */
    for (uint32_t i = 0; done != mr_core.epoch && i < mr_process.segments; i++)
        mr_sys6(SYS_mmap, (long)mr_process.segment[i], (long)MR_RING_SEGMENT_BYTES(i), PROT_READ | PROT_WRITE,
                MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    done = mr_core.epoch;
}

bool mr_enter_slow(void)
{
    struct mr_tls *t = &mr_tls;
    if (!environ && !mr_core.epoch)
        return false; /* before the C library is ready (a sanitizer's start): the next call tries again. Later it is
                         clearenv that leaves none. */
    if (mr_live.alive || atomic_load_explicit(&mr_off, memory_order_relaxed) || (t->busy && !mr_core.epoch))
        return false;
    if (t->busy && !mr_abandoned(__builtin_frame_address(0))) {
        keep_apart();
        missed++;
        return false; /* the process begins when the interrupted code has ended */
    }
    int keep = errno;
    uint64_t signals = mr_signals_block();
    mr_spin_lock(&mr_live.beginning);
    if (!mr_live.alive && !atomic_load(&mr_off)) {
        uint32_t vforked = t->vforked;
        *t = (struct mr_tls){.busy = 1, .vforked = vforked};
        if (!mr_process_begin(mr_core.epoch != 0))
            atomic_store(&mr_off, 1);
        t->busy = 0;
    }
    mr_spin_unlock(&mr_live.beginning);
    mr_signals_restore(signals);
    errno = keep;
    return mr_live.active;
}

void mr_after_fork(void)
{
    if (mr_live.alive)
        return; /* it has its parent's memory, or has begun */
    mr_tls.limit = 0;
    mr_tls.pendings = 0; /* the parent stores them */
    /* A handler may have forked, and what it interrupted goes on in the child: */
    mr_live.file_of = mr_core.file_of; /* with what it has found to be so, */
    mr_live.alone = find_alone();
    if (mr_tls.busy)
        keep_apart(); /* but not in its parent's ring */
}

static void __attribute__((constructor)) begin(void)
{
    if (mr_live.alive) { /* a library that came before us made calls; it may have changed the C library since */
        found = NULL;
        mr_live.alone = find_alone();
    }
    mr_enter_slow();
}

/* Exit handlers of libraries loaded before us still run after this; in self mode their events are written one by one.
 */
static void __attribute__((destructor)) end(void)
{
    mr_before_exit();
}
