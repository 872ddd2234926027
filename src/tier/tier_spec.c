/* The text form of tiers, and what a machine has; see tier_spec.h. */
#include "tier/tier_spec.h"
#include "base/common.h"
#include "base/strbuf.h"
#include "conf/option.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STAGING_BYTES (64 * MR_MIB)
#define STAGING_SAMPLES 16u /* of the largest, for each rank */
#define STAGING_LEAST 2u
#define MARGIN_BYTES MR_GIB
#define MARGIN_SHARE 10u
#define STAGING_SHARE 8u /* of the machine's memory at most, unless that is too little */
#define HOLES_SHARE 20u  /* space.h: 5 % and 32 samples; of few large samples one may find no hole then */
#define HOLES_SAMPLES 32u
#define HOLES_MOST 8u
#define READERS_MAX 32u

static const char form[] = "e.g. 'ram=2GiB,ssd=/nvme/cache:100GiB,staging=64MiB', or 'auto'";

/* ---- reading ---- */

static int bad(struct mr_error *err, const char *part, const char *why)
{
    mr_error_plain(err, MR_E_CONFIG, "bad tiers: '%.200s' %s", part, why);
    mr_error_hint(err, "%s", form);
    return MR_E_CONFIG;
}

static int read_size(const char *part, const char *text, uint64_t *out, struct mr_error *err)
{
    uint64_t bytes;
    if (!*text)
        return bad(err, part, "has no size");
    int rc = mr_parse_bytes(text, &bytes);
    if (rc != 0)
        return bad(err, part, rc == -ERANGE ? "has a size out of range" : "does not end with a size such as 2GiB");
    if (bytes == 0)
        return bad(err, part, "has size 0: leave it out instead");
    if (bytes >> 56)
        return bad(err, part, "has a size out of range");
    *out = bytes;
    return 0;
}

static int read_ssd(const char *part, const char *value, struct mr_tier_spec *s, struct mr_error *err)
{
    const char *colon = strrchr(value, ':');
    size_t len = colon ? (size_t)(colon - value) : strlen(value);
    while (len > 1 && value[len - 1] == '/')
        len--;
    if (len == 0)
        return bad(err, part, "names no folder");
    if (!colon)
        return bad(err, part, "has no size: ssd=FOLDER:SIZE");
    if (s->n_ssds == MR_TIER_SSDS_MAX)
        return bad(err, part, "is one SSD folder too many (6 at most)");
    for (unsigned k = 0; k < s->n_ssds; k++)
        if (strlen(s->ssd[k].folder) == len && memcmp(s->ssd[k].folder, value, len) == 0)
            return bad(err, part, "names a folder twice");
    struct mr_tier_spec_ssd *ssd = &s->ssd[s->n_ssds];
    int rc = read_size(part, colon + 1, &ssd->capacity, err);
    if (rc != 0)
        return rc;
    ssd->folder = strndup(value, len);
    if (!ssd->folder)
        return mr_error_set(err, -ENOMEM, "cannot read the tiers");
    s->n_ssds++;
    return 0;
}

static int read_readers(const char *part, const char *value, struct mr_tier_spec *s, struct mr_error *err)
{
    char *end;
    if (s->readers)
        return bad(err, part, "stands there twice");
    unsigned long n = strtoul(value, &end, 10);
    if (*value < '0' || *value > '9' || *end || n < 1 || n > READERS_MAX)
        return bad(err, part, "is no number of threads from 1 to 32");
    s->readers = (unsigned)n;
    return 0;
}

static int read_part(const char *part, struct mr_tier_spec *s, struct mr_error *err)
{
    const char *equals = strchr(part, '=');
    size_t len = equals ? (size_t)(equals - part) : strlen(part);
    bool ram = len == 3 && memcmp(part, "ram", 3) == 0, staging = len == 7 && memcmp(part, "staging", 7) == 0;
    bool ssd = len == 3 && memcmp(part, "ssd", 3) == 0;
    bool readers = len == 7 && memcmp(part, "readers", 7) == 0;
    if (!ram && !staging && !ssd && !readers)
        return bad(err, part, "is not one of ram=SIZE, ssd=FOLDER:SIZE, staging=SIZE, readers=NUMBER");
    const char *value = equals ? equals + 1 : "";
    if (readers)
        return read_readers(part, value, s, err);
    if (ssd)
        return read_ssd(part, value, s, err);
    if (ram ? s->ram != 0 : s->staging != MR_TIER_AUTO)
        return bad(err, part, "stands there twice");
    if (ram && strcmp(value, "auto") == 0) {
        s->ram = MR_TIER_AUTO;
        return 0;
    }
    return read_size(part, value, ram ? &s->ram : &s->staging, err);
}

