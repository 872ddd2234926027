/* Who started us, and where the MPI module lies. The only code of the libraries that reads the environment: there is no
 * other way for a launcher to tell a process that it is one of many. Values are only compared and counted. */
#include "comm/comm.h"
#include "base/common.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint32_t number_of(const char *variable)
{
    const char *text = getenv(variable);
    char *end;
    if (!text || *text < '0' || *text > '9')
        return 0;
    unsigned long v = strtoul(text, &end, 10);
    return *end == '\0' && v <= UINT32_MAX ? (uint32_t)v : 0;
}

uint32_t mr_comm_detect_launcher(const char **name)
{
    static const struct {
        const char *variable, *launcher;
    } sizes[] = {
        {"OMPI_COMM_WORLD_SIZE", "mpirun (Open MPI)"},
        {"PMI_SIZE", "mpirun (MPICH)"},
        {"MV2_COMM_WORLD_SIZE", "mpirun (MVAPICH)"},
        {"SLURM_STEP_NUM_TASKS", "srun"}, /* set in a step only, not in the batch script around it */
    };
    for (unsigned i = 0; i < MR_ARRAY_LEN(sizes); i++) {
        uint32_t n = number_of(sizes[i].variable);
        if (n && (strcmp(sizes[i].launcher, "srun") != 0 || n > 1)) {
            if (name)
                *name = sizes[i].launcher;
            return n;
        }
    }
    return 0;
}

uint32_t mr_comm_detect_rank(void)
{
    static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"};
    uint32_t rank = 0;
    for (unsigned i = 0; i < MR_ARRAY_LEN(ranks) && !rank; i++)
        rank = number_of(ranks[i]);
    return mr_comm_detect_launcher(NULL) > 1 ? rank : 0;
}

/* ---- which module ---- */

static bool is_set(const char *variable)
{
    return getenv(variable) != NULL;
}

/* The implementations in the order in which they may fit. What the launcher itself set decides; under srun the process
 * manager interface tells: PMI-1 and PMI-2 are MPICH's, PMIx is Open MPI's. Both may be configured otherwise, so the
 * other one is tried when the first is not there; that the ranks found each other is checked after joining. */
static void rank_kinds(const char *kinds[2])
{
    bool mpich = !is_set("OMPI_COMM_WORLD_SIZE") &&
                 (is_set("PMI_SIZE") || is_set("MV2_COMM_WORLD_SIZE") || is_set("PMI_FD") || is_set("PMI_RANK"));
    kinds[0] = mpich ? "mpich" : "openmpi";
    kinds[1] = mpich ? "openmpi" : "mpich";
}

/* Next to the program in a build or an installed tree. */
static const char *const places[] = {"../lib", "../lib/millrace", "../lib64/millrace",
                                     "../lib/x86_64-linux-gnu/millrace", "../lib/aarch64-linux-gnu/millrace"};

bool mr_comm_module_find(char *path, size_t cap)
{
    char exe[3072];
    const char *kinds[2];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0)
        return false;
    exe[n] = '\0';
    char *slash = strrchr(exe, '/');
    if (slash)
        *slash = '\0';
    rank_kinds(kinds);
    for (unsigned k = 0; k < 2; k++)
        for (unsigned i = 0; i < MR_ARRAY_LEN(places); i++) {
            snprintf(path, cap, "%s/%s/millrace_mpi_%s.so", exe, places[i], kinds[k]);
            if (access(path, R_OK) == 0)
                return true;
        }
    return false;
}

/* The names of the MPI libraries' files. The modules of a portable build are linked with none of them, since MPICH's
 * differs between systems; what is loaded here answers for their symbols. */
static const char *const openmpi_libraries[] = {"libmpi.so.40", "libmpi.so", NULL};
static const char *const mpich_libraries[] = {"libmpi.so.12", "libmpich.so.12", "libmpi.so", NULL};

static bool library_load(const char *module_path)
{
    bool mpich = strstr(module_path, "millrace_mpi_mpich") != NULL;
    for (const char *const *name = mpich ? mpich_libraries : openmpi_libraries; *name; name++)
        if (dlopen(*name, RTLD_NOW | RTLD_GLOBAL))
            return true;
    return false;
}

/* A module that is linked with its library loads at once; one that is not needs the library first.
 * Open MPI loads parts of itself later and they look for its symbols globally. Never unloaded: MPI cannot be. */
static void *module_load(const char *path)
{
    void *module = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    return module || !library_load(path) ? module : dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

int mr_comm_module_load(struct mr_comm **out, struct mr_error *err)
{
    char path[4096];
    if (!mr_comm_module_find(path, sizeof path)) {
        mr_error_plain(
            err, MR_E_UNSUPPORTED,
            "started by an MPI launcher, but no MPI module (millrace_mpi_openmpi.so, millrace_mpi_mpich.so) is next "
            "to this program");
        mr_error_hint(err, "build with an MPI compiler installed (mpicc), or run without mpirun and give --ranks N");
        return MR_E_UNSUPPORTED;
    }
    void *module = module_load(path);
    mr_comm_module_open_fn *open_fn = NULL;
    if (module)
        *(void **)&open_fn = dlsym(module, MR_COMM_MODULE_SYMBOL);
    if (!open_fn) {
        const char *why = dlerror();
        mr_error_plain(err, MR_E_UNSUPPORTED, "cannot load '%s': %s", path, why ? why : "symbol missing");
        mr_error_hint(err,
                      "put the library of the MPI that started this program on LD_LIBRARY_PATH (on clusters: 'module "
                      "load'), or give --ranks N without mpirun");
        return MR_E_UNSUPPORTED;
    }
    return open_fn(MR_COMM_ABI, out, err);
}
