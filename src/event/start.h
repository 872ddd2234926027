/* How a traced program was started, for starting it again: a block MR_MRT_START (doc/reference/trace-format.md). Encoding
 * is malloc-free: the preload library does it as well. */
#ifndef MR_EVENT_START_H
#define MR_EVENT_START_H

#include <stddef.h>
#include <stdint.h>

enum mr_start_kind {
    MR_START_FOLDER,      /* working directory */
    MR_START_WORD,        /* of the command line as it was given to `millrace trace` */
    MR_START_ENVIRONMENT, /* NAME=VALUE */
    MR_START_LAUNCHER,    /* word of the command line of the launcher (mpirun, srun, torchrun) above */
    MR_START_KINDS
};

#define MR_START_TEXT (128u << 10) /* bytes of /proc/.../environ and of a command line that are looked at */
#define MR_START_PAYLOAD (512u << 10)

/* What is known of a start; text NULL: nothing. Words and variables are separated by NUL. */
struct mr_start_text {
    const char *text;
    size_t len;
};
struct mr_start {
    struct mr_start_text folder, words, environment, launcher;
    struct mr_start_text shell; /* variables of who typed the command: what it does not have was set for this run */
};
/* The payload of a block, at most `cap` bytes; *count: its entries. Of the variables those that matter to a training, or
 * were set for this run, and are no secrets; a command line that does not fit is left out. */
size_t mr_start_encode(const struct mr_start *s, uint8_t *out, size_t cap, uint32_t *count);
/* Whether a command line, words separated by NUL, is that of a launcher. */
int mr_start_launches(const char *words, size_t len);

/* A sealed block of this process at `out`, which has room for MR_START_BLOCK bytes, with the program's words; 0: none.
 * Not malloc-free. */
#define MR_START_BLOCK (MR_START_PAYLOAD + 128u)
size_t mr_start_block(uint64_t key, uint64_t now_ns, char *const *argv, uint8_t *out);

struct mr_start_entry {
    uint8_t kind;
    const char *text; /* not NUL-terminated; in the payload */
    uint32_t len;
};
/* The entry at *at, which moves behind it; 0 if there is none (any more). */
int mr_start_next(const uint8_t **at, const uint8_t *end, struct mr_start_entry *out);

#endif
