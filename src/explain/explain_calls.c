/* The calls of one thread: what each waited for, sums, sizes, files, and points of the pictures.
 *
 * What a call waits for depends on what its descriptor is (event/fd_class.h), never on its name alone. A read or write
 * that went as fast as memory is a copy from or to the page cache, whatever lies below. */
#include "analyze/timeline.h"
#include "base/common.h"
#include "base/rng.h"
#include "explain/explain_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Copying out of the page cache into memory that is touched for the first time runs at 2 to 10 GB/s on servers and
 * virtual machines, a call takes 1 to 3 us; single reads of the fastest local disks stay below 2 GB/s up to some MiB.
 */
#define MEMORY_BYTES_PER_US 2000u
#define MEMORY_CALL_NS 10000u

#define NONE_CLASS MR_WAIT_CLASS_COUNT
#define SMALL_READ 65536u
#define ACCESS_POINTS 8192u
#define SIZES_KEPT 4096u
#define POLL_NEAR 500000u /* ns: Python's event loop takes that long from epoll_wait to recv */

static bool at_memory_speed(uint64_t dur, int64_t result)
{
    return dur <= MEMORY_CALL_NS + (result > 0 ? (uint64_t)result * 1000 / MEMORY_BYTES_PER_US : 0);
}

static unsigned data_class(unsigned kind, unsigned fd, uint64_t dur, int64_t result)
{
    switch (fd) {
    case MR_FD_PIPE:
    case MR_FD_SOCKET_LOCAL:
    case MR_FD_EVENT:
    case MR_FD_TTY: return MR_WAIT_IPC;
    case MR_FD_SOCKET_NET: return MR_WAIT_NETWORK;
    case MR_FD_DEVICE: return NONE_CLASS;
    case MR_FD_MEMORY: return MR_WAIT_PAGE_CACHE;
    default: return kind != MR_EV_FSYNC && at_memory_speed(dur, result) ? MR_WAIT_PAGE_CACHE : MR_WAIT_STORAGE;
    }
}

/* What a call waited for; NONE_CLASS: nothing that counts. */
unsigned mr_explain_wait_class(const struct explain_job *j, unsigned call, unsigned fd, uint64_t dur, int64_t result)
{
    unsigned layer = j->call_layer[call];
    if (layer == MR_LAYER_APP || layer == MR_LAYER_HDF5 || layer == MR_LAYER_MPIIO)
        return NONE_CLASS; /* their calls of the system are in the trace as well */
    if (fd == MR_FD_UNKNOWN && mr_call_on_socket(call))
        fd = MR_FD_SOCKET_LOCAL;
    switch (j->call_kind[call]) {
    case MR_EV_READ:
    case MR_EV_WRITE:
    case MR_EV_COPY:
    case MR_EV_FSYNC: return data_class(j->call_kind[call], fd, dur, result);
    case MR_EV_WAIT: return fd == MR_FD_SOCKET_NET ? MR_WAIT_NETWORK : MR_WAIT_IPC;
    case MR_EV_HANDLE: return mr_call_locks(call) && !at_memory_speed(dur, 0) ? MR_WAIT_IPC : NONE_CLASS;
    case MR_EV_OPEN:
    case MR_EV_CLOSE:
    case MR_EV_STAT:
    case MR_EV_UNLINK:
    case MR_EV_RENAME:
    case MR_EV_LIST:
    case MR_EV_MKDIR:
    case MR_EV_RESIZE:
    case MR_EV_LINK:
    case MR_EV_ATTR:
        return fd == MR_FD_UNKNOWN || mr_fd_class_stores((enum mr_fd_class)fd) ? MR_WAIT_METADATA : NONE_CLASS;
    default: return NONE_CLASS;
    }
}

