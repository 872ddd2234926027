/* Rules for sources that have counters and no times: logs of Darshan. There is no stall to be had from them; what can
 * be told is how calls were made and how long they took in all. The thresholds are those at which the pattern costs on
 * a parallel file system, set so that jobs whose only fault is a pattern of their start-up (an interpreter that looks
 * for its modules: hundreds of opens of a few KB, each file read in one or two calls) are not blamed:
 *
 *   requests     small below 32 KiB on the average, or half of them below 10 KB; only where files are read or written
 * in several pieces (4 calls per open), else the files are small and not the requests (MD3, FIL1) order        random
 * where fewer than 70 % of the offsets ascend and fewer than 30 % follow the one before; a strided pattern ascends
 *   metadata     files with less than 1 KiB per open, or 20 % of the time in calls and 10 % of the run
 *   ranks        one rank with half as much again as the mean
 *
 * They claim seconds of a rank in reads, writes and metadata calls, by the same gate as all rules. */
#include "base/common.h"
#include "advise/advise_internal.h"

#include <string.h>

#define OPS_LEAST 100.0
#define PIECES 4.0 /* calls per open from which a file is read or written in pieces */
#define SMALL_MEAN 32768.0
#define RANDOM_SMALL 4096.0 /* random requests are small below a page; above, their order is the trouble */
#define MANY_RANKS 32.0     /* so many writers of one file, or of a file each, get into each other's way */
#define UNEVEN 1.5
#define LOAD_LEAST 33554432.0 /* of bytes: below, a header that one rank writes makes it uneven */

struct job {
    const struct mr_counters *c;
    double n, reads, writes, ops, read_bytes, written_bytes, bytes, opens, stats;
    double read_s, write_s, meta_s; /* of one rank */
    bool shared, random_reads, random_writes, meta, synced;
    bool together; /* only MPI-IO was counted, and its calls were collective: their size is not that of the requests */
};

static double value(const struct job *j, enum mr_counter k)
{
    return mr_known_or(j->c->value[k], 0);
}

static bool is_random(double ops, double ascending, double following, const struct job *j)
{
    return ops >= OPS_LEAST && j->ops >= PIECES * j->opens && ascending < 0.7 * ops && following < 0.3 * ops;
}

/* Darshan names the slowest rank of a record only where several ranks shared the file. */
static bool is_shared(const struct job *j)
{
    bool ranks = value(j, MR_POSIX_SLOWEST_RANK_BYTES) > 0 || value(j, MR_POSIX_F_SLOWEST_RANK_TIME) > 0;
    bool one_record = j->c->files <= 1; /* of whichever rank: sums, where several shared it */
    return j->n >= 2 && ranks && (one_record || !mr_known(j->c->shared_bytes) || j->c->shared_bytes >= 0.5 * j->bytes);
}

static bool is_meta(const struct job *j)
{
    double calls_s = j->read_s + j->write_s + j->meta_s;
    if (j->opens >= 1000 && j->bytes < 1024 * j->opens)
        return true;
    return j->opens >= 500 * j->n && j->meta_s >= 0.2 * calls_s && j->meta_s >= 0.1 * j->c->run_s;
}

/* Without the POSIX module: what MPI-IO counted. It does not know in which order offsets came. */
static void mpi_job(struct job *j)
{
    double reads = value(j, MR_MPIIO_COLL_READS), writes = value(j, MR_MPIIO_COLL_WRITES);
    j->together = reads + writes > 0;
    j->reads = reads + value(j, MR_MPIIO_INDEP_READS) + value(j, MR_MPIIO_NB_READS);
    j->writes = writes + value(j, MR_MPIIO_INDEP_WRITES) + value(j, MR_MPIIO_NB_WRITES);
    j->ops = j->reads + j->writes;
    j->read_bytes = value(j, MR_MPIIO_BYTES_READ);
    j->written_bytes = value(j, MR_MPIIO_BYTES_WRITTEN);
    j->bytes = j->read_bytes + j->written_bytes;
    j->opens = fmax(1, value(j, MR_MPIIO_INDEP_OPENS) + value(j, MR_MPIIO_COLL_OPENS));
    j->read_s = value(j, MR_MPIIO_F_READ_TIME) / j->n;
    j->write_s = value(j, MR_MPIIO_F_WRITE_TIME) / j->n;
    j->meta_s = value(j, MR_MPIIO_F_META_TIME) / j->n;
    j->shared = j->n >= 2 && j->opens >= j->n && !(2 * j->c->files > j->opens);
    j->meta = is_meta(j);
}

