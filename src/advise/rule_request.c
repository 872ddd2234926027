/* Rules about the requests themselves: their size, and opening files. */
#include "base/common.h"
#include "advise/advise_internal.h"

#include <string.h>

#define BYTES_LEAST 262144.0    /* of reads: less is no load */
#define SMALL_BIN 16            /* log2: below 64 KiB */
#define GOOD_BYTES 1048576.0    /* a request of which latency is a small part */
#define GOOD_RATE 1e9           /* of one stream of large requests, where nothing better is known */
#define POOR_RATE 1e8           /* of one stream of a poor storage: what latency is then */
#define SLOW 0.25               /* of it: such small requests wait for latency */
#define ONE_EACH 0.8            /* opens for each read */
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

/* Of the time of a read: latency once per GOOD_BYTES, transfer as before. */
static double left_of(double latency, double mean, double rate)
{
    double transfer = mean / rate;
    return (latency * mean / GOOD_BYTES + transfer) / (latency + transfer);
}

bool mr_rule_sz1(struct mr_advice *a, struct mr_draft *d)
{
    struct small_reads r = small_reads(&a->x->read_sizes);
    double pool = mr_pool_s(a, d->pools), good = large_rate(&a->x->read_sizes);
    if (r.all_bytes < BYTES_LEAST)
        return mr_silent(a, "only %s were read", mr_say_bytes(a, r.all_bytes));
    if (r.bytes <= 0.5 * r.all_bytes)
        return mr_silent(a, "%s of the bytes in reads below 64 KiB", mr_say_share(a, r.bytes / r.all_bytes));
    double rate = r.seconds > 0 ? r.bytes / r.seconds : NAN, mean = r.bytes / r.ops;
    if (!(rate < SLOW * good))
        return mr_silent(a, "reads below 64 KiB get %s each: no latency to save", mr_say_rate(a, rate));
    if (mr_storage_is_limit(a))
        return mr_silent(a, "the storage is the limit: larger reads get no more bytes (TH4)");
    if (a->f->opens >= ONE_EACH * r.ops)
        return mr_silent(a, "the files themselves are small, and each is read at once (MD1)");
    double latency = fmax(0, r.seconds / r.ops - mean / good);
    double left = left_of(latency, mean, good);
    double share = r.all_seconds > 0 ? r.seconds / r.all_seconds : 1;
    struct mr_pipeline q = mr_pipeline_now(a);
    q.read_x = 1 - share * (1 - left);
    bool replayed = a->f->has_steps && mr_predict(a, d, &q);
    if (replayed)
        d->pools |= MR_POOL_STALL; /* quicker loads shorten all waits */
    if (!replayed) {
        d->f.saves_s = pool * share * (1 - left);
        d->f.saves_low_s = 0.5 * d->f.saves_s;
        d->f.saves_high_s = pool;
    }
    /* Reads of one size by one number of readers cannot tell latency from a shared rate; own runs probe the storage. */
    bool is_seen = a->own || good != GOOD_RATE || mr_known(a->f->knee) || a->f->stream_bytes_per_s[1] > 0 ||
                   a->scaling.scales == MR_SCALES_GROWS;
    if (replayed) { /* the same by a storage that transfers slowly */
        double poor = fmin(good, POOR_RATE), wait = fmax(0, r.seconds / r.ops - mean / poor);
        struct mr_pipeline worst = q;
        worst.read_x = 1 - share * (1 - left_of(wait, mean, poor));
        d->f.saves_low_s = is_seen ? fmin(d->f.saves_low_s, fmax(0, mr_predict_s(a, &worst))) : 0;
        (void)mr_predict_s(a, &q); /* the one that the text shows */
    }
    d->f.confidence = replayed && !is_seen ? 0.5 : 0.8;
    d->f.potential = a->f->has_steps && !a->starved;
    d->f.title = mr_say(a, "%s reads of %s get %s each: latency %s, not bandwidth", mr_say_count(a, r.ops),
                        mr_say_bytes(a, mean), mr_say_rate(a, rate), mr_say_s(a, latency));
    d->f.fix =
        "read 1 to 4 MiB at once: larger chunks and a chunk cache, read-ahead, or a batch's samples in one request";
    d->f.evidence = mr_say(
        a, "%s of %s read bytes in requests below 64 KiB; they took %s of %s in reads, summed over threads",
        mr_say_bytes(a, r.bytes), mr_say_bytes(a, r.all_bytes), mr_say_s(a, r.seconds), mr_say_s(a, r.all_seconds));
    d->f.formula = mr_say(a,
                          "not replayed (loads are not in the trace): waits for reads %s x small reads' share %s x (1 "
                          "- (latency %s x %s / 1 MiB + transfer) / "
                          "(latency + transfer)) ",
                          mr_say_s(a, pool), mr_say_share(a, r.seconds / r.all_seconds), mr_say_s(a, latency),
                          mr_say_bytes(a, mean));
    if (replayed)
        d->f.formula = mr_replay_formula(a, mr_say(a, "latency %s paid once per MiB: reads take %s of their time",
                                                   mr_say_s(a, latency), mr_say_share(a, q.read_x)));
    mr_change_option(a, d, "reader.transfer_size", NULL, "1048576");
    mr_change_code(a, d, MR_IDIOM_PYTORCH,
                   mr_if_format(a, "hdf5",
                                "h5py.File(path, 'r', rdcc_nbytes=64 << 20)    # and chunks of about 1 MiB when "
                                "writing"));
    if (mr_if_format(a, "tfrecord", ""))
        mr_change_argument(a, d, "tf.data.TFRecordDataset", "buffer_size", NULL, "4194304");
    return true;
}