int mr_tier_spec_read(const char *text, struct mr_tier_spec *out, struct mr_error *err)
{
    struct mr_tier_spec s = {.staging = MR_TIER_AUTO};
    bool all_auto = !text || !*text || strcmp(text, "auto") == 0;
    char *copy = strdup(all_auto ? "ram=auto" : text), *rest = copy;
    int rc = copy ? 0 : mr_error_set(err, -ENOMEM, "cannot read the tiers");
    for (char *part; rc == 0 && (part = strsep(&rest, ",")) != NULL;)
        rc = read_part(part, &s, err);
    free(copy);
    if (rc != 0) {
        mr_tier_spec_done(&s);
        return rc;
    }
    *out = s;
    return 0;
}

void mr_tier_spec_done(struct mr_tier_spec *s)
{
    for (unsigned k = 0; k < s->n_ssds; k++)
        free(s->ssd[k].folder);
    s->n_ssds = 0;
}

/* ---- choosing ---- */

static uint64_t with_holes(uint64_t bytes, const struct mr_tier_need *need)
{
    return bytes + bytes / HOLES_SHARE + MR_MIN(HOLES_SAMPLES * need->largest, bytes / HOLES_MOST);
}

/* The most bytes b with with_holes(b) <= room. */
static uint64_t without_holes(uint64_t room, const struct mr_tier_need *need)
{
    uint64_t samples = HOLES_SAMPLES * need->largest;
    uint64_t all = room > samples ? (room - samples) / (HOLES_SHARE + 1) * HOLES_SHARE : 0;
    uint64_t few = room / (HOLES_SHARE * HOLES_MOST + HOLES_SHARE + HOLES_MOST) * HOLES_SHARE * HOLES_MOST;
    return MR_MAX(all, few);
}

uint64_t mr_tier_spec_memory(const struct mr_tier_spec *s, const struct mr_tier_need *need)
{
    return with_holes(s->ram + s->staging, need);
}

/* For the look-ahead of every rank. */
static int choose_staging(struct mr_tier_spec *s, const struct mr_tier_need *need, uint64_t memory,
                          struct mr_error *err)
{
    uint64_t ranks = MR_MAX(need->local_ranks, 1u), least = STAGING_LEAST * ranks * need->largest;
    char have[MR_HUMAN_LEN], want[MR_HUMAN_LEN];
    if (s->staging == MR_TIER_AUTO) {
        uint64_t most = MR_MAX(memory / STAGING_SHARE, least);
        s->staging = MR_MAX(STAGING_BYTES, MR_MIN(STAGING_SAMPLES * ranks * need->largest, most));
        s->staging_chosen = true;
    }
    if (s->staging >= least)
        return 0;
    mr_error_plain(err, MR_E_CONFIG, "staging of %s is too little: %u %s of samples up to %s bytes need %s",
                   mr_human_bytes((double)s->staging, have), (unsigned)ranks, mr_plural(ranks, "rank", "ranks"),
                   mr_human_count(need->largest, (char[MR_HUMAN_LEN]){0}), mr_human_bytes((double)least, want));
    mr_error_hint(err, "leave staging out, and it is chosen");
    return MR_E_CONFIG;
}

static int too_much(const struct mr_tier_spec *s, const struct mr_tier_need *need, uint64_t room, struct mr_error *err)
{
    char want[MR_HUMAN_LEN], have[MR_HUMAN_LEN];
    mr_error_plain(err, MR_E_CONFIG, "the tiers need %s of memory, and this machine has %s free%s",
                   mr_human_bytes((double)mr_tier_spec_memory(s, need), want), mr_human_bytes((double)room, have),
                   mr_cgroup_memory_limit() ? " (within the limit of its control group)" : "");
    mr_error_hint(err, "give less, or write ram=auto; SSDs take the rest: ssd=FOLDER:SIZE");
    return MR_E_CONFIG;
}

