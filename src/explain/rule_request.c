/* Rules about the requests themselves: their size, and opening files. */
#include "base/common.h"
#include "explain/advise_internal.h"

#include <string.h>

#define SMALL_BIN 16            /* log2: below 64 KiB */
#define GOOD_BYTES 1048576.0    /* a request of which latency is a small part */
#define GOOD_RATE 1e9           /* of one stream of large requests, where nothing better is known */
#define SLOW 0.25               /* of it: such small requests wait for latency */
#define SHARD_BYTES 134217728.0 /* 128 MiB */

struct small_reads {
    double bytes, ops, seconds, all_bytes, all_seconds;
};

static struct small_reads small_reads(const struct mr_explain_sizes *s)
{
    struct small_reads r = {0};
    for (unsigned k = 0; k < MR_EXPLAIN_SIZE_BINS; k++) {
        r.all_bytes += (double)s->bytes[k];
        r.all_seconds += (double)s->dur_ns[k] / 1e9;
        if (k >= SMALL_BIN)
            continue;
        r.bytes += (double)s->bytes[k];
        r.ops += (double)s->ops[k];
        r.seconds += (double)s->dur_ns[k] / 1e9;
    }
    return r;
}

/* Rate of one stream of large requests: of this trace, where it has some. */
static double large_rate(const struct mr_explain_sizes *s)
{
    double bytes = 0, seconds = 0;
    for (unsigned k = 20; k < MR_EXPLAIN_SIZE_BINS; k++) {
        bytes += (double)s->bytes[k];
        seconds += (double)s->dur_ns[k] / 1e9;
    }
    return bytes >= 16 * GOOD_BYTES && seconds > 0 ? fmin(bytes / seconds, 2 * GOOD_RATE) : GOOD_RATE;
}

bool mr_rule_sz1(struct mr_advice *a, struct mr_draft *d)
{
    struct small_reads r = small_reads(&a->x->read_sizes);
    double pool = mr_pool_s(a, d->pools), good = large_rate(&a->x->read_sizes);
    if (r.all_bytes < GOOD_BYTES)
        return mr_silent(a, "only %s were read", mr_say_bytes(a, r.all_bytes));
    if (r.bytes <= 0.5 * r.all_bytes)
        return mr_silent(a, "%s of the bytes in reads below 64 KiB", mr_say_share(a, r.bytes / r.all_bytes));
    double rate = r.seconds > 0 ? r.bytes / r.seconds : NAN, mean = r.bytes / r.ops;
    if (!(rate < SLOW * good))
        return mr_silent(a, "reads below 64 KiB get %s each: no latency to save", mr_say_rate(a, rate));
    double latency = fmax(0, r.seconds / r.ops - mean / good);
    double left = (latency * mean / GOOD_BYTES + mean / good) / (latency + mean / good);
    double saves = pool * (r.all_seconds > 0 ? r.seconds / r.all_seconds : 1) * (1 - left);
    d->f.saves_s = saves;
    d->f.saves_low_s = 0.5 * saves;
    d->f.saves_high_s = pool;
    d->f.confidence = 0.8;
    d->f.potential = a->f->has_steps && !a->starved;
    d->f.title = mr_say(a, "%s reads of %s get %s each: latency %s, not bandwidth", mr_say_count(a, r.ops),
                        mr_say_bytes(a, mean), mr_say_rate(a, rate), mr_say_s(a, latency));
    d->f.fix =
        "read 1 to 4 MiB at once: larger chunks and a chunk cache, read-ahead, or a batch's samples in one request";
    d->f.evidence = mr_say(
        a, "%s of %s read bytes in requests below 64 KiB; they took %s of %s in reads, summed over threads",
        mr_say_bytes(a, r.bytes), mr_say_bytes(a, r.all_bytes), mr_say_s(a, r.seconds), mr_say_s(a, r.all_seconds));
    d->f.formula = mr_say(a,
                          "waits for reads %s x small reads' share %s x (1 - (latency %s x %s / 1 MiB + transfer) / "
                          "(latency + transfer)) ",
                          mr_say_s(a, pool), mr_say_share(a, r.seconds / r.all_seconds), mr_say_s(a, latency),
                          mr_say_bytes(a, mean));
    d->f.snippet[0] = "reader:\n  transfer_size: 1048576";
    d->f.snippet[1] = "h5py.File(path, 'r', rdcc_nbytes=64 << 20)    # and chunks of about 1 MiB when writing";
    d->f.snippet[2] = "tf.data.TFRecordDataset(files, buffer_size=4 << 20)";
    d->f.command = mr_try_run(a, "reader.transfer_size=1048576");
    return true;
}

bool mr_rule_md1(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_facts *f = a->f;
    double meta = mr_stall_s(a, MR_STALL_METADATA), io = a->read_s;
    double per_thousand = 1000 * mr_known_or(f->opens_per_sample, 0);
    bool stalls = a->starved && io > 0 && meta >= 0.2 * io, many = per_thousand > 100;
    if (!many && !stalls)
        return mr_silent(a, "%.3g opens per 1,000 samples; open and stat are %s of the waits for reads", per_thousand,
                         mr_say_share(a, io > 0 ? meta / io : 0));
    double waits = (double)a->x->wait[MR_WAIT_METADATA] / 1e9;
    if (!stalls && waits < 0.005 * a->run_s)
        return mr_silent(a, "%.3g opens per 1,000 samples, but open and stat take %s in all", per_thousand,
                         mr_say_s(a, waits));
    double fewer =
        mr_known(f->sample_bytes) && many ? fmin(1, f->sample_bytes / SHARD_BYTES / (per_thousand / 1000)) : 0.05;
    d->f.saves_s = meta * (1 - fewer);
    d->f.saves_low_s = 0.6 * d->f.saves_s;
    d->f.saves_high_s = meta;
    d->f.confidence = 0.8;
    d->f.potential = a->f->has_steps && !stalls;
    d->f.title = many ? mr_say(a, "%.0f opens per 1,000 samples: open and stat take %s of %s", per_thousand,
                               mr_say_s(a, waits), mr_say_s(a, a->run_s))
                      : mr_say(a, "open and stat are %s of the waits for reads", mr_say_share(a, meta / io));
    d->f.fix = "pack samples into shards of 128 MB to 1 GB (TFRecord, WebDataset tar); keep at least 4 x ranks x "
               "readers of them";
    d->f.evidence =
        mr_say(a, "%s files, %.3g opens per sample; open, stat and close waited for %s by the stall, %s in all",
               mr_say_count(a, mr_known_or(f->files, 0)), per_thousand / 1000, mr_say_s(a, meta), mr_say_s(a, waits));
    d->f.formula =
        mr_say(a, "metadata's part of the stall %s x (1 - new opens / old opens %.3f)", mr_say_s(a, meta), fewer);
    d->f.snippet[0] = "dataset:\n  num_samples_per_file: 1000\n  format: tfrecord";
    d->f.snippet[1] = "webdataset.WebDataset('shards/{000000..000999}.tar')";
    d->f.snippet[2] = "tf.data.TFRecordDataset(shards, num_parallel_reads=8)";
    d->f.command = a->own && !f->simulated
                       ? mr_try_run(a, "dataset.num_samples_per_file=1000 --generate --data NEW_FOLDER")
                       : NULL;
    return true;
}
