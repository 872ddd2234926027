/* MPI-IO through the profiling names (PMPI_...), without mpi.h: whether a handle is an int or a pointer, it travels in
 * one register, so every parameter is declared as one (W). Sizes come from the library's own MPI_Type_size. Works for
 * Open MPI and MPICH and their kin; a program without MPI never gets here. */
#include "tracer/wrap_libs.h"

typedef intptr_t W;

/* Fortran's functions call the profiling names directly (Open MPI): these are wrapped under both. Ours call the library
 * by pointer, so nothing is seen twice. */
#define MR_MPI(name, params, args, ...)                                                                                \
    MR_LIBRARY(int, MPI_File_##name, PMPI_File_##name, params, args, __VA_ARGS__)                                      \
    MR_ALIAS_OF(PMPI_File_##name, MPI_File_##name)
#define MR_ALIAS_OF(name, other) MR_ALIAS(name, other)

/* Handles are passed by value; the file of one is remembered when it is opened. */
static void put_mpi(uint64_t t0, uint64_t t1, unsigned call, W handle, uint64_t offset, int64_t result)
{
    uint32_t file = mr_handle_get((uint64_t)handle);
    if (file != MR_FILE_EXCLUDED)
        mr_put(t0, t1, call, file, 0, offset, result);
}

static int64_t bytes_of(void *self, int64_t count, W type, int error)
{
    int (*type_size)(W, int *) = (int (*)(W, int *))mr_sibling(self, "PMPI_Type_size");
    int size = 0;
    if (error)
        return -EIO;
    if (!type_size || type_size(type, &size))
        return 0;
    return count * size;
}

/* The library's status, or one of ours where the program does not want it (MPI_STATUS_IGNORE is NULL or 1): at the end
 * of a file fewer bytes are moved than were asked for, and only the status says so. */
#define STATUS(s) ((uintptr_t)(s) > 4096 ? (s) : (W)(uintptr_t)space)

static int64_t moved_by(void *self, int64_t count, W type, W status, int error)
{
    int (*get_count)(W, W, int *) = (int (*)(W, W, int *))mr_sibling(self, "PMPI_Get_count");
    int n = -1;
    if (!error && get_count && get_count(status, type, &n) == 0 && n >= 0 && n <= count)
        count = n;
    return bytes_of(self, count, type, error);
}

static void opened(uint64_t t0, uint64_t t1, W path, W handle_at, int error)
{
    uint32_t file = mr_path_id(AT_FDCWD, (const char *)path);
    W handle = error ? 0 : *(W *)handle_at;
    mr_handle_set((uint64_t)handle, file);
    put_mpi(t0, t1, CALL(MPI_File_open), handle, MR_NO_OFFSET, error ? -EIO : 0);
}

/* An int in a register has anything above it; a count of the `_c` spellings is 64 bits. */
#define DATA(name, f, off, n, t)                                                                                       \
    put_mpi(t0, t1, CALL(MPI_File_##name), f, (uint64_t)(off), bytes_of(self, n, t, (int)r))
#define DONE(name, f, off) put_mpi(t0, t1, CALL(MPI_File_##name), f, (uint64_t)(off), r ? -EIO : 0)

MR_MPI(open, (W c, W p, W m, W i, W f), (c, p, m, i, f), opened(t0, t1, p, f, r))
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
MR_ALIAS(PMPI_File_close, MPI_File_close)
MR_MPI(delete, (W p, W i), (p, i), mr_put_path(t0, t1, CALL(MPI_File_delete), CWD, (const char *)p, NONE, r ? -EIO : 0))
MR_MPI(set_size, (W f, W s), (f, s), DONE(set_size, f, s))
MR_MPI(preallocate, (W f, W s), (f, s), DONE(preallocate, f, s))
MR_MPI(get_size, (W f, W s), (f, s), DONE(get_size, f, NONE))
MR_MPI(set_view, (W f, W d, W e, W t, W n, W i), (f, d, e, t, n, i), DONE(set_view, f, d))
MR_MPI(seek, (W f, W o, W w), (f, o, w), DONE(seek, f, o))
MR_MPI(seek_shared, (W f, W o, W w), (f, o, w), DONE(seek_shared, f, o))
MR_MPI(sync, (W f), (f), DONE(sync, f, NONE))

MR_MPI(get_position, (W f, W o), (f, o), DONE(get_position, f, NONE))
MR_MPI(get_position_shared, (W f, W o), (f, o), DONE(get_position_shared, f, NONE))
MR_MPI(get_byte_offset, (W f, W o, W d), (f, o, d), DONE(get_byte_offset, f, o))
MR_MPI(get_view, (W f, W d, W e, W t, W n), (f, d, e, t, n), DONE(get_view, f, NONE))
MR_MPI(get_info, (W f, W i), (f, i), DONE(get_info, f, NONE))
MR_MPI(set_info, (W f, W i), (f, i), DONE(set_info, f, NONE))
MR_MPI(get_atomicity, (W f, W a), (f, a), DONE(get_atomicity, f, NONE))
MR_MPI(set_atomicity, (W f, W a), (f, a), DONE(set_atomicity, f, NONE))

/* (file, [offset,] buffer, count, type, status), done when the call returns; `_c` is the spelling with large counts. */
#define BLOCKING_AT_POINTER(name, as, count_t)                                                                         \
    MR_SYMBOL(int, MPI_File_##name, (W f, W b, W n, W t, W s))                                                         \
    {                                                                                                                  \
        static struct mr_module_cache cache;                                                                           \
        _Alignas(16) char space[256];                                                                                  \
        int (*fn)(W, W, W, W, W);                                                                                      \
        *(void **)&fn = mr_module_function(&cache, "PMPI_File_" #name, __builtin_return_address(0));                   \
        if (!mr_enter())                                                                                               \
            return fn(f, b, n, t, s);                                                                                  \
        W status = STATUS(s);                                                                                          \
        uint64_t t0 = mr_stamp();                                                                                      \
        int r = fn(f, b, n, t, status);                                                                                \
        uint64_t t1 = mr_stamp();                                                                                      \
        put_mpi(t0, t1, CALL(MPI_File_##as), f, NONE, moved_by(*(void **)&fn, (count_t)n, t, status, r));              \
        return r;                                                                                                      \
    }                                                                                                                  \
    MR_ALIAS_OF(PMPI_File_##name, MPI_File_##name)
#define BLOCKING_AT_OFFSET(name, as, count_t)                                                                          \
    MR_SYMBOL(int, MPI_File_##name, (W f, W o, W b, W n, W t, W s))                                                    \
    {                                                                                                                  \
        static struct mr_module_cache cache;                                                                           \
        _Alignas(16) char space[256];                                                                                  \
        int (*fn)(W, W, W, W, W, W);                                                                                   \
        *(void **)&fn = mr_module_function(&cache, "PMPI_File_" #name, __builtin_return_address(0));                   \
        if (!mr_enter())                                                                                               \
            return fn(f, o, b, n, t, s);                                                                               \
        W status = STATUS(s);                                                                                          \
        uint64_t t0 = mr_stamp();                                                                                      \
        int r = fn(f, o, b, n, t, status);                                                                             \
        uint64_t t1 = mr_stamp();                                                                                      \
        put_mpi(t0, t1, CALL(MPI_File_##as), f, (uint64_t)o, moved_by(*(void **)&fn, (count_t)n, t, status, r));       \
        return r;                                                                                                      \
    }                                                                                                                  \
    MR_ALIAS_OF(PMPI_File_##name, MPI_File_##name)

/* (file, buffer, count, type, request) */
#define AT_POINTER(name)                                                                                               \
    MR_MPI(name, (W f, W b, W n, W t, W s), (f, b, n, t, s), DATA(name, f, NONE, (int)n, t))                           \
    MR_MPI(name##_c, (W f, W b, W n, W t, W s), (f, b, n, t, s), DATA(name, f, NONE, n, t))
/* (file, offset, buffer, count, type, request) */
#define AT_OFFSET(name)                                                                                                \
    MR_MPI(name, (W f, W o, W b, W n, W t, W s), (f, o, b, n, t, s), DATA(name, f, o, (int)n, t))                      \
    MR_MPI(name##_c, (W f, W o, W b, W n, W t, W s), (f, o, b, n, t, s), DATA(name, f, o, n, t))
/* the two halves of a split collective: the bytes belong to the first */
#define BEGINS(name)                                                                                                   \
    MR_MPI(name##_begin, (W f, W b, W n, W t), (f, b, n, t), DATA(name##_begin, f, NONE, (int)n, t))                   \
    MR_MPI(name##_begin_c, (W f, W b, W n, W t), (f, b, n, t), DATA(name##_begin, f, NONE, n, t))                      \
    MR_MPI(name##_end, (W f, W b, W s), (f, b, s), DONE(name##_end, f, NONE))
#define BEGINS_AT(name)                                                                                                \
    MR_MPI(name##_begin, (W f, W o, W b, W n, W t), (f, o, b, n, t), DATA(name##_begin, f, o, (int)n, t))              \
    MR_MPI(name##_begin_c, (W f, W o, W b, W n, W t), (f, o, b, n, t), DATA(name##_begin, f, o, n, t))                 \
    MR_MPI(name##_end, (W f, W b, W s), (f, b, s), DONE(name##_end, f, NONE))

BLOCKING_AT_POINTER(read, read, int)
BLOCKING_AT_POINTER(read_c, read, int64_t)
BLOCKING_AT_POINTER(read_all, read_all, int)
BLOCKING_AT_POINTER(read_all_c, read_all, int64_t)
BLOCKING_AT_POINTER(read_shared, read_shared, int)
BLOCKING_AT_POINTER(read_shared_c, read_shared, int64_t)
BLOCKING_AT_POINTER(read_ordered, read_ordered, int)
BLOCKING_AT_POINTER(read_ordered_c, read_ordered, int64_t)
AT_POINTER(iread)
AT_POINTER(iread_shared)
AT_POINTER(iread_all)
BLOCKING_AT_POINTER(write, write, int)
BLOCKING_AT_POINTER(write_c, write, int64_t)
BLOCKING_AT_POINTER(write_all, write_all, int)
BLOCKING_AT_POINTER(write_all_c, write_all, int64_t)
BLOCKING_AT_POINTER(write_shared, write_shared, int)
BLOCKING_AT_POINTER(write_shared_c, write_shared, int64_t)
BLOCKING_AT_POINTER(write_ordered, write_ordered, int)
BLOCKING_AT_POINTER(write_ordered_c, write_ordered, int64_t)
AT_POINTER(iwrite)
AT_POINTER(iwrite_shared)
AT_POINTER(iwrite_all)
BLOCKING_AT_OFFSET(read_at, read_at, int)
BLOCKING_AT_OFFSET(read_at_c, read_at, int64_t)
BLOCKING_AT_OFFSET(read_at_all, read_at_all, int)
BLOCKING_AT_OFFSET(read_at_all_c, read_at_all, int64_t)
AT_OFFSET(iread_at)
AT_OFFSET(iread_at_all)
BLOCKING_AT_OFFSET(write_at, write_at, int)
BLOCKING_AT_OFFSET(write_at_c, write_at, int64_t)
BLOCKING_AT_OFFSET(write_at_all, write_at_all, int)
BLOCKING_AT_OFFSET(write_at_all_c, write_at_all, int64_t)
AT_OFFSET(iwrite_at)
AT_OFFSET(iwrite_at_all)
BEGINS(read_all)
BEGINS(read_ordered)
BEGINS(write_all)
BEGINS(write_ordered)
BEGINS_AT(read_at_all)
BEGINS_AT(write_at_all)
