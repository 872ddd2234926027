/* A finding's changes as a plan that _inject.py carries out, and what of them it cannot. */
#ifndef MR_LOOP_INJECTION_H
#define MR_LOOP_INJECTION_H

#include "base/arena.h"
#include "explain/explain.h"

#include <jansson.h>

#define MR_BUFFER_BYTES 1048576

struct mr_injection {
    json_t *loaders;    /* of the plan: one row per place and role; a new reference; NULL: a run of our own */
    const char *stage;  /* data are read from copies: "memory", "disk"; NULL: from where they lie */
    bool buffer;        /* Python's open() of the data reads MR_BUFFER_BYTES at a time */
    bool tier;          /* torch.save into memory, copied to where it belongs behind */
    bool saver;         /* torch.save by our own saver */
    const char *words;  /* of a run of our own: behind "millrace run", with the change */
    const char *target; /* "DataLoader at train.py:41", in words; the arena's */
    const char *wanted; /* "num_workers 1 -> 4, ..." */
};

/* MR_E_UNSUPPORTED with the reason and the lines to change by hand: nothing of it can be injected. */
int mr_injection_of(const struct mr_explanation *x, const struct mr_finding *f, struct mr_arena *a,
                    struct mr_injection *out, struct mr_error *err);
/* The same for mr_apply: list of {"file", "line", "set"}, a row for each line that makes such loaders; a new
 * reference. MR_E_UNSUPPORTED: no line is known, or one makes loaders of training and of evaluation. */
int mr_injection_places(const struct mr_explanation *x, const struct mr_finding *f, json_t **out, struct mr_error *err);
/* A finding made of settings, KEY=VALUE, by the arena. MR_E_USAGE: a loader has no such argument. */
int mr_injection_settings(const struct mr_explanation *x, const char *const *set, struct mr_arena *a,
                          struct mr_finding **out, struct mr_error *err);
bool mr_injection_possible(const struct mr_explanation *x, const struct mr_finding *f);
void mr_injection_done(struct mr_injection *i);

/* What a run reported (the file `report` of its plan). Texts are the arena's. */
struct mr_injected {
    size_t changed;      /* loaders */
    const char *change;  /* of the first one: "num_workers 1 -> 4, persistent_workers -> True" */
    const char *refused; /* NULL: nothing was */
    const char *file;    /* where the first one was made; NULL unknown */
    unsigned line;
};
int mr_injected_read(const char *path, struct mr_arena *a, struct mr_injected *out, struct mr_error *err);

#endif
