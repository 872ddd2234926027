/* A bounded queue of pointers, many producers and many consumers. Blocking push and pop with a stop condition: after
 * mr_queue_stop, push fails at once and pop drains what is left, then fails. */
#ifndef MR_BASE_QUEUE_H
#define MR_BASE_QUEUE_H

#include <millrace/error.h>
#include <stdbool.h>
#include <stddef.h>

struct mr_queue;

int mr_queue_create(size_t capacity, struct mr_queue **out, struct mr_error *err);
void mr_queue_free(struct mr_queue *q);
bool mr_queue_push(struct mr_queue *q, void *item);     /* false: stopped */
bool mr_queue_try_push(struct mr_queue *q, void *item); /* false: full or stopped */
bool mr_queue_pop(struct mr_queue *q, void **item);     /* false: stopped and empty */
bool mr_queue_try_pop(struct mr_queue *q, void **item); /* false: empty */
void mr_queue_stop(struct mr_queue *q);
size_t mr_queue_len(struct mr_queue *q);

#endif
