/* Events of this process, or of a simulated world, into a .mrt file. Lanes: one growing buffer of raw records per rank
 * and thread that emits, in the ring's record format, so that the encoder is the tracer's. Ranks: a process each,
 * written when its first event comes; they share the names of the first one.
 *
 * Invariants
 *  S1 on the real clock a lane belongs to the thread that emits: that thread alone appends to it, without a lock, and
 *     flushes it, under the lock. Each thread remembers its lane of the last sink and rank.
 *  S2 of a simulated world all lanes belong to the lock: one thread emits for all ranks.
 *  S3 lanes are never moved or freed before close; close is called when nobody emits any more, or leaves them (see
 *     mr_mrt_sink_abandon). */
#include "event/mrt_sink.h"
#include "base/clock.h"
#include "base/common.h"
#include "base/rng.h"
#include "event/calls.h"
#include "event/mounts.h"
#include "event/mrt_file.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LANE_ROOM (MR_MRT_ARGS + 4) /* records one event may need */
#define FRESH_NS (2 * MR_NS_PER_S)  /* older records are written: `millrace watch` reads them */
#define ALL_RECORDS (8u << 20)      /* then everything is written */

struct lane {
    uint32_t tid, rank;
    uint32_t number;  /* of the lane */
    uint64_t written; /* records written before, for the sequence */
    _Atomic uint32_t n;
    uint32_t cap;
    struct mr_raw *record;
    uint64_t fresh_ns; /* when it was last written to the file */
};

struct name {
    uint64_t hash;
    uint32_t id;
};

struct rank {
    uint64_t events;
    uint32_t threads;
    bool described;
};

struct mr_mrt_sink {
    struct mr_event_sink sink; /* first: the sink's functions get this */
    pthread_mutex_t lock;
    struct mr_mrt_writer *writer;
    uint64_t serial; /* of all sinks of this process: what threads remember their lanes by */
    struct lane **lane;
    size_t lanes, lane_cap, last_lane;
    uint32_t *lane_slot; /* hash table: index + 1 */
    size_t lane_slots;
    uint64_t records;  /* in all lanes */
    struct name *name; /* hash table */
    size_t slots;
    uint8_t *arena;
    size_t arena_used, arena_cap, arena_written;
    uint32_t strings, strings_written;
    void *workspace;
    uint8_t *out;
    struct mr_calibration cal; /* ticks are ns */
    struct rank *rank;         /* one, or one per simulated rank */
    uint32_t ranks, ranks_per_node;
    int32_t own_rank, own_world;
    char program[128];
    bool many;      /* events say whose they are: rank 0 to ranks - 1 */
    bool simulated; /* on a virtual clock */
    bool mounts_written;
    atomic_bool closed;
    uint64_t key, last_ns;
    _Atomic uint64_t lost;
    int failed;
    struct mr_error error;
};

/* A call for events that only say what they do. */
static uint16_t call_for(uint16_t kind)
{
    static const uint16_t calls[MR_EV_KINDS] = {
        [MR_EV_OPEN] = MR_CALL_open,
        [MR_EV_CLOSE] = MR_CALL_close,
        [MR_EV_READ] = MR_CALL_pread,
        [MR_EV_WRITE] = MR_CALL_pwrite,
        [MR_EV_FSYNC] = MR_CALL_fsync,
        [MR_EV_STAT] = MR_CALL_stat,
        [MR_EV_UNLINK] = MR_CALL_unlink,
        [MR_EV_RENAME] = MR_CALL_rename,
        [MR_EV_LIST] = MR_CALL_readdir,
        [MR_EV_MKDIR] = MR_CALL_mkdir,
        [MR_EV_SEEK] = MR_CALL_lseek,
        [MR_EV_COPY] = MR_CALL_copy_file_range,
        [MR_EV_MAP] = MR_CALL_mmap,
        [MR_EV_ADVISE] = MR_CALL_posix_fadvise,
        [MR_EV_RESIZE] = MR_CALL_ftruncate,
        [MR_EV_HANDLE] = MR_CALL_fcntl,
        [MR_EV_LINK] = MR_CALL_link,
        [MR_EV_ATTR] = MR_CALL_chmod,
        [MR_EV_SUBMIT] = MR_CALL_io_uring_submit,
        [MR_EV_PROCESS] = MR_CALL_fork,
        [MR_EV_REGION] = MR_CALL_region,
        [MR_EV_INSTANT] = MR_CALL_instant,
        [MR_EV_COUNTER] = MR_CALL_counter,
        [MR_EV_METADATA] = MR_CALL_metadata,
        [MR_EV_WAIT] = MR_CALL_poll,
    };
    return kind < MR_EV_KINDS && calls[kind] ? calls[kind] : MR_CALL_fcntl;
}