bool mr_rule_md1(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_facts *f = a->f;
    double meta = mr_stall_s(a, MR_STALL_METADATA), io = a->read_s;
    double per_thousand = 1000 * mr_known_or(f->opens_per_sample, 0);
    bool stalls = a->starved && io > 0 && meta >= 0.2 * io && meta >= 0.01 * a->run_s, many = per_thousand > 100;
    if (!many && !stalls)
        return mr_silent(a, "%.3g opens per 1,000 samples; open and stat are %s of the waits for reads", per_thousand,
                         mr_say_share(a, io > 0 ? meta / io : 0));
    double waits = (double)a->x->wait[MR_WAIT_METADATA] / 1e9;
    if (!stalls && waits < 0.005 * a->run_s)
        return mr_silent(a, "%.3g opens per 1,000 samples, but open and stat take %s in all", per_thousand,
                         mr_say_s(a, waits));
    double fewer =
        mr_known(f->sample_bytes) && many ? fmin(1, f->sample_bytes / SHARD_BYTES / (per_thousand / 1000)) : 0.05;
    struct mr_pipeline q = mr_pipeline_now(a);
    q.meta_x = fmax(fewer, 1e-6);
    bool replayed = stalls && mr_predict(a, d, &q);
    if (replayed)
        d->pools |= MR_POOL_STALL; /* quicker loads shorten all waits */
    if (!replayed) {
        d->f.saves_s = meta * (1 - fewer);
        d->f.saves_low_s = 0.6 * d->f.saves_s;
        d->f.saves_high_s = meta;
    }
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
    d->f.formula = replayed
                       ? mr_replay_formula(a, mr_say(a, "%s of the opens", mr_say_share(a, fewer)))
                       : mr_say(a, "not replayed: metadata's part of the stall %s x (1 - new opens / old opens %.3f)",
                                mr_say_s(a, meta), fewer);
    mr_change_option(a, d, "dataset.num_samples_per_file", NULL, "1000");
    mr_change_to_new_data(a, d);
    mr_change_code(a, d, MR_IDIOM_PYTORCH, "webdataset.WebDataset('shards/{000000..000999}.tar')");
    mr_change_code(a, d, MR_IDIOM_TENSORFLOW, "tf.data.TFRecordDataset(shards, num_parallel_reads=8)");
    return true;
}