static enum mr_stall_cause cause_of(unsigned wait)
{
    static const uint8_t cause[] = {[MR_WAIT_STORAGE] = MR_STALL_STORAGE,
                                    [MR_WAIT_PAGE_CACHE] = MR_STALL_PAGE_CACHE,
                                    [MR_WAIT_METADATA] = MR_STALL_METADATA,
                                    [MR_WAIT_IPC] = MR_STALL_WORKER,
                                    [MR_WAIT_NETWORK] = MR_STALL_NETWORK};
    return (enum mr_stall_cause)cause[wait];
}

static enum mr_stall_cause cause_of_region(unsigned cause)
{
    static const uint8_t to[] = {[MR_REGION_NO_CAUSE] = MR_STALL_UNKNOWN,  [MR_REGION_STORAGE] = MR_STALL_STORAGE,
                                 [MR_REGION_MEMORY] = MR_STALL_PAGE_CACHE, [MR_REGION_NETWORK] = MR_STALL_NETWORK,
                                 [MR_REGION_DECODE] = MR_STALL_DECODE,     [MR_REGION_TRANSFORM] = MR_STALL_TRANSFORM,
                                 [MR_REGION_QUEUE] = MR_STALL_QUEUE,       [MR_REGION_COPY] = MR_STALL_COPY};
    return (enum mr_stall_cause)to[cause];
}

/* ---- files ---- */

static uint32_t stream_slot(uint32_t file, unsigned fd)
{
    return (file * 2654435761u + fd * 40503u) >> 7 & (EXPLAIN_STREAMS - 1);
}

static struct explain_stream *stream_of(struct explain_lane *l, uint32_t file, unsigned fd)
{
    if (!l->stream && !(l->stream = calloc(EXPLAIN_STREAMS, sizeof(*l->stream))))
        return NULL;
    struct explain_stream *s = &l->stream[stream_slot(file, fd)];
    if (s->file != file + 1 || s->fd != fd)
        *s = (struct explain_stream){.file = file + 1, .fd = (uint16_t)fd};
    return s;
}

/* O_DIRECT of x86-64 or aarch64, where the other one's bit says O_DIRECTORY: of a file that is read it says direct,
 * too, unless it is a part of O_TMPFILE. */
static bool opens_direct(uint64_t flags, int64_t result)
{
    return flags != MR_NO_OFFSET && result >= 0 && flags & (0x4000 | 0x10000) && !(flags & 0x400000);
}

/* Whether this thread opened what it reads or writes now past the page cache: then no speed makes it a copy. */
static bool goes_direct(const struct explain_lane *l, uint32_t file, unsigned fd)
{
    if (!l->stream)
        return false;
    const struct explain_stream *s = &l->stream[stream_slot(file, fd)];
    return s->file == file + 1 && s->fd == fd && s->direct;
}

static void follow_read(struct explain_tally *t, struct explain_stream *s, uint64_t offset, uint64_t size)
{
    if (s->started && (!offset || offset == s->first) && s->end && s->end >= t->end)
        s->started = 0; /* another pass over the file: a first read again */
    if (!s->started)
        s->first = offset; /* of this pass: a format's header may have been known */
    if (s->started) {
        int64_t stride = (int64_t)(offset - s->start);
        t->streamed++;
        t->consecutive += offset == s->end;
        t->sequential += offset >= s->end;
        t->strided += offset > s->end && stride == s->stride;
        t->same_size += size == s->size;
        s->stride = stride;
    }
    s->started = 1;
    s->start = offset;
    s->size = size;
    s->end = offset + size;
}

static void count_data(struct explain_tally *t, struct explain_lane *l, uint32_t file, unsigned fd, bool is_read,
                       uint64_t offset, uint64_t size)
{
    struct explain_stream *s = stream_of(l, file, fd);
    if (offset == MR_NO_OFFSET && s)
        offset = s->at;
    if (is_read) {
        t->reads++;
        t->read_bytes += size;
        t->small_reads += size && size < SMALL_READ;
    } else {
        t->writes++;
        t->written_bytes += size;
    }
    if (offset == MR_NO_OFFSET || !s)
        return;
    s->at = offset + size;
    if (is_read && size)
        follow_read(t, s, offset, size);
    t->end = MR_MAX(t->end, offset + size);
}