static void fail(struct mr_mrt_sink *s, int code)
{
    if (!s->failed)
        s->failed = code;
}

static void append(struct mr_mrt_sink *s, size_t bytes)
{
    if (!s->failed && bytes)
        fail(s, mr_mrt_writer_append(s->writer, s->out, bytes, &s->error));
}

static void write_names(struct mr_mrt_sink *s)
{
    while (s->arena_written < s->arena_used && !s->failed) {
        uint64_t bytes;
        uint32_t count;
        size_t n = mr_mrt_encode_strings(s->workspace, s->arena + s->arena_written, s->arena_used - s->arena_written,
                                         s->key, s->strings_written + 1, s->out, MR_MRT_EVENTS_MAX, &bytes, &count);
        if (!count)
            break;
        append(s, n);
        s->arena_written += bytes;
        s->strings_written += count;
    }
}

/* Keys of simulated ranks; rank 0 has the key that the names belong to. */
static uint64_t key_of(const struct mr_mrt_sink *s, uint32_t rank)
{
    return rank ? mr_mix64(s->key + rank) : s->key;
}

static void describe(struct mr_mrt_sink *s, uint32_t rank)
{
    char host[256] = "unknown", exe[512];
    ssize_t n;
    if (s->simulated) {
        snprintf(host, sizeof(host), "%s-%u", s->program, s->ranks_per_node ? rank / s->ranks_per_node : 0);
        n = snprintf(exe, sizeof(exe), "%s", s->program);
    } else {
        gethostname(host, sizeof(host) - 1);
        n = readlink("/proc/self/exe", exe, sizeof(exe));
    }
    uint32_t exe_len = n > 0 ? (uint32_t)n : 0;
    struct mr_process_info p = {.key = key_of(s, rank),
                                .pid = rank + 1,
                                .start_ns = s->cal.mono0,
                                .start_real_ns = s->cal.real0,
                                .rank = s->own_rank,
                                .world = s->own_world,
                                .local_rank = -1,
                                .local_world = -1,
                                .uid = (uint32_t)getuid(),
                                .host = host,
                                .host_len = (uint32_t)strlen(host),
                                .exe = exe,
                                .exe_len = exe_len,
                                .cmdline = exe,
                                .cmdline_len = exe_len,
                                .names_key = s->key};
    if (s->many) {
        p.rank = (int32_t)rank;
        p.flags = rank ? MR_PROCESS_SHARES_NAMES : 0;
    }
    if (!s->simulated) { /* ranks that are threads of one process count as processes of following numbers */
        p.pid = (uint32_t)getpid() + rank;
        p.ppid = (uint32_t)getppid();
    }
    struct mr_mrt_block b = {
        .type = MR_MRT_PROCESS, .key = p.key, .count = 1, .first_ns = s->cal.mono0, .last_ns = s->cal.mono0};
    b.payload_bytes = (uint32_t)mr_mrt_encode_process(&p, s->out + MR_MRT_HEADER, MR_RING_PROCESS_BYTES);
    append(s, mr_mrt_seal(s->out, &b));
    if (!s->simulated && !s->mounts_written)
        append(s, mr_mounts_block(p.key, s->cal.mono0, s->out));
    s->mounts_written = true;
    s->rank[rank].described = true;
}

