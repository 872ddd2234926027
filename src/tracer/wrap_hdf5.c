/* HDF5: files, datasets, objects. The reads and writes HDF5 does by POSIX calls appear below these events. Types are those of
 * every 1.10 to 1.14: hid_t is 64 bits. */
#include "tracer/wrap_libs.h"

#include <string.h>

typedef int64_t hid;
typedef const char *name_t;

static void put_hdf5(uint64_t t0, uint64_t t1, unsigned call, uint32_t file, int64_t result)
{
    if (file != MR_FILE_EXCLUDED)
        mr_put(t0, t1, call, file, 0, MR_NO_OFFSET, result);
}

static void opened_file(uint64_t t0, uint64_t t1, unsigned call, name_t path, hid id)
{
    uint32_t file = mr_path_id(AT_FDCWD, path);
    if (id >= 0)
        mr_handle_set((uint64_t)id, file);
    put_hdf5(t0, t1, call, file, id >= 0 ? 0 : -EIO);
}

/* A dataset goes by its own name; an absolute one inside the file. */
static void opened_object(uint64_t t0, uint64_t t1, unsigned call, name_t name, hid id)
{
    uint32_t file = name ? mr_string_id(MR_STR_PATH, name, strnlen(name, 4096)) : 0;
    if (id >= 0)
        mr_handle_set((uint64_t)id, file);
    put_hdf5(t0, t1, call, file, id >= 0 ? 0 : -EIO);
}

static void on_handle(uint64_t t0, uint64_t t1, unsigned call, hid id, int result)
{
    put_hdf5(t0, t1, call, mr_handle_get((uint64_t)id), result < 0 ? -EIO : 0);
}

/* Bytes a transfer moves in memory: selected elements times their size. */
static int64_t transfer_bytes(void *self, hid set, hid type, hid memory, hid file)
{
    int64_t (*points)(hid) = (int64_t(*)(hid))mr_sibling(self, "H5Sget_select_npoints");
    size_t (*size)(hid) = (size_t(*)(hid))mr_sibling(self, "H5Tget_size");
    hid (*space_of)(hid) = (hid(*)(hid))mr_sibling(self, "H5Dget_space");
    int (*close)(hid) = (int (*)(hid))mr_sibling(self, "H5Sclose");
    if (!points || !size || !space_of || !close)
        return 0;
    int64_t n = 0;
    if (memory || file) {
        n = points(memory ? memory : file);
    } else {
        hid space = space_of(set);
        n = space >= 0 ? points(space) : 0;
        if (space >= 0)
            close(space);
    }
    return n > 0 ? n * (int64_t)size(type) : 0;
}

static void transfer(uint64_t t0, uint64_t t1, unsigned call, void *self, hid set, hid type, hid memory, hid file, int result)
{
    int64_t bytes = result < 0 ? -EIO : transfer_bytes(self, set, type, memory, file);
    put_hdf5(t0, t1, call, mr_handle_get((uint64_t)set), bytes);
}

MR_LIBRARY(hid, H5Fopen, H5Fopen, (name_t p, unsigned f, hid a), (p, f, a), opened_file(t0, t1, CALL(H5Fopen), p, r))
MR_LIBRARY(hid, H5Fcreate, H5Fcreate, (name_t p, unsigned f, hid c, hid a), (p, f, c, a), opened_file(t0, t1, CALL(H5Fcreate), p, r))
MR_LIBRARY(int, H5Fclose, H5Fclose, (hid f), (f), on_handle(t0, t1, CALL(H5Fclose), f, r))
MR_LIBRARY(int, H5Fflush, H5Fflush, (hid f, int s), (f, s), on_handle(t0, t1, CALL(H5Fflush), f, r))
MR_LIBRARY(hid, H5Dopen1, H5Dopen1, (hid l, name_t n), (l, n), opened_object(t0, t1, CALL(H5Dopen1), n, r))
MR_LIBRARY(hid, H5Dopen2, H5Dopen2, (hid l, name_t n, hid a), (l, n, a), opened_object(t0, t1, CALL(H5Dopen2), n, r))
MR_LIBRARY(hid, H5Dcreate1, H5Dcreate1, (hid l, name_t n, hid t, hid s, hid c), (l, n, t, s, c), opened_object(t0, t1, CALL(H5Dcreate1), n, r))
MR_LIBRARY(hid, H5Dcreate2, H5Dcreate2, (hid l, name_t n, hid t, hid s, hid p, hid c, hid a), (l, n, t, s, p, c, a), opened_object(t0, t1, CALL(H5Dcreate2), n, r))
MR_LIBRARY(int, H5Dclose, H5Dclose, (hid d), (d), on_handle(t0, t1, CALL(H5Dclose), d, r))
MR_LIBRARY(int, H5Dflush, H5Dflush, (hid d), (d), on_handle(t0, t1, CALL(H5Dflush), d, r))
MR_LIBRARY(int, H5Dread, H5Dread, (hid d, hid t, hid m, hid f, hid p, void *b), (d, t, m, f, p, b), transfer(t0, t1, CALL(H5Dread), self, d, t, m, f, r))
MR_LIBRARY(int, H5Dwrite, H5Dwrite, (hid d, hid t, hid m, hid f, hid p, const void *b), (d, t, m, f, p, b), transfer(t0, t1, CALL(H5Dwrite), self, d, t, m, f, r))
MR_LIBRARY(hid, H5Oopen, H5Oopen, (hid l, name_t n, hid a), (l, n, a), opened_object(t0, t1, CALL(H5Oopen), n, r))
MR_LIBRARY(int, H5Oclose, H5Oclose, (hid o), (o), on_handle(t0, t1, CALL(H5Oclose), o, r))
