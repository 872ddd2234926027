/* Shared by pack.c and pack_check.c. */
#ifndef MR_PACK_PACK_INTERNAL_H
#define MR_PACK_PACK_INTERNAL_H

#include "dataset/dataset_parts.h"
#include "pack/pack.h"

#define MR_PACK_FIELDS_MAX 256u

/* A set, and how its values are read: one data set per field. */
struct mr_pack_set {
    unsigned n; /* fields, without the label */
    struct mr_dataset *ds[MR_PACK_FIELDS_MAX];
    struct mr_field field[MR_PACK_FIELDS_MAX];
    unsigned flags;  /* of reading: MR_DATASET_RAW */
    bool with_label; /* labels belong to it */
};

/* Compares samples [0, n) of both; MR_E_CORRUPT names the first that differs. */
int mr_pack_compare(const struct mr_pack_set *source, const struct mr_pack_set *packed, uint64_t n, unsigned threads,
                    const atomic_bool *stop, struct mr_error *err);
/* Samples per second of one thread, the first n in order. */
int mr_pack_rate(const struct mr_pack_set *set, uint64_t n, double *rate, struct mr_error *err);
/* Opens all fields of a data set, or these, except labels; one payload where it has one. */
int mr_pack_set_open(struct mr_pack_set *set, struct mr_store *store, const char *path, const char *const *names,
                     unsigned n_names, struct mr_error *err);
void mr_pack_set_close(struct mr_pack_set *set);

#endif