static void flush_lane(struct mr_mrt_sink *s, struct lane *l)
{
    uint32_t count = atomic_load_explicit(&l->n, memory_order_acquire);
    if (count && !s->rank[l->rank].described)
        describe(s, l->rank);
    write_names(s);
    for (uint32_t at = 0, taken; at < count && !s->failed; at += taken) {
        struct mr_mrt_block b;
        size_t n = mr_mrt_encode_records(s->workspace, l->record + at, count - at, &s->cal, key_of(s, l->rank), l->tid,
                                         ((uint64_t)l->number & 0xffff) << 48 | (l->written + at),
                                         l->rank ? 0 : s->lost, s->out, &taken, &b);
        append(s, n);
        s->rank[l->rank].events += b.count;
        s->last_ns = MR_MAX(s->last_ns, b.last_ns);
    }
    l->written += count;
    l->fresh_ns = mr_now_ns();
    s->records -= s->simulated ? count : 0;
    atomic_store_explicit(&l->n, 0, memory_order_relaxed);
}

static size_t lane_place(const uint32_t *slot, size_t slots, struct lane *const *lane, uint32_t rank, uint32_t tid)
{
    size_t k = mr_mix64((uint64_t)rank << 32 | tid) & (slots - 1);
    while (slot[k] && (lane[slot[k] - 1]->rank != rank || lane[slot[k] - 1]->tid != tid))
        k = (k + 1) & (slots - 1);
    return k;
}

static int grow_lanes(struct mr_mrt_sink *s)
{
    size_t cap = s->lane_cap ? s->lane_cap * 2 : 16, slots = cap * 2;
    struct lane **bigger = realloc(s->lane, cap * sizeof(*bigger));
    if (bigger)
        s->lane = bigger;
    uint32_t *slot = bigger ? calloc(slots, sizeof(*slot)) : NULL;
    if (!slot)
        return -ENOMEM;
    for (size_t i = 0; i < s->lanes; i++)
        slot[lane_place(slot, slots, s->lane, s->lane[i]->rank, s->lane[i]->tid)] = (uint32_t)i + 1;
    free(s->lane_slot);
    s->lane_slot = slot;
    s->lane_slots = slots;
    s->lane_cap = cap;
    return 0;
}

static struct lane *add_lane(struct mr_mrt_sink *s, size_t place, uint32_t rank, uint32_t tid)
{
    struct lane *l = calloc(1, sizeof(*l));
    if (!l)
        return NULL;
    l->tid = tid;
    l->rank = rank;
    l->number = (uint32_t)s->lanes;
    l->fresh_ns = mr_now_ns();
    s->lane[s->lanes++] = l;
    s->lane_slot[place] = (uint32_t)s->lanes;
    s->rank[rank].threads++;
    return l;
}

/* The lane of a rank and thread. Under the lock. */
static struct lane *find_lane(struct mr_mrt_sink *s, uint32_t rank, uint32_t tid)
{
    struct lane *l = s->lanes ? s->lane[s->last_lane] : NULL;
    if (l && l->rank == rank && l->tid == tid)
        return l;
    if (s->lanes == s->lane_cap && grow_lanes(s) < 0)
        return NULL;
    size_t k = lane_place(s->lane_slot, s->lane_slots, s->lane, rank, tid);
    l = s->lane_slot[k] ? s->lane[s->lane_slot[k] - 1] : add_lane(s, k, rank, tid);
    if (l)
        s->last_lane = l->number;
    return l;
}

/* Room for one event; by whoever owns the lane. */
static bool make_room(struct lane *l)
{
    if (MR_LIKELY(l->n + LANE_ROOM <= l->cap))
        return true;
    uint32_t cap = l->cap ? MR_MIN(l->cap * 2, MR_BLOCK_EVENTS + LANE_ROOM) : 256;
    struct mr_raw *bigger = realloc(l->record, cap * sizeof(*bigger));
    if (!bigger)
        return false;
    l->record = bigger;
    l->cap = cap;
    return true;
}

static uint32_t put_more(struct lane *l, uint32_t n, uint32_t type, uint32_t key, uint64_t value)
{
    l->record[n] = (struct mr_raw){{MR_CALL_more, (uint64_t)key << 32 | type, value, 0}};
    return n + 1;
}

