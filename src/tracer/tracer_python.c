/* Python programs instrument themselves: a Python interpreter finds our sitecustomize first, because PYTHONPATH is
 * changed before its main, in its own process only. Programs that are none keep their environment.
 *
 * An interpreter that does not look at PYTHONPATH (-I, -E) or has no sitecustomize (-S) is asked from inside: when it
 * opens a file and says that it is initialised, a few lines of Python are handed to Py_AddPendingCall, which has the
 * main thread run them between two instructions of the program. They do nothing, and are tried again at the next file,
 * until the program itself has begun: what Python imports for its own start must not be disturbed.
 *
 * What was done goes to the file `python` in the folder of the rings, a line each, for the command's last words
 * (src/launch/python_summary.c). */
#include "base/common.h"
#include "tracer/tracer_core.h"
#include "tracer/tracer_internal.h"
#include "tracer/tracer_sys.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

extern char **environ;

#define VARIABLE "PYTHONPATH="
#define AUTOLOAD "/millrace/trace/autoload"

/* Folders of Python sources, seen from the one that the library is in: where it was built, unpacked or installed; the
 * last one in a wheel, where it is in millrace/_home/lib. */
static const char *const places[] = {"/../python", "/../share/millrace/python", "/../../share/millrace/python",
                                     "/../../../share/millrace/python", "/../../.."};

static bool is_there(char folder[MR_PATH_BYTES], size_t n)
{
    mr_copy_text(folder + n, MR_PATH_BYTES - n, AUTOLOAD "/sitecustomize.py");
    bool there = mr_sys3(SYS_faccessat, AT_FDCWD, folder, R_OK) == 0;
    folder[n] = 0;
    return there;
}

static bool find_folder(char out[MR_PATH_BYTES])
{
    size_t folder = mr_library_path(out, MR_PATH_BYTES, NULL);
    while (folder && out[--folder] != '/') {
    }
    for (size_t i = 0; i < MR_ARRAY_LEN(places); i++) {
        size_t n = folder + strlen(places[i]);
        if (n + sizeof(AUTOLOAD "/sitecustomize.py") > MR_PATH_BYTES)
            continue;
        mr_copy_text(out + folder, MR_PATH_BYTES - folder, places[i]);
        if (is_there(out, n))
            return true;
    }
    return false;
}

/* Whether it is there already, by whatever path: put by the command, or by the program that started this one. */
static bool lists_autoload(const char *value)
{
    const size_t tail = sizeof(AUTOLOAD) - 1;
    for (const char *p = value; *p;) {
        size_t n = strcspn(p, ":");
        if (n > tail && !memcmp(p + n - tail, AUTOLOAD, tail))
            return true;
        p += n + (p[n] != 0);
    }
    return false;
}

/* The environment with "PYTHONPATH=<folder>/millrace/trace/autoload:<as before>". It stays: the program may keep
 * pointers to it. */
static void put_first(const char *folder, const char *before)
{
    size_t n = 0, k = 0, len = sizeof(VARIABLE) + strlen(folder) + sizeof(AUTOLOAD) + strlen(before) + 2;
    while (environ[n])
        n++;
    char **copy = mr_map_pages((n + 2) * sizeof(*copy) + len), *text = copy ? (char *)(copy + n + 2) : NULL;
    if (!copy)
        return;
    const char *const parts[] = {VARIABLE, folder, AUTOLOAD, *before ? ":" : "", before};
    for (size_t i = 0, at = 0; i < MR_ARRAY_LEN(parts); i++)
        at += mr_copy_text(text + at, len - at, parts[i]);
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], VARIABLE, sizeof(VARIABLE) - 1) != 0)
            copy[k++] = environ[i];
    copy[k++] = text;
    copy[k] = NULL;
    environ = copy;
}

/* ---- what is told at the end ---- */

MR_EXPORT void millrace_trace_python(const char *text);
void millrace_trace_python(const char *text)
{
    long fd = mr_config.collected ? mr_spool_open("python", O_WRONLY | O_CREAT | O_APPEND) : -1;
    if (fd < 0)
        return;
    const struct iovec line[] = {{(void *)text, strnlen(text, 200)}, {"\n", 1}};
    mr_write_quietly(fd, line, 2);
    mr_sys1(SYS_close, fd);
}

/* ---- interpreters that do not read PYTHONPATH ---- */