/* Inside a make, or inside a wait of the consumer that reads itself. The cursors are those of the call before. */
static bool is_for_batch(const struct explain_job *j, const struct explain_lane *l, uint64_t start)
{
    for (uint32_t k = l->make_at; k < l->makes && k <= l->make_at + 1; k++)
        if (j->make.item[l->make + k].start <= start && start < j->make.item[l->make + k].end)
            return true;
    for (uint32_t k = l->ask_at; k < l->asks && k <= l->ask_at + 1; k++)
        if (j->ask.item[l->ask + k].start <= start && start < j->ask.item[l->ask + k].end)
            return true;
    return false;
}

static void count_file(const struct explain_job *j, struct explain_worker *w, struct explain_lane *l, uint32_t file,
                       const struct mr_event_batch *b, uint32_t i)
{
    unsigned kind = j->call_kind[b->c.call[i]];
    struct explain_tally *t = &w->file[file];
    int64_t result = b->c.result[i];
    t->calls++;
    t->dur_ns += b->c.end_ns[i] - b->c.start_ns[i];
    t->for_batch |= is_for_batch(j, l, b->c.start_ns[i]);
    if (l->rank != NO_INDEX)
        t->ranks |= 1ull << (l->rank & 63);
    if (kind == MR_EV_OPEN) {
        t->opens += (result >= 0 || result == MR_NO_RESULT) && b->c.call[i] != MR_CALL_fdopen;
        bool direct = opens_direct(b->c.offset[i], result);
        struct explain_stream *s =
            (l->stream || direct) && result >= 0 ? stream_of(l, file, (unsigned)result + 1) : NULL;
        if (s)
            s->started = 0, s->at = 0, s->direct = direct;
    } else if (kind == MR_EV_SEEK && result >= 0) {
        struct explain_stream *s = stream_of(l, file, b->c.fd[i]);
        if (s)
            s->at = (uint64_t)result;
    } else if ((kind == MR_EV_READ || kind == MR_EV_COPY || kind == MR_EV_WRITE) && result >= 0) {
        count_data(t, l, file, b->c.fd[i], kind != MR_EV_WRITE, b->c.offset[i], (uint64_t)result);
        t->faulted += j->call_layer[b->c.call[i]] == MR_LAYER_MMAP ? (uint64_t)result : 0;
    } else if (b->c.call[i] == MR_CALL_mmap && result > 0) {
        t->maps++;
    }
}

/* ---- sizes and pictures ---- */

static unsigned log2_bin(uint64_t size)
{
    unsigned bin = 63u - (unsigned)__builtin_clzll(size | 1);
    return MR_MIN(bin, MR_EXPLAIN_SIZE_BINS - 1u);
}

static void count_size(struct explain_worker *w, struct explain_lane *l, bool is_read, uint64_t size, uint64_t dur)
{
    struct mr_explain_sizes *s = is_read ? &w->read : &w->write;
    if (!size) { /* the end of a file: no data, and no latency of any */
        s->zero++;
        s->zero_ns += dur;
        return;
    }
    mr_histogram_add(is_read ? w->read_time : w->write_time, dur);
    unsigned bin = log2_bin(size);
    s->ops[bin]++;
    s->bytes[bin] += size;
    s->dur_ns[bin] += dur;
    if (!is_read)
        return;
    if (l->sizes.used >= SIZES_KEPT && !mr_map_get(&l->sizes, size))
        return;
    uint64_t *count = mr_map_put(&l->sizes, size);
    if (count)
        ++*count;
}