/* "80" for 80MiB is the usual slip. */
static int holds_none(const char *what, uint64_t bytes, const struct mr_tier_need *need, struct mr_error *err)
{
    char largest[MR_HUMAN_LEN];
    mr_error_plain(err, MR_E_CONFIG, "%s of %llu bytes holds no sample: the largest has %s bytes", what,
                   (unsigned long long)bytes, mr_human_count(need->largest, largest));
    if (bytes < 1024 * 1024)
        mr_error_hint(err, "did you mean %lluMiB?", (unsigned long long)bytes);
    else
        mr_error_hint(err, "give more, or leave it out");
    return MR_E_CONFIG;
}

static int check_sizes(const struct mr_tier_spec *s, const struct mr_tier_need *need, struct mr_error *err)
{
    if (s->ram && s->ram < need->largest)
        return holds_none("ram", s->ram, need, err);
    for (unsigned k = 0; k < s->n_ssds; k++)
        if (s->ssd[k].capacity < need->largest)
            return holds_none("an ssd folder", s->ssd[k].capacity, need, err);
    return 0;
}

int mr_tier_spec_choose(struct mr_tier_spec *s, const struct mr_tier_need *need, struct mr_machine_memory memory,
                        struct mr_error *err)
{
    if (need->largest >> 48 || need->set_bytes >> 60)
        return mr_error_plain(err, MR_E_LIMIT, "a data set with samples of %llu bytes is beyond what tiers hold",
                              (unsigned long long)need->largest);
    int rc = check_sizes(s, need, err);
    if (rc == 0)
        rc = choose_staging(s, need, memory.total_bytes, err);
    if (rc != 0)
        return rc;
    uint64_t margin = MR_MAX(memory.total_bytes / MARGIN_SHARE, MARGIN_BYTES);
    uint64_t room = memory.free_bytes > margin ? memory.free_bytes - margin : 0;
    if (s->ram == MR_TIER_AUTO) {
        uint64_t bytes = without_holes(room, need);
        s->ram = bytes >= s->staging + need->largest ? bytes - s->staging : 0;
        s->ram_chosen = true;
    }
    s->ram = MR_MIN(s->ram, need->set_bytes); /* it is reserved: more than the set would be lost for others */
    if (memory.free_bytes && mr_tier_spec_memory(s, need) > memory.free_bytes)
        return too_much(s, need, memory.free_bytes, err);
    return 0;
}

int mr_tier_spec_parse(const char *text, const struct mr_tier_need *need, struct mr_tier_spec *out,
                       struct mr_error *err)
{
    struct mr_tier_spec s;
    int rc = mr_tier_spec_read(text, &s, err);
    if (rc != 0)
        return rc;
    rc = mr_tier_spec_choose(&s, need, mr_machine_memory(), err);
    if (rc != 0) {
        mr_tier_spec_done(&s);
        return rc;
    }
    *out = s;
    return 0;
}

void mr_tier_spec_text(const struct mr_tier_spec *s, char *out, size_t cap)
{
    struct mr_strbuf b = {0};
    char size[MR_HUMAN_LEN];
    if (s->ram)
        mr_strbuf_printf(&b, "ram %s%s, ", mr_human_bytes((double)s->ram, size), s->ram_chosen ? " (chosen)" : "");
    for (unsigned k = 0; k < s->n_ssds; k++)
        mr_strbuf_printf(&b, "ssd %s %s, ", s->ssd[k].folder, mr_human_bytes((double)s->ssd[k].capacity, size));
    mr_strbuf_printf(&b, "staging %s%s", mr_human_bytes((double)s->staging, size),
                     s->staging_chosen ? " (chosen)" : "");
    if (s->readers)
        mr_strbuf_printf(&b, ", %u %s", s->readers, mr_plural(s->readers, "reader", "readers"));
    snprintf(out, cap, "%s", b.text ? b.text : "");
    mr_strbuf_done(&b);
}
