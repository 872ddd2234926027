/* Trials of our own runs: the command that repeats the run, and the same with the finding's options, each with a results
 * folder of its own. Folders that the change names (a cache, a burst buffer) are new for each run, in the trial's folder;
 * checkpoints go beside those of the recorded run, which is the same storage. */
#include "loop/trial_internal.h"
#include "base/common.h"
#include "base/strbuf.h"
#include "conf/run_command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Folders that findings name for want of a better one (src/advise/rule_cache.c, rule_checkpoint.c). */
static const char *const examples[][2] = {{"/tmp/cache", "cache"}, {"/tmp/ckpt", "buffer"}};

static void put_replaced(struct mr_strbuf *s, const char *text, const char *what, const char *with)
{
    for (const char *at; (at = strstr(text, what)); text = at + strlen(what)) {
        mr_strbuf_add(s, text, (size_t)(at - text));
        mr_strbuf_puts(s, with);
    }
    mr_strbuf_puts(s, text);
}

static const char *with_own_folders(struct mr_trial *t, const char *words, const char *base)
{
    for (size_t i = 0; i < MR_ARRAY_LEN(examples) && words; i++) {
        struct mr_strbuf s = {0};
        char folder[PATH_MAX];
        snprintf(folder, sizeof folder, "%.4000s.%s", base, examples[i][1]);
        put_replaced(&s, words, examples[i][0], folder);
        words = s.failed ? NULL : mr_arena_strdup(&t->arena, s.text);
        mr_strbuf_done(&s);
    }
    return words;
}

/* The value of an option among words that a shell takes apart; false: it is not there, or in quotes. */
static bool value_of(const char *words, const char *option, char *out, size_t cap)
{
    const char *at = strstr(words, option);
    if (!at || (at != words && at[-1] != ' '))
        return false;
    at += strlen(option);
    size_t n = strcspn(at, " ");
    if (!n || n >= cap || strpbrk(at, "\"'") == at)
        return false;
    memcpy(out, at, n);
    out[n] = 0;
    return true;
}

/* Beside the recorded run's checkpoints: the same storage. The cleaner removes it. */
static int place_checkpoints(struct mr_trial *t, const char *words, char out[PATH_MAX], struct mr_error *err)
{
    char folder[PATH_MAX], whole[PATH_MAX], parent[PATH_MAX];
    *out = 0;
    if (!value_of(words, "--checkpoint-folder ", folder, sizeof folder) &&
        !value_of(words, "checkpoint.checkpoint_folder=", folder, sizeof folder))
        return 0;
    if (strstr(folder, "://"))
        return mr_error_plain(err, MR_E_UNSUPPORTED, "a trial cannot save into object storage ('%s')", folder);
    if (!realpath(folder, whole))
        return 0; /* it was removed: the run makes it anew, and it is nobody's */
    snprintf(parent, sizeof parent, "%s", whole);
    *strrchr(parent, '/') = 0;
    return mr_scratch_beside(&t->scratch, parent, out, err);
}

int mr_trial_own_command(struct mr_trial *t, const struct mr_trial_one *run, const char *base, char **argv,
                         struct mr_error *err)
{
    char self[PATH_MAX], saves[PATH_MAX], word[PATH_MAX + 16];
    const char *words = run->changed ? t->injection.words : t->x->facts.workload;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return mr_error_set(err, -errno, "cannot find this program");
    self[n] = 0;
    words = with_own_folders(t, words, base);
    int rc = words ? place_checkpoints(t, words, saves, err) : mr_error_set(err, -ENOMEM, "cannot run it again");
    if (rc)
        return rc;
    const char *out = mr_arena_strdup(&t->arena, mr_shell_word(run->trace, word, sizeof word));
    const char *more =
        mr_arena_printf(&t->arena, "--no-ceiling --no-probe --out %s%s%s", out ? out : "",
                        *saves ? " --checkpoint-folder " : "", *saves ? mr_shell_word(saves, word, sizeof word) : "");
    words = more ? mr_run_command_with(words, more, &t->arena) : NULL;
    argv[0] = mr_arena_strdup(&t->arena, "sh");
    argv[1] = mr_arena_strdup(&t->arena, "-c");
    argv[2] = mr_arena_printf(&t->arena, "exec \"$0\" -q run %s", words ? words : "");
    argv[3] = mr_arena_strdup(&t->arena, self);
    argv[4] = NULL;
    bool whole = out && words && argv[0] && argv[1] && argv[2] && argv[3];
    return whole ? 0 : mr_error_set(err, -ENOMEM, "cannot run it again");
}