/* Spreads an amount evenly over the duration. */
static void spread(uint64_t *bin, uint32_t bins, uint64_t bin_ns, uint64_t start, uint64_t end, uint64_t amount)
{
    uint64_t b = start / bin_ns;
    if (end <= (b + 1) * bin_ns || end == start) {
        if (b < bins)
            bin[b] += amount;
        return;
    }
    for (; b < bins && b * bin_ns < end; b++)
        bin[b] += (uint64_t)((double)amount *
                             (double)explain_span_ns(MR_MAX(start, b * bin_ns), MR_MIN(end, (b + 1) * bin_ns)) /
                             (double)(end - start));
}

static void draw_call(const struct explain_job *j, struct explain_worker *w, const struct explain_lane *l, bool is_read,
                      uint64_t start, uint64_t end, uint64_t size)
{
    start -= j->x->start_ns;
    end -= j->x->start_ns;
    size *= EXPLAIN_BYTE_PARTS;
    spread(is_read ? w->read_bins : w->write_bins, j->bins, j->bin_ns, start, end, size);
    spread(w->flight_bins, j->bins, j->bin_ns, start, end, end - start);
    if (l->rank != NO_INDEX)
        spread((is_read ? w->heat_read : w->heat_write) + (size_t)(l->rank / j->ranks_per_row) * j->columns, j->columns,
               j->column_ns, start, end, size);
}

uint64_t mr_explain_access_hash(const struct mr_explain_access *a)
{
    return mr_mix64(mr_mix64(a->at_ns ^ mr_mix64(a->offset)) ^ a->file);
}

size_t mr_explain_thin_access(struct mr_explain_access *a, size_t n, uint64_t every)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (!(mr_explain_access_hash(&a[i]) % every))
            a[kept++] = a[i];
    return kept;
}

static void note_access(const struct explain_job *j, struct explain_worker *w, const struct explain_lane *l,
                        uint32_t file, bool is_read, uint64_t start, uint64_t offset, uint64_t size)
{
    const struct mr_explain_access point = {.at_ns = start - j->x->start_ns,
                                            .offset = offset,
                                            .bytes = size,
                                            .file = file,
                                            .rank = l->rank,
                                            .write = !is_read};
    if (offset == MR_NO_OFFSET || mr_explain_access_hash(&point) % w->access_every)
        return;
    while (w->access.n >= ACCESS_POINTS && w->access_every < EXPLAIN_EVERY_MOST) {
        w->access_every *= 2;
        w->access.n = mr_explain_thin_access(w->access.item, w->access.n, w->access_every);
    }
    bool kept = w->access.n < ACCESS_POINTS && !(mr_explain_access_hash(&point) % w->access_every);
    struct mr_explain_access *a = kept ? MR_VEC_ADD(&w->access) : NULL;
    if (a)
        *a = point;
}

/* Where a call that names no offset began: its stream stands at its end, count_file has been here before. */
static uint64_t place_of(struct explain_lane *l, uint32_t file, unsigned fd, uint64_t offset, uint64_t size)
{
    const struct explain_stream *s = offset == MR_NO_OFFSET ? stream_of(l, file, fd) : NULL;
    return s && s->at >= size ? s->at - size : offset;
}

/* ---- one event ---- */

