/* Names: the string arena in the spool file, a private hash table over it, the table of descriptors, the working
 * directory and the path filter. All under one spin lock that is held for some hundred nanoseconds; a thread never
 * re-enters it because `busy` is set around it. Strings are stored as the program gave them. */
#include "tracer/tracer_internal.h"
#include "tracer/tracer_sys.h"
#include "tracer/wrap.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

struct entry {
    uint32_t hash, id;
    uint64_t at; /* in the arena */
};

/* What every look-up needs, in one cache line. */
static _Alignas(64) _Atomic uintptr_t owner; /* of the lock: the thread's &mr_tls, so that an abandoned one is known */
static struct entry *table;
static uint32_t table_slots, table_used;
static char cwd[MR_PATH_BYTES];
static size_t cwd_len;
static _Atomic bool cwd_known;
static _Atomic bool cwd_apart;         /* threads have working directories of their own: it is asked for every time */
static _Atomic bool files_apart;       /* and so for descriptors */
static char joined[3 * MR_PATH_BYTES]; /* not on the stack, as it may be a small one: a signal's, a thread's */

/* Mapped files, by address. */
struct mapping {
    uintptr_t from, to;
    uint32_t file;
};
static struct mapping *map; /* in order, without overlaps */
static size_t maps, map_cap;

union mr_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_storage room;
};

static uint16_t mr_net16(uint16_t v)
{
    const uint8_t *b = (const uint8_t *)&v;
    return (uint16_t)(b[0] << 8 | b[1]);
}

static inline uint64_t word_at(const char *s)
{
    uint64_t v;
    memcpy(&v, s, sizeof(v));
    return v;
}

/* The last one to seven bytes of a text: as a word that ends with them, if it is long enough for one. */
static inline uint64_t last_word(const char *s, size_t len, size_t all)
{
    uint64_t v = 0;
    if (MR_LIKELY(all >= sizeof(v)))
        return word_at(s + len - sizeof(v));
    for (size_t i = 0; i < len; i++)
        v |= (uint64_t)(uint8_t)s[i] << (8 * i);
    return v;
}

static inline uint32_t hash_text(const char *s, size_t len, uint32_t kind)
{
    uint64_t h = 0x9e3779b97f4a7c15ull ^ (len * 0xff51afd7ed558ccdull) ^ kind;
    size_t left = len;
    for (; left >= 8; s += 8, left -= 8) {
        h = (h ^ word_at(s)) * 0x9fb21c651e98df25ull;
        h ^= h >> 32;
    }
    uint64_t last = last_word(s, left, len);
    if (MR_LIKELY(len >= 8))
        last = last >> 1 >> (63 - 8 * left); /* without the bytes of the word before: they would cancel out, and names
                                                that count up share their places */
    h = (h ^ last) * 0x9fb21c651e98df25ull;
    h ^= h >> 29;
    return (uint32_t)(h >> 8) | 1;
}

static inline bool same_text(const char *a, const char *b, size_t len)
{
    size_t left = len;
    for (; left >= 8; a += 8, b += 8, left -= 8)
        if (word_at(a) != word_at(b))
            return false;
    return last_word(a, left, len) == last_word(b, left, len);
}

static uint8_t *arena(void)
{
    return (uint8_t *)mr_process.segment[0] + MR_RING_STRINGS_AT;
}

static uint64_t arena_present; /* bytes whose memory is there */

uint64_t mr_names_present(void)
{
    return arena_present;
}

static bool arena_grow(uint64_t need)
{
    uint64_t more = MR_MAX(MR_ALIGN_UP(need - arena_present, 4 * MR_KIB),
                           MR_MIN(arena_present, 64 * MR_KIB)); /* little for a short life */
    if (arena_present + more > MR_RING_STRING_BYTES)
        return true; /* the caller finds it full */
    if (!mr_populate(arena() + arena_present, more)) {
        mr_stop_tracing("no space left for names", 0);
        return false;
    }
    arena_present += more;
    return true;
}

static void table_insert(struct entry *t, uint32_t slots, struct entry e)
{
    uint32_t i = e.hash & (slots - 1);
    while (t[i].hash)
        i = (i + 1) & (slots - 1);
    t[i] = e;
}

#define FIRST_SLOTS 4096u
/* There also for a program that may not map any more memory. A forked child finds zeros. */
static _Alignas(4096) struct entry first_table[FIRST_SLOTS];

void mr_names_begin(void)
{
    mr_sys3(SYS_madvise, first_table, sizeof(first_table), MADV_WIPEONFORK);
}

