/* See the header. */
#include "checkpoint/checkpoint_foreign.h"

#include <string.h>

enum { OURS_STEP = 1, OURS_TIER = 2, DCP = 4, INDEX = 8, TENSORS = 16, TORCH = 32 };

static bool ends(const char *name, const char *with)
{
    size_t n = strlen(name), e = strlen(with);
    return n > e && strcmp(name + n - e, with) == 0;
}

static int note(void *user, const char *name, bool is_dir, struct mr_error *err)
{
    unsigned *seen = user;
    (void)err;
    if (is_dir && strncmp(name, "rank-", 5) == 0)
        *seen |= OURS_TIER;
    if (is_dir)
        return 0;
    if (strcmp(name, "checkpoint.json") == 0)
        *seen |= OURS_STEP;
    else if (strcmp(name, ".metadata") == 0)
        *seen |= DCP;
    else if (ends(name, ".safetensors.index.json"))
        *seen |= INDEX;
    else if (ends(name, ".safetensors"))
        *seen |= TENSORS;
    else if (ends(name, ".pt") || ends(name, ".pth") || ends(name, ".ckpt") || ends(name, ".bin"))
        *seen |= TORCH;
    return 0;
}

static void hint_folder(unsigned seen, struct mr_error *err)
{
    if (seen & OURS_STEP)
        mr_error_hint(err, "this is one checkpoint: give the folder above it, and its step");
    else if (seen & OURS_TIER)
        mr_error_hint(err, "this looks like a tier: give the folder behind it, with this one among `tiers`, or one of "
                           "its rank-R");
    else if (seen & DCP)
        mr_error_hint(err, "it was saved by torch.distributed.checkpoint's own storage: dcp.load(state, "
                           "checkpoint_id=...) reads it");
    else if (seen & (INDEX | TENSORS))
        mr_error_hint(err, "it has safetensors files of another program (a Hugging Face model?): give the path of one, "
                           "each is read alone");
    else if (seen & TORCH)
        mr_error_hint(err, "it has files of torch.save, as it seems: torch.load or millrace.torch.load reads one");
}

static void hint_file(struct mr_store *s, const char *path, struct mr_error *err)
{
    struct mr_object *o;
    unsigned char head[2] = {0};
    if (mr_object_open(s, path, MR_OBJ_READ, &o, NULL))
        return;
    int rc = mr_object_read(o, head, sizeof head, 0, NULL);
    mr_object_close(o, NULL); /* opened for reading only */
    if (!rc && ((head[0] == 'P' && head[1] == 'K') || head[0] == 0x80))
        mr_error_hint(err, "it is a file of torch.save, as it seems: torch.load or millrace.torch.load reads it");
    else if (ends(path, ".safetensors"))
        mr_error_hint(
            err, "it is one file of tensors, which loads alone and has no checksums: 'millrace ckpt show' lists it");
    else
        mr_error_hint(err, "a file; checkpoints are kept in a folder, and a file of tensors ends in .safetensors");
}

void mr_checkpoint_hint_foreign(struct mr_store *s, const char *path, struct mr_error *err)
{
    unsigned seen = 0;
    if (!err)
        return;
    int rc = s->ops->list(s, path, note, &seen, NULL);
    if (rc < 0)
        hint_file(s, path, err);
    else
        hint_folder(seen, err);
}
