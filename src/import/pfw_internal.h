/* Parts of the .pfw reader that its files share. A file goes through them in this order:
 *
 *   pfw_read.c    the file: finds lines and objects in it; hands what was read over to a trace
 *   pfw_shape.c   a line that looks like an earlier one is taken apart by comparing      \  struct pfw_line
 *   pfw_line.c    any other line is parsed member by member                             /
 *   pfw_event.c   a line becomes an event of its thread
 *   pfw_repeat.c  unless the file had it before
 *   pfw_names.c   texts become ids; hashes are resolved, also by the names in other files
 *   pfw_text.c    values of JSON, numbers and times */
#ifndef MR_IMPORT_PFW_INTERNAL_H
#define MR_IMPORT_PFW_INTERNAL_H

#include "base/arena.h"
#include "base/common.h"
#include "base/map.h"
#include "base/vec.h"
#include "import/trace_read.h"

#include <string.h>

/* A value in the file's text: a string without its quotes, an object or a list with its brackets, or a bare word. */
struct pfw_text {
    const char *p;
    uint32_t n;
    bool quoted;
    bool whole; /* `number` is its value */
    int64_t number;
};

/* One growing set of columns: the events of a thread. */
struct pfw_lane {
    uint64_t key; /* process key */
    uint32_t process, tid;
    struct mr_columns c;
    uint32_t n, cap, args, args_cap;
    uint64_t first, last;
    uint32_t back;             /* events that begin more than an hour before the one written before them */
    uint32_t ahead;            /* events that begin more than an hour after everything written before them */
    uint64_t gap_from, gap_to; /* the longest of these gaps */
    uint64_t *id, top_id;      /* by event: its id + 1, 0 none; the largest */
    struct mr_map seen;        /* contents, once an id came that did not grow */
    uint64_t *folded;          /* by call: calls that a line stands for beyond the first; NULL if none */
};

/* What a text meant the last time. */
struct pfw_memo {
    const char *p, *q;
    size_t n, m;
    uint64_t value;
};

#define PFW_SHAPES 24
struct pfw_shape;

/* The events of a file, before they belong to a trace. Its names are copies: the file's text need not stay. */
struct mr_pfw {
    struct mr_arena arena;
    uint64_t skipped_lines;
    uint64_t repeated;  /* events left out because the file had them before */
    uint64_t cut_bytes; /* behind the last whole event, where the file ends inside one */
    MR_VEC(struct pfw_lane) lane;
    size_t last_lane;
    struct mr_map lane_of, hash_string, text_string, host_of, rank_of;
    int64_t fact_id;                       /* of the last line with a fact */
    MR_VEC(struct mr_trace_string) string; /* by id; [0] is empty */
    uint32_t no_host;
    double unit_ns;                      /* of ts and dur, from the first event */
    struct pfw_shape *shape[PFW_SHAPES]; /* the one used last comes first */
    unsigned shapes, learned;
    struct pfw_memo last_host, last_file, last_site;
    uint64_t joins;   /* not 0: files with this number and the same process are parts of it */
    unsigned sees;    /* enum mr_trace_sees */
    int32_t world;    /* ranks of the job; 0 unknown */
    const char *note; /* what the source cannot say; static text, NULL none */
};

/* The arguments of a line, taken apart once. */
#define PFW_PAIRS 64
struct pfw_facts {
    struct pfw_text host, hhash, file, fhash, ret, offset, count, fd;
    struct pfw_text key[PFW_PAIRS], value[PFW_PAIRS]; /* the others, and those above again for regions */
    bool meant[PFW_PAIRS];                            /* has a field above */
    unsigned n;
};

struct pfw_line {
    struct pfw_text id, name, cat, pid, tid, ts, dur, ph;
    struct pfw_facts f;
};

/* ---- pfw_read.c: for readers of other formats that make the same lines ---- */

struct mr_pfw *mr_pfw_create(void); /* NULL without memory */
/* All lines are read: forgets what points into the text. */
void mr_pfw_end_text(struct mr_pfw *im);
/* Behind the closing bracket of the object or list at p; `stop` if it has none. */
const char *mr_pfw_object_end(const char *p, const char *stop);

/* ---- pfw_text.c ---- */

#define PFW_JUMP_NS (3600 * MR_NS_PER_S)
#define PFW_TIME_MAX ((uint64_t)INT64_MAX >> 1) /* start and duration together still fit */