/* Returns how many records it took. */
static uint32_t put_event(struct lane *l, const struct mr_event *e, const struct mr_mrt_arg *arg, unsigned args)
{
    uint16_t call = e->call ? e->call : call_for(e->kind);
    uint32_t first = atomic_load_explicit(&l->n, memory_order_relaxed), n = first;
    assert(n + LANE_ROOM <= l->cap);
    l->record[n++] = (struct mr_raw){{e->offset << 16 | call, (uint64_t)e->path_id << 32 | (uint32_t)e->dur_ns,
                                      e->start_ns, (uint64_t)e->result << 16 | e->fd}};
    if (MR_UNLIKELY(e->dur_ns >> 32))
        n = put_more(l, n, MR_MORE_DURATION, 0, e->dur_ns);
    if (MR_UNLIKELY(!MR_RAW_FITS48(e->offset)))
        n = put_more(l, n, MR_MORE_OFFSET, 0, e->offset);
    if (MR_UNLIKELY(!MR_RAW_FITS48(e->result)))
        n = put_more(l, n, MR_MORE_RESULT, 0, (uint64_t)e->result);
    for (unsigned i = 0; i < MR_MIN(args, (unsigned)MR_MRT_ARGS); i++)
        n = put_more(l, n, arg[i].is_real ? MR_MORE_DOUBLE : MR_MORE_INT, arg[i].key, (uint64_t)arg[i].value);
    atomic_store_explicit(&l->n, n, memory_order_release);
    return n - first;
}

static void emit_simulated(struct mr_mrt_sink *s, const struct mr_event *e, const struct mr_mrt_arg *arg, unsigned args)
{
    pthread_mutex_lock(&s->lock);
    struct lane *l = s->failed || e->rank >= s->ranks ? NULL : find_lane(s, e->rank, e->tid);
    if (!l || !make_room(l)) {
        s->lost++;
        pthread_mutex_unlock(&s->lock);
        return;
    }
    s->records += put_event(l, e, arg, args);
    if (l->n >= MR_BLOCK_EVENTS)
        flush_lane(s, l);
    for (size_t i = 0; s->records > ALL_RECORDS && i < s->lanes; i++)
        flush_lane(s, s->lane[i]);
    pthread_mutex_unlock(&s->lock);
}

/* The calling thread's lane (S1). A thread that emits for two sinks or ranks by turns takes the lock each time. */
static struct lane *own_lane(struct mr_mrt_sink *s, uint32_t rank)
{
    static _Thread_local struct {
        uint64_t serial;
        uint32_t rank, tid;
        struct lane *lane;
    } last;
    if (MR_LIKELY(last.serial == s->serial && last.rank == rank))
        return last.lane;
    if (!last.tid)
        last.tid = (uint32_t)gettid();
    pthread_mutex_lock(&s->lock);
    last.lane = rank < s->ranks ? find_lane(s, rank, last.tid) : NULL;
    pthread_mutex_unlock(&s->lock);
    last.rank = rank;
    last.serial = last.lane ? s->serial : 0;
    return last.lane;
}

void mr_mrt_sink_emit_args(struct mr_mrt_sink *s, const struct mr_event *e, const struct mr_mrt_arg *arg, unsigned args)
{
    if (s->simulated) {
        emit_simulated(s, e, arg, args);
        return;
    }
    if (MR_UNLIKELY(atomic_load_explicit(&s->closed, memory_order_relaxed)))
        return;
    struct lane *l = own_lane(s, s->many ? e->rank : 0);
    if (MR_UNLIKELY(!l || !make_room(l))) {
        s->lost++;
        return;
    }
    put_event(l, e, arg, args);
    bool old = (int64_t)(e->start_ns + e->dur_ns - l->fresh_ns) > (int64_t)FRESH_NS;
    if (MR_UNLIKELY(l->n >= MR_BLOCK_EVENTS || old)) {
        pthread_mutex_lock(&s->lock);
        flush_lane(s, l);
        pthread_mutex_unlock(&s->lock);
    }
}

static void sink_emit(struct mr_event_sink *sink, const struct mr_event *e)
{
    mr_mrt_sink_emit_args((struct mr_mrt_sink *)sink, e, NULL, 0);
}