static void unmap_table(struct entry *old, uint32_t slots)
{
    if (old && old != first_table)
        mr_sys2(SYS_munmap, old, slots * sizeof(*old));
}

static void table_forget(void)
{
    if (table_slots)
        unmap_table(table, table_slots);
    table = NULL;
    table_slots = table_used = 0;
}

/* In a process that is no new child the first table has entries still. */
static void clear_table(void)
{
    table_forget();
    memset(first_table, 0, sizeof(first_table));
}

static bool table_grow(void)
{
    uint32_t slots = table_slots ? table_slots * 2 : FIRST_SLOTS;
    struct entry *bigger = table_slots ? mr_map_pages(slots * sizeof(*bigger)) : first_table;
    if (!bigger)
        return table_used + 1 < table_slots - table_slots / 8; /* slower, but it has room */
    for (uint32_t i = 0; i < table_slots; i++)
        if (table[i].hash)
            table_insert(bigger, slots, table[i]);
    struct entry *old = table;
    uint32_t old_slots = table_slots;
    table_slots = 0; /* another thread may fork at any moment: its child unmaps what belongs together, or nothing */
    atomic_signal_fence(memory_order_seq_cst);
    table = bigger;
    atomic_signal_fence(memory_order_seq_cst);
    table_slots = slots;
    unmap_table(old, old_slots);
    return true;
}

static inline uint32_t find(uint32_t hash, uint32_t kind, const char *text, size_t len)
{
    if (!table_slots)
        return 0;
    for (uint32_t i = hash & (table_slots - 1); table[i].hash; i = (i + 1) & (table_slots - 1)) {
        const struct mr_arena_string *s = (const void *)(arena() + table[i].at);
        if (table[i].hash == hash && s->len == len && s->kind == kind && same_text(s->text, text, len))
            return table[i].id;
    }
    return 0;
}

static __attribute__((noinline, cold)) uint32_t append(uint32_t hash, uint32_t kind, const char *text, size_t len)
{
    struct mr_ring_header *h = mr_process.segment[0];
    uint64_t at = atomic_load_explicit(&h->strings_used, memory_order_relaxed), bytes = MR_ARENA_STRING_BYTES(len);
    if (at + bytes > arena_present && !arena_grow(at + bytes))
        return 0;
    if (at + bytes > MR_RING_STRING_BYTES || (table_used * 2 >= table_slots && !table_grow())) {
        atomic_fetch_add(&h->strings_full, 1);
        return 0;
    }
    struct mr_arena_string *s = (void *)(arena() + at);
    s->len = (uint32_t)len;
    s->kind = (uint8_t)kind;
    memcpy(s->text, text, len);
    uint32_t id = atomic_load_explicit(&h->strings, memory_order_relaxed) + 1;
    atomic_store_explicit(&h->strings, id, memory_order_relaxed);
    atomic_store_explicit(&h->strings_used, at + bytes, memory_order_release); /* R5 */
    table_insert(table, table_slots, (struct entry){.hash = hash, .id = id, .at = at});
    table_used++;
    return id;
}

static MR_TOGETHER uint32_t intern_locked(uint32_t kind, const char *text, size_t len)
{
    uint32_t hash = hash_text(text, len, kind), id = find(hash, kind, text, len);
    if (id)
        return id;
    if (kind == MR_STR_PATH && !mr_path_wanted(text))
        return MR_FILE_EXCLUDED;
    return append(hash, kind, text, len);
}

/* Runs one step with busy set and the lock held; 0 when a signal handler interrupted the tracer on this thread. */
static inline bool names_lock(const void *frame)
{
    uintptr_t none = 0;
    unsigned n = 0;
    if (mr_tls.busy && !mr_abandoned(frame))
        return false;
    mr_tls.busy = (uint32_t)(uintptr_t)frame | 1;
    atomic_signal_fence(memory_order_seq_cst);
    for (; !atomic_compare_exchange_weak_explicit(&owner, &none, (uintptr_t)&mr_tls, memory_order_acquire,
                                                  memory_order_relaxed);
         none = 0)
        mr_wait_turn(n++);
    return true;
}

/* The thread left by longjmp or cancellation while it held the lock: what was being changed is made anew from the
 * arena. */