static bool job_of(struct mr_advice *a, struct job *j)
{
    const struct mr_counters *c = a->x->counters;
    if (!c)
        return mr_silent(a, "a rule for logs of counters; this trace has the calls themselves");
    *j = (struct job){.c = c, .n = c->nprocs >= 1 ? c->nprocs : 1};
    if (!c->has_posix && c->has_mpiio) {
        mpi_job(j);
        return true;
    }
    j->reads = value(j, MR_POSIX_READS);
    j->writes = value(j, MR_POSIX_WRITES);
    j->ops = j->reads + j->writes;
    j->read_bytes = value(j, MR_POSIX_BYTES_READ);
    j->written_bytes = value(j, MR_POSIX_BYTES_WRITTEN);
    j->bytes = j->read_bytes + j->written_bytes;
    j->opens = fmax(1, value(j, MR_POSIX_OPENS));
    j->stats = value(j, MR_POSIX_STATS);
    j->read_s = value(j, MR_POSIX_F_READ_TIME) / j->n;
    j->write_s = value(j, MR_POSIX_F_WRITE_TIME) / j->n;
    j->meta_s = value(j, MR_POSIX_F_META_TIME) / j->n;
    j->shared = is_shared(j);
    j->random_reads = is_random(j->reads, value(j, MR_POSIX_SEQ_READS), value(j, MR_POSIX_CONSEC_READS), j);
    j->random_writes = is_random(j->writes, value(j, MR_POSIX_SEQ_WRITES), value(j, MR_POSIX_CONSEC_WRITES), j);
    j->meta = is_meta(j);
    double syncs = value(j, MR_POSIX_FSYNCS) + value(j, MR_POSIX_FDSYNCS);
    j->synced = syncs >= OPS_LEAST && syncs >= 0.5 * j->writes;
    return true;
}

/* Sums of all ranks, even where they are told as one record: of one rank, though one rank does not open one file so
 * often, or of all ranks, though a file that they share has a fastest and a slowest rank. */
static bool is_sums(const struct job *j)
{
    const struct mr_counters *c = j->c;
    bool of_one_rank = !(c->rank_bytes_max < 0.99 * j->n * c->rank_bytes_mean);
    return !c->per_file || (c->files <= 1 && j->opens >= j->n && (of_one_rank || (j->n >= 2 && !j->shared)));
}

/* Files of the job. In sums without a shared file every process that opened one had its own. NAN unknown. */
static double files_of(const struct job *j)
{
    if (is_sums(j) && !j->shared && j->opens >= j->n)
        return fmax(j->n, mr_known_or(j->c->files, 0));
    return j->c->files;
}

static const char *measured(struct mr_advice *a, const struct job *j)
{
    return mr_say(a,
                  "%.0f processes, %s; of each: reads %s, writes %s, metadata %s\n%s reads (%s), %s writes (%s), %s "
                  "opens, %s stats",
                  j->n, mr_say_s(a, j->c->run_s), mr_say_s(a, j->read_s), mr_say_s(a, j->write_s),
                  mr_say_s(a, j->meta_s), mr_say_count(a, j->reads), mr_say_bytes(a, j->read_bytes),
                  mr_say_count(a, j->writes), mr_say_bytes(a, j->written_bytes), mr_say_count(a, j->opens),
                  mr_say_count(a, j->stats));
}

