/* What more streams bring: pieces of files that are there are read by so many threads at once, cold, for a moment. */
#ifndef MR_PROBE_PLACES_PROBE_H
#define MR_PROBE_PLACES_PROBE_H

#include <millrace/error.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct mr_place_piece {
    const char *path;
    uint64_t offset, bytes;
};

/* Bytes per second of `streams` threads that read the pieces, each once, one after the other, for at most `most_s`; the
 * pages of the pieces are dropped from the page cache before. 0: no answer (too few pieces, too quick to tell, a file
 * that cannot be read). */
double mr_probe_pieces(const struct mr_place_piece *piece, size_t n, unsigned streams, double most_s,
                       const atomic_bool *stop);

#endif