static int (*is_initialised)(void);
static int (*add_pending)(int (*)(void *), void *);
static int (*run_text)(const char *);
static void *(*sys_object)(const char *);
static char lines[MR_PATH_BYTES * 2 + 1024];

/* In the main thread, between two instructions. */
static int begin_inside(void *unused)
{
    (void)unused;
    run_text(lines);
    mr_core.python_waits = !sys_object("_millrace");
    return 0;
}

void mr_python_opened(void)
{
    if (mr_tls.vforked || !is_initialised())
        return;
    mr_core.python_waits = 0;
    if (add_pending(begin_inside, NULL) != 0)
        mr_core.python_waits = 1;
}

/* The outermost frame tells whether the program runs: it is the script, or runpy for -m. */
static void write_lines(const char *folder)
{
    static const char digits[] = "0123456789abcdef";
    size_t n = mr_copy_text(lines, sizeof(lines),
                            "exec(\"import sys\\nf=sys._getframe(1).f_back\\nwhile f and f.f_back:f=f.f_back\\n"
                            "if f and f.f_globals.get('__name__') in('__main__','runpy'):\\n sys._millrace=1\\n"
                            " sys.path.append(bytes.fromhex('");
    for (; *folder; folder++) {
        lines[n++] = digits[(uint8_t)*folder >> 4];
        lines[n++] = digits[*folder & 15];
    }
    mr_copy_text(lines + n, sizeof(lines) - n,
                 "').decode('utf-8','surrogateescape'))\\n try:\\n  from millrace.trace import instrument\\n"
                 "  instrument.install()\\n except Exception as e:\\n"
                 "  sys.stderr.write('millrace: no Python instrumentation: %s'%e+chr(10))\\n\",{})\n");
}

static void wait_inside(const char *folder)
{
    *(void **)&is_initialised = dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    *(void **)&add_pending = dlsym(RTLD_DEFAULT, "Py_AddPendingCall");
    *(void **)&run_text = dlsym(RTLD_DEFAULT, "PyRun_SimpleString");
    *(void **)&sys_object = dlsym(RTLD_DEFAULT, "PySys_GetObject");
    if (!is_initialised || !add_pending || !run_text || !sys_object)
        return;
    write_lines(folder);
    mr_core.python_waits = 1;
}

/* Whether Python's own options, which come before the script, -c and -m, have one of these letters. */
static bool ignores_environment(void)
{
    static char words[4096];
    uint32_t n = mr_read_small_file("/proc/self/cmdline", words, sizeof(words) - 1);
    words[n] = 0;
    for (size_t at = strlen(words) + 1; at < n && words[at] == '-'; at += strlen(words + at) + 1) {
        const char *w = words + at + 1;
        if (*w == '-' || !*w)
            continue; /* "--check-hash-based-pycs" takes another word, which begins with no dash: what follows is missed
                       */
        for (; *w; w++) {
            if (*w == 'I' || *w == 'E' || *w == 'S')
                return true;
            if (*w == 'c' || *w == 'm')
                return false;
            if (*w == 'W' || *w == 'X') { /* the rest of the word is its argument, or the next word */
                at += w[1] ? 0 : strlen(words + at) + 1;
                break;
            }
        }
    }
    return false;
}

/* CPython exports its interface, whether it is in a library or in the program; this name is of Python 3 only. */
static bool is_python(void)
{
    const char *name = program_invocation_short_name;
    return dlsym(RTLD_DEFAULT, "PyModule_Create2") || !strncmp(name, "pypy3", 5);
}

void mr_python_begin(bool on, bool asked_for)
{
    char folder[MR_PATH_BYTES];
    const char *before = "";
    if (!environ || !is_python())
        return;
    millrace_trace_python("q");
    if (!on || (dlsym(RTLD_DEFAULT, "PyModule_Create2") && !dlsym(RTLD_DEFAULT, "Py_InitializeFromConfig")))
        return; /* before 3.8 nothing would be recorded */
    for (char **e = environ; *e; e++)
        if (!strncmp(*e, VARIABLE, sizeof(VARIABLE) - 1))
            before = *e + sizeof(VARIABLE) - 1;
    if (!find_folder(folder)) {
        if (asked_for)
            mr_say_plain("MILLRACE_TRACE_PYTHON: the Python files are not where they belong beside the library; "
                         "Python programs are not instrumented");
        return;
    }
    if (ignores_environment())
        wait_inside(folder);
    else if (!lists_autoload(before))
        put_first(folder, before);
}