static void set_part(struct mr_advice *a, struct mr_draft *d, const struct job *j, double seconds, double part,
                     double confidence)
{
    d->f.saves_s = seconds * part;
    d->f.saves_low_s = 0.3 * d->f.saves_s;
    d->f.saves_high_s = seconds;
    d->f.confidence = confidence;
    d->f.evidence = measured(a, j);
    d->f.formula = mr_say(a, "time of a process in those calls %s x %.2f", mr_say_s(a, seconds), part);
}

/* ---- requests ---- */

static bool is_small(const struct job *j, double ops, double bytes, enum mr_counter first_bin, bool random)
{
    double below = value(j, first_bin) + value(j, first_bin + 1) + value(j, first_bin + 2); /* below 10 KB */
    if (ops < OPS_LEAST || j->ops < PIECES * j->opens || j->meta || j->together)
        return false;
    return random ? bytes < RANDOM_SMALL * ops : bytes < SMALL_MEAN * ops || below >= 0.5 * ops;
}

static const char *both(bool reads, bool writes)
{
    return reads && writes ? "reads and writes" : reads ? "reads" : "writes";
}

bool mr_rule_sz3(struct mr_advice *a, struct mr_draft *d)
{
    struct job j;
    if (!job_of(a, &j))
        return false;
    bool random = j.random_reads || j.random_writes;
    bool reads = is_small(&j, j.reads, j.read_bytes, MR_POSIX_SIZE_READ_0_100, random);
    bool writes = is_small(&j, j.writes, j.written_bytes, MR_POSIX_SIZE_WRITE_0_100, random);
    if (!reads && !writes)
        return mr_silent(a, "reads of %s, writes of %s on the average, %.1f calls per open%s",
                         mr_say_bytes(a, j.reads > 0 ? j.read_bytes / j.reads : 0),
                         mr_say_bytes(a, j.writes > 0 ? j.written_bytes / j.writes : 0), j.ops / j.opens,
                         random ? "; their order is the trouble (RND1)" : "");
    double mean = ((reads ? j.read_bytes : 0) + (writes ? j.written_bytes : 0)) /
                  ((reads ? j.reads : 0) + (writes ? j.writes : 0));
    double seconds = (reads ? j.read_s : 0) + (writes ? j.write_s : 0);
    set_part(a, d, &j, seconds, 1 - fmin(1, mean / 1048576), 0.8);
    d->f.title = mr_say(a, "small %s: %s, %s on the average", both(reads, writes),
                        mr_say_count(a, (reads ? j.reads : 0) + (writes ? j.writes : 0)), mr_say_bytes(a, mean));
    d->f.fix = "1 to 4 MiB per request: buffer in the program, larger HDF5 chunks, collective buffering in MPI-IO";
    mr_change_storage(
        a, d, MR_TARGET_FILES,
        "export ROMIO_HINTS=hints    # hints: romio_cb_write enable, romio_cb_read enable, cb_buffer_size 16777216");
    return true;
}

bool mr_rule_aln1(struct mr_advice *a, struct mr_draft *d)
{
    struct job j;
    if (!job_of(a, &j))
        return false;
    bool random = j.random_reads || j.random_writes;
    double not_aligned = value(&j, MR_POSIX_FILE_NOT_ALIGNED), unit = value(&j, MR_POSIX_FILE_ALIGNMENT);
    bool small = is_small(&j, j.reads, j.read_bytes, MR_POSIX_SIZE_READ_0_100, random) ||
                 is_small(&j, j.writes, j.written_bytes, MR_POSIX_SIZE_WRITE_0_100, random);
    if (j.ops < OPS_LEAST || not_aligned < 0.3 * j.ops)
        return mr_silent(a, "%s of the requests are not aligned", mr_say_share(a, j.ops > 0 ? not_aligned / j.ops : 0));
    if (!small)
        return mr_silent(a, "requests are large: what crosses a border of %s is a small part", mr_say_bytes(a, unit));
    set_part(a, d, &j, j.read_s + j.write_s, 0.2, 0.5);
    d->weight = 0.5;
    d->f.title = mr_say(a, "misaligned requests: %s of %s do not begin at a border of %s",
                        mr_say_share(a, not_aligned / j.ops), mr_say_count(a, j.ops), mr_say_bytes(a, unit));
    d->f.fix = "requests that begin and end at stripe borders; H5Pset_alignment for HDF5";
    mr_change_storage(a, d, MR_TARGET_FILES, "lfs getstripe -S FILE    # then align to it");
    return true;
}

