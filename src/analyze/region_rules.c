/* The rules that tell what a span is: one row each, the first that matches wins. In patterns '*' is any text, also
 * none; everything else is itself. Names are those of PyTorch, TensorFlow, Grain, DLIO and DFTracer's taxonomy as they
 * come from our Python package and from DFTracer, and of our own programs (event/emit.h).
 *
 * A pattern that is too wide turns somebody's helper function into a step: prefer an exact name. */
#include "analyze/region_rules.h"
#include "base/common.h"

#include <string.h>

/* clang-format off */
static const struct {
    const char *category, *name;
    uint8_t set;
} set_rules[] = {
    {"*",         "*compute*",    MR_REGION_COMPUTE},
    {"compute",   "*",            MR_REGION_COMPUTE},
    {"*reader*",  "*",            MR_REGION_APP_IO},
    {"*loader*",  "*",            MR_REGION_APP_IO},
    {"io",        "*",            MR_REGION_APP_IO},
    {"*",         "*.io.*",       MR_REGION_APP_IO},
    {"data",      "*preprocess*", MR_REGION_NONE},
    {"data",      "*",            MR_REGION_APP_IO},
};

#define NO MR_REGION_NO_CAUSE
static const struct {
    const char *category, *name;
    uint8_t role, cause;
} role_rules[] = {
    /* our own loader and trainer, simulated ones, too */
    {"loader",      "wait",                 MR_ROLE_WAIT, NO},
    {"loader",      "batch ready",          MR_ROLE_BATCH_READY, NO},
    {"loader",      "row ready",            MR_ROLE_ROW_READY, NO},
    {"loader",      "fetch ram",            MR_ROLE_ROW, MR_REGION_MEMORY},
    {"loader",      "fetch peer",           MR_ROLE_ROW, MR_REGION_NETWORK},
    {"loader",      "fetch *",              MR_ROLE_ROW, MR_REGION_STORAGE},
    {"loader",      "decode",               MR_ROLE_ROW, MR_REGION_DECODE},
    {"loader",      "transform",            MR_ROLE_ROW, MR_REGION_TRANSFORM},
    {"loader",      "field",                MR_ROLE_FIELD, NO},
    {"train",       "open",                 MR_ROLE_OPEN, NO},
    {"train",       "step",                 MR_ROLE_OWN_STEP, NO},
    {"train",       "rank figures",         MR_ROLE_FIGURES, NO},
    {"train",       "epoch",                MR_ROLE_EPOCH, NO},
    {"train",       "copy",                 MR_ROLE_COPY, NO},
    {"train",       "barrier",              MR_ROLE_BARRIER, NO},
    {"train",       "evaluation",           MR_ROLE_EVALUATION, NO},
    {"train",       "optimizer.step",       MR_ROLE_OPTIMIZER, NO},
    {"train",       "backward",             MR_ROLE_BACKWARD, NO},
    {"train",       "forward",              MR_ROLE_FORWARD, NO},
    {"train",       "jit *",                MR_ROLE_JIT, NO},
    {"train",       "wait for device",      MR_ROLE_DEVICE, NO},
    {"checkpoint",  "snapshot",             MR_ROLE_NONE, NO},
    {"checkpoint",  "write",                MR_ROLE_SAVE_WRITE, NO},
    {"checkpoint",  "fsync",                MR_ROLE_SAVE_FSYNC, NO},
    {"checkpoint",  "rename",               MR_ROLE_NONE, NO},
    {"checkpoint",  "drain",                MR_ROLE_DRAIN, NO},
    {"checkpoint",  "drain piece",          MR_ROLE_NONE, NO}, /* parts of a drain, beside training */
    {"checkpoint",  "wait for drain",       MR_ROLE_DRAIN_WAIT, NO},
    {"checkpoint",  "*.wait_until_finished", MR_ROLE_DRAIN_WAIT, NO}, /* Orbax */
    /* PyTorch */
    {"data_loader", "DataLoader.next",      MR_ROLE_WAIT, NO},
    {"data_loader", "DataLoader.iter",      MR_ROLE_ITER, NO},
    {"data_loader", "DataLoader.end",       MR_ROLE_END, NO},
    {"data_loader", "DataLoader.shutdown",  MR_ROLE_SHUTDOWN, NO},
    {"data_loader", "DataLoader.fetch",     MR_ROLE_NONE, NO}, /* inside next */
    {"data_loader", "fetch",                MR_ROLE_FETCH, NO},
    {"data_loader", "collate",              MR_ROLE_PART, MR_REGION_QUEUE},
    {"data_loader", "pin_memory",           MR_ROLE_PART, MR_REGION_QUEUE},
    {"queue",       "Queue.get",            MR_ROLE_HANDOVER, NO},
    {"queue",       "multiprocessing.*.get", MR_ROLE_HANDOVER, NO},
    {"queue",       "Future.result",        MR_ROLE_HANDOVER, NO},
    {"queue",       "as_completed",         MR_ROLE_HANDOVER, NO},
    {"queue",       "wait",                 MR_ROLE_HANDOVER, NO},
    {"queue",       "ApplyResult.get",      MR_ROLE_HANDOVER, NO},
    {"queue",       "IMapIterator.next",    MR_ROLE_HANDOVER, NO},
    {"pool",        "task",                 MR_ROLE_TASK, NO},
    {"pool",        "ray task",             MR_ROLE_FAR_TASK, NO},
    {"queue",       "*",                    MR_ROLE_PART, MR_REGION_QUEUE},
    {"transform",   "*",                    MR_ROLE_PART, MR_REGION_TRANSFORM},
    {"decode",      "*",                    MR_ROLE_PART, MR_REGION_DECODE},
    {"copy",        "*",                    MR_ROLE_COPY, MR_REGION_COPY},
    {"barrier",     "*",                    MR_ROLE_BARRIER, NO},
    {"place",       "*",                    MR_ROLE_PLACE, NO},
    {"startup",     "machine",              MR_ROLE_MACHINE, NO},
    {"startup",     "init_process_group",   MR_ROLE_RANK, NO},
    {"startup",     "*",                    MR_ROLE_STARTUP, NO},
    {"accelerator", "idle",                 MR_ROLE_ACCELERATOR_IDLE, NO},
    {"accelerator", "collective",           MR_ROLE_ACCELERATOR_COLLECTIVE, NO},
    /* operators, kernels and stacks of torch.profiler: not named by the program, and no spans of a loader */
    {"cpu_op",      "*",                    MR_ROLE_INSIDE, NO},
    {"python_function", "*",                MR_ROLE_INSIDE, NO},
    {"cuda_runtime", "*",                   MR_ROLE_INSIDE, NO},
    {"cuda_driver", "*",                    MR_ROLE_INSIDE, NO},
    {"kernel",      "*",                    MR_ROLE_INSIDE, NO},
    {"gpu_*",       "*",                    MR_ROLE_INSIDE, NO},
    {"overhead",    "*",                    MR_ROLE_INSIDE, NO},
    /* TensorFlow, Grain */
    {"data_loader", "*Iterator.end",        MR_ROLE_END, NO},
    {"data_loader", "grain.DataLoader.end", MR_ROLE_END, NO},
    {"data_loader", "OwnedIterator.*next*", MR_ROLE_WAIT, NO},
    {"data_loader", "grain.element",        MR_ROLE_ITEM, NO},
    {"data_loader", "torchdata.element",    MR_ROLE_ITEM, NO},
    {"data_loader", "grain.DataLoader.next", MR_ROLE_WAIT, NO},
    {"data_loader", "*Iterator.next",       MR_ROLE_WAIT, NO},
    /* DLIO and DFTracer's taxonomy */
    {"*",           "*.compute",            MR_ROLE_COMPUTE_LOOP, NO},
    {"dataloader",  "fetch.block",          MR_ROLE_WAIT, NO},
    {"dataloader",  "fetch.iter",           MR_ROLE_WAIT, NO},
    {"data_loader", "TorchDataset.__getitem__", MR_ROLE_ITEM, NO},
    {"data_loader", "*.yield",              MR_ROLE_WAIT, NO},
    {"data_loader", "*DataLoader.next.iter", MR_ROLE_WAIT, NO},
    {"*",           "*.checkpoint",         MR_ROLE_SAVE, NO},
    {"*",           "*.save_checkpoint",    MR_ROLE_SAVE, NO},
    {"*",           "*.load_checkpoint",    MR_ROLE_RESTORE, NO},
    {"comm",        "*",                    MR_ROLE_BARRIER, NO},
    {"*",           "*.preprocess",         MR_ROLE_PART, MR_REGION_TRANSFORM},
    {"preprocess",  "*",                    MR_ROLE_PART, MR_REGION_TRANSFORM},
    /* checkpoints by any name */
    {"checkpoint",  "*load*",               MR_ROLE_RESTORE, NO},
    {"checkpoint",  "*restore*",            MR_ROLE_RESTORE, NO},
    {"checkpoint",  "*.read",               MR_ROLE_RESTORE, NO},
    {"checkpoint",  "*",                    MR_ROLE_SAVE, NO},
    /* annotated programs */
    {"compute",     "*",                    MR_ROLE_COMPUTE, NO},
    {"*",           "compute",              MR_ROLE_COMPUTE, NO},
    {"train",       "load",                 MR_ROLE_NONE, NO}, /* around our own loader's wait */
    {"data_stall",  "*",                    MR_ROLE_WAIT, NO},
    {"*",           "wait for batch",       MR_ROLE_WAIT, NO},
    {"data_loader", "*",                    MR_ROLE_INSIDE, NO},
    {"reader",      "numpy.save*",          MR_ROLE_NONE, NO}, /* these write */
    {"reader",      "h5py.Dataset.__setitem__", MR_ROLE_NONE, NO},
    {"reader",      "h5py.Dataset.write_direct", MR_ROLE_NONE, NO},
    {"reader",      "*",                    MR_ROLE_INSIDE, NO},
};
/* clang-format on */

/* Classic matching of '*': on a mismatch the last star takes one more character. */
static bool matches(const char *pattern, const char *text, size_t len)
{
    const char *star = NULL;
    size_t at = 0, again = 0;
    while (at < len) {
        if (*pattern == '*') {
            star = pattern++;
            again = at;
        } else if (*pattern && *pattern == text[at]) {
            pattern++;
            at++;
        } else if (star) {
            pattern = star + 1;
            at = ++again;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}

struct mr_region_class mr_region_classify(const char *category, size_t category_len, const char *name, size_t name_len)
{
    struct mr_region_class c = {0};
    for (size_t i = 0; i < MR_ARRAY_LEN(set_rules); i++)
        if (matches(set_rules[i].category, category, category_len) && matches(set_rules[i].name, name, name_len)) {
            c.set = set_rules[i].set;
            break;
        }
    for (size_t i = 0; i < MR_ARRAY_LEN(role_rules); i++)
        if (matches(role_rules[i].category, category, category_len) && matches(role_rules[i].name, name, name_len)) {
            c.role = role_rules[i].role;
            c.cause = role_rules[i].cause;
            break;
        }
    return c;
}
