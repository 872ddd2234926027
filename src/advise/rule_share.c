/* Rules about what ranks read of each other's data: the same bytes on purpose or by mistake, shuffles that defeat
 * caches, one file for all. */
#include "base/common.h"
#include "advise/advise_internal.h"

#include <string.h>

#define SAME 0.9

static double ranks_of(const struct mr_advice *a)
{
    return fmax(1, mr_known_or(a->f->ranks, (double)a->x->ranks));
}

/* Share of the bytes that all ranks read; where offsets were not compared, bytes that several ranks read, if so many
 * are read that it must have been all of them. NAN unknown. */
static double read_by_all(const struct mr_advice *a)
{
    const struct mr_explain_facts *f = a->f;
    if (mr_known(f->same_offsets))
        return f->same_offsets;
    return f->dataset_bytes > 0 && f->read_bytes >= 0.9 * ranks_of(a) * f->dataset_bytes ? f->shared_share : NAN;
}

/* All ranks read everything, and in each epoch: over several epochs of a global shuffle everybody sees everything. */
static bool all_read_same(const struct mr_advice *a)
{
    const struct mr_explain_facts *f = a->f;
    double same = read_by_all(a);
    if (!mr_known(same) || same < SAME || ranks_of(a) < 2)
        return false;
    return mr_known(f->same_offsets) || !mr_known(f->epoch_bytes) || !(f->dataset_bytes > 0) ||
           f->epoch_bytes >= 0.9 * ranks_of(a) * f->dataset_bytes;
}

static void set_copies(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_facts *f = a->f;
    double n = ranks_of(a);
    d->f.saves_s = a->read_s * (n - 1) / n;
    d->f.saves_low_s = 0;
    d->f.saves_high_s = a->read_s;
    d->f.potential = !a->starved;
    d->f.evidence =
        mr_say(a, "%s of the read bytes are read by all %.0f ranks; %s read, %s different",
               mr_say_share(a, read_by_all(a)), n, mr_say_bytes(a, f->read_bytes), mr_say_bytes(a, f->dataset_bytes));
    d->f.formula = mr_say(a, "waits for reads %s x (ranks - 1) / ranks", mr_say_s(a, a->read_s));
}

bool mr_rule_sh1(struct mr_advice *a, struct mr_draft *d)
{
    if (!a->f->sharded)
        return mr_silent(a, "the ranks were not meant to read different parts, as far as the trace tells");
    if (!all_read_same(a))
        return mr_silent(a, "%s of the read bytes are read by all ranks", mr_say_share(a, read_by_all(a)));
    set_copies(a, d);
    d->f.confidence = 0.9;
    d->weight = 1.3; /* wrong, not only slow */
    d->f.title = mr_say(a, "sharding is configured, but all %.0f ranks read the same samples: a fault of the sampler",
                        ranks_of(a));
    d->f.fix =
        "shard by rank; check that the sampler gets rank and world size, and that all ranks shuffle with one seed";
    mr_change_option(a, d, "pattern.same_offsets", "true", "false");
    mr_change_code(a, d, MR_IDIOM_PYTORCH,
                   "DistributedSampler(dataset, num_replicas=world, rank=rank, seed=0)    # and "
                   "sampler.set_epoch(epoch)");
    mr_change_code(a, d, MR_IDIOM_TENSORFLOW, "ds.shard(num_shards=world, index=rank)");
    return true;
}

bool mr_rule_sh2(struct mr_advice *a, struct mr_draft *d)
{
    if (!all_read_same(a))
        return mr_silent(a, "%s of the read bytes are read by all ranks in an epoch", mr_say_share(a, read_by_all(a)));
    if (a->f->sharded)
        return mr_silent(a, "the ranks were meant to read different parts (SH1)");
    set_copies(a, d);
    d->f.confidence = 0.6;
    d->weight = 0.9;
    d->f.title = mr_say(a, "all %.0f ranks read the same bytes: shared storage delivers everything %.0f times",
                        ranks_of(a), ranks_of(a));
    d->f.fix = "let one rank (or a few) read and broadcast, or read collectively";
    mr_change_option(a, d, "reader.file_access", NULL, "collective");
    mr_change_code(a, d, MR_IDIOM_PYTORCH,
                   "data = load() if rank == 0 else empty\ntorch.distributed.broadcast(data, src=0)");
    return true;
}

bool mr_rule_sh3(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_facts *f = a->f;
    if (!f->global_shuffle)
        return mr_silent(a, "samples are not dealt to the ranks anew in every epoch, as far as the trace tells");
    if (!(f->epochs >= 2))
        return mr_silent(a, "one epoch");
    if (!(f->ranks >= 2))
        return mr_silent(a, "one rank");
    if (!mr_reads_matter(a))
        return mr_silent(a, "reading takes %s of the run", mr_say_share(a, mr_io_share(a)));
    double part = (f->epochs - 1) / f->epochs;
    d->f.saves_s = a->read_s * part * (1 - 1 / 2.4);
    d->f.saves_low_s = 0;
    d->f.saves_high_s = a->read_s * part;
    d->f.confidence = 0.5;
    d->weight = 0.7; /* changes what is trained on */
    d->f.potential = !a->starved;
    d->f.title = "a global shuffle gives every rank other samples in each epoch: what a node holds is of no use to it";
    d->f.fix =
        "shuffle within a rank's shard and exchange shards now and then, or a loader that fetches from other nodes";
    d->f.evidence = mr_say(a, "%.0f epochs; a node reads %s in each, the data set has %s", f->epochs,
                           mr_say_bytes(a, f->node_epoch_bytes), mr_say_bytes(a, f->dataset_bytes));
    d->f.formula = mr_say(
        a, "waits for reads behind the first epoch %s x (1 - 1 / 2.4), the ratio measured for HEPCNN on Cori (NERSC)",
        mr_say_s(a, a->read_s * part));
    mr_change_option(a, d, "reader.order", NULL, "shard");
    mr_change_code(a, d, MR_IDIOM_TENSORFLOW,
                   "ds.shard(world, rank).shuffle(buffer)    # instead of shuffle().shard()");
    return true;
}

bool mr_rule_sh4(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_facts *f = a->f;
    const struct mr_explain_file *big = NULL;
    for (size_t i = 0; i < a->x->files; i++)
        if (!big || a->x->file[i].read_bytes > big->read_bytes)
            big = &a->x->file[i];
    if (!big || big->ranks < 2 || !(f->read_bytes > 0) || (double)big->read_bytes < 0.8 * f->read_bytes)
        return mr_silent(a, "no single file has most of the reads of several ranks");
    if (a->read_s < 0.05 * a->run_s)
        return mr_silent(a, "waits for reads take %s of the run",
                         mr_say_share(a, a->run_s > 0 ? a->read_s / a->run_s : 0));
    d->f.confidence = 0.3;
    d->f.title = mr_say(a, "one file of %s serves %u ranks", mr_say_bytes(a, (double)big->size), big->ranks);
    d->f.fix = mr_say(a, "split it into at least %u files", big->ranks);
    d->f.evidence = mr_say(a, "%s read from '%s'; waits for reads %s", mr_say_bytes(a, (double)big->read_bytes),
                           big->path ? big->path : "?", mr_say_s(a, a->read_s));
    d->f.formula = "unknown beforehand: it depends on the file system";
    mr_change_option(a, d, "dataset.num_files_train", NULL, mr_say_number(a, big->ranks));
    mr_change_to_new_data(a, d);
    return true;
}