bool mr_rule_sz2(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_sizes *s = &a->x->read_sizes;
    const char *format = a->f->format;
    double ops = 0, pool = mr_pool_s(a, d->pools);
    for (unsigned k = 0; k < MR_EXPLAIN_SIZE_BINS; k++)
        ops += (double)s->ops[k];
    if (!format || strcmp(format, "tfrecord") != 0)
        return mr_silent(a, "the data are not TFRecord files");
    if (!s->top || s->top_size[0] != 262144 || (double)s->top_ops[0] < 0.9 * ops)
        return mr_silent(a, "reads are not TensorFlow's default of 256 KiB");
    double each = ops > 0 ? (double)s->dur_ns[18] / 1e9 / fmax(1, (double)s->ops[18]) : 0;
    double transfer = 262144 / large_rate(s), latency = fmax(0, each - transfer);
    double saved = each > 0 ? latency * (1 - 262144 / (4 * GOOD_BYTES)) / each : 0;
    d->f.saves_s = pool * saved;
    d->f.saves_low_s = 0;
    d->f.saves_high_s = pool;
    d->f.confidence = 0.5;
    d->f.potential = a->f->has_steps && !a->starved;
    d->f.title = mr_say(a, "TFRecord files are read with the default buffer of 256 KiB, %s each", mr_say_s(a, each));
    d->f.fix = "buffer_size of 1 to 8 MiB, and several files side by side";
    d->f.evidence =
        mr_say(a, "%s of %s reads have 256 KiB", mr_say_count(a, (double)s->top_ops[0]), mr_say_count(a, ops));
    d->f.formula = mr_say(a, "waits for reads %s x latency's part of a read %s, paid once per 4 MiB", mr_say_s(a, pool),
                          mr_say_share(a, each > 0 ? latency / each : 0));
    mr_change_option(a, d, "reader.transfer_size", "262144", "4194304");
    mr_change_argument(a, d, "tf.data.TFRecordDataset", "buffer_size", "262144", "8388608");
    mr_change_argument(a, d, "tf.data.TFRecordDataset", "num_parallel_reads", NULL, "8");
    return true;
}

bool mr_rule_md2(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_file *hit = NULL;
    for (size_t i = 0; i < a->x->files; i++) {
        const struct mr_explain_file *f = &a->x->file[i];
        bool tiny = f->size < 1048576 && f->reads > 10 && f->read_bytes / MR_MAX(f->reads, 1) < 4096;
        if (tiny && f->streamed > 0 && 2 * f->consecutive < f->streamed && (!hit || f->reads > hit->reads))
            hit = f;
    }
    if (!hit)
        return mr_silent(a, "no small file is read in many tiny pieces out of order");
    double seconds = (double)hit->dur_ns / 1e9 / fmax(1, (double)hit->ranks);
    d->f.saves_s = 0.9 * seconds;
    d->f.saves_low_s = 0;
    d->f.saves_high_s = seconds;
    d->f.confidence = 0.8;
    d->f.title = mr_say(a, "a file of %s is parsed with %llu reads of %s, %s of them consecutive",
                        mr_say_bytes(a, (double)hit->size), (unsigned long long)hit->reads,
                        mr_say_bytes(a, (double)hit->read_bytes / (double)hit->reads),
                        mr_say_share(a, (double)hit->consecutive / (double)hit->streamed));
    d->f.fix = "read it into memory at once and parse it there";
    d->f.evidence = mr_say(a, "'%s': %s in its calls", hit->path ? hit->path : "?", mr_say_s(a, seconds));
    d->f.formula = mr_say(a, "the file's calls %s less one read", mr_say_s(a, seconds));
    mr_change_code(a, d, MR_IDIOM_PYTORCH,
                   mr_if_format(a, "hdf5", "h5py.File(io.BytesIO(open(path, 'rb').read()), 'r')"));
    return true;
}

