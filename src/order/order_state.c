/* Saved states: one line of key=value words, so that a person can read a checkpoint and any language can make one. All
 * parameters the ids depend on are in it; restoring compares them, so that a run never silently continues another one's
 * order. The world size is compared only where it matters: in rank-local modes. */
#include "order/order_modes.h"
#include "base/common.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "millrace-order"

/* The parameters besides mode, in the order they are written. */
enum { VERSION, SAMPLES, SEED, DROP_LAST, RESHUFFLE, WINDOW, FILES, WORLD, EPOCH, POSITION, N_FIELDS };
static const char *const field_name[N_FIELDS] = {"version", "samples", "seed",  "drop_last", "shuffle_each_epoch",
                                                 "window",  "files",   "world", "epoch",     "position"};

static uint64_t files_fingerprint(const struct mr_order_params *p)
{
    if (p->mode != MR_ORDER_FILE)
        return 0;
    if (!p->file_first)
        return p->samples_per_file;
    uint64_t h = 0xcbf29ce484222325ull; /* FNV-1a over the table, one word at a time */
    for (uint64_t f = 0; f <= p->n_files; f++)
        h = (h ^ p->file_first[f]) * 0x100000001b3ull;
    return h;
}

static void own_fields(const struct mr_order *o, uint64_t position, uint64_t v[N_FIELDS])
{
    const struct mr_order_params *p = &o->p;
    v[VERSION] = MR_ORDER_VERSION;
    v[SAMPLES] = p->samples;
    v[SEED] = p->seed;
    v[DROP_LAST] = p->drop_last;
    v[RESHUFFLE] = p->shuffle_each_epoch;
    v[WINDOW] = p->mode == MR_ORDER_BUFFER ? p->window : 0;
    v[FILES] = files_fingerprint(p);
    v[WORLD] = p->world;
    v[EPOCH] = p->epoch;
    v[POSITION] = position;
}

int mr_order_save(const struct mr_order *o, uint64_t k, char out[MR_ORDER_STATE_LEN])
{
    uint64_t v[N_FIELDS];
    own_fields(o, o->start + MR_MIN(k, mr_order_rank_len(o)) * o->p.world, v);
    int at = snprintf(out, MR_ORDER_STATE_LEN, MAGIC " mode=%s", mr_order_mode_name(o->p.mode));
    for (int f = 0; f < N_FIELDS; f++)
        at += snprintf(out + at, MR_ORDER_STATE_LEN - (size_t)at, " %s=%" PRIu64, field_name[f], v[f]);
    return 0;
}

/* Reads " name=NUMBER" at *text; false if that is not there. */
static bool read_field(const char **text, const char *name, uint64_t *value)
{
    size_t len = strlen(name);
    const char *t = *text;
    if (t[0] != ' ' || strncmp(t + 1, name, len) != 0 || t[len + 1] != '=' || t[len + 2] < '0' || t[len + 2] > '9')
        return false;
    char *end;
    errno = 0;
    *value = strtoull(t + len + 2, &end, 10);
    *text = end;
    return errno == 0;
}

static int parse(const char *state, char mode[16], uint64_t v[N_FIELDS], struct mr_error *err)
{
    const char *at = state;
    bool ok = strncmp(at, MAGIC " mode=", sizeof MAGIC + 5) == 0;
    if (ok) {
        at += sizeof MAGIC + 5;
        size_t len = strcspn(at, " ");
        ok = len < 16;
        if (ok) {
            memcpy(mode, at, len);
            mode[len] = '\0';
            at += len;
        }
    }
    for (int f = 0; ok && f < N_FIELDS; f++)
        ok = read_field(&at, field_name[f], &v[f]);
    if (ok && (*at == '\0' || *at == '\n'))
        return 0;
    return mr_error_plain(err, MR_E_FORMAT, "not a saved order: '%.60s'", state);
}

static int differs(const char *name, const char *saved, const char *now, struct mr_error *err)
{
    mr_error_plain(err, MR_E_USAGE, "cannot continue the saved order: its %s is %s, this run's is %s", name, saved,
                   now);
    mr_error_hint(err, "resume with the parameters of the interrupted run, or start the epoch anew");
    return MR_E_USAGE;
}

int mr_order_restore(struct mr_order *o, const char *state, struct mr_error *err)
{
    char mode[16], a[24], b[24];
    uint64_t saved[N_FIELDS], own[N_FIELDS];
    int code = parse(state, mode, saved, err);
    if (code)
        return code;
    own_fields(o, 0, own);
    if (strcmp(mode, mr_order_mode_name(o->p.mode)) != 0)
        return differs("mode", mode, mr_order_mode_name(o->p.mode), err);
    for (int f = VERSION; f <= WORLD; f++) {
        /* drop_last only changes where the epoch ends, not the sequence: a global run may change it like the world. */
        bool may_change = !o->ops->rank_local && (f == WORLD || f == DROP_LAST);
        if (saved[f] == own[f] || may_change)
            continue;
        snprintf(a, sizeof a, "%" PRIu64, saved[f]);
        snprintf(b, sizeof b, "%" PRIu64, own[f]);
        return differs(f == FILES ? "table of files" : field_name[f], a, b, err);
    }
    /* Another world's padding may have gone past our own end: the epoch is over then. */
    uint64_t pos = saved[POSITION], padded_end = o->p.samples + saved[WORLD];
    if (pos > padded_end)
        return mr_error_plain(err, MR_E_FORMAT, "saved position %" PRIu64 " is beyond %" PRIu64 " samples", pos,
                              o->p.samples);
    uint64_t old_epoch = o->p.epoch, old_start = o->start;
    code = mr_order_set_epoch(o, saved[EPOCH], err);
    if (code)
        return code;
    code = mr_order_seek(o, o->ops->rank_local ? pos : MR_MIN(pos, o->p.samples), err);
    if (code && mr_order_set_epoch(o, old_epoch, NULL) == 0)
        o->start = old_start;
    return code;
}