static void count_call(const struct explain_job *j, struct explain_worker *w, struct explain_lane *l, unsigned wait,
                       uint32_t file, const struct mr_event_batch *b, uint32_t i)
{
    unsigned kind = j->call_kind[b->c.call[i]];
    uint64_t start = b->c.start_ns[i], end = b->c.end_ns[i], size = b->c.result[i] > 0 ? (uint64_t)b->c.result[i] : 0;
    bool is_read = kind == MR_EV_READ || kind == MR_EV_COPY, is_data = is_read || kind == MR_EV_WRITE;
    struct explain_sums *s = l->rank != NO_INDEX ? &w->sums[l->rank] : NULL;
    if (s && is_read && size && file != NO_INDEX && (j->run || start >= j->rank[l->rank].train_from)) {
        s->extents += mr_mix64(mr_mix64(b->c.offset[i] ^ mr_mix64(file)) ^ size);
        s->extent_reads++;
    }
    bool early = l->rank != NO_INDEX && start < j->rank[l->rank].train_from;
    if (early && !j->run)
        return; /* importing a program's modules is not its data path; our own runs only read ahead there */
    if (!j->run && file != NO_INDEX && j->file.item[file].code)
        return; /* nor is it later on, in workers that are started anew */
    if (s) {
        s->io_sum_ns += end - start;
        s->metadata_calls += wait == MR_WAIT_METADATA;
        s->read_calls += is_read;
        s->write_calls += kind == MR_EV_WRITE;
        s->read_bytes += is_read ? size : 0;
        s->written_bytes += kind == MR_EV_WRITE ? size : 0;
    }
    if (!is_data || b->c.result[i] < 0)
        return;
    if (!early)
        count_size(w, l, is_read, size, end - start);
    if (is_read && size && wait == MR_WAIT_STORAGE && !early) {
        mr_histogram_add(w->storage_time, end - start);
        mr_explain_flight_add(&w->flight, start, end, size);
    }
    if (!j->bins)
        return;
    draw_call(j, w, l, is_read, start, end, size);
    if (file != NO_INDEX)
        note_access(j, w, l, file, is_read, start, place_of(l, file, b->c.fd[i], b->c.offset[i], size), size);
}

static int list_call(struct explain_lane *l, unsigned wait, uint64_t start, uint64_t end)
{
    struct mr_intervals *v = &l->set[wait];
    if (v->n == v->cap && mr_intervals_grow(v) < 0)
        return -ENOMEM;
    bool normal = !l->apart[wait];
    mr_run_append(v->item, &v->n, start, end, &normal);
    l->apart[wait] = !normal;
    return 0;
}

/* A wait for any of several descriptors (epoll): what the thread reads right behind it is what it waited for. */
static int settle_poll(struct explain_job *j, struct explain_lane *l, uint64_t start, unsigned wait)
{
    bool network = wait == MR_WAIT_NETWORK && start <= l->poll_to + POLL_NEAR;
    uint64_t to = l->poll_to;
    l->poll_to = 0;
    return !to ? 0
               : mr_explain_piece(j, l, l->poll_from, to, network ? MR_STALL_NETWORK : MR_STALL_WORKER, NO_INDEX, 0);
}

/* Of makers and the threads of their processes: a server in the trace would count everything twice.
 * Time to the first bytes behind a request is the server's (its work, a rate limit, the way there and back); what
 * follows is transfer. */
static void count_network(struct explain_worker *w, struct explain_tally *t, struct explain_lane *l, unsigned kind,
                          uint64_t end, uint64_t dur, int64_t result)
{
    if (kind == MR_EV_READ && result > 0 && l->net_asked && l->makes)
        mr_explain_flight_add(&w->answers, end - dur, end, 1);
    if (kind == MR_EV_WRITE) {
        t->net_requests += !l->net_asked && result > 0;
        l->net_asked |= result > 0;
    } else if (kind == MR_EV_READ && result >= 0) {
        *(l->net_asked ? &t->net_answer_ns : &t->net_transfer_ns) += dur;
        t->net_bytes += (uint64_t)result;
        l->net_asked = false;
    } else {
        t->net_answer_ns += dur; /* connecting, waiting until it is readable */
    }
}

