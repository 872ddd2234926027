/* `millrace order`: prints what a rank will read, one id per line, or proves for all ranks that nothing is read twice
 * or forgotten. Ids are formatted and written in large blocks past stdio: the order itself makes well over 10 million
 * ids a second, and printf would not. A closed pipe (`| head`) ends the command at once and without a message; main
 * gives the exit status for it. */
#include "cli/commands.h"
#include "cli/dataset_args.h"
#include "base/common.h"
#include "base/strbuf.h"
#include "order/order_check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IDS_PER_BLOCK 8192u
#define DIGITS_MAX 20u

struct order_options {
    int64_t samples, seed, epoch, rank, world, from, count, window, samples_per_file;
    const char *mode;
    bool drop_last, shuffle_each_epoch, check, json;
};

#define FIELD(name) .key = #name, .offset = offsetof(struct order_options, name)
static const struct mr_option order_options[] = {
    {FIELD(samples), .type = MR_OPT_INT, .def = "1", .min = 1, .max = 0x1p62, .short_flag = 'n',
     .flags = MR_OPTF_REQUIRED, .doc = "Samples in the data set.", .example = "--samples 1281167"},
    {FIELD(mode), .type = MR_OPT_STRING, .def = "auto", .short_flag = 'm',
     .doc = "How samples are ordered: auto (torch up to 100 million samples, cipher above), sequential, torch, cipher, "
            "shard, buffer(K) or file.",
     .example = "--mode 'buffer(10000)'"},
    {FIELD(seed), .type = MR_OPT_INT, .def = "0", .short_flag = 's', .doc = "Seed of the shuffle."},
    {FIELD(epoch), .type = MR_OPT_INT, .def = "0", .min = 0, .max = 0x1p62, .short_flag = 'e',
     .doc = "Epoch, counted from 0."},
    {FIELD(rank), .type = MR_OPT_INT, .def = "0", .min = 0, .max = 4294967294.0, .short_flag = 'r',
     .doc = "The rank whose samples are printed."},
    {FIELD(world), .type = MR_OPT_INT, .def = "1", .min = 1, .max = 4294967295.0, .short_flag = 'w',
     .doc = "How many ranks read together."},
    {FIELD(drop_last), .type = MR_OPT_BOOL, .def = "false",
     .doc = "Leaves out the samples that do not fill all ranks, instead of repeating some to fill them."},
    {FIELD(shuffle_each_epoch), .type = MR_OPT_BOOL, .def = "true",
     .doc = "Shuffles anew every epoch; without it every epoch has the order of epoch 0."},
    {FIELD(window), .type = MR_OPT_INT, .def = "0", .min = 0, .max = 0x1p40,
     .doc = "Mode buffer: samples in the shuffle buffer; the same as buffer(K)."},
    {FIELD(samples_per_file), .type = MR_OPT_INT, .def = "0", .min = 0, .max = 0x1p62,
     .doc = "Mode file: samples in each file; the last file may hold fewer."},
    {FIELD(from), .type = MR_OPT_INT, .def = "0", .min = 0, .max = 0x1.8p62,
     .doc = "Starts at this global position: the number of samples all ranks together have already read in the epoch."},
    {FIELD(count), .type = MR_OPT_INT, .def = "-1", .min = -1, .max = 0x1p62,
     .doc = "Prints at most this many ids; -1 prints the rest of the epoch."},
    {FIELD(check), .type = MR_OPT_BOOL, .def = "false",
     .doc = "Prints no ids but goes through the whole epoch of all ranks and says whether every sample is read once."},
    MR_ROW_JSON(offsetof(struct order_options, json), MR_DOC_JSON),
    MR_OPTION_END,
};

/* A block of text on its way to standard output. */
struct out {
    char *text;
    size_t len;
    bool closed; /* the reader went away */
    int code;
};

static void out_flush(struct out *o)
{
    size_t at = 0;
    while (at < o->len && !o->closed && !o->code) {
        ssize_t n = write(STDOUT_FILENO, o->text + at, o->len - at);
        if (n >= 0)
            at += (size_t)n;
        else if (errno == EPIPE)
            o->closed = true;
        else if (errno != EINTR)
            o->code = -errno;
    }
    o->len = 0;
}

