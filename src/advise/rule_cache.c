/* Rules about where the data lie: memory and local disks of the nodes in front of shared storage, and how files lie on
 * Lustre. What later epochs would save is taken from their own steps: the first epoch has to read everything once. */
#include "base/common.h"
#include "base/strbuf.h"
#include "advise/advise_internal.h"

#include <string.h>

#define RAM_PART 0.8 /* of the free memory: the program needs some, too */
#define SSD_PART 0.9
#define STAGING_ERROR 0.05
#define BIG_FILE 16777216.0 /* seen of it: a lower bound of its size */

static double memory_of(const struct mr_explain_facts *f)
{
    return RAM_PART * (mr_known(f->memory_free_bytes) ? f->memory_free_bytes : 0.8 * f->memory_bytes);
}

static double nodes_of(const struct mr_explain_facts *f)
{
    return fmax(1, mr_known_or(f->nodes, 1));
}

/* Different bytes; where all ranks made the same reads, a rank's own. */
static double distinct_bytes(const struct mr_explain_facts *f)
{
    return f->same_offsets >= 1 && f->ranks > 1 ? fmin(f->dataset_bytes, f->read_bytes / f->ranks) : f->dataset_bytes;
}

/* What a node reads in an epoch. */
static double node_bytes(const struct mr_explain_facts *f)
{
    return mr_known(f->node_epoch_bytes) ? f->node_epoch_bytes : f->dataset_bytes;
}

struct later {
    double steps, stall_s, read_s; /* of one rank, behind the first epoch */
};

static struct later later_epochs(const struct mr_explanation *x)
{
    struct later l = {0};
    uint32_t first = UINT32_MAX;
    for (size_t i = 0; i < x->steps; i++)
        first = MR_MIN(first, x->step[i].epoch);
    for (size_t i = 0; i < x->steps; i++) {
        const struct mr_explain_step *s = &x->step[i];
        if (s->epoch == first)
            continue;
        l.steps++;
        l.stall_s += (double)s->ns[MR_TIME_STALL] / 1e9;
        l.read_s +=
            (double)(s->stall[MR_STALL_STORAGE] + s->stall[MR_STALL_METADATA] + s->stall[MR_STALL_NETWORK]) / 1e9;
    }
    double ranks = x->ranks ? (double)x->ranks : 1;
    return (struct later){l.steps / ranks, l.stall_s / ranks, l.read_s / ranks};
}

/* With epochs from the `from`-th on read at `rate` per reader. False: too little is known. */
static bool predict_tier(struct mr_advice *a, struct mr_draft *d, double rate, uint32_t from)
{
    struct mr_pipeline q = mr_pipeline_now(a);
    uint32_t first = UINT32_MAX;
    for (size_t i = 0; i < a->x->steps; i++)
        first = MR_MIN(first, a->x->step[i].epoch);
    q.tier_rate = rate;
    q.tier_from = first + from;
    q.tier_share = 1;
    q.tier_meta_x = from ? 1 : MR_STAGED_META;
    return mr_predict(a, d, &q);
}

static double readers_of(const struct mr_advice *a)
{
    return fmax(1, mr_known_or(mr_pipeline_now(a).workers, 1));
}

/* Reading everything once before the first step: as many copy as read, since it is not known what more would get. */
static double staging_s(struct mr_advice *a)
{
    const struct mr_explain_facts *f = a->f;
    if (f->framework && !strcmp(f->framework, "tensorflow")) /* fills its cache while it trains */
        return NAN;
    return mr_read_once_s(a, readers_of(a));
}

static const char *copy_to_memory(struct mr_advice *a)
{
    double readers = readers_of(a);
    return readers < 2 ? "cp -r DATA /dev/shm/"
                       : mr_say(a,
                                "mkdir -p /dev/shm/DATA && cd DATA && find . -type f -print0 | xargs -0 -n 16 -P %.0f "
                                "cp --parents -t /dev/shm/DATA",
                                readers);
}

static const char *evidence(struct mr_advice *a, const struct later *l)
{
    const struct mr_explain_facts *f = a->f;
    return mr_say(a,
                  "a node reads %s in an epoch, the data set has %s; free memory %s, free on a local disk %s\n"
                  "%.0f epochs; behind the first one: %.0f steps, waits for data %s, of them for reads %s",
                  mr_say_bytes(a, node_bytes(f)), mr_say_bytes(a, f->dataset_bytes),
                  mr_say_bytes(a, mr_known_or(f->memory_free_bytes, f->memory_bytes)),
                  mr_say_bytes(a, f->local_free_bytes), mr_known_or(f->epochs, 1), l->steps, mr_say_s(a, l->stall_s),
                  mr_say_s(a, l->read_s));
}