void mr_names_abandon(void)
{
    if (atomic_load_explicit(&owner, memory_order_relaxed) != (uintptr_t)&mr_tls)
        return;
    struct mr_ring_header *h = mr_process.segment[0];
    uint64_t used = atomic_load_explicit(&h->strings_used, memory_order_relaxed), at = 0;
    uint32_t id = 0;
    atomic_store(&cwd_known, false);
    maps = map_cap = 0; /* as is the next: it may be half moved, and is left to the process's end */
    map = NULL;
    table = NULL;
    table_slots = 0;
    clear_table();
    while (at < used) {
        const struct mr_arena_string *s = (const void *)(arena() + at);
        uint32_t hash = hash_text(s->text, s->len, s->kind);
        if (table_used * 2 >= table_slots && !table_grow())
            break; /* the names that are missing get a second id */
        table_insert(table, table_slots, (struct entry){.hash = hash, .id = ++id, .at = at});
        table_used++;
        at += MR_ARENA_STRING_BYTES(s->len);
    }
    for (; at < used; at += MR_ARENA_STRING_BYTES(((const struct mr_arena_string *)(const void *)(arena() + at))->len))
        id++;
    atomic_store_explicit(&h->strings, id, memory_order_relaxed);
    atomic_store_explicit(&owner, 0, memory_order_release);
}