static int take_call(struct explain_job *j, struct explain_worker *w, struct explain_lane *l,
                     const struct mr_event_batch *b, uint32_t i, uint32_t file)
{
    uint64_t start = b->c.start_ns[i], end = b->c.end_ns[i];
    int64_t result = b->c.result[i] == MR_NO_RESULT ? 0 : b->c.result[i];
    unsigned fd = file != NO_INDEX ? j->file.item[file].kind : MR_FD_UNKNOWN;
    unsigned wait = mr_explain_wait_class(j, b->c.call[i], fd, end - start, result);
    if (wait == MR_WAIT_PAGE_CACHE && fd == MR_FD_FILE && goes_direct(l, file, b->c.fd[i]))
        wait = MR_WAIT_STORAGE;
    bool stores = wait == MR_WAIT_STORAGE || wait == MR_WAIT_PAGE_CACHE || wait == MR_WAIT_METADATA;
    int rc = 0;
    if (file != NO_INDEX && mr_fd_class_stores((enum mr_fd_class)fd))
        count_file(j, w, l, file, b, i);
    if (fd == MR_FD_SOCKET_NET && (rc = mr_explain_object_call(j, w, l, b, i, file)))
        return rc;
    if (wait == NONE_CLASS)
        return 0;
    if (l->saves && stores &&
        mr_explain_count_save(j, l, j->call_kind[b->c.call[i]], start, end, result > 0 ? (uint64_t)result : 0, file) &&
        file != NO_INDEX)
        w->file[file].for_checkpoint = true;
    if (stores)
        count_call(j, w, l, wait, file, b, i);
    bool idle = b->c.call[i] == MR_CALL_sem_wait && !l->makes && !l->consumer; /* a helper without work */
    if (l->rank != NO_INDEX && !idle)
        rc = list_call(l, wait, start, end);
    if (wait == MR_WAIT_NETWORK && file != NO_INDEX && (l->makes || l->asks) && !l->serves_all)
        count_network(w, &w->file[file], l, j->call_kind[b->c.call[i]], end,
                      end - start + (l->poll_to && start <= l->poll_to + POLL_NEAR ? l->poll_to - l->poll_from : 0),
                      result);
    bool helps = l->asks && !l->makes && !l->consumer,
         writes = j->call_kind[b->c.call[i]] == MR_EV_WRITE || j->call_kind[b->c.call[i]] == MR_EV_FSYNC;
    if (!rc && l->poll_to && start >= l->poll_from && wait != MR_WAIT_METADATA)
        rc = settle_poll(j, l, start, wait);
    if (!rc && (l->makes || l->asks) && j->call_kind[b->c.call[i]] == MR_EV_WAIT && fd == MR_FD_EVENT) {
        l->poll_from = start;
        l->poll_to = end;
        return 0;
    }
    if (!rc && (l->makes || l->asks) && !(helps && writes && stores))
        rc = mr_explain_piece(j, l, start, end, cause_of(wait), stores ? file : NO_INDEX,
                              j->call_kind[b->c.call[i]] == MR_EV_READ && stores && result > 0 ? (uint64_t)result : 0);
    return rc ? -ENOMEM : 0;
}

int mr_explain_lane_chunk(struct explain_job *j, struct explain_worker *w, struct explain_lane *l,
                          const struct mr_event_batch *b)
{
    const struct mr_region_class *site = j->site[l->process];
    const uint32_t *file_of = j->file_of[l->process];
    uint32_t strings = j->t->process[l->process].strings;
    uint64_t from = l->rank != NO_INDEX ? j->rank[l->rank].from : 0;
    uint64_t to = l->rank != NO_INDEX ? j->rank[l->rank].to : UINT64_MAX;
    int rc = 0;
    for (uint32_t i = 0; i < b->count && !rc; i++) {
        uint32_t id = b->c.file[i], call = b->c.call[i];
        uint64_t start = b->c.start_ns[i], end = b->c.end_ns[i];
        if (start < from || start >= to)
            continue;
        if (call > MR_CALL_metadata) {
            rc = take_call(j, w, l, b, i, id < strings && file_of[id] ? file_of[id] - 1 : NO_INDEX);
        } else if (id < strings && call == MR_CALL_region) {
            if ((j->opt->pictures || j->opt->snippets) && (rc = mr_explain_count_snippet(j, w, l, id, start, end)))
                break;
            if (!l->makes && !l->asks)
                continue;
            unsigned cause = site[id].cause;
            if (cause != MR_REGION_NO_CAUSE && mr_explain_piece(j, l, start, end, cause_of_region(cause), NO_INDEX, 0))
                rc = -ENOMEM;
        }
    }
    return rc;
}