/* Common to all tiers: is there anything to gain? */
#define READS_LEAST 0.01 /* of the run: less that reading takes is nothing to cache for */

static bool reads_cost(struct mr_advice *a)
{
    const struct mr_explain_facts *f = a->f;
    if (!f->has_steps)
        return mr_silent(a, "no training steps in the trace");
    if (mr_known(f->from[0]))
        return mr_silent(a, "the run has tiers: %s of its samples came from the source",
                         mr_say_share(a, f->from[MR_ARRAY_LEN(f->from) - 1]));
    if (!mr_known(f->dataset_bytes) || !(f->read_bytes > 0))
        return mr_silent(a, "how large the data set is cannot be seen");
    bool costs =
        a->read_s >= READS_LEAST * a->run_s || a->late_s >= READS_LEAST * a->run_s || mr_io_share(a) >= READS_LEAST;
    if (!mr_reads_matter(a) || !costs)
        return mr_silent(a, "reading takes %s of the run", mr_say_share(a, mr_io_share(a)));
    return true;
}

static void set_tier(struct mr_advice *a, struct mr_draft *d, const struct later *l, double rate, const char *tier)
{
    d->f.potential = !a->starved || l->steps < 1;
    d->f.evidence = evidence(a, l);
    if (predict_tier(a, d, rate, a->x->counted_to ? 0 : 1)) { /* of counted steps: staged before the first one */
        d->f.formula = mr_replay_formula(a, mr_say(a, "reads from %s behind the first epoch", tier));
    } else {
        d->f.saves_s = l->read_s;
        d->f.saves_low_s = 0.5 * l->read_s;
        d->f.saves_high_s = fmax(l->read_s, l->stall_s);
        d->f.formula = mr_say(a, "not replayed (loads are not in the trace): waits for reads behind the first epoch %s",
                              mr_say_s(a, l->read_s));
    }
    if (l->steps < 1) {
        bool one = a->f->epochs < 1.5 && !(a->f->reread_ratio > 1.2 * fmax(1, (double)a->x->ranks));
        d->f.title = mr_say(a,
                            one ? "%s; only one epoch ran, so nothing to gain in this run"
                                : "%s; which steps read them again is not in the trace",
                            d->f.title);
        d->f.saves_s = 0;
    }
}

bool mr_rule_ca1(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_facts *f = a->f;
    const struct mr_explain_file *hot = NULL;
    if (!reads_cost(a))
        return false;
    double memory = memory_of(f);
    if (!mr_known(memory))
        return mr_silent(a, "the memory of the node is not known");
    for (size_t i = 0; i < a->x->files; i++) {
        const struct mr_explain_file *x = &a->x->file[i];
        double size = x->unique_bytes != MR_TIME_UNKNOWN ? (double)x->unique_bytes : (double)x->size;
        if (x->own_log ||
            (x->path && strstr(x->path, ":/"))) /* an object of an HDF5 file, whose reads are those of the file */
            continue;
        if (size > 0 && (double)x->size <= 0.1 * memory && (double)x->read_bytes >= 2 * size &&
            (double)x->read_bytes >= 0.1 * f->read_bytes && (!hot || x->read_bytes > hot->read_bytes))
            hot = x;
    }
    if (!hot)
        return mr_silent(a, "no small file has a good part of the reads and is read more than once");
    double size = hot->unique_bytes != MR_TIME_UNKNOWN ? (double)hot->unique_bytes : (double)hot->size;
    double share = (double)hot->read_bytes / fmax(f->read_bytes, 1), again = 1 - size / (double)hot->read_bytes;
    double calls = (double)hot->dur_ns / 1e9;
    if (hot->dur_ns && calls < 0.02 * a->read_s)
        return mr_silent(a, "all calls on the one that is read most took %s: not what was waited for",
                         mr_say_s(a, calls));
    d->f.saves_s = a->read_s * fmin(1, share) * again;
    if (hot->dur_ns)
        d->f.saves_s = fmin(d->f.saves_s, calls);
    d->f.saves_low_s = 0.7 * d->f.saves_s;
    d->f.saves_high_s = fmin(a->read_s, 1.15 * d->f.saves_s);
    d->f.confidence = 0.8;
    d->f.potential = !a->starved;
    d->f.title = mr_say(a, "one file of %s is read %.1f times over; it fits into memory",
                        mr_say_bytes(a, (double)hot->size), (double)hot->read_bytes / size);
    d->f.fix = "read it once into memory (HDF5: the core driver), or stage it into /dev/shm before the run";
    d->f.evidence =
        mr_say(a, "%s of %s read bytes from '%s', %llu reads by %u ranks", mr_say_bytes(a, (double)hot->read_bytes),
               mr_say_bytes(a, f->read_bytes), hot->path ? hot->path : "?", (unsigned long long)hot->reads, hot->ranks);
    d->f.formula = mr_say(a, "waits for reads %s x the file's share %s x what is read again %s", mr_say_s(a, a->read_s),
                          mr_say_share(a, fmin(1, share)), mr_say_share(a, again));
    mr_change_to_memory(a, d);
    mr_change_code(a, d, MR_IDIOM_PYTORCH,
                   mr_if_format(a, "hdf5", "h5py.File(path, 'r', driver='core', backing_store=False)"));
    mr_change_storage(a, d, MR_TARGET_FILES, "cp DATA /dev/shm/ && export DATA=/dev/shm/...");
    return true;
}

