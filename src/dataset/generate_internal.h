/* State of a generator, shared by generate.c (writing and the manifest) and generate_prepare.c (before writing). */
#ifndef MR_DATASET_GENERATE_INTERNAL_H
#define MR_DATASET_GENERATE_INTERNAL_H

#include "dataset/compare_store.h"
#include "dataset/gen_file.h"
#include "dataset/gen_lock.h"
#include "dataset/generate.h"
#include "dataset/journal.h"

struct mr_gen {
    struct mr_gen_options o;
    const struct mr_gen_plan *p;
    char manifest_path[MR_NAME_MAX + 32];
    char *spec;                   /* JSON */
    struct mr_manifest *manifest; /* while running: a complete set is there */
    struct mr_journals *done;     /* while running: what earlier runs finished */
    struct mr_journal *journal;
    struct mr_gen_lock *lock; /* rank 0, from prepare to close */
    struct mr_gen_scratch *scratch;
    struct mr_compare_shim **compare;
    unsigned threads;
    uint64_t parts; /* while running: work items per file */
    _Atomic uint64_t files_written, bytes_written, files_kept, bytes_kept, synth_ns, write_ns;
    bool was_complete, had_manifest;
    bool at_once; /* the store gives a file its name when it is whole: no temporary names, no parts by several */
};

/* 1 there, 0 not, negative: cannot be told, which must not pass for "not". */
int mr_gen_exists(struct mr_store *s, const char *path, struct mr_error *err);

#endif