static const char *ending(const char *path)
{
    const char *dot = path ? strrchr(path, '.') : NULL;
    return dot && !strchr(dot, '/') ? dot + 1 : "";
}

static bool is_text(const char *format)
{
    static const char *const text[] = {"csv", "tsv", "json", "jsonl", "txt", "xml"};
    for (unsigned i = 0; format && i < MR_ARRAY_LEN(text); i++)
        if (strcmp(format, text[i]) == 0)
            return true;
    return false;
}

/* Text formats among the files with most bytes. */
static const char *text_format(const struct mr_advice *a)
{
    double all = 0, text = 0;
    const char *name = NULL;
    if (a->f->format)
        return is_text(a->f->format) ? a->f->format : NULL;
    for (size_t i = 0; i < a->x->files; i++) {
        all += (double)a->x->file[i].read_bytes;
        if (!is_text(ending(a->x->file[i].path)))
            continue;
        text += (double)a->x->file[i].read_bytes;
        name = ending(a->x->file[i].path);
    }
    return text > 0.5 * all && all >= 100000 ? name : NULL;
}

bool mr_rule_fm1(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_facts *f = a->f;
    const char *format = text_format(a);
    double load = f->batch_load_s, parse = f->batch_decode_s;
    if (!format)
        return mr_silent(a, "the data are not text");
    if (a->starved && load * a->steps > 0.02 && parse < 0.3 * load)
        return mr_silent(a, "parsing %s takes %s of the %s of loading a batch", format, mr_say_s(a, parse),
                         mr_say_s(a, load));
    d->f.saves_s = 0.8 * a->cpu_s;
    d->f.saves_low_s = 0.5 * a->cpu_s;
    d->f.saves_high_s = a->cpu_s;
    d->f.confidence = 0.7;
    d->f.potential = f->has_steps && !a->starved;
    d->f.title = mr_say(a, "%s text is parsed while data are loaded%s", format,
                        load > 0 ? mr_say(a, ": %s of each batch's %s", mr_say_s(a, parse), mr_say_s(a, load)) : "");
    d->f.fix = "store binary records once (TFRecord, NPY, Parquet)";
    d->f.evidence = mr_say(a, "waits for decoding and parsing %s", mr_say_s(a, a->cpu_s));
    d->f.formula = mr_say(a, "waits for parsing %s x 0.8", mr_say_s(a, a->cpu_s));
    mr_change_option(a, d, "dataset.format", format, "npy");
    mr_change_to_new_data(a, d);
    mr_change_code(a, d, MR_IDIOM_PYTORCH,
                   "numpy.save('data.npy', pandas.read_csv('data.csv').values)    # once; then numpy.load(..., "
                   "mmap_mode='r')");
    return true;
}

bool mr_rule_amp1(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_facts *f = a->f;
    double times = f->delivered_bytes > 0 ? f->read_bytes / f->delivered_bytes : NAN;
    if (!mr_known(times) || !a->own) /* of other programs only the decoded size is known, if any */
        return mr_silent(a, "how many bytes the batches hold as stored is not known");
    if (times <= 1.3)
        return mr_silent(a, "%.2f bytes read for each byte delivered", times);
    d->f.saves_s = a->read_s * (1 - 1 / times);
    d->f.saves_low_s = 0.3 * d->f.saves_s;
    d->f.saves_high_s = a->read_s;
    d->f.confidence = 0.7;
    d->f.potential = f->has_steps && !a->starved;
    d->f.title = mr_say(a, "%.1f bytes are read for each byte that a batch uses", times);
    d->f.fix =
        "read only what is used: chunks that match a sample, one channel per dataset, no whole files for one sample";
    d->f.evidence =
        mr_say(a, "%s read, %s delivered", mr_say_bytes(a, f->read_bytes), mr_say_bytes(a, f->delivered_bytes));
    d->f.formula = mr_say(a, "waits for reads %s x (1 - 1 / %.2f)", mr_say_s(a, a->read_s), times);
    return true;
}

