/* The performance model of a machine that trains: storage classes of a node, the parallel file system behind them, the
 * network between nodes, and how fast the training consumes. Pure data and pure functions; no I/O, no clock.
 *
 * Units follow the published model: sizes in MB (10^6 bytes), rates in MB/s, times in seconds, as doubles.
 *
 * Symbols of the model (Boehringer, "Clairvoyant Prefetching for Machine Learning I/O"; Dryden et al., NoPFS, SC'21):
 * N nodes, c compute, beta preprocessing, b_c between nodes, b_fs node to PFS, class j with p_j threads, capacity d_j,
 * r_j(p) and w_j(p), PFS t(gamma). Class 0 is the staging buffer. */
#ifndef MR_MODEL_MODEL_H
#define MR_MODEL_MODEL_H

#include <millrace/error.h>
#include <stdbool.h>
#include <stdint.h>

#define MR_CURVE_MAX 32
#define MR_CLASS_MAX 8
#define MR_REQUESTS_MAX 8
#define MR_NODE_THREADS_MAX 64 /* over all classes of a node */

/* A rate as a function of a count (threads, clients): points by ascending x, linear in between, clamped outside. */
struct mr_curve {
    unsigned n;
    double x[MR_CURVE_MAX], y[MR_CURVE_MAX];
};

double mr_curve_at(const struct mr_curve *c, double x);
/* Appends a point; MR_E_CONFIG when x does not ascend, y is not positive, or the curve is full. */
int mr_curve_add(struct mr_curve *c, double x, double y, struct mr_error *err);

struct mr_storage_class {
    char name[32];
    double capacity_mb;                    /* d_j */
    unsigned threads;                      /* p_j */
    struct mr_curve read_mbps, write_mbps; /* aggregate, by threads */
};

/* What requests of one size get from the PFS: in all and one stream, read directly and through a page cache that does
 * not hold the data. 0: not measured. */
struct mr_kind_rates {
    double mbps, stream_mbps;
    double spread; /* by which share they varied, up and down; 0 = not known */
};
struct mr_request_rates {
    double mb; /* of a request */
    struct mr_kind_rates direct, buffered;
};

struct mr_system {
    char name[64];
    char source[160];
    double compute_mbps;    /* c; 0 = computed from seconds per step by the scenario */
    double preprocess_mbps; /* beta */
    double network_mbps;    /* b_c */
    double pfs_link_mbps;   /* b_fs */
    double pfs_stream_mbps; /* what one request stream (thread) gets at most, 0 = no limit, as in the published model */
    double pfs_latency_s;   /* per request, 0 in the published model */
    double pfs_spread;      /* by which share the measured rates varied, up and down; 0 = not known */
    double pfs_metadata_per_s;                         /* opens per second over all clients, 0 = unlimited */
    struct mr_curve pfs_mbps;                          /* t(gamma) */
    struct mr_curve pfs_write_mbps;                    /* the same for writing; without points: as fast as reading */
    unsigned n_requests;                               /* 0: requests of all sizes and kinds get what stands above */
    struct mr_request_rates requests[MR_REQUESTS_MAX]; /* by ascending size */
    unsigned n_classes;                                /* at least 1: the staging buffer */
    struct mr_storage_class classes[MR_CLASS_MAX];
    bool pfs_in_turn; /* the PFS serves requests one after the other, as the throttle shim does; else all share it */
};

/* r_j(p_j) and w_j(p_j): a class at its configured number of threads. */
double mr_class_read_mbps(const struct mr_storage_class *k);
double mr_class_write_mbps(const struct mr_storage_class *k);
/* Makes the rates of the PFS those of reads of this size and kind, for one client. Between two sizes the time of a
 * request is linear in its bytes; beyond the smallest it is that one's, beyond the largest the rate is that one's.
 * Whether the system knows them. */
bool mr_system_fit(struct mr_system *s, double request_mb, bool buffered);
/* Checks that the numbers make sense (positive rates, at least one class ...). */
int mr_system_check(const struct mr_system *s, struct mr_error *err);

/* Expected number of samples that one node reads more than (1 + delta) E/N times in E epochs of full shuffling over N
 * nodes: F * P[Binomial(E, 1/N) > (1 + delta) E/N], strict. Exact up to floating point for any E. */
double mr_model_hot_samples(uint64_t samples, uint64_t epochs, uint64_t nodes, double delta);
/* P[Binomial(n, p) = k], stable for large n. */
double mr_binomial_pmf(uint64_t n, double p, uint64_t k);

#endif