static int grow_names(struct mr_mrt_sink *s)
{
    size_t slots = s->slots ? s->slots * 2 : 1024;
    struct name *bigger = calloc(slots, sizeof(*bigger));
    if (!bigger)
        return -ENOMEM;
    for (size_t i = 0; i < s->slots; i++)
        if (s->name[i].id) {
            size_t k = s->name[i].hash & (slots - 1);
            while (bigger[k].id)
                k = (k + 1) & (slots - 1);
            bigger[k] = s->name[i];
        }
    free(s->name);
    s->name = bigger;
    s->slots = slots;
    return 0;
}

static uint64_t hash_text(const char *p, size_t n, uint64_t h)
{
    for (; n >= 8; p += 8, n -= 8)
        h = mr_mix64(h ^ mr_load_le64(p));
    uint64_t v = n;
    for (size_t i = 0; i < n; i++)
        v = v << 8 | (uint8_t)p[i];
    return mr_mix64(h ^ v ^ 0x77);
}

/* Names are told apart by a 64-bit hash. */
static uint32_t add_name(struct mr_mrt_sink *s, enum mr_string_kind kind, const char *text, size_t len)
{
    uint64_t hash = hash_text(text, len, kind + 1);
    size_t bytes = MR_ARENA_STRING_BYTES(len);
    if ((size_t)s->strings * 2 >= s->slots && grow_names(s) < 0)
        return 0;
    size_t i = hash & (s->slots - 1);
    for (; s->name[i].id; i = (i + 1) & (s->slots - 1))
        if (s->name[i].hash == hash)
            return s->name[i].id;
    if (s->arena_used + bytes > s->arena_cap) {
        size_t cap = (s->arena_cap + bytes) * 2;
        uint8_t *bigger = realloc(s->arena, cap);
        if (!bigger)
            return 0;
        s->arena = bigger;
        s->arena_cap = cap;
    }
    struct mr_arena_string *a = (void *)(s->arena + s->arena_used);
    memset(a, 0, bytes);
    a->len = (uint32_t)len;
    a->kind = (uint8_t)kind;
    memcpy(a->text, text, len);
    s->arena_used += bytes;
    s->name[i] = (struct name){.hash = hash, .id = ++s->strings};
    return s->strings;
}

static uint32_t sink_intern(struct mr_event_sink *sink, const char *path)
{
    struct mr_mrt_sink *s = (struct mr_mrt_sink *)sink;
    pthread_mutex_lock(&s->lock);
    uint32_t id = add_name(s, MR_STR_PATH, path, strlen(path));
    pthread_mutex_unlock(&s->lock);
    return id;
}

uint32_t mr_mrt_sink_site(struct mr_mrt_sink *s, const char *category, const char *name)
{
    char text[1024];
    size_t c = strnlen(category, 400), n = strnlen(name, 600);
    memcpy(text, category, c);
    text[c] = 0;
    memcpy(text + c + 1, name, n);
    pthread_mutex_lock(&s->lock);
    uint32_t id = add_name(s, MR_STR_SITE, text, c + 1 + n);
    pthread_mutex_unlock(&s->lock);
    return id;
}

uint32_t mr_mrt_sink_key(struct mr_mrt_sink *s, const char *name)
{
    pthread_mutex_lock(&s->lock);
    uint32_t id = add_name(s, MR_STR_KEY, name, strlen(name));
    pthread_mutex_unlock(&s->lock);
    return id;
}

static void sink_free(struct mr_mrt_sink *s)
{
    for (size_t i = 0; i < s->lanes; i++) {
        free(s->lane[i]->record);
        free(s->lane[i]);
    }
    pthread_mutex_destroy(&s->lock);
    free(s->lane);
    free(s->lane_slot);
    free(s->rank);
    free(s->name);
    free(s->arena);
    free(s->workspace);
    free(s->out);
    free(s);
}

