/* The fault shim: makes storage fail on purpose. It counts the calls that its `op` and `path` select; the n-th, every
 * k-th or a random share of them gets an error, comes up short, takes longer, or has bits flipped in what it read.
 * Which calls are spoilt is a pure function of the options and the call's number, so a failing test can be repeated.
 *
 * A queued open-read-close counts once and is selected by op=open as well as by op=read. */
#include "base/common.h"
#include "base/rng.h"
#include "store/store_internal.h"
#include "store/store_shim.h"

#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* One list gives the option's choices and the code. */
#define FAULT_ERRORS(X)                                                                                                \
    X(EIO)                                                                                                             \
    X(ENOSPC)                                                                                                          \
    X(EDQUOT) X(EINTR) X(EAGAIN) X(EACCES) X(ENOENT) X(EMFILE) X(ENOMEM) X(EROFS) X(ESTALE) X(ETIMEDOUT) X(EINVAL)
#define FAULT_NAME(e) #e,
#define FAULT_CODE(e) e,
static const char *const error_names[] = {"none", FAULT_ERRORS(FAULT_NAME) NULL};
static const int error_codes[] = {0, FAULT_ERRORS(FAULT_CODE)};

/* Which calls an `op` selects, as a set of kinds. */
#define K(kind) (1u << (kind))
static const char *const op_names[] = {"any",  "open",  "read",   "write",  "fsync",    "close",    "stat",
                                       "list", "mkdir", "unlink", "rename", "allocate", "truncate", NULL};
static const unsigned op_kinds[] = {
    ~0u,
    K(MR_SHIM_OPEN) | K(MR_SHIM_READ_PATH),
    K(MR_SHIM_READ) | K(MR_SHIM_READ_PATH),
    K(MR_SHIM_WRITE),
    K(MR_SHIM_FSYNC) | K(MR_SHIM_SYNC_DIR),
    K(MR_SHIM_CLOSE),
    K(MR_SHIM_STAT),
    K(MR_SHIM_LIST),
    K(MR_SHIM_MKDIR),
    K(MR_SHIM_UNLINK),
    K(MR_SHIM_RENAME),
    K(MR_SHIM_ALLOCATE),
    K(MR_SHIM_TRUNCATE),
};

struct fault_options {
    int op, error;
    int64_t nth, every, limit, corrupt, seed;
    double probability;
    const char *shorten, *path;
    uint64_t slow_ns;
};

#define ROW(key, field, type, def, ...) MR_OPTION(fault_options, key, field, type, def, __VA_ARGS__)
static const struct mr_option fault_rows[] = {
    ROW("op", op, ENUM, "any", .choices = op_names, .doc = "Which calls are counted and may be spoilt."),
    ROW("path", path, STRING, "*",
        .doc = "Only calls on paths that match this shell pattern count; '*' also matches '/'.",
        .example = "path=*.npz"),
    ROW("nth", nth, INT, "0", .min = 0, .max = 9e15, .doc = "Spoil the n-th call that counts (from 1)."),
    ROW("every", every, INT, "0", .min = 0, .max = 9e15, .doc = "Spoil every k-th call that counts."),
    ROW("probability", probability, DOUBLE, "0", .min = 0, .max = 1,
        .doc = "Spoil this share of the calls, chosen by the seed."),
    ROW("limit", limit, INT, "0", .min = 0, .max = 9e15, .doc = "Stop after so many spoilt calls; 0 = never."),
    ROW("error", error, ENUM, "none", .choices = error_names,
        .doc = "The error a spoilt call returns instead of being carried out."),
    ROW("short", shorten, STRING, "",
        .doc = "A spoilt read or write moves only so many bytes, or that share of what was asked if below 1 and with a "
               "point.",
        .example = "short=0.5"),
    ROW("slow", slow_ns, DURATION, "0", .doc = "A spoilt call takes at least this long."),
    ROW("corrupt", corrupt, INT, "0", .min = 0, .max = 1e6,
        .doc = "Flip so many bits in what a spoilt read returns, at places chosen by the seed."),
    ROW("seed", seed, INT, "1", .min = 0, .max = 9e15, .doc = "For probability and corrupt."),
    MR_OPTION_END,
};