bool mr_rule_rnd1(struct mr_advice *a, struct mr_draft *d)
{
    struct job j;
    if (!job_of(a, &j))
        return false;
    if (!j.random_reads && !j.random_writes)
        return mr_silent(a, "%s of the reads and %s of the writes ascend",
                         mr_say_share(a, j.reads > 0 ? value(&j, MR_POSIX_SEQ_READS) / j.reads : NAN),
                         mr_say_share(a, j.writes > 0 ? value(&j, MR_POSIX_SEQ_WRITES) / j.writes : NAN));
    set_part(a, d, &j, (j.random_reads ? j.read_s : 0) + (j.random_writes ? j.write_s : 0), 0.5, 0.8);
    d->f.title = mr_say(a, "random %s: only half of the offsets ascend, next to none follows the one before",
                        both(j.random_reads, j.random_writes));
    d->f.fix = "sort requests by offset before they are made, read larger blocks and pick from them, or stage onto a "
               "local disk";
    return true;
}

bool mr_rule_rep1(struct mr_advice *a, struct mr_draft *d)
{
    struct job j;
    if (!job_of(a, &j))
        return false;
    double again = j.c->rank_reread_bytes;
    if (!mr_known(again) || is_sums(&j))
        return mr_silent(a, "the log has sums only: what was read twice cannot be told");
    if (again < 0.5 * j.bytes || again < 1048576)
        return mr_silent(a, "%s of %s were read again by the same ranks", mr_say_bytes(a, again),
                         mr_say_bytes(a, j.read_bytes));
    set_part(a, d, &j, j.read_s, again / fmax(j.read_bytes, 1), 0.7);
    d->f.title =
        mr_say(a, "the same data are read again: %s of %s", mr_say_bytes(a, again), mr_say_bytes(a, j.read_bytes));
    d->f.fix = "keep them in memory, or on a local disk";
    return true;
}

/* ---- files and metadata ---- */

bool mr_rule_md3(struct mr_advice *a, struct mr_draft *d)
{
    struct job j;
    if (!job_of(a, &j))
        return false;
    if (!j.meta)
        return mr_silent(a, "%s opens and %s stats take %s of a process, %s per open", mr_say_count(a, j.opens),
                         mr_say_count(a, j.stats), mr_say_s(a, j.meta_s), mr_say_bytes(a, j.bytes / j.opens));
    set_part(a, d, &j, j.meta_s + j.read_s + j.write_s, 0.8, 0.85);
    d->f.title = mr_say(a, "high metadata load: %s opens for %s, %s for each", mr_say_count(a, j.opens),
                        mr_say_bytes(a, j.bytes), mr_say_bytes(a, j.bytes / j.opens));
    d->f.fix = "fewer, larger files (HDF5, ADIOS, tar shards); open once and keep open; a folder per process";
    return true;
}

bool mr_rule_fil1(struct mr_advice *a, struct mr_draft *d)
{
    struct job j;
    if (!job_of(a, &j))
        return false;
    double files = files_of(&j);
    if (!mr_known(files))
        return mr_silent(a, "the log does not tell how many files there were");
    if (j.n < MANY_RANKS || files < 0.9 * j.n || j.shared)
        return mr_silent(a, "%s files of %.0f processes", mr_say_count(a, files), j.n);
    if (j.meta || j.bytes < 1024 * j.opens)
        return mr_silent(a, "files hold next to nothing: metadata are the load (MD3)");
    if (j.stats > 0.5 * j.opens)
        return mr_silent(a, "most opens are looked up first: modules of an interpreter, not data");
    set_part(a, d, &j, j.meta_s + 0.3 * (j.read_s + j.write_s), 0.5, 0.6);
    d->f.title = mr_say(a, "%s files of %.0f processes: a file or more for each", mr_say_count(a, files), j.n);
    d->f.fix = "one file for several processes: aggregate on each node, or MPI-IO with collective buffering";
    return true;
}