static char *put_number(char *at, uint64_t v)
{
    static const char pairs[] =
        "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445464748495051525354"
        "555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";
    char digits[DIGITS_MAX], *d = digits + DIGITS_MAX;
    while (v >= 100) {
        d -= 2;
        memcpy(d, pairs + v % 100 * 2, 2);
        v /= 100;
    }
    if (v >= 10) {
        d -= 2;
        memcpy(d, pairs + v * 2, 2);
    } else {
        *--d = (char)('0' + v);
    }
    size_t n = (size_t)(digits + DIGITS_MAX - d);
    memcpy(at, d, n);
    return at + n;
}

static int print_ids(const struct mr_command_ctx *ctx, const struct mr_order *order, uint64_t count, char separator,
                     struct out *out)
{
    uint64_t ids[1024];
    for (uint64_t k = 0; k < count && !out->closed && !out->code;) {
        if (atomic_load(ctx->stop))
            break; /* main tells a signal from a closed pipe */
        size_t n = mr_order_get(order, k, ids, (size_t)MR_MIN(count - k, (uint64_t)MR_ARRAY_LEN(ids)));
        if (out->len + n * (DIGITS_MAX + 1) > IDS_PER_BLOCK * (DIGITS_MAX + 1))
            out_flush(out);
        char *at = out->text + out->len;
        for (size_t i = 0; i < n; i++) {
            at = put_number(at, ids[i]);
            *at++ = separator;
        }
        out->len = (size_t)(at - out->text);
        k += n;
        if (!n)
            return MR_E_INTERNAL;
    }
    return 0;
}

static void add_json_head(const struct order_options *o, const struct mr_order *order, uint64_t count, struct out *out)
{
    out->len +=
        (size_t)snprintf(out->text, IDS_PER_BLOCK,
                         "{\"schema\":\"millrace.order/1\",\"order_version\":%d,\"mode\":\"%s\",\"samples\":%" PRId64
                         ",\"seed\":%" PRId64 ",\"epoch\":%" PRId64 ",\"rank\":%" PRId64 ",\"world\":%" PRId64
                         ",\"drop_last\":%s,\"position\":%" PRId64 ",\"next_position\":%" PRIu64
                         ",\"left_per_rank\":%" PRIu64 ",\"ids\":[",
                         MR_ORDER_VERSION, mr_order_mode_name(mr_order_mode_of(order)), o->samples, o->seed, o->epoch,
                         o->rank, o->world, o->drop_last ? "true" : "false", o->from,
                         (uint64_t)o->from + count * (uint64_t)o->world, mr_order_rank_len(order));
}

static int print_rank(const struct mr_command_ctx *ctx, const struct mr_order *order, struct mr_error *err)
{
    const struct order_options *o = ctx->options;
    uint64_t count = mr_order_rank_len(order);
    if (o->count >= 0)
        count = MR_MIN(count, (uint64_t)o->count);
    struct out out = {.text = malloc((IDS_PER_BLOCK + 2) * (DIGITS_MAX + 1))};
    if (!out.text)
        return mr_error_set(err, -ENOMEM, "cannot print an order");
    fflush(stdout);
    if (o->json)
        add_json_head(o, order, count, &out);
    int code = print_ids(ctx, order, count, o->json ? ',' : '\n', &out);
    if (o->json) {
        out.len -= out.len && out.text[out.len - 1] == ','; /* the block is never flushed empty after ids */
        memcpy(out.text + out.len, "]}\n", 3);
        out.len += 3;
    }
    out_flush(&out);
    free(out.text);
    if (code)
        return mr_error_plain(err, code, "the order ended before its length");
    return out.code ? mr_error_set(err, out.code, "cannot write to standard output") : 0;
}

