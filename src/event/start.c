/* How a program was started. Of its environment a trace keeps what changes how a training runs or where it finds its
 * data; what may be a secret is never kept, whatever else it is. */
#include "event/start.h"
#include "base/common.h"

#include <string.h>

static const char *const kept_prefix[] = {
    "ACCELERATE_", "CUBLAS_", "CUDA_",         "CUDNN_",    "DATA",        "DS_",
    "FI_",         "GLOO_",   "GOMP_",         "HDF5_",     "HF_",         "HIP_",
    "JAX_",        "KMP_",    "LC_",           "MKL_",      "MPI",         "MPICH_",
    "NCCL_",       "NUMBA_",  "NUMEXPR_",      "OMPI_MCA_", "OMP_",        "OPENBLAS_",
    "PL_",         "PYTHON",  "PYTORCH_",      "ROCR_",     "SLURM_",      "TF_",
    "TOKENIZERS_", "TORCH",   "TRANSFORMERS_", "UCX_",      "WANDB_MODE=", "XDG_CACHE_HOME=",
    "XLA_"};
static const char *const kept_name[] = {"HOME=",
                                        "LANG=",
                                        "LD_LIBRARY_PATH=",
                                        "LOCAL_RANK=",
                                        "LOCAL_WORLD_SIZE=",
                                        "LOGNAME=",
                                        "MALLOC_ARENA_MAX=",
                                        "MASTER_ADDR=",
                                        "MASTER_PORT=",
                                        "NODE_RANK=",
                                        "PATH=",
                                        "RANK=",
                                        "SHELL=",
                                        "TMPDIR=",
                                        "TZ=",
                                        "USER=",
                                        "VIRTUAL_ENV=",
                                        "CONDA_PREFIX=",
                                        "WORLD_SIZE="};
static const char *const kept_end[] = {"_DIR", "_DIRS", "_ROOT", "_HOME", "_PATH", "_FOLDER", "_CACHE"};
static const char *const secret[] = {"KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL", "AUTH", "COOKIE", "SESSION"};
static const char *const launchers[] = {"mpirun",    "mpiexec",    "mpiexec.hydra", "orterun", "prterun",
                                        "prun",      "srun",       "jsrun",         "aprun",   "torchrun",
                                        "deepspeed", "accelerate", "horovodrun"};

static bool begins(const char *text, size_t len, const char *with)
{
    size_t n = strlen(with);
    return len >= n && !memcmp(text, with, n);
}

static bool has(const char *text, size_t len, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= len; i++)
        if (!memcmp(text + i, word, n))
            return true;
    return false;
}

static size_t word_len(const char *text, size_t len)
{
    const char *end = memchr(text, 0, len);
    return end ? (size_t)(end - text) : len;
}

/* By name, or a password in an address. */
static bool is_secret(const char *variable, size_t name, size_t len)
{
    for (size_t i = 0; i < MR_ARRAY_LEN(secret); i++)
        if (has(variable, name, secret[i]))
            return true;
    return has(variable, len, "://") && memchr(variable, '@', len);
}

static bool matters(const char *variable, size_t name, size_t len)
{
    for (size_t i = 0; i < MR_ARRAY_LEN(kept_prefix); i++)
        if (begins(variable, len, kept_prefix[i]))
            return true;
    for (size_t i = 0; i < MR_ARRAY_LEN(kept_name); i++)
        if (begins(variable, len, kept_name[i]))
            return true;
    for (size_t i = 0; i < MR_ARRAY_LEN(kept_end); i++) {
        size_t n = strlen(kept_end[i]);
        if (name > n && !memcmp(variable + name - n, kept_end[i], n))
            return true;
    }
    return false;
}

static bool is_among(const struct mr_start_text *all, const char *word, size_t len)
{
    for (size_t i = 0, n; i < all->len; i += n + 1) {
        n = word_len(all->text + i, all->len - i);
        if (n == len && !memcmp(all->text + i, word, n))
            return true;
    }
    return false;
}

