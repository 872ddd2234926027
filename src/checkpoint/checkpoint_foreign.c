/* See the header. */
#include "checkpoint/checkpoint_foreign.h"

#include "base/common.h"

#include <string.h>

/* What lies in a folder says what it is; the first row of those that match counts. */
static const struct {
    const char *name;
    enum { IS, ENDS, FOLDER_BEGINS } how;
    const char *hint;
} signs[] = {
    {"checkpoint.json", IS, "this is one checkpoint: give the folder above it, and its step"},
    {"rank-", FOLDER_BEGINS,
     "this looks like a tier: give the folder behind it, with this one among `tiers`, or one of its rank-R"},
    {".metadata", IS,
     "it was saved by torch.distributed.checkpoint's own storage: dcp.load(state, checkpoint_id=...) reads it"},
    {".safetensors.index.json", ENDS, NULL},
    {".safetensors", ENDS,
     "it has safetensors files of another program (a Hugging Face model?): give the path of one, each is read alone"},
    {".pt", ENDS, NULL},
    {".pth", ENDS, NULL},
    {".ckpt", ENDS, NULL},
    {".bin", ENDS, "it has files of torch.save, as it seems: torch.load or millrace.torch.load reads one"},
};

static bool ends(const char *name, const char *with)
{
    size_t n = strlen(name), e = strlen(with);
    return n > e && strcmp(name + n - e, with) == 0;
}

static int note(void *user, const char *name, bool is_dir, struct mr_error *err)
{
    size_t *first = user;
    (void)err;
    for (size_t i = 0; i < *first; i++)
        if (signs[i].how == FOLDER_BEGINS ? is_dir && strncmp(name, signs[i].name, strlen(signs[i].name)) == 0
            : signs[i].how == ENDS        ? !is_dir && ends(name, signs[i].name)
                                          : !is_dir && strcmp(name, signs[i].name) == 0)
            *first = i;
    return 0;
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
    size_t sign = MR_ARRAY_LEN(signs);
    if (!err)
        return;
    if (s->ops->list(s, path, note, &sign, NULL) < 0)
        return hint_file(s, path, err);
    while (sign < MR_ARRAY_LEN(signs) && !signs[sign].hint) /* several signs of one kind: the last has its text */
        sign++;
    if (sign < MR_ARRAY_LEN(signs))
        mr_error_hint(err, "%s", signs[sign].hint);
}