bool mr_rule_eof1(struct mr_advice *a, struct mr_draft *d)
{
    double opens = 0, zero = (double)a->x->read_sizes.zero, reads = 0;
    opens = mr_known_or(a->f->opens, 0);
    for (unsigned k = 0; k < MR_EXPLAIN_SIZE_BINS; k++)
        reads += (double)a->x->read_sizes.ops[k];
    if (!(zero > 0) || zero <= 1.2 * opens || zero < 100 || zero < 0.1 * reads)
        return mr_silent(a, "%s reads at the end of a file", mr_say_count(a, zero));
    double each = (double)a->x->read_sizes.zero_ns / 1e9 / zero;
    d->f.saves_s = fmin(a->read_s, zero * each / fmax(1, (double)a->x->ranks));
    d->f.saves_low_s = 0;
    d->f.saves_high_s = a->read_s;
    d->f.confidence = 0.5;
    d->f.potential = a->f->has_steps && !a->starved;
    d->f.title =
        mr_say(a, "%s reads returned nothing: %.1f for each open", mr_say_count(a, zero), zero / fmax(1, opens));
    d->f.fix = "stop at the known size instead of reading until nothing comes";
    d->f.evidence = mr_say(a, "%s reads in all", mr_say_count(a, reads + zero));
    d->f.formula = mr_say(a, "empty reads %s x %s", mr_say_count(a, zero), mr_say_s(a, each));
    return true;
}

bool mr_rule_ra1(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_facts *f = a->f;
    double req = a->x->read_sizes.top ? (double)a->x->read_sizes.top_size[0] : NAN, consecutive = 0, streamed = 0;
    for (size_t i = 0; i < a->x->files; i++) {
        consecutive += (double)a->x->file[i].consecutive;
        streamed += (double)a->x->file[i].streamed;
    }
    if (!mr_known(f->read_ahead_bytes) || !mr_known(req))
        return mr_silent(a, "the read-ahead of the device is not known");
    if (!a->starved || a->read_s < 0.2 * a->stall_s)
        return mr_silent(a, "training does not wait for reads");
    bool random = streamed > 0 && consecutive<0.2 * streamed, wasted = f->cold_fraction> 1.3;
    if (!(random && wasted && f->read_ahead_bytes > 8 * req))
        return mr_silent(a, "read-ahead of %s, reads of %s", mr_say_bytes(a, f->read_ahead_bytes),
                         mr_say_bytes(a, req));
    d->f.saves_s = mr_stall_s(a, MR_STALL_STORAGE) * (1 - 1 / f->cold_fraction);
    d->f.saves_low_s = 0;
    d->f.confidence = 0.5;
    d->f.title = mr_say(a, "reads of %s in random order, and the device reads %s ahead: %.1f times the bytes",
                        mr_say_bytes(a, req), mr_say_bytes(a, f->read_ahead_bytes), f->cold_fraction);
    d->f.fix = "a smaller read-ahead for this device, or posix_fadvise(POSIX_FADV_RANDOM)";
    d->f.evidence = mr_say(a, "%s of the reads follow the one before", mr_say_share(a, consecutive / streamed));
    d->f.formula = mr_say(a, "waits for storage %s x (1 - 1 / %.2f)", mr_say_s(a, mr_stall_s(a, MR_STALL_STORAGE)),
                          f->cold_fraction);
    mr_change_storage(a, d, MR_TARGET_MACHINE, "sudo blockdev --setra 32 /dev/DEVICE    # in sectors of 512 bytes");
    return true;
}
