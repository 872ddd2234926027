/* A transport around another one that does something wrong to one message that is sent: for tests. Counts what this
 * node sends: from message `at` on (CLOSED, SILENT) or at that message alone (the others; SHORT, LONG and FLIP count
 * only messages with bytes). */
#ifndef MR_WIRE_FAULT_H
#define MR_WIRE_FAULT_H

#include "wire/wire_transport.h"

enum mr_wire_fault_kind {
    MR_WIRE_FAULT_NONE,
    MR_WIRE_FAULT_CLOSED, /* the connection is closed instead */
    MR_WIRE_FAULT_SILENT, /* it and all later ones are swallowed */
    MR_WIRE_FAULT_SLOW,   /* it, and so all later ones, come `delay_ns` later */
    MR_WIRE_FAULT_SHORT,  /* fewer bytes than its header says */
    MR_WIRE_FAULT_LONG,   /* more bytes */
    MR_WIRE_FAULT_FLIP,   /* one bit of the bytes is wrong */
    MR_WIRE_FAULT_KINDS
};

struct mr_wire_fault {
    enum mr_wire_fault_kind kind;
    uint64_t at; /* counted from 0 */
    uint64_t delay_ns;
    uint64_t happened; /* out: messages it was done to */
};

const char *mr_wire_fault_name(enum mr_wire_fault_kind kind);
/* "NODE:KIND:AT" or "NODE:KIND:AT:MILLISECONDS", as campaigns of random faults say it to whole jobs; *node is whom it
 * is for. False: it is not that. */
bool mr_wire_fault_parse(const char *text, uint32_t *node, struct mr_wire_fault *out);
/* Takes over `inner`; `fault` outlives it. Returns NULL, with inner untouched, if there is no memory. */
struct mr_wire_transport *mr_wire_fault_wrap(struct mr_wire_transport *inner, struct mr_wire_fault *fault,
                                             struct mr_wire_events events);

#endif