static inline void names_unlock(void)
{
    atomic_store_explicit(&owner, 0, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
    mr_tls.busy = 0;
    if (mr_tls.pendings)
        mr_flush_pending();
}

uint32_t mr_string_id(enum mr_string_kind kind, const char *text, size_t len)
{
    if (!mr_live.alive || !names_lock(__builtin_frame_address(0)))
        return 0;
    uint32_t id = intern_locked(kind, text, MR_MIN(len, (size_t)65535));
    names_unlock();
    return id;
}

static void link_of(int fd, char link[40])
{
    size_t n = mr_copy_text(link, 40,
                            atomic_load_explicit(&files_apart, memory_order_relaxed) ? "/proc/thread-self/fd/"
                                                                                     : "/proc/self/fd/");
    n += mr_decimal(link + n, (uint64_t)(uint32_t)fd);
    link[n] = 0;
}

static size_t directory_of(int dirfd, char *out)
{
    if (dirfd == AT_FDCWD) {
        if (!atomic_load(&cwd_known) || atomic_load(&cwd_apart)) {
            long n = mr_sys2(SYS_getcwd, cwd, sizeof(cwd));
            cwd_len = n > 1 ? (size_t)n - 1 : 0;
            atomic_store(&cwd_known, true);
        }
        memcpy(out, cwd, cwd_len);
        return cwd_len;
    }
    char link[40];
    link_of(dirfd, link);
    long n = mr_sys4(SYS_readlinkat, AT_FDCWD, link, out, MR_PATH_BYTES - 1);
    return n > 0 ? (size_t)n : 0;
}

/* Length of a path, at most MR_PATH_BYTES, and whether it is tidy: absolute and surely without "//", "/./" and "/../".
 * Every open asks. */
static inline size_t look_at_path(const char *path, bool *tidy)
{
    bool odd = path[0] != '/';
    size_t n = 0;
    for (char before = 0; n < MR_PATH_BYTES && path[n]; before = path[n++])
        odd |= before == '/' && (path[n] == '/' || path[n] == '.');
    *tidy = !odd && n < MR_PATH_BYTES;
    return n;
}

/* Removes "//" and "/./", which name the same directory; ".." stays, it may cross a symbolic link. */
static size_t tidy_up(char *s, size_t len)
{
    size_t to = 0;
    for (size_t i = 0; i < len; i++) {
        if (s[i] == '/') {
            while (i + 1 < len && (s[i + 1] == '/' || (s[i + 1] == '.' && (i + 2 == len || s[i + 2] == '/'))))
                i += s[i + 1] == '/' ? 1 : 2;
            i = MR_MIN(i, len - 1);
            s[to++] = '/';
        } else {
            s[to++] = s[i];
        }
    }
    if (to > 1 && s[to - 1] == '/')
        to--;
    s[to] = 0;
    return to;
}

static inline uint32_t tidy_id(const char *path, size_t len, const void *frame)
{
    if (MR_UNLIKELY(!mr_live.alive) || !names_lock(frame))
        return 0;
    uint32_t id = intern_locked(MR_STR_PATH, path, len);
    names_unlock();
    return id;
}

static __attribute__((noinline, cold)) uint32_t untidy_id(int dirfd, const char *path, size_t len)
{
    if (!mr_live.alive || !names_lock(__builtin_frame_address(0)))
        return 0;
    size_t n = len && path[0] == '/' ? 0 : directory_of(dirfd, joined);
    if (n) /* else the directory has no name: what is left is the path as it was given */
        joined[n++] = '/';
    memcpy(joined + n, path, len);
    n = tidy_up(joined, n + len);
    uint32_t id = n ? intern_locked(MR_STR_PATH, joined, n) : 0;
    names_unlock();
    return id;
}

uint32_t mr_path_id(int dirfd, const char *path)
{
    bool tidy;
    if (dirfd >= 0 && (!path || !*path)) /* AT_EMPTY_PATH */
        return mr_file_of(dirfd);
    if (!path)
        return 0;
    size_t len = look_at_path(path, &tidy);
    return MR_LIKELY(tidy) ? tidy_id(path, len, __builtin_frame_address(0)) : untidy_id(dirfd, path, len);
}

bool mr_leads_elsewhere(const char *path, uint64_t flags)
{
    if (flags != MR_NO_OFFSET && (flags & O_TMPFILE) == O_TMPFILE)
        return true;
    if (!strncmp(path, "/dev/fd/", 8) || !strncmp(path, "/dev/std", 8))
        return true;
    if (!strncmp(path, "/proc/", 6) &&
        (strstr(path + 6, "/fd/") || strstr(path + 6, "/cwd") || strstr(path + 6, "/root") || strstr(path + 6, "/exe")))
        return true;
    for (const char *dots = strstr(path, ".."); dots; dots = strstr(dots + 1, ".."))
        if ((dots == path || dots[-1] == '/') && (dots[2] == '/' || !dots[2]))
            return true;
    return false;
}

static __attribute__((noinline, cold)) uint32_t odd_opened_id(int dirfd, const char *path, uint64_t flags, int fd)
{
    uint32_t id = path && mr_leads_elsewhere(path, flags) ? mr_file_resolve(fd) : 0;
    return id ? id : mr_path_id(dirfd, path);
}

uint32_t mr_opened_id(int dirfd, const char *path, uint64_t flags, int fd)
{
    bool tidy = false;
    size_t len = path ? look_at_path(path, &tidy) : 0;
    bool system =
        len >= 8 && (!memcmp(path, "/dev/fd/", 8) || !memcmp(path, "/dev/std", 8) || !memcmp(path, "/proc/", 6));
    if (MR_UNLIKELY(!tidy || system || len < 8 || flags & (O_TMPFILE & ~O_DIRECTORY)))
        return odd_opened_id(dirfd, path, flags, fd);
    return tidy_id(path, len, __builtin_frame_address(0));
}

/* Something inside a file, as FILE:NAME; the filter looks at the file only. */
uint32_t mr_object_id(const char *file, const char *name)
{
    size_t len = strnlen(file, MR_PATH_BYTES), more = strnlen(name, MR_PATH_BYTES - 2);
    if (!mr_live.alive || !names_lock(__builtin_frame_address(0)))
        return 0;
    size_t n = file[0] == '/' ? 0 : directory_of(AT_FDCWD, joined);
    if (file[0] != '/')
        joined[n++] = '/';
    memcpy(joined + n, file, len);
    n = tidy_up(joined, n + len);
    uint32_t id = MR_FILE_EXCLUDED;
    if (mr_path_wanted(joined)) {
        joined[n++] = ':';
        memcpy(joined + n, name, more);
        n += more;
        joined[n] = 0;
        uint32_t hash = hash_text(joined, n, MR_STR_PATH);
        id = find(hash, MR_STR_PATH, joined, n);
        id = id ? id : append(hash, MR_STR_PATH, joined, n);
    }
    names_unlock();
    return id;
}

void mr_cwd_unshared(void)
{
    atomic_store(&cwd_apart, true);
}

void mr_files_unshared(void)
{
    if (mr_tls.vforked)
        return;
    atomic_store(&files_apart, true);
    mr_core.files = 0;
    mr_set_active(mr_live.active); /* without the short path */
}

void mr_cwd_changed(void)
{
    atomic_store(&cwd_known, false);
}

/* The kernel names sockets by a number only; who is at the other end takes two more system calls. A program may have
 * forbidden them to itself. */
static bool sockets_closed_to_us;

void mr_names_ask_no_sockets(void)
{
    sockets_closed_to_us = true;
}

static size_t put_v4(char *to, const uint8_t *b, uint16_t port)
{
    size_t n = 0;
    for (unsigned i = 0; i < 4; i++) {
        n += mr_decimal(to + n, b[i]);
        to[n++] = i < 3 ? '.' : ':';
    }
    return n + mr_decimal(to + n, mr_net16(port));
}

/* One group of an address of version 6, without the zeros in front. */
static size_t put_group(char *to, unsigned v)
{
    size_t n = 0;
    for (int shift = 12; shift >= 0; shift -= 4)
        if (n || v >> shift || !shift)
            to[n++] = "0123456789abcdef"[v >> shift & 15];
    return n;
}

/* A server that listens for both versions sees those of version 4 as ::ffff:ADDRESS: named as what they are. */
static size_t put_address(char *to, const union mr_address *a)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    size_t n = 0;
    if (a->any.sa_family == AF_INET)
        return put_v4(to, (const uint8_t *)&a->v4.sin_addr, a->v4.sin_port);
    const uint8_t *b = a->v6.sin6_addr.s6_addr;
    if (!memcmp(b, mapped, sizeof(mapped)))
        return put_v4(to, b + 12, a->v6.sin6_port);
    to[n++] = '[';
    for (unsigned i = 0; i < 16; i += 2) {
        n += put_group(to + n, (unsigned)b[i] << 8 | b[i + 1]);
        to[n++] = i < 14 ? ':' : ']';
    }
    to[n++] = ':';
    return n + mr_decimal(to + n, mr_net16(a->v6.sin6_port));
}

