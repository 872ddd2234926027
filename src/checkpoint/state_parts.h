/* Reading back the small files of a state: each as the checkpoint's list says it is, or MR_E_CORRUPT. */
#ifndef MR_CHECKPOINT_STATE_PARTS_H
#define MR_CHECKPOINT_STATE_PARTS_H

#include "checkpoint/checkpoint_list.h"
#include "store/store.h"

#define MR_STATE_JSON_MAX (1ull << 30)

/* Whether it is the file of tensors of a rank. */
bool mr_state_holds_tensors(const struct mr_checkpoint_entry *e);
const struct mr_checkpoint_entry *mr_state_find_entry(const struct mr_checkpoint_list *l, const char *name);
/* The content of a small file, malloc'ed, with a NUL behind it. */
int mr_state_read_entry(struct mr_store *s, const char *dir, const struct mr_checkpoint_entry *e, uint64_t max,
                        void **data, struct mr_error *err);
/* The checksums of the chunks of a rank's tensors, little-endian, malloc'ed; they make up the checksum that the list has.
 */
int mr_state_read_sums(struct mr_store *s, const char *dir, const struct mr_checkpoint_list *l,
                       const struct mr_checkpoint_entry *e, uint64_t **sum, struct mr_error *err);

#endif
