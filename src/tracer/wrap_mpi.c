/* MPI-IO through the profiling names (PMPI_...), without mpi.h: whether a handle is an int or a pointer, it travels in one
 * register, so every parameter is declared as one (W). Sizes come from the library's own MPI_Type_size. Works for Open MPI and
 * MPICH and their kin; a program without MPI never gets here. */
#include "tracer/wrap_libs.h"

typedef intptr_t W;

/* Handles are passed by value; the file of one is remembered when it is opened. */
static void put_mpi(uint64_t t0, uint64_t t1, unsigned call, W handle, uint64_t offset, int64_t result)
{
    uint32_t file = mr_handle_get((uint64_t)handle);
    if (file != MR_FILE_EXCLUDED)
        mr_put(t0, t1, call, file, 0, offset, result);
}

static int64_t bytes_of(void *self, W count, W type, int error)
{
    int (*type_size)(W, int *) = (int (*)(W, int *))mr_sibling(self, "PMPI_Type_size");
    int size = 0;
    if (error)
        return -EIO;
    if (!type_size || type_size(type, &size))
        return 0;
    return (int64_t)(int)count * size;
}

static void opened(uint64_t t0, uint64_t t1, W path, W handle_at, int error)
{
    uint32_t file = mr_path_id(AT_FDCWD, (const char *)path);
    W handle = error ? 0 : *(W *)handle_at;
    mr_handle_set((uint64_t)handle, file);
    put_mpi(t0, t1, CALL(MPI_File_open), handle, MR_NO_OFFSET, error ? -EIO : 0);
}

#define DATA(name, f, off, n, t) put_mpi(t0, t1, CALL(MPI_File_##name), f, (uint64_t)(off), bytes_of(self, n, t, (int)r))
#define DONE(name, f, off) put_mpi(t0, t1, CALL(MPI_File_##name), f, (uint64_t)(off), r ? -EIO : 0)

MR_LIBRARY(int, MPI_File_open, PMPI_File_open, (W c, W p, W m, W i, W f), (c, p, m, i, f), opened(t0, t1, p, f, r))
MR_SYMBOL(int, MPI_File_close, (W f))
{
    static struct mr_module_cache cache;
    int (*fn)(W);
    *(void **)&fn = mr_module_function(&cache, "PMPI_File_close", __builtin_return_address(0));
    W handle = mr_enter() ? *(W *)f : 0; /* the call clears it */
    uint64_t t0 = mr_stamp();
    int r = fn(f);
    if (mr_enter())
        put_mpi(t0, mr_stamp(), CALL(MPI_File_close), handle, MR_NO_OFFSET, r ? -EIO : 0);
    return r;
}
MR_LIBRARY(int, MPI_File_delete, PMPI_File_delete, (W p, W i), (p, i), mr_put_path(t0, t1, CALL(MPI_File_delete), CWD, (const char *)p, NONE, r ? -EIO : 0))
MR_LIBRARY(int, MPI_File_set_size, PMPI_File_set_size, (W f, W s), (f, s), DONE(set_size, f, s))
MR_LIBRARY(int, MPI_File_preallocate, PMPI_File_preallocate, (W f, W s), (f, s), DONE(preallocate, f, s))
MR_LIBRARY(int, MPI_File_get_size, PMPI_File_get_size, (W f, W s), (f, s), DONE(get_size, f, NONE))
MR_LIBRARY(int, MPI_File_set_view, PMPI_File_set_view, (W f, W d, W e, W t, W n, W i), (f, d, e, t, n, i), DONE(set_view, f, d))
MR_LIBRARY(int, MPI_File_seek, PMPI_File_seek, (W f, W o, W w), (f, o, w), DONE(seek, f, o))
MR_LIBRARY(int, MPI_File_seek_shared, PMPI_File_seek_shared, (W f, W o, W w), (f, o, w), DONE(seek_shared, f, o))
MR_LIBRARY(int, MPI_File_sync, PMPI_File_sync, (W f), (f), DONE(sync, f, NONE))

/* (file, buffer, count, type, status or request) */
#define AT_POINTER(name)                                                                                             \
    MR_LIBRARY(int, MPI_File_##name, PMPI_File_##name, (W f, W b, W n, W t, W s), (f, b, n, t, s), DATA(name, f, NONE, n, t))
/* (file, offset, buffer, count, type, status or request) */
#define AT_OFFSET(name)                                                                                              \
    MR_LIBRARY(int, MPI_File_##name, PMPI_File_##name, (W f, W o, W b, W n, W t, W s), (f, o, b, n, t, s), DATA(name, f, o, n, t))
/* the two halves of a split collective: the bytes belong to the first */
#define BEGINS(name)                                                                                                 \
    MR_LIBRARY(int, MPI_File_##name##_begin, PMPI_File_##name##_begin, (W f, W b, W n, W t), (f, b, n, t), DATA(name##_begin, f, NONE, n, t)) \
    MR_LIBRARY(int, MPI_File_##name##_end, PMPI_File_##name##_end, (W f, W b, W s), (f, b, s), DONE(name##_end, f, NONE))
#define BEGINS_AT(name)                                                                                              \
    MR_LIBRARY(int, MPI_File_##name##_begin, PMPI_File_##name##_begin, (W f, W o, W b, W n, W t), (f, o, b, n, t), DATA(name##_begin, f, o, n, t)) \
    MR_LIBRARY(int, MPI_File_##name##_end, PMPI_File_##name##_end, (W f, W b, W s), (f, b, s), DONE(name##_end, f, NONE))

AT_POINTER(read)
AT_POINTER(read_all)
AT_POINTER(read_shared)
AT_POINTER(read_ordered)
AT_POINTER(iread)
AT_POINTER(iread_shared)
AT_POINTER(iread_all)
AT_POINTER(write)
AT_POINTER(write_all)
AT_POINTER(write_shared)
AT_POINTER(write_ordered)
AT_POINTER(iwrite)
AT_POINTER(iwrite_shared)
AT_POINTER(iwrite_all)
AT_OFFSET(read_at)
AT_OFFSET(read_at_all)
AT_OFFSET(iread_at)
AT_OFFSET(iread_at_all)
AT_OFFSET(write_at)
AT_OFFSET(write_at_all)
AT_OFFSET(iwrite_at)
AT_OFFSET(iwrite_at_all)
BEGINS(read_all)
BEGINS(read_ordered)
BEGINS(write_all)
BEGINS(write_ordered)
BEGINS_AT(read_at_all)
BEGINS_AT(write_at_all)
