/* The table of calls and look-up by name. */
#include "event/calls.h"
#include "base/common.h"

#include <string.h>
#include <strings.h>

static const struct mr_call_info infos[MR_CALL_COUNT] = {
    [MR_CALL_none] = {.name = "unknown", .layer = MR_LAYER_POSIX, .kind = MR_EV_HANDLE},
#define MR_CALL_ROW(n, l, k)                                                                                           \
    [MR_CALL_##n] = {.name = &#n[MR_LAYER_##l == MR_LAYER_SYSCALL ? 4 : 0], .layer = MR_LAYER_##l, .kind = MR_EV_##k},
    MR_CALLS(MR_CALL_ROW)
#undef MR_CALL_ROW
};

static const char *const layer_names[MR_LAYERS] = {"APP",   "POSIX", "STDIO",   "URING",
                                                   "MPIIO", "HDF5",  "SYSCALL", "MMAP"};
static const char *const kind_names[MR_EV_KINDS] = {
    "none", "open",   "close",   "read",   "write",   "fsync",   "stat",     "unlink", "rename",
    "list", "mkdir",  "seek",    "copy",   "map",     "advise",  "resize",   "handle", "link",
    "attr", "submit", "process", "region", "instant", "counter", "metadata", "wait"};

/* Spellings that are not <name>64, __<name>_chk or __<name>_2. */
static const struct {
    const char *alias, *name;
} aliases[] = {
    {"__xstat", "stat"},
    {"__lxstat", "lstat"},
    {"__fxstat", "fstat"},
    {"__fxstatat", "fstatat"},
    {"newfstatat", "fstatat"},
    {"__xmknod", "mknod"},
    {"__xmknodat", "mknodat"},
    {"_IO_getc", "getc"},
    {"_IO_putc", "putc"},
    {"preadv64v2", "preadv2"},
    {"pwritev64v2", "pwritev2"},
    {"__getdelim", "getdelim"},
    {"aio_return", "aio_return_read"},
    {"accept4", "accept"},
    {"epoll_pwait2", "epoll_pwait"},
    {"wait", "waitpid"},
    {"wait3", "wait4"},
    {"sem_timedwait", "sem_wait"},
    {"sem_clockwait", "sem_wait"},
};

const struct mr_call_info *mr_call_get(unsigned call)
{
    return &infos[call < MR_CALL_COUNT ? call : MR_CALL_none];
}

const char *mr_layer_name(unsigned layer)
{
    return layer < MR_LAYERS ? layer_names[layer] : "unknown";
}

const char *mr_kind_name(unsigned kind)
{
    return kind < MR_EV_KINDS ? kind_names[kind] : "unknown";
}

static bool same_word(const char *word, const char *text, size_t len)
{
    return strlen(word) == len && !strncasecmp(word, text, len);
}

bool mr_call_group_known(const char *text, size_t len)
{
    bool known = same_word("all", text, len);
    for (unsigned c = 1; c < MR_CALL_COUNT && !known; c++) {
        const struct mr_call_info *i = mr_call_get(c);
        known = same_word(mr_layer_name(i->layer), text, len) || same_word(mr_kind_name(i->kind), text, len) ||
                same_word(i->name, text, len);
    }
    return known;
}

int mr_kind_moves_data(unsigned kind)
{
    return kind == MR_EV_READ || kind == MR_EV_WRITE || kind == MR_EV_COPY;
}

bool mr_call_on_socket(unsigned call)
{
    return (call >= MR_CALL_recv && call <= MR_CALL_sendmmsg) || call == MR_CALL_accept || call == MR_CALL_connect;
}

bool mr_call_locks(unsigned call)
{
    return call == MR_CALL_flock || call == MR_CALL_lockf || call == MR_CALL_fcntl || call == MR_CALL_sys_flock ||
           call == MR_CALL_sys_fcntl;
}

static unsigned find_exact(const char *name, size_t len)
{
    for (unsigned i = MR_CALL_metadata + 1; i < MR_CALL_COUNT; i++)
        if (infos[i].layer != MR_LAYER_SYSCALL && strlen(infos[i].name) == len && !memcmp(infos[i].name, name, len))
            return i;
    return MR_CALL_none;
}

unsigned mr_call_find_raw(const char *name, size_t len)
{
    for (unsigned i = MR_CALL_sys_read; i < MR_CALL_COUNT; i++)
        if (infos[i].layer == MR_LAYER_SYSCALL && strlen(infos[i].name) == len && !memcmp(infos[i].name, name, len))
            return i;
    return MR_CALL_none;
}

static int ends_with(const char *name, size_t len, const char *tail)
{
    size_t n = strlen(tail);
    return len > n && !memcmp(name + len - n, tail, n);
}

unsigned mr_call_find(const char *name, size_t len)
{
    unsigned call = find_exact(name, len);
    if (call)
        return call;
    if (ends_with(name, len, "64"))
        len -= 2;
    for (size_t i = 0; i < MR_ARRAY_LEN(aliases); i++)
        if (strlen(aliases[i].alias) == len && !memcmp(aliases[i].alias, name, len))
            return find_exact(aliases[i].name, strlen(aliases[i].name));
    if (len > 2 && name[0] == '_' && name[1] == '_') {
        name += 2;
        len -= 2;
        if (ends_with(name, len, "_chk"))
            len -= 4;
        else if (ends_with(name, len, "_2"))
            len -= 2;
        if (ends_with(name, len, "64"))
            len -= 2;
    }
    return find_exact(name, len);
}
