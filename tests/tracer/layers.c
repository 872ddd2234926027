/* One program per layer, chosen at compile time; each prints what must be in the trace as "name count" lines. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(LAYER_URING)
#include <liburing.h>
#define READS 3000
int main(int argc, char **argv)
{
    struct io_uring ring;
    static char buf[32][512];
    int done = 0, sent = 0, fd = open(argv[argc - 1], O_RDONLY);
    if (io_uring_queue_init(32, &ring, 0) < 0)
        return 77;
    while (done < READS) {
        struct io_uring_cqe *cqe;
        unsigned head, n = 0;
        for (int k = 0; k < 16 && sent < READS; k++, sent++) {
            struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
            if (!sqe)
                break;
            io_uring_prep_read(sqe, fd, buf[sent % 32], 512, (sent % 8) * 512);
            sqe->user_data = sent % 5 ? (unsigned)sent : 1; /* some share a tag */
        }
        io_uring_submit_and_wait(&ring, 1);
        io_uring_for_each_cqe(&ring, head, cqe)
        {
            if (cqe->res != 512)
                return 1;
            n++;
        }
        io_uring_cq_advance(&ring, n);
        done += (int)n;
    }
    io_uring_queue_exit(&ring);
    printf("uring_read %d\n", READS);
    return 0;
}
#elif defined(LAYER_HDF5)
#include <hdf5.h>
int main(int argc, char **argv)
{
    static double data[1000];
    hsize_t dim = 1000;
    char name[4096];
    snprintf(name, sizeof(name), "%s.h5", argv[argc - 1]);
    hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), space = H5Screate_simple(1, &dim, NULL);
    hid_t set = H5Dcreate2(file, "/x", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    for (int i = 0; i < 3; i++)
        if (H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0 ||
            H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
            return 1;
    H5Dclose(set);
    /* The other ways to data and objects. */
    hsize_t rows = 10, at = 0;
    uint32_t mask;
    hid_t list = H5Pcreate(H5P_DATASET_CREATE), group = H5Gcreate2(file, "/g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Pset_chunk(list, 1, &rows);
    set = H5Dcreate2(group, "chunked", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, list, H5P_DEFAULT);
    if (H5Dwrite_chunk(set, H5P_DEFAULT, 0, &at, 80, data) < 0 || H5Dread_chunk(set, H5P_DEFAULT, &at, &mask, data) < 0)
        return 1;
    if (H5Ocopy(file, "/g/chunked", file, "copy", H5P_DEFAULT, H5P_DEFAULT) < 0 ||
        H5Oexists_by_name(file, "/g/chunked", H5P_DEFAULT) <= 0)
        return 1;
    H5Dclose(set);
    H5Gclose(group);
    H5Fclose(file);
    if (H5Fis_hdf5(name) <= 0)
        return 1;
    /* A failure leaves the library's error as it is, and prints no more than it does by itself. */
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    if (H5Dopen2(-1, "/none", H5P_DEFAULT) >= 0 || H5Eget_num(H5E_DEFAULT) == 0)
        return 1;
    printf("H5Fcreate 1\nH5Dwrite 3\nH5Dread 3\nH5Dwrite_chunk 1\nH5Dread_chunk 1\nH5Ocopy 1\nH5Oexists_by_name "
           "1\nH5Fis_hdf5 1\nH5Dopen2 1\nH5Dclose 2\nH5Fclose 1\n");
    return 0;
}
#elif defined(LAYER_MPI)
#include <mpi.h>
int main(int argc, char **argv)
{
    int rank, data[256] = {0};
    char name[4096];
    MPI_File file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(name, sizeof(name), "%s.mpi", argv[argc - 1]);
    MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    for (int i = 0; i < 10; i++)
        MPI_File_write_at(file, (rank * 10 + i) * (MPI_Offset)sizeof(data), data, 256, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_sync(file);
    MPI_File_read_at_all(file, rank * (MPI_Offset)sizeof(data), data, 256, MPI_INT, MPI_STATUS_IGNORE);
    if (rank == 0) /* 100 bytes before the end */
        MPI_File_read_at(file, 20 * (MPI_Offset)sizeof(data) - 100, data, 256, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
    if (rank == 0)
        printf("MPI_File_open 2\nMPI_File_write_at 20\nMPI_File_read_at_all 2\nMPI_File_read_at 1\nMPI_File_sync "
               "2\nMPI_File_close 2\n");
    MPI_Finalize();
    return 0;
}
#else
#include <millrace/dftracer.h>
int main(void)
{
    char path[4096];
    errno = 0;
    if (confstr(_CS_PATH, path, sizeof(path)) != strlen(path) + 1 || confstr(MILLRACE_FUNCTIONS_NAME, NULL, 0) ||
        errno != EINVAL)
        return 1; /* what the tracer answers there is not for others */
    DFTRACER_C_INIT(NULL, NULL, NULL);
    /* Also by the functions themselves, which without the tracer do nothing. */
    static struct millrace_site direct = {"train", "direct", 0, 0};
    const struct millrace_arg rank = {.key = "rank", .type = MILLRACE_INT, .value.i = 3};
    millrace_trace_stop();
    millrace_trace_instant(&direct, 0, 0); /* not recorded */
    millrace_trace_start();
    millrace_trace_span(&direct, millrace_trace_now(), &rank, 1);
    millrace_trace_span_named("train", "named here", millrace_trace_now(), &rank, 1);
    uint64_t before = millrace_trace_now(), until = millrace_trace_now();
    millrace_trace_span_between(&direct, before, until, &rank, 1);
    millrace_trace_span_between(&direct, until, 1, &rank, 1); /* ends before it begins: not recorded */
    millrace_trace_metadata(&rank, 1);
    if (millrace_trace_active() != (getenv("MILLRACE_SPOOL") != NULL))
        return 1;
    DFTRACER_C_FUNCTION_START();
    for (int i = 0; i < 7; i++) {
        MILLRACE_REGION_BEGIN(step, "train", "step");
        MILLRACE_REGION_INT(step, "step", i);
        MILLRACE_REGION_DOUBLE(step, "loss", 0.5);
        MILLRACE_REGION_TEXT(step, "tag", "a");
        if (access("/", R_OK) < 0)
            return 1;
        MILLRACE_REGION_END(step);
        MILLRACE_COUNTER("train", "queue", i);
        MILLRACE_INSTANT("train", "mark");
    }
    DFTRACER_C_REGION_START(named);
    DFTRACER_C_REGION_UPDATE_INT(named, "k", 1);
    DFTRACER_C_REGION_END(named);
    DFTRACER_C_FUNCTION_END();
    printf("direct 2\nnamed here 1\nmetadata 1\nstep 7\nqueue 7\nmark 7\nnamed 1\nmain 1\n");
    return 0;
}
#endif