struct fault_store {
    struct mr_shim shim;
    struct fault_options o;
    unsigned kinds;
    double short_share;   /* 0 = not this way */
    uint64_t short_bytes; /* 0 = not this way */
    char *pattern;        /* NULL = all paths */
    atomic_uint_fast64_t matched, injected;
};

static bool selected(struct fault_store *f, const struct mr_shim_call *c)
{
    if (!(f->kinds & K(c->kind)) || (f->pattern && fnmatch(f->pattern, c->path, 0) != 0))
        return false;
    uint64_t n = atomic_fetch_add(&f->matched, 1) + 1;
    bool hit =
        (f->o.nth && n == (uint64_t)f->o.nth) || (f->o.every && n % (uint64_t)f->o.every == 0) ||
        (f->o.probability > 0 && mr_rng_unit(mr_rng_at((uint64_t)f->o.seed, MR_RNG_FAULT, n)) < f->o.probability);
    if (!hit)
        return false;
    if (f->o.limit && atomic_load(&f->injected) >= (uint64_t)f->o.limit)
        return false;
    atomic_fetch_add(&f->injected, 1);
    return true;
}

static const char *verb_of(enum mr_shim_kind k)
{
    static const char *const verbs[] = {
        [MR_SHIM_OPEN] = "open",
        [MR_SHIM_CLOSE] = "close",
        [MR_SHIM_READ] = "read",
        [MR_SHIM_READ_PATH] = "read",
        [MR_SHIM_WRITE] = "write",
        [MR_SHIM_FSYNC] = "sync",
        [MR_SHIM_ALLOCATE] = "reserve space for",
        [MR_SHIM_TRUNCATE] = "truncate",
        [MR_SHIM_STAT] = "stat",
        [MR_SHIM_LIST] = "list",
        [MR_SHIM_MKDIR] = "make folder",
        [MR_SHIM_UNLINK] = "remove",
        [MR_SHIM_RENAME] = "rename",
        [MR_SHIM_SYNC_DIR] = "sync folder",
    };
    return verbs[k];
}

static int refuse(const struct fault_store *f, const struct mr_shim_call *c, struct mr_error *err)
{
    int code = -error_codes[f->o.error];
    if (!err)
        return code;
    if (c->kind == MR_SHIM_READ || c->kind == MR_SHIM_READ_PATH || c->kind == MR_SHIM_WRITE)
        mr_store_fail_range(err, code, verb_of(c->kind), c->path, c->len, c->offset, 0);
    else
        mr_store_fail_path(err, code, verb_of(c->kind), c->path);
    mr_error_context(err, "injected by the fault shim");
    return code;
}

static int fault_before(struct mr_shim *shim, struct mr_shim_call *c, struct mr_error *err)
{
    struct fault_store *f = (struct fault_store *)shim;
    if (!selected(f, c))
        return 0;
    c->spoil = true;
    if (f->o.slow_ns)
        c->due_ns = c->start_ns + f->o.slow_ns;
    if (f->o.error)
        return refuse(f, c, err);
    if (c->len > 1) {
        if (f->short_share > 0)
            c->len = MR_MAX((size_t)1, (size_t)((double)c->len * f->short_share));
        else if (f->short_bytes)
            c->len = MR_MIN(c->len, (size_t)f->short_bytes);
    }
    return 0;
}

