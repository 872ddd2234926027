/* The journal of a generation in progress: which files are finished and where their samples lie. One file per process
 * in `<split>/.millrace-gen/`; bytes in doc/reference/manifest.md. Invariants:
 *   1. A record is written before its file gets its final name, so a final name with the recorded size is a finished
 *      file.
 *   2. Reading stops at the first record that is not whole: a torn tail loses at most files that have no final name
 * yet.
 *   3. Journals are removed only after the manifest is durable. */
#ifndef MR_DATASET_JOURNAL_H
#define MR_DATASET_JOURNAL_H

#include "dataset/manifest.h"

#define MR_JOURNAL_FOLDER ".millrace-gen"

struct mr_journal;  /* writing; mr_journal_add is thread-safe */
struct mr_journals; /* reading all of a folder; one thread */

int mr_journal_create(struct mr_store *s, const char *folder, uint32_t rank, const char *spec, struct mr_journal **out,
                      struct mr_error *err);
int mr_journal_add(struct mr_journal *j, uint64_t file, const struct mr_manifest_file *f, struct mr_error *err);
/* Makes what was added durable. */
int mr_journal_sync(struct mr_journal *j, struct mr_error *err);
int mr_journal_close(struct mr_journal *j, struct mr_error *err); /* accepts NULL */

/* Loads the index of all journals of the folder; *out stays NULL when there are none. Records of files >= files are
 * ignored. */
int mr_journals_open(struct mr_store *s, const char *folder, uint64_t files, struct mr_journals **out,
                     struct mr_error *err);
void mr_journals_close(struct mr_journals *js);
const char *mr_journals_spec(const struct mr_journals *js);
/* Recorded size of a finished file; false when there is no record. Any thread. */
bool mr_journals_has(const struct mr_journals *js, uint64_t file, uint64_t *bytes);
/* The record; its pointers live until the next get. */
int mr_journals_get(struct mr_journals *js, uint64_t file, struct mr_manifest_file *out, struct mr_error *err);
/* Removes all journals and their folder, as far as possible. */
void mr_journals_remove(struct mr_store *s, const char *folder);

#endif