bool mr_rule_syn1(struct mr_advice *a, struct mr_draft *d)
{
    struct job j;
    if (!job_of(a, &j))
        return false;
    double syncs = value(&j, MR_POSIX_FSYNCS) + value(&j, MR_POSIX_FDSYNCS);
    if (!j.synced)
        return mr_silent(a, "%s syncs for %s writes", mr_say_count(a, syncs), mr_say_count(a, j.writes));
    set_part(a, d, &j, j.write_s + j.meta_s, 0.7, 0.85);
    d->f.title = mr_say(a, "throughput lost to syncs: %s fsync calls for %s writes", mr_say_count(a, syncs),
                        mr_say_count(a, j.writes));
    d->f.fix = "sync once, when a file is complete";
    return true;
}

/* ---- ranks, servers, interfaces ---- */

/* The busiest rank over the mean; NAN unknown. Without records of single ranks: the longest file against the mean of a
 * file for each process. */
static double unevenness(const struct job *j)
{
    bool sums = is_sums(j);
    if (!sums && mr_known(j->c->rank_bytes_max) && j->c->rank_bytes_mean > 0)
        return j->c->rank_bytes_max / j->c->rank_bytes_mean;
    double longest = value(j, MR_POSIX_MAX_BYTE_WRITTEN) + 1;
    return !sums || j->shared || j->written_bytes < 1e6 ? NAN : longest / (j->written_bytes / j->n);
}

bool mr_rule_imb1(struct mr_advice *a, struct mr_draft *d)
{
    struct job j;
    if (!job_of(a, &j))
        return false;
    double times = unevenness(&j);
    if (j.n < 2 || j.meta || j.bytes < LOAD_LEAST || !mr_known(times))
        return mr_silent(a, "nothing tells how much each process did");
    if (value(&j, MR_MPIIO_COLL_READS) + value(&j, MR_MPIIO_COLL_WRITES) > 0)
        return mr_silent(a, "collective calls: a few ranks move the bytes of all on purpose");
    bool files_each = j.n >= MANY_RANKS && files_of(&j) >= 0.9 * j.n && !j.shared && j.stats <= 0.5 * j.opens;
    if (times < UNEVEN || (files_each && times < 2 * UNEVEN))
        return mr_silent(a, "the busiest process moves %.2f times the mean", times);
    set_part(a, d, &j, j.read_s + j.write_s, 1 - 1 / times, 0.75);
    d->f.title = mr_say(a, "rank load imbalance: one process moves %.1f times as many bytes as the mean", times);
    d->f.fix = "share the I/O out evenly, or over one writer per node";
    return true;
}

bool mr_rule_ost1(struct mr_advice *a, struct mr_draft *d)
{
    struct job j;
    if (!job_of(a, &j))
        return false;
    double stripes = j.c->stripe_count, osts = j.c->ost_count, uneven = j.c->ost_bytes_max / j.c->ost_bytes_mean;
    if (!j.c->has_lustre || !mr_known(stripes))
        return mr_silent(a, "no Lustre layout in the log");
    if (j.bytes < 1e8)
        return mr_silent(a, "%s in all: one server is enough", mr_say_bytes(a, j.bytes));
    bool one = stripes < 1.5 && osts >= 4 && j.shared && j.n >= 16;
    if (!one && !(uneven >= 3 && osts >= 4 && j.shared))
        return mr_silent(a, "%.1f stripes per file, the busiest OST has %.1f times the mean", stripes, uneven);
    set_part(a, d, &j, j.read_s + j.write_s, 0.5, 0.6);
    d->f.title = one ? mr_say(a, "server load imbalance: %s by %.0f processes to a file on one of %.0f OSTs",
                              mr_say_bytes(a, j.bytes), j.n, osts)
                     : mr_say(a, "server load imbalance: the busiest OST has %.1f times the bytes of the mean", uneven);
    d->f.fix = "more stripes for big shared files";
    mr_change_storage(a, d, MR_TARGET_FILES, "lfs setstripe -c -1 -S 1M FOLDER    # before the file is made");
    return true;
}