static void fault_after(struct mr_shim *shim, struct mr_shim_call *c)
{
    struct fault_store *f = (struct fault_store *)shim;
    if (!c->spoil || !f->o.corrupt || !c->buf || c->result <= 0)
        return;
    /* Places depend on the range, not on the call's number, so that reading again finds the same damage. */
    uint64_t key = mr_mix64((uint64_t)f->o.seed ^ mr_mix64(c->offset + 1));
    for (int64_t i = 0; i < f->o.corrupt; i++) {
        uint64_t bit = mr_rng_below(mr_rng_at(key, MR_RNG_FAULT, (uint64_t)i), (uint64_t)c->result * 8);
        ((unsigned char *)c->buf)[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
}

static void fault_close(struct mr_store *base)
{
    struct fault_store *f = (struct fault_store *)base;
    mr_store_close(base->lower);
    free(f->pattern);
    free(f);
}

static int parse_short(struct fault_store *f, const char *text, struct mr_error *err)
{
    double share;
    if (!*text)
        return 0;
    bool is_share = strchr(text, '.') && mr_parse_double(text, &share) == 0;
    if (is_share && share > 0 && share < 1) {
        f->short_share = share;
        return 0;
    }
    if (!is_share && mr_parse_bytes(text, &f->short_bytes) == 0 && f->short_bytes > 0)
        return 0;
    return mr_error_plain(err, MR_E_CONFIG,
                          "bad value '%s' for 'fault.short': a share like 0.5 or a number of bytes like 100", text);
}

static int check_options(const struct fault_store *f, struct mr_error *err)
{
    const struct fault_options *o = &f->o;
    if (!o->nth && !o->every && o->probability == 0)
        return mr_error_plain(err, MR_E_CONFIG, "the fault shim needs to know when: nth, every or probability");
    if (!o->error && !f->short_share && !f->short_bytes && !o->slow_ns && !o->corrupt)
        return mr_error_plain(err, MR_E_CONFIG,
                              "the fault shim needs to know what to do: error, short, slow or corrupt");
    unsigned reads = K(MR_SHIM_READ) | K(MR_SHIM_READ_PATH), moves = reads | K(MR_SHIM_WRITE);
    if (o->corrupt && !(f->kinds & reads))
        return mr_error_plain(err, MR_E_CONFIG, "fault option 'corrupt' changes reads only, but op=%s",
                              op_names[o->op]);
    if ((f->short_share || f->short_bytes) && !(f->kinds & moves))
        return mr_error_plain(err, MR_E_CONFIG, "fault option 'short' changes reads and writes only, but op=%s",
                              op_names[o->op]);
    return 0;
}

static int fault_open(const void *options, struct mr_store *lower, struct mr_store **out, struct mr_error *err)
{
    struct fault_store *f = calloc(1, sizeof(*f));
    if (!f)
        return mr_error_set(err, -ENOMEM, "cannot open store 'fault'");
    f->o = *(const struct fault_options *)options;
    f->kinds = op_kinds[f->o.op];
    mr_shim_init(&f->shim, &mr_store_fault_ops, lower, fault_before, fault_after);
    int rc = parse_short(f, f->o.shorten, err);
    if (rc == 0)
        rc = check_options(f, err);
    if (rc == 0 && strcmp(f->o.path, "*") != 0 && !(f->pattern = strdup(f->o.path)))
        rc = mr_error_set(err, -ENOMEM, "cannot open store 'fault'");
    f->o.path = f->o.shorten = NULL; /* they belong to the caller's arena */
    if (rc < 0) {
        free(f);
        return rc;
    }
    *out = &f->shim.base;
    return 0;
}

int mr_store_fault_counts(struct mr_store *s, uint64_t *matched, uint64_t *injected, struct mr_error *err)
{
    struct fault_store *f = (struct fault_store *)mr_shim_find(s, &mr_store_fault_ops);
    if (!f)
        return mr_error_plain(err, MR_E_USAGE, "the store has no fault shim");
    *matched = atomic_load(&f->matched);
    *injected = atomic_load(&f->injected);
    return 0;
}

const struct mr_store_ops mr_store_fault_ops = {
    MR_SHIM_OPS,
    .name = "fault",
    .doc = "Makes chosen calls fail, come up short, be slow or return damaged bytes.",
    .options = {.section = "fault",
                .doc = "Failures on purpose",
                .options = fault_rows,
                .struct_bytes = sizeof(struct fault_options)},
    .open = fault_open,
    .close = fault_close,
};