/* "socket:[N]" becomes "socket:[local N]" or "socket:[inet ADDRESS:PORT]", of the other end, or of this one if there is
 * none yet. What is neither is local to this machine as well: netlink, AF_ALG. */
static size_t name_socket(int fd, char *name, size_t len)
{
    union mr_address a;
    int bytes = sizeof(a);
    memset(&a, 0, sizeof(a));
    if (sockets_closed_to_us || mr_sys3(SYS_getsockname, fd, &a, &bytes) < 0)
        return len;
    bool inet = a.any.sa_family == AF_INET || a.any.sa_family == AF_INET6;
    if (inet) {
        union mr_address peer;
        bytes = sizeof(peer);
        memset(&peer, 0, sizeof(peer));
        if (mr_sys3(SYS_getpeername, fd, &peer, &bytes) == 0 && peer.any.sa_family == a.any.sa_family)
            a = peer;
    }
    const bool local = !inet;
    size_t stem = sizeof("socket:[") - 1;
    const char *word = local ? "local " : "inet ";
    size_t more = strlen(word);
    if (local) {
        memmove(name + stem + more, name + stem, len - stem);
        memcpy(name + stem, word, more);
        len += more;
    } else {
        memcpy(name + stem, word, more);
        len = stem + more + put_address(name + stem + more, &a);
        name[len++] = ']';
    }
    name[len] = 0;
    return len;
}

uint32_t mr_file_resolve(int fd)
{
    char link[40];
    uint32_t id = 0;
    if (fd < 0 || !mr_live.alive)
        return 0;
    link_of(fd, link);
    if (!names_lock(__builtin_frame_address(0)))
        return 0;
    long n = mr_sys4(SYS_readlinkat, AT_FDCWD, link, joined, MR_PATH_BYTES - 1);
    if (n > 0) {
        joined[n] = 0;
        size_t len = n > 8 && !memcmp(joined, "socket:[", 8) ? name_socket(fd, joined, (size_t)n) : (size_t)n;
        id = intern_locked(MR_STR_PATH, joined, len);
    }
    names_unlock();
    if (n > 0)
        mr_file_set(fd, id);
    return id;
}

void mr_file_set(int fd, uint32_t file)
{
    if ((uint32_t)fd >= mr_core.files || mr_tls.vforked)
        return;
    atomic_store_explicit(&mr_core.file_of[fd], file, memory_order_relaxed);
    uint32_t top = atomic_load_explicit(&mr_core.max_fd, memory_order_relaxed);
    while ((uint32_t)fd > top && !atomic_compare_exchange_weak(&mr_core.max_fd, &top, (uint32_t)fd)) {
    }
}

/* Descriptors that were never used are not looked up, unless a filter wants to know, or a forked child may have
 * inherited them, or a child of vfork opened them (it keeps no names): there are programs that close all numbers there
 * can be. */
uint32_t mr_file_closing(int fd)
{
    uint32_t file = (uint32_t)fd < mr_core.files ? atomic_load_explicit(&mr_core.file_of[fd], memory_order_relaxed) : 0;
    uint32_t top = atomic_load_explicit(&mr_core.max_fd, memory_order_relaxed);
    bool likely = mr_tls.vforked ? (uint32_t)fd <= top + 16 : mr_core.epoch > 1 && (uint32_t)fd <= top;
    if (!file && (likely || atomic_load_explicit(&files_apart, memory_order_relaxed) || mr_config.include[0] ||
                  mr_config.exclude[0]))
        file = mr_file_resolve(fd);
    if (file)
        mr_file_set(fd, 0);
    return file;
}