bool mr_rule_ca2(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_facts *f = a->f;
    if (!reads_cost(a))
        return false;
    double memory = memory_of(f), bytes = node_bytes(f);
    struct later l = later_epochs(a->x);
    if (!mr_known(memory))
        return mr_silent(a, "the memory of the node is not known");
    if (bytes > memory)
        return mr_silent(a, "a node reads %s in an epoch, %s of memory could hold them", mr_say_bytes(a, bytes),
                         mr_say_bytes(a, memory));
    d->f.title = mr_say(a, "a node's %s of an epoch fit into its memory, and are read from storage in every epoch",
                        mr_say_bytes(a, bytes));
    d->f.fix = "keep the data in memory after the first epoch, or stage them into memory before";
    d->f.confidence = 0.85;
    d->weight = a->own ? 1 : 0.7; /* where nothing but a copy does it: behind an argument of the loader */
    set_tier(a, d, &l, MR_RAM_RATE, "memory");
    double staging = a->x->counted_to ? 0 : staging_s(a); /* of counted steps: apart, because it is in none of them */
    if (mr_known(staging) && l.steps >= 1 && predict_tier(a, d, MR_RAM_RATE, 0)) {
        if (a->starved && d->f.saves_s - staging < 0.01 * a->run_s)
            return mr_silent(a, "reading everything first takes %s, as long as it saves", mr_say_s(a, staging));
        d->f.formula = mr_say(a, "%s; reading everything once before the first step: %s",
                              mr_replay_formula(a, "all reads from memory"), mr_say_s(a, staging));
        d->f.saves_s -= staging;
        d->f.saves_low_s -= (1 + STAGING_ERROR) * staging;
        d->f.saves_high_s -= (1 - STAGING_ERROR) * staging;
    }
    mr_change_to_memory(a, d);
    mr_change_code(a, d, MR_IDIOM_PYTORCH,
                   "# keep decoded samples in the data set object, or copy the files to /dev/shm first");
    mr_change_argument(a, d, MR_TARGET_DATASET, "cache", NULL, "memory");
    mr_change_storage(a, d, MR_TARGET_FILES, copy_to_memory(a));
    return true;
}

/* Our loader reads folders of pictures as torch's does, and fills a folder on the disk while it trains. */
static bool ours_tiers(const struct mr_advice *a)
{
    return mr_has_pictures(a->x) && a->f->framework && !strcmp(a->f->framework, "pytorch") && !a->f->no_loader;
}

