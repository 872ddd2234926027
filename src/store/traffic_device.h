/* Which device a path of a store lies on, as far as its traffic is concerned. */
#ifndef MR_STORE_TRAFFIC_DEVICE_H
#define MR_STORE_TRAFFIC_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

struct mr_store;
/* Two paths are on one device if their keys are equal. */
struct mr_device_key {
    unsigned kind;
    uint64_t a, b;
};
/* False: on none, such as memory. */
bool mr_device_find(struct mr_store *s, const char *path, struct mr_device_key *out);

#endif