void mr_file_dup(int from, int to)
{
    uint32_t id =
        (uint32_t)from < mr_core.files ? atomic_load_explicit(&mr_core.file_of[from], memory_order_relaxed) : 0;
    mr_file_set(to, id);
}

void mr_file_forget_range(unsigned first, unsigned last)
{
    unsigned most = atomic_load(&mr_core.max_fd), top = MR_MIN(last, most);
    for (unsigned fd = first; fd <= top && fd < mr_core.files && !mr_tls.vforked; fd++)
        atomic_store_explicit(&mr_core.file_of[fd], 0, memory_order_relaxed);
}

/* ---- mapped files: which file is at an address ---- */

static bool map_room(void)
{
    if (maps + 2 <= map_cap)
        return true;
    size_t cap = map_cap ? map_cap * 2 : 256;
    struct mapping *bigger = mr_map_pages(cap * sizeof(*bigger));
    if (!bigger)
        return false;
    if (maps)
        memcpy(bigger, map, maps * sizeof(*map));
    struct mapping *old = map;
    size_t old_cap = map_cap;
    map = bigger; /* before the old one goes: another thread may fork at any moment */
    map_cap = cap;
    if (old)
        mr_sys2(SYS_munmap, old, old_cap * sizeof(*old));
    return true;
}

/* Index of the first one that ends behind `at`. */
static size_t map_find(uintptr_t at)
{
    size_t low = 0, high = maps;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (map[mid].to <= at)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void map_insert(size_t i, struct mapping m)
{
    memmove(&map[i + 1], &map[i], (maps - i) * sizeof(m));
    map[i] = m;
    maps++;
}

/* Takes out what lies in the range; a mapping may be cut in two. */
static void map_remove(uintptr_t from, uintptr_t to)
{
    size_t i = map_find(from);
    if (i < maps && map[i].from < from && map_room()) {
        struct mapping tail = map[i];
        map[i++].to = from;
        if (tail.to > to) {
            tail.from = to;
            map_insert(i, tail);
        }
    }
    size_t end = i;
    while (end < maps && map[end].to <= to)
        end++;
    if (end < maps && map[end].from < to)
        map[end].from = to;
    memmove(&map[i], &map[end], (maps - end) * sizeof(*map));
    maps -= end - i;
}

void mr_mapping_set(const void *at, uint64_t len, uint32_t file)
{
    uintptr_t from = (uintptr_t)at, to = from + MR_ALIGN_UP(len, 4096);
    if (mr_tls.vforked || (!maps && file == MR_NOT_MAPPED) || !mr_live.alive || !names_lock(__builtin_frame_address(0)))
        return;
    map_remove(from, to);
    if (file != MR_NOT_MAPPED && map_room())
        map_insert(map_find(from), (struct mapping){from, to, file});
    names_unlock();
}

uint32_t mr_mapping_get(const void *at, uint64_t len)
{
    uintptr_t from = (uintptr_t)at;
    uint32_t file = MR_NOT_MAPPED;
    if (!maps || !mr_live.alive || !names_lock(__builtin_frame_address(0)))
        return MR_NOT_MAPPED;
    size_t i = map_find(from);
    if (i < maps && map[i].from < from + MR_MAX(len, (uint64_t)1))
        file = map[i].file;
    names_unlock();
    return file;
}

/* A forked child has the mappings, but its own numbers for names. */
static void map_forget_names(void)
{
    for (size_t i = 0; i < maps; i++)
        if (map[i].file != MR_FILE_EXCLUDED)
            map[i].file = 0;
}

void mr_names_reset(void)
{
    map_forget_names();
    table_forget();
    arena_present = 0;
    atomic_store(&cwd_known, false);
    atomic_store(&owner, 0);
}

/* After a fork the child has a table of strings of its own; its inherited descriptors are looked up again when used. */
void mr_files_forget(void)
{
    uint32_t top = atomic_load(&mr_core.max_fd);
    for (uint32_t fd = 0; fd <= top && fd < mr_core.files; fd++)
        if (mr_core.file_of[fd] != MR_FILE_EXCLUDED)
            mr_core.file_of[fd] = 0;
}