static int sink_open(const char *path, const struct mr_mrt_sink *what, struct mr_mrt_sink **out, struct mr_error *err)
{
    struct mr_mrt_sink *s = calloc(1, sizeof(*s));
    if (!s)
        return mr_error_set(err, -ENOMEM, "cannot open '%s'", path);
    static _Atomic uint64_t serials;
    memcpy(s, what, sizeof(*s));
    s->serial = atomic_fetch_add(&serials, 1) + 1;
    pthread_mutex_init(&s->lock, NULL);
    s->sink = (struct mr_event_sink){.intern = sink_intern, .emit = sink_emit};
    s->workspace = aligned_alloc(64, MR_ALIGN_UP(mr_mrt_workspace_bytes(), 64));
    s->out = aligned_alloc(64, MR_MRT_EVENTS_MAX);
    s->rank = calloc(s->ranks, sizeof(*s->rank));
    s->cal.tick1 = s->cal.tick0 + MR_NS_PER_S; /* one tick is one ns */
    s->cal.mono1 = s->cal.mono0 + MR_NS_PER_S;
    s->key = mr_mix64(mr_wall_ns() ^ mr_mix64((uint64_t)getpid()));
    int rc = s->workspace && s->out && s->rank ? 0 : mr_error_set(err, -ENOMEM, "cannot open '%s'", path);
    if (rc == 0) {
        memset(s->workspace, 0, mr_mrt_workspace_bytes());
        rc = mr_mrt_writer_open(path, false, &s->writer, err);
    }
    if (rc < 0) {
        sink_free(s);
        return rc;
    }
    describe(s, 0);
    *out = s;
    return 0;
}

int mr_mrt_sink_open(const char *path, int32_t rank, int32_t world, struct mr_mrt_sink **out, struct mr_error *err)
{
    struct mr_mrt_sink what = {.ranks = 1, .own_rank = rank, .own_world = world};
    what.cal.mono0 = what.cal.tick0 = mr_now_ns();
    what.cal.real0 = mr_wall_ns();
    return sink_open(path, &what, out, err);
}

int mr_mrt_sink_open_ranks(const char *path, uint32_t world, struct mr_mrt_sink **out, struct mr_error *err)
{
    struct mr_mrt_sink what = {.ranks = MR_MAX(world, 1u), .own_world = (int32_t)world, .many = true};
    what.cal.mono0 = what.cal.tick0 = mr_now_ns();
    what.cal.real0 = mr_wall_ns();
    return sink_open(path, &what, out, err);
}

int mr_mrt_sink_open_sim(const char *path, const struct mr_mrt_sim *sim, struct mr_mrt_sink **out, struct mr_error *err)
{
    struct mr_mrt_sink what = {.ranks = MR_MAX(sim->world, 1u),
                               .own_world = (int32_t)sim->world,
                               .ranks_per_node = sim->ranks_per_node,
                               .many = true,
                               .simulated = true};
    snprintf(what.program, sizeof(what.program), "%s", sim->program ? sim->program : "sim");
    return sink_open(path, &what, out, err);
}

struct mr_event_sink *mr_mrt_sink_get(struct mr_mrt_sink *s)
{
    return &s->sink;
}

/* Everything to the file, and its end. */
static int finish(struct mr_mrt_sink *s, struct mr_error *err)
{
    atomic_store(&s->closed, true);
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->lanes; i++)
        flush_lane(s, s->lane[i]);
    write_names(s);
    for (uint32_t r = 0; r < s->ranks; r++)
        if (s->rank[r].described)
            append(s, mr_mrt_encode_end(key_of(s, r), MR_HOW_EXIT, s->rank[r].threads, s->rank[r].events,
                                        r ? 0 : s->lost, s->simulated ? s->last_ns : mr_now_ns(), NULL, s->out));
    int rc = s->failed;
    if (rc < 0 && err)
        *err = s->error;
    struct mr_error second;
    int closed = mr_mrt_writer_close(s->writer, rc ? &second : err);
    s->writer = NULL;
    s->failed = -EBADF; /* whoever comes late writes nothing */
    pthread_mutex_unlock(&s->lock);
    return rc ? rc : closed;
}

int mr_mrt_sink_close(struct mr_mrt_sink *s, struct mr_error *err)
{
    if (!s)
        return 0;
    int rc = finish(s, err);
    sink_free(s);
    return rc;
}

int mr_mrt_sink_abandon(struct mr_mrt_sink *s, struct mr_error *err)
{
    return s ? finish(s, err) : 0;
}
