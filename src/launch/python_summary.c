/* The file `python` in the spool folder, one line per fact: "q" a Python interpreter began (by the preload
 * library), "y" it is instrumented, "mNAME" the module NAME was changed (both by python/millrace/trace/instrument.py).
 */
#include "launch/python_summary.h"
#include "base/common.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINES_BYTES ((size_t)4 * MR_MIB)

/* Names that people know, of the modules by which a library is recognised. */
static const struct {
    const char *module, *name;
} known[] = {{"torch.utils.data.dataloader", "PyTorch's DataLoader"},
             {"torch.serialization", "torch.save and load"},
             {"torchvision.transforms.transforms", "torchvision"},
             {"tensorflow.python.data.ops.iterator_ops", "tf.data"},
             {"grain._src.python.data_loader", "Grain"},
             {"PIL.Image", "PIL"},
             {"cv2", "OpenCV"},
             {"numpy", "NumPy"},
             {"h5py._hl.files", "h5py"}};

static char *read_told(const char *spool)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%.4000s/python", spool);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    char *text = fd >= 0 ? calloc(1, LINES_BYTES + 1) : NULL;
    size_t n = 0;
    for (ssize_t got; text && n < LINES_BYTES && (got = read(fd, text + n, LINES_BYTES - n)) > 0;)
        n += (size_t)got;
    if (fd >= 0)
        close(fd);
    unlink(path);
    return text;
}

static bool is_line(const char *at, const char *end, char letter, const char *name)
{
    size_t n = strlen(name);
    return end > at && *at == letter && (size_t)(end - at) == n + 1 && !memcmp(at + 1, name, n);
}

/* How many lines say this. */
static unsigned count(const char *text, char letter, const char *name)
{
    unsigned k = 0;
    for (const char *p = text, *end; *p; p = end + (*end != 0)) {
        end = p + strcspn(p, "\n");
        k += is_line(p, end, letter, name);
    }
    return k;
}

static void put_libraries(const char *text, char *out, size_t cap)
{
    size_t n = 0;
    out[0] = 0;
    for (size_t i = 0; i < MR_ARRAY_LEN(known); i++)
        if (count(text, 'm', known[i].module) && n < cap)
            n += (size_t)snprintf(out + n, cap - n, "%s%s", n ? ", " : "", known[i].name);
}

void mr_python_summary(const char *spool, int on, char *out, size_t cap)
{
    char libraries[256];
    char *text = read_told(spool);
    unsigned began = text ? count(text, 'q', "") : 0, instrumented = text ? count(text, 'y', "") : 0;
    out[0] = 0;
    if (text)
        put_libraries(text, libraries, sizeof(libraries));
    if (!began)
        ;
    else if (!on)
        snprintf(out, cap, "Python is not instrumented (--no-python)");
    else if (!instrumented)
        snprintf(out, cap, "Python is not instrumented: %s (it takes Python 3.8, and a program that opens a file)",
                 began == 1 ? "the interpreter did not take it" : "no interpreter took it");
    else {
        int n =
            snprintf(out, cap, "Python is instrumented: %s", libraries[0] ? libraries : "nothing known was imported");
        if (began > instrumented && n > 0 && (size_t)n < cap)
            snprintf(out + n, cap - (size_t)n, "; %u of %u interpreters are not", began - instrumented, began);
    }
    free(text);
}