bool mr_rule_ca3(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_facts *f = a->f;
    if (!reads_cost(a))
        return false;
    double bytes = node_bytes(f), room = SSD_PART * f->local_free_bytes;
    struct later l = later_epochs(a->x);
    if (!mr_known(room))
        return mr_silent(a, "no local disk of the node is known");
    if (bytes > room)
        return mr_silent(a, "a node reads %s in an epoch, %s are free on its disk", mr_say_bytes(a, bytes),
                         mr_say_bytes(a, room));
    d->f.title = mr_say(a, "a node's %s of an epoch fit onto its local disk", mr_say_bytes(a, bytes));
    d->f.fix = "stage in the background during the first epoch, then read locally; a random order is cheap there";
    d->f.confidence = 0.6;
    d->weight = 0.6; /* memory, where it fits, is the better place */
    set_tier(a, d, &l, MR_SSD_RATE, "a local disk");
    double gib = ceil(1.1 * bytes / (double)MR_GIB);
    mr_change_option(a, d, "reader.tiers", NULL, mr_say(a, "ssd=/tmp/cache:%.0fGiB", gib));
    mr_change_code(a, d, MR_IDIOM_PYTORCH,
                   ours_tiers(a) ? mr_say(a,
                                          "from millrace.torch import DataLoader    # the same arguments, and tiers\n"
                                          "loader = DataLoader(..., tiers='ssd=/tmp/cache:%.0fGiB')",
                                          gib)
                                 : "root = '/local/data'    # copied by the first lines of the job script");
    mr_change_argument(a, d, MR_TARGET_DATASET, "cache", NULL, "/local/cache");
    mr_change_storage(a, d, MR_TARGET_FILES, "rsync -a DATA/ /local/data/");
    return true;
}

bool mr_rule_ca4(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_facts *f = a->f;
    if (!reads_cost(a))
        return false;
    double data = distinct_bytes(f), nodes = nodes_of(f),
           memory = nodes * (memory_of(f) + mr_known_or(SSD_PART * f->local_free_bytes, 0));
    if (nodes < 2)
        return mr_silent(a, "one node");
    if (!mr_known(memory) || data > memory)
        return mr_silent(a, "the data set has %s, all nodes together could hold %s", mr_say_bytes(a, data),
                         mr_say_bytes(a, memory));
    double again = 1 - fmin(1, data / f->read_bytes);
    if (again < 0.1)
        return mr_silent(a, "every byte is read from shared storage about once already");
    d->f.saves_s = a->read_s * again;
    d->f.saves_low_s = 0.5 * d->f.saves_s;
    d->f.saves_high_s = a->read_s;
    d->f.confidence = 0.6;
    d->weight = 0.8;
    d->f.potential = !a->starved;
    d->f.title = mr_say(a, "the data set's %s fit into %.0f nodes together; shared storage is read %.1f times over",
                        mr_say_bytes(a, data), nodes, f->read_bytes / data);
    d->f.fix = "a cache over all nodes with fetches between them: each byte leaves shared storage once";
    d->f.evidence = mr_say(a, "%s read, %s of them different; memory and disks of all nodes %s",
                           mr_say_bytes(a, f->read_bytes), mr_say_bytes(a, data), mr_say_bytes(a, memory));
    d->f.formula = mr_say(a, "waits for reads %s x (1 - data set / bytes read) %s", mr_say_s(a, a->read_s),
                          mr_say_share(a, again));
    mr_change_option(a, d, "reader.tiers", NULL, "auto");
    mr_change_option(a, d, "reader.peers", NULL, "on");
    mr_change_code(
        a, d, MR_IDIOM_PYTORCH,
        mr_if_format(a, "hdf5", "h5py.File(path, 'r', driver='core')    # or an in-memory store such as DDStore"));
    return true;
}

bool mr_rule_ca5(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_facts *f = a->f;
    if (!reads_cost(a))
        return false;
    double nodes = nodes_of(f), room = nodes * (memory_of(f) + mr_known_or(SSD_PART * f->local_free_bytes, 0));
    struct later l = later_epochs(a->x);
    if (!mr_known(room))
        return mr_silent(a, "memory and disks of the nodes are not known");
    if (f->dataset_bytes <= room)
        return mr_silent(a, "the data set fits (CA2, CA3, CA4)");
    if (l.steps < 1)
        return mr_silent(a, "one epoch: nothing is read again");
    double part = room / f->dataset_bytes;
    d->f.saves_s = l.read_s * part;
    d->f.saves_low_s = 0.3 * d->f.saves_s;
    d->f.saves_high_s = l.read_s;
    d->f.confidence = 0.5;
    d->weight = 0.8;
    d->f.potential = !a->starved;
    d->f.title = mr_say(a, "the data set (%s) is larger than memory and disks of all nodes (%s)",
                        mr_say_bytes(a, f->dataset_bytes), mr_say_bytes(a, room));
    d->f.fix = "hold what each node will need most often and soonest (clairvoyant placement); read the rest from "
               "shared storage";
    d->f.evidence = evidence(a, &l);
    d->f.formula = mr_say(a, "waits for reads behind the first epoch %s x the part that fits %s", mr_say_s(a, l.read_s),
                          mr_say_share(a, part));
    char word[4400];
    if (a->own && a->x->path)
        d->f.command = mr_say(a, "millrace sim --from %s --policy staging,nopfs,millrace",
                              mr_shell_word(a->x->path, word, sizeof word));
    return true;
}