bool mr_rule_lib1(struct mr_advice *a, struct mr_draft *d)
{
    struct job j;
    if (!job_of(a, &j))
        return false;
    double all = value(&j, MR_STDIO_BYTES_READ) + value(&j, MR_STDIO_BYTES_WRITTEN);
    double data = mr_known(j.c->stdio_data_bytes) ? j.c->stdio_data_bytes : all;
    if (data < 1048576 || data < 0.3 * (j.bytes + all))
        return mr_silent(a, "%s through stdio, %s through POSIX", mr_say_bytes(a, data), mr_say_bytes(a, j.bytes));
    double seconds = (value(&j, MR_STDIO_F_READ_TIME) + value(&j, MR_STDIO_F_WRITE_TIME)) / j.n;
    set_part(a, d, &j, seconds, 0.4, 0.7);
    d->f.title = mr_say(a, "low-level library: %s of bulk data through stdio (fread, fwrite)", mr_say_bytes(a, data));
    d->f.fix = "read and write in large blocks with POSIX or MPI-IO, or a large buffer (setvbuf)";
    return true;
}

bool mr_rule_col1(struct mr_advice *a, struct mr_draft *d)
{
    struct job j;
    if (!job_of(a, &j))
        return false;
    double alone = value(&j, MR_MPIIO_INDEP_READS) + value(&j, MR_MPIIO_INDEP_WRITES);
    double together = value(&j, MR_MPIIO_COLL_READS) + value(&j, MR_MPIIO_COLL_WRITES);
    double following = value(&j, MR_POSIX_CONSEC_READS) + value(&j, MR_POSIX_CONSEC_WRITES);
    if (!j.c->has_mpiio)
        return mr_silent(a, "MPI-IO was not used");
    if (alone <= 10 * fmax(together, 1) || alone < j.n)
        return mr_silent(a, "%s independent and %s collective calls", mr_say_count(a, alone),
                         mr_say_count(a, together));
    if (!j.shared)
        return mr_silent(a, "no file was shared: nothing to do together");
    bool small = j.bytes < 1e6 * j.ops;
    bool mixed = j.c->has_posix && j.n >= MANY_RANKS && following < 0.5 * j.ops;
    if (!small && !mixed)
        return mr_silent(a, "independent calls of %s that follow each other need no collective ones",
                         mr_say_bytes(a, j.bytes / fmax(1, j.ops)));
    set_part(a, d, &j, j.read_s + j.write_s, 0.5, 0.8);
    d->f.title = mr_say(a, "no collective I/O: %s independent MPI-IO calls of %.0f processes on a shared file",
                        mr_say_count(a, alone), j.n);
    d->f.fix = "MPI_File_write_all and read_all; H5FD_MPIO_COLLECTIVE for HDF5";
    mr_change_storage(a, d, MR_TARGET_FILES,
                      "export ROMIO_HINTS=hints    # hints: romio_cb_write enable, romio_cb_read enable");
    return true;
}

bool mr_rule_mpi1(struct mr_advice *a, struct mr_draft *d)
{
    struct job j;
    if (!job_of(a, &j))
        return false;
    if (j.c->has_mpiio)
        return mr_silent(a, "MPI-IO was used");
    if (!j.shared)
        return mr_silent(a, "no file was shared between processes");
    if (j.random_reads || j.random_writes || j.synced)
        return mr_silent(a, "the shared file has another trouble first (%s)", j.synced ? "SYN1" : "RND1");
    if (j.bytes < 1e6)
        return mr_silent(a, "%s in all", mr_say_bytes(a, j.bytes));
    set_part(a, d, &j, j.read_s + j.write_s, 0.4, 0.7);
    d->f.title = mr_say(a, "%.0f processes share a file without MPI-IO: each call contends for its locks alone", j.n);
    d->f.fix = "MPI-IO with collective buffering, or a library that uses it (HDF5, ADIOS)";
    return true;
}
