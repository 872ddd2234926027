/* Closing for who knows what all ranks do: the trainer. */
#ifndef MR_LOADER_LOADER_TOGETHER_H
#define MR_LOADER_LOADER_TOGETHER_H

#include <millrace/loader.h>

/* After the last batch: waits until tiers have copied to SSDs what is to be there for the next run. MR_E_INTERRUPTED
 * after mr_loader_stop; nothing is wrong then, the next run reads a little more. By the consumer. */
int mr_loader_drain(struct mr_loader *l, struct mr_error *err);

/* As mr_loader_close, called by all ranks: tiers end in good order though the epochs were not read to their end. A
 * loader that was stopped or failed closes alone all the same. */
void mr_loader_close_together(struct mr_loader *l);

#endif