/* ---- Lustre ---- */

static bool is_lustre(const struct mr_explain_facts *f)
{
    return f->device && strcmp(f->device, "lustre") == 0;
}

static double modal_read(const struct mr_explanation *x)
{
    return x->read_sizes.top ? (double)x->read_sizes.top_size[0] : NAN;
}

bool mr_rule_st1(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_facts *f = a->f;
    double req = modal_read(a->x);
    if (!is_lustre(f))
        return mr_silent(a, "the data are not on Lustre");
    if (!reads_cost(a))
        return false;
    if (!mr_known(f->stripe_bytes) || !mr_known(req))
        return mr_silent(a, "the stripes of the files are not known");
    if (f->stripe_bytes < 4 * req)
        return mr_silent(a, "stripes of %s, reads of %s", mr_say_bytes(a, f->stripe_bytes), mr_say_bytes(a, req));
    d->f.confidence = 0.3;
    d->f.potential = !a->starved;
    d->f.title =
        mr_say(a, "stripes of %s against reads of %s: one OST serves each burst (a guess: try it on 1 %% of the files)",
               mr_say_bytes(a, f->stripe_bytes), mr_say_bytes(a, req));
    d->f.fix = "try smaller stripes for big files, one stripe for small ones, and measure; the best layout is not "
               "known beforehand";
    d->f.evidence =
        mr_say(a, "stripe size %s, count %.0f, %s reads in flight", mr_say_bytes(a, f->stripe_bytes),
               mr_known_or(f->stripe_count, NAN), mr_known(f->in_flight) ? mr_say(a, "%.1f", f->in_flight) : "unknown");
    d->f.formula = "unknown beforehand: it depends on the load of the OSTs";
    mr_change_storage(
        a, d, MR_TARGET_FILES,
        "lfs setstripe -S 64K -c 1 try-a; lfs setstripe -S 1M -c 4 try-b; lfs setstripe -S 4M -c -1 try-c\n"
        "for to in try-a try-b try-c; do cp SAMPLE_FILES $to/; done    # then read each");
    return true;
}

bool mr_rule_st2(struct mr_advice *a, struct mr_draft *d)
{
    const struct mr_explain_facts *f = a->f;
    double largest = 0, readers = fmax(1, mr_known_or(f->ranks, 1));
    for (size_t i = 0; i < a->x->files; i++)
        largest = fmax(largest, (double)a->x->file[i].size);
    if (!is_lustre(f))
        return mr_silent(a, "the data are not on Lustre");
    if (!(f->stripe_count < 1.5))
        return mr_silent(a, "files have %.0f stripes", mr_known_or(f->stripe_count, NAN));
    if (largest < BIG_FILE || readers < 2)
        return mr_silent(a, "files of %s by %.0f ranks: one OST each is right", mr_say_bytes(a, largest), readers);
    d->f.confidence = 0.4;
    d->f.potential = !a->starved;
    if (a->starved) {
        d->f.saves_s = a->read_s * 0.5;
        d->f.saves_low_s = 0;
        d->f.saves_high_s = a->read_s * (1 - 1 / fmin(readers, 8));
    }
    d->f.title = mr_say(a, "files of %s on one OST each, %.0f ranks read", mr_say_bytes(a, largest), readers);
    d->f.fix = "more stripes for big files that several readers share";
    d->f.evidence = mr_say(a, "stripe count %.0f, largest file %s", f->stripe_count, mr_say_bytes(a, largest));
    d->f.formula = "at most x min(stripes, readers) on the waits for reads; half of them taken";
    mr_change_storage(a, d, MR_TARGET_FILES, "lfs setstripe -c 4 -S 1M NEW_FOLDER && cp FILES NEW_FOLDER/");
    return true;
}