/* "_" and SHLVL are the shell's own; ours come with the next trace anyway. */
static bool was_set(const struct mr_start_text *shell, const char *variable, size_t len)
{
    static const char *const no[] = {"_=", "SHLVL=", "PWD=", "OLDPWD=", "LD_PRELOAD=", "MILLRACE_"};
    for (size_t i = 0; i < MR_ARRAY_LEN(no); i++)
        if (begins(variable, len, no[i]))
            return false;
    return shell->text && !is_among(shell, variable, len);
}

static bool is_kept(const struct mr_start *s, const char *variable, size_t len)
{
    const char *equals = memchr(variable, '=', len);
    size_t name = equals ? (size_t)(equals - variable) : 0;
    if (!name || len > 16 * MR_KIB || is_secret(variable, name, len))
        return false;
    return matters(variable, name, len) || was_set(&s->shell, variable, len);
}

static bool is_launcher(const char *word, size_t len)
{
    for (size_t i = len; i > 0; i--)
        if (word[i - 1] == '/') {
            word += i;
            len -= i;
            break;
        }
    for (size_t i = 0; i < MR_ARRAY_LEN(launchers); i++)
        if (len == strlen(launchers[i]) && !memcmp(word, launchers[i], len))
            return true;
    return false;
}

/* The launcher itself, or the interpreter that runs it. */
int mr_start_launches(const char *words, size_t len)
{
    size_t first = word_len(words, len), at = first + 1;
    if (is_launcher(words, first))
        return 1;
    return at < len && is_launcher(words + at, word_len(words + at, len - at));
}

/* Kind, length and bytes; NULL: no room. */
static uint8_t *put(uint8_t *to, const uint8_t *end, unsigned kind, const char *text, size_t len)
{
    if ((size_t)(end - to) < len + 5)
        return NULL;
    to[0] = (uint8_t)kind;
    mr_store_le32(to + 1, (uint32_t)len);
    memcpy(to + 5, text, len);
    return to + 5 + len;
}

/* All words or none: half a command is another one. A NUL ends each but maybe the last. */
static uint8_t *put_words(uint8_t *to, const uint8_t *end, unsigned kind, const struct mr_start_text *t,
                          uint32_t *count)
{
    uint8_t *at = to;
    uint32_t n = 0;
    for (size_t i = 0, len; i < t->len; i += len + 1, n++) {
        len = word_len(t->text + i, t->len - i);
        at = put(at, end, kind, t->text + i, len);
        if (!at)
            return to;
    }
    *count += n;
    return at;
}

size_t mr_start_encode(const struct mr_start *s, uint8_t *out, size_t cap, uint32_t *count)
{
    const uint8_t *end = out + cap;
    const struct mr_start_text *e = &s->environment;
    uint8_t *to = out, *next = s->folder.text ? put(to, end, MR_START_FOLDER, s->folder.text, s->folder.len) : NULL;
    *count = next != NULL;
    to = next ? next : to;
    to = put_words(to, end, MR_START_WORD, &s->words, count);
    to = put_words(to, end, MR_START_LAUNCHER, &s->launcher, count);
    for (size_t i = 0, len; i < e->len; i += len + 1) {
        len = word_len(e->text + i, e->len - i);
        next = is_kept(s, e->text + i, len) ? put(to, end, MR_START_ENVIRONMENT, e->text + i, len) : NULL;
        *count += next != NULL;
        to = next ? next : to;
    }
    return (size_t)(to - out);
}

int mr_start_next(const uint8_t **at, const uint8_t *end, struct mr_start_entry *out)
{
    if (end - *at < 5)
        return 0;
    uint32_t len = mr_load_le32(*at + 1);
    if ((size_t)(end - *at) - 5 < len)
        return 0;
    *out = (struct mr_start_entry){.kind = **at, .text = (const char *)*at + 5, .len = len};
    *at += 5 + (size_t)len;
    return 1;
}