static inline const char *mr_pfw_skip_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r' || *p == ','))
        p++;
    return p;
}

static inline bool mr_pfw_text_is(const struct pfw_text *t, const char *word)
{
    size_t n = strlen(word);
    return t->n == n && !memcmp(t->p, word, n);
}

/* A value. Returns its end, NULL if there is none. */
const char *mr_pfw_take_value(const char *p, const char *end, struct pfw_text *out);
/* Next "key": of an object; returns the place of its value, NULL at the end, *bad set if it is broken. */
const char *mr_pfw_take_key(const char *p, const char *end, struct pfw_text *key, bool *bad);
/* Next "key": value of an object; NULL at its end, *bad set if it is broken. */
const char *mr_pfw_take_pair(const char *p, const char *end, struct pfw_text *key, struct pfw_text *value, bool *bad);

bool mr_pfw_parse_int(const struct pfw_text *t, int64_t *out);
static inline bool mr_pfw_int(const struct pfw_text *t, int64_t *out)
{
    if (t->whole) {
        *out = t->number;
        return true;
    }
    return mr_pfw_parse_int(t, out);
}
/* What is too large for an int64_t and not for 64 bits. */
bool mr_pfw_large(const struct pfw_text *t, uint64_t *out);
/* True if the text is how its number is written: "007" is a name. */
bool mr_pfw_is_plain_number(const struct pfw_text *t);
bool mr_pfw_double(const struct pfw_text *t, double *out);
/* A time in the file's unit, as ns. */
uint64_t mr_pfw_ns(const struct pfw_text *t, double unit_ns);
/* The unit of a file, in ns, from the first time in it. */
double mr_pfw_unit_of(const struct pfw_text *ts);
/* The key of a hash as DFTracer writes it: decimal, or any other text. */
uint64_t mr_pfw_hash_value(const struct pfw_text *t);

/* ---- pfw_line.c ---- */

/* Takes the object at p apart; false if it is broken or has no name. */
bool mr_pfw_parse_line(const char *p, const char *end, struct pfw_line *l);
/* Where a member of the line goes, or an argument of it; NULL if it has no field. */
struct pfw_text *mr_pfw_line_member(struct pfw_line *l, const struct pfw_text *key);
struct pfw_text *mr_pfw_known_fact(struct pfw_facts *f, const struct pfw_text *key, bool has_host);

/* ---- pfw_shape.c ---- */

#if defined(__SSE2__)
#define PFW_SLACK 64 /* bytes behind a line that must be readable */
#else
#define PFW_SLACK SIZE_MAX /* never: every line is parsed */
#endif
/* The line as one of the known shapes reads it, valid until the next one is read; NULL if it has none of them. */
const struct pfw_line *mr_pfw_read_by_shape(struct mr_pfw *im, const char *p, const char *stop);
/* Remembers the shape of a line that was parsed. */
void mr_pfw_learn_shape(struct mr_pfw *im, const char *p, const char *stop);
void mr_pfw_forget_shapes(struct mr_pfw *im);

/* ---- pfw_names.c ---- */

/* Ids of texts in this file's list of names, 0 without memory. */
uint32_t mr_pfw_new_string(struct mr_pfw *im, uint8_t kind, struct pfw_text t);
uint32_t mr_pfw_text_id(struct mr_pfw *im, uint8_t kind, struct pfw_text t);
uint32_t mr_pfw_site_string(struct mr_pfw *im, struct pfw_text category, struct pfw_text name);
/* Id of the file a hash stands for; its name may come later. */
uint32_t mr_pfw_file_by_hash(struct mr_pfw *im, const struct pfw_text *h);
/* A copy without escapes that outlives the file's text. */
struct pfw_text mr_pfw_own_text(struct mr_pfw *im, struct pfw_text t);
/* Hands the hashes over to the trace, which may need them for other files. */
int mr_pfw_keep_names(struct mr_trace *t, struct mr_pfw *im, struct mr_error *err);

/* ---- pfw_repeat.c ---- */

/* 1 if the event that stands behind the last one of the lane is one of them; 0, or -ENOMEM. */
int mr_pfw_repeats(struct pfw_lane *l, int64_t id);

/* ---- pfw_event.c ---- */

uint64_t mr_pfw_process_key(uint64_t host, int64_t pid);
/* Adds what a line says: an event of a thread, a name, a fact. 0 or -ENOMEM. */
int mr_pfw_add_line(struct mr_pfw *im, const struct pfw_line *l);

#endif