static void print_verdict(const struct order_options *o, const struct mr_order *order, const struct mr_order_check *v)
{
    const char *mode = mr_order_mode_name(mr_order_mode_of(order));
    if (o->json)
        printf("{\"schema\":\"millrace.order_check/1\",\"ok\":%s,\"mode\":\"%s\",\"samples\":%" PRId64
               ",\"world\":%" PRId64 ",\"drop_last\":%s,\"left_per_rank\":%" PRIu64 ",\"read\":%" PRIu64
               ",\"repeated\":%" PRIu64 ",\"left_out\":%" PRIu64 ",\"outside\":%" PRIu64 "}\n",
               v->is_permutation ? "true" : "false", mode, o->samples, o->world, o->drop_last ? "true" : "false",
               mr_order_rank_len(order), v->read, v->repeated, v->left_out, v->outside);
    else
        printf("%s: mode %s, %" PRId64 " %s, %" PRId64 " %s %" PRIu64 " each: %" PRIu64
               " read twice (padding), %" PRIu64 " left out (drop-last), %" PRIu64 " outside the data set\n",
               v->is_permutation ? "permutation" : "NOT a permutation", mode, o->samples,
               mr_plural((uint64_t)o->samples, "sample", "samples"), o->world,
               mr_plural((uint64_t)o->world, "rank reads", "ranks read"), mr_order_rank_len(order), v->repeated,
               v->left_out, v->outside);
}

static int check_all(const struct mr_command_ctx *ctx, const struct mr_order *order, const struct mr_order_params *p,
                     struct mr_error *err)
{
    struct mr_order_check v;
    int rc = mr_order_check(order, p, ctx->stop, &v, err);
    if (rc)
        return rc;
    print_verdict(ctx->options, order, &v);
    return v.is_permutation ? 0 : mr_error_plain(err, MR_E_BUDGET, "the ranks' samples are not a permutation");
}

/* An option that another option makes meaningless is an error, never silence. */
static int check_options(const struct order_options *o, enum mr_order_mode mode, uint64_t window, struct mr_error *err)
{
    if (o->window && (mode != MR_ORDER_BUFFER || window))
        return mr_error_plain(err, MR_E_USAGE,
                              mode == MR_ORDER_BUFFER
                                  ? "'--window' and the number in 'buffer(K)' say the same thing twice"
                                  : "'--window' only has a meaning with '--mode buffer'");
    if (o->samples_per_file && mode != MR_ORDER_FILE)
        return mr_error_plain(err, MR_E_USAGE, "'--samples-per-file' only has a meaning with '--mode file'");
    if (o->check && (o->from || o->count >= 0))
        return mr_error_plain(err, MR_E_USAGE,
                              "'--check' goes through a whole epoch: it takes no '--from' and no '--count'");
    return 0;
}

static int order_run(struct mr_command_ctx *ctx, struct mr_error *err)
{
    const struct order_options *o = ctx->options;
    struct mr_order_params p = {.samples = (uint64_t)o->samples,
                                .seed = (uint64_t)o->seed,
                                .epoch = (uint64_t)o->epoch,
                                .rank = (uint32_t)o->rank,
                                .world = (uint32_t)o->world,
                                .drop_last = o->drop_last,
                                .shuffle_each_epoch = o->shuffle_each_epoch,
                                .samples_per_file = (uint64_t)o->samples_per_file};
    struct mr_order *order = NULL;
    int code = mr_order_mode_parse(o->mode, &p.mode, &p.window, err);
    if (!code)
        code = check_options(o, p.mode, p.window, err);
    if (code)
        return code;
    p.window = p.window ? p.window : (uint64_t)o->window;
    code = mr_order_create(&p, &order, err);
    if (!code && o->from)
        code = mr_order_seek(order, (uint64_t)o->from, err);
    if (!code)
        code = o->check ? check_all(ctx, order, &p, err) : print_rank(ctx, order, err);
    mr_order_free(order);
    return code;
}

const struct mr_command mr_cmd_order = {
    .name = "order",
    .synopsis = "--samples N [--mode M] [--seed S] [--epoch E] [--rank R --world W] [options]",
    .summary = "print which samples a rank reads, in order; prove that all ranks together read each once",
    .details = "The order is a pure function of seed, epoch, rank and world. Mode torch prints exactly what PyTorch's "
               "DistributedSampler(shuffle=True) yields.\n\n"
               "  millrace order --samples 1281167 --mode torch --seed 42 --epoch 3 --rank 2 --world 8 | head\n"
               "  millrace order --samples 1000000000 --mode cipher --world 64 --from 512000 --count 5\n"
               "  millrace order --samples 10007 --mode 'buffer(1000)' --world 7 --check\n",
    .table = {.section = "order",
              .doc = "Printing the access order.",
              .options = order_options,
              .struct_bytes = sizeof(struct order_options)},
    .run = order_run,
};
