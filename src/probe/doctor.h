/* What on this machine distorts results: findings of checks of the storage under a path and of the machine. Checks only
 * look, and try one temporary file of 1 MiB; they change nothing. `millrace doctor` prints the findings. Not
 * thread-safe.
 *
 * To add a check: write a function that calls mr_doctor_add and list it in doctor_machine.c or doctor_storage.c. */
#ifndef MR_PROBE_DOCTOR_H
#define MR_PROBE_DOCTOR_H

#include "base/arena.h"

#include <millrace/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mr_doctor_level { MR_DOCTOR_OK, MR_DOCTOR_NOTE, MR_DOCTOR_WARN };

struct mr_doctor_finding {
    const char *topic; /* "file system" */
    enum mr_doctor_level level;
    const char *value;  /* what was found */
    const char *advice; /* what it distorts and what to do; empty for OK */
};

#define MR_DOCTOR_FIGURES 32
struct mr_doctor {
    struct mr_arena *arena;
    const char *path;
    bool built_with_uring;
    struct mr_doctor_finding finding[48];
    unsigned n;
    struct { /* exact values for --json, the unit in the key */
        const char *key;
        double value;
    } figure[MR_DOCTOR_FIGURES];
    unsigned n_figures;
};

/* Examines `path` and the machine. Strings of the findings live in the arena. Fails with -errno if the path cannot be
 * examined. */
int mr_doctor_examine(const char *path, bool built_with_uring, struct mr_arena *a, struct mr_doctor *out,
                      struct mr_error *err);
unsigned mr_doctor_count(const struct mr_doctor *d, enum mr_doctor_level level);

/* For the checks. */
void mr_doctor_add(struct mr_doctor *d, const char *topic, enum mr_doctor_level level, const char *advice,
                   const char *value, ...) MR_PRINTF(5, 6);
void mr_doctor_figure(struct mr_doctor *d, const char *key, double value);
/* First line of a small file without its newline; false if it cannot be read. */
bool mr_doctor_read(const char *path, char *line, size_t cap);
int mr_doctor_storage(struct mr_doctor *d, struct mr_error *err);
int mr_doctor_objects(struct mr_doctor *d, struct mr_error *err); /* instead, where the path is s3:// */
void mr_doctor_machine(struct mr_doctor *d);

#endif
