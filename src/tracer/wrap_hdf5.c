/* HDF5: files, datasets, objects. The reads and writes HDF5 does by POSIX calls appear below these events. Types are
 * those of every 1.10 to 1.14: hid_t is 64 bits. The asynchronous spellings of 1.13 and later (`_async`, with the place
 * of the call before the arguments and an event set behind them) count as their plain names, with the time of the call.
 */
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

/* An object goes by the file it is in and its name there; the library knows the file of every handle. After a failure
 * it is not asked: it would print, and forget the program's error. */
static uint32_t object_of(void *self, hid place, name_t name, bool ok)
{
    char path[4096];
    if (!ok)
        return mr_handle_get((uint64_t)place);
    int64_t (*name_of)(hid, char *, size_t) = (int64_t(*)(hid, char *, size_t))mr_sibling(self, "H5Fget_name");
    int64_t n = name && name_of ? name_of(place, path, sizeof(path)) : 0;
    return n > 0 && n < (int64_t)sizeof(path) ? mr_object_id(path, name) : mr_handle_get((uint64_t)place);
}

static void opened_object(uint64_t t0, uint64_t t1, unsigned call, void *self, hid place, name_t name, hid id)
{
    char full[1024];
    int64_t (*full_of)(hid, char *, size_t) = (int64_t(*)(hid, char *, size_t))mr_sibling(self, "H5Iget_name");
    int64_t n = id >= 0 && full_of ? full_of(id, full, sizeof(full))
                                   : 0; /* from the file's root: `name` may be relative to a group */
    uint32_t file = object_of(self, place, n > 0 && n < (int64_t)sizeof(full) ? full : name, id >= 0);
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

static void transfer(uint64_t t0, uint64_t t1, unsigned call, void *self, hid set, hid type, hid memory, hid file,
                     int result)
{
    int64_t bytes = result < 0 ? -EIO : transfer_bytes(self, set, type, memory, file);
    put_hdf5(t0, t1, call, mr_handle_get((uint64_t)set), bytes);
}

static void transfers(uint64_t t0, uint64_t t1, unsigned call, void *self, size_t n, const hid *set, const hid *type,
                      const hid *memory, const hid *file, int result)
{
    for (size_t i = 0; i < n; i++)
        transfer(t0, t1, call, self, set[i], type[i], memory[i], file[i], result);
}

static int64_t chunk_bytes(void *self, hid set, const uint64_t *offset)
{
    int (*size)(hid, const uint64_t *, uint64_t *) =
        (int (*)(hid, const uint64_t *, uint64_t *))mr_sibling(self, "H5Dget_chunk_storage_size");
    uint64_t n = 0;
    return size && size(set, offset, &n) >= 0 ? (int64_t)n : 0;
}

/* Another handle of what one handle stands for. */
static void opened_again(uint64_t t0, uint64_t t1, unsigned call, hid of, hid id)
{
    uint32_t file = mr_handle_get((uint64_t)of);
    if (id >= 0)
        mr_handle_set((uint64_t)id, file);
    put_hdf5(t0, t1, call, file, id >= 0 ? 0 : -EIO);
}

static void on_object(uint64_t t0, uint64_t t1, unsigned call, void *self, hid place, name_t name, int result)
{
    put_hdf5(t0, t1, call, object_of(self, place, name, result >= 0), result < 0 ? -EIO : result);
}

MR_LIBRARY(hid, H5Fopen, H5Fopen, (name_t p, unsigned f, hid a), (p, f, a), opened_file(t0, t1, CALL(H5Fopen), p, r))
MR_LIBRARY(hid, H5Fcreate, H5Fcreate, (name_t p, unsigned f, hid c, hid a), (p, f, c, a),
           opened_file(t0, t1, CALL(H5Fcreate), p, r))
MR_LIBRARY(int, H5Fclose, H5Fclose, (hid f), (f), on_handle(t0, t1, CALL(H5Fclose), f, r))
MR_LIBRARY(int, H5Fflush, H5Fflush, (hid f, int s), (f, s), on_handle(t0, t1, CALL(H5Fflush), f, r))
MR_LIBRARY(hid, H5Dopen1, H5Dopen1, (hid l, name_t n), (l, n), opened_object(t0, t1, CALL(H5Dopen1), self, l, n, r))
MR_LIBRARY(hid, H5Dopen2, H5Dopen2, (hid l, name_t n, hid a), (l, n, a),
           opened_object(t0, t1, CALL(H5Dopen2), self, l, n, r))
MR_LIBRARY(hid, H5Dcreate1, H5Dcreate1, (hid l, name_t n, hid t, hid s, hid c), (l, n, t, s, c),
           opened_object(t0, t1, CALL(H5Dcreate1), self, l, n, r))
MR_LIBRARY(hid, H5Dcreate2, H5Dcreate2, (hid l, name_t n, hid t, hid s, hid p, hid c, hid a), (l, n, t, s, p, c, a),
           opened_object(t0, t1, CALL(H5Dcreate2), self, l, n, r))
MR_LIBRARY(int, H5Dclose, H5Dclose, (hid d), (d), on_handle(t0, t1, CALL(H5Dclose), d, r))
MR_LIBRARY(int, H5Dflush, H5Dflush, (hid d), (d), on_handle(t0, t1, CALL(H5Dflush), d, r))
MR_LIBRARY(int, H5Dread, H5Dread, (hid d, hid t, hid m, hid f, hid p, void *b), (d, t, m, f, p, b),
           transfer(t0, t1, CALL(H5Dread), self, d, t, m, f, r))
MR_LIBRARY(int, H5Dwrite, H5Dwrite, (hid d, hid t, hid m, hid f, hid p, const void *b), (d, t, m, f, p, b),
           transfer(t0, t1, CALL(H5Dwrite), self, d, t, m, f, r))
MR_LIBRARY(hid, H5Oopen, H5Oopen, (hid l, name_t n, hid a), (l, n, a),
           opened_object(t0, t1, CALL(H5Oopen), self, l, n, r))
MR_LIBRARY(int, H5Oclose, H5Oclose, (hid o), (o), on_handle(t0, t1, CALL(H5Oclose), o, r))
MR_LIBRARY(hid, H5Dcreate_anon, H5Dcreate_anon, (hid l, hid t, hid s, hid c, hid a), (l, t, s, c, a),
           opened_object(t0, t1, CALL(H5Dcreate2), self, l, "", r))
MR_LIBRARY(hid, H5Freopen, H5Freopen, (hid f), (f), opened_again(t0, t1, CALL(H5Freopen), f, r))
MR_LIBRARY(int, H5Fis_hdf5, H5Fis_hdf5, (name_t p), (p),
           put_hdf5(t0, t1, CALL(H5Fis_hdf5), mr_path_id(AT_FDCWD, p), r < 0 ? -EIO : r))
MR_LIBRARY(int, H5Fis_accessible, H5Fis_accessible, (name_t p, hid a), (p, a),
           put_hdf5(t0, t1, CALL(H5Fis_hdf5), mr_path_id(AT_FDCWD, p), r < 0 ? -EIO : r))
MR_LIBRARY(int, H5Fdelete, H5Fdelete, (name_t p, hid a), (p, a),
           put_hdf5(t0, t1, CALL(H5Fdelete), mr_path_id(AT_FDCWD, p), r < 0 ? -EIO : 0))
MR_LIBRARY(int, H5Dset_extent, H5Dset_extent, (hid d, const void *n), (d, n),
           on_handle(t0, t1, CALL(H5Dset_extent), d, r))
MR_LIBRARY(int, H5Drefresh, H5Drefresh, (hid d), (d), on_handle(t0, t1, CALL(H5Drefresh), d, r))
MR_LIBRARY(int, H5Oflush, H5Oflush, (hid o), (o), on_handle(t0, t1, CALL(H5Oflush), o, r))
MR_LIBRARY(int, H5Orefresh, H5Orefresh, (hid o), (o), on_handle(t0, t1, CALL(H5Orefresh), o, r))
MR_LIBRARY(hid, H5Oopen_by_idx, H5Oopen_by_idx, (hid l, name_t g, int k, int w, uint64_t n, hid a), (l, g, k, w, n, a),
           opened_object(t0, t1, CALL(H5Oopen), self, l, g, r))
MR_LIBRARY(hid, H5Oopen_by_addr, H5Oopen_by_addr, (hid l, uint64_t at), (l, at),
           opened_again(t0, t1, CALL(H5Oopen), l, r))
MR_LIBRARY(int, H5Ocopy, H5Ocopy, (hid l, name_t n, hid m, name_t k, hid c, hid d), (l, n, m, k, c, d),
           on_object(t0, t1, CALL(H5Ocopy), self, l, n, r))
MR_LIBRARY(int, H5Olink, H5Olink, (hid o, hid l, name_t n, hid c, hid d), (o, l, n, c, d),
           on_object(t0, t1, CALL(H5Olink), self, l, n, r))
MR_LIBRARY(int, H5Oexists_by_name, H5Oexists_by_name, (hid l, name_t n, hid a), (l, n, a),
           on_object(t0, t1, CALL(H5Oexists_by_name), self, l, n, r))
MR_LIBRARY(int, H5Oget_info, H5Oget_info, (hid o, void *i), (o, i), on_handle(t0, t1, CALL(H5Oget_info), o, r))
MR_LIBRARY(int, H5Oget_info1, H5Oget_info1, (hid o, void *i), (o, i), on_handle(t0, t1, CALL(H5Oget_info), o, r))
MR_LIBRARY(int, H5Oget_info2, H5Oget_info2, (hid o, void *i, unsigned f), (o, i, f),
           on_handle(t0, t1, CALL(H5Oget_info), o, r))
MR_LIBRARY(int, H5Oget_info3, H5Oget_info3, (hid o, void *i, unsigned f), (o, i, f),
           on_handle(t0, t1, CALL(H5Oget_info), o, r))
MR_LIBRARY(int, H5Oget_info_by_name, H5Oget_info_by_name, (hid l, name_t n, void *i, hid a), (l, n, i, a),
           on_object(t0, t1, CALL(H5Oget_info), self, l, n, r))
MR_LIBRARY(int, H5Oget_info_by_name1, H5Oget_info_by_name1, (hid l, name_t n, void *i, hid a), (l, n, i, a),
           on_object(t0, t1, CALL(H5Oget_info), self, l, n, r))
MR_LIBRARY(int, H5Oget_info_by_name2, H5Oget_info_by_name2, (hid l, name_t n, void *i, unsigned f, hid a),
           (l, n, i, f, a), on_object(t0, t1, CALL(H5Oget_info), self, l, n, r))
MR_LIBRARY(int, H5Oget_info_by_name3, H5Oget_info_by_name3, (hid l, name_t n, void *i, unsigned f, hid a),
           (l, n, i, f, a), on_object(t0, t1, CALL(H5Oget_info), self, l, n, r))
MR_LIBRARY(int, H5Ovisit, H5Ovisit, (hid o, int k, int w, void *f, void *x), (o, k, w, f, x),
           on_handle(t0, t1, CALL(H5Ovisit), o, r))
MR_LIBRARY(int, H5Ovisit1, H5Ovisit1, (hid o, int k, int w, void *f, void *x), (o, k, w, f, x),
           on_handle(t0, t1, CALL(H5Ovisit), o, r))
MR_LIBRARY(int, H5Ovisit2, H5Ovisit2, (hid o, int k, int w, void *f, void *x, unsigned m), (o, k, w, f, x, m),
           on_handle(t0, t1, CALL(H5Ovisit), o, r))
MR_LIBRARY(int, H5Ovisit3, H5Ovisit3, (hid o, int k, int w, void *f, void *x, unsigned m), (o, k, w, f, x, m),
           on_handle(t0, t1, CALL(H5Ovisit), o, r))

/* Chunks as they are stored. A read does not say how many bytes it was: the library is asked. */
MR_LIBRARY(int, H5Dwrite_chunk, H5Dwrite_chunk, (hid d, hid p, uint32_t f, const uint64_t *o, size_t n, const void *b),
           (d, p, f, o, n, b),
           put_hdf5(t0, t1, CALL(H5Dwrite_chunk), mr_handle_get((uint64_t)d), r < 0 ? -EIO : (int64_t)n))
MR_LIBRARY(int, H5Dread_chunk, H5Dread_chunk, (hid d, hid p, const uint64_t *o, uint32_t *f, void *b), (d, p, o, f, b),
           put_hdf5(t0, t1, CALL(H5Dread_chunk), mr_handle_get((uint64_t)d), r < 0 ? -EIO : chunk_bytes(self, d, o)))

/* Several data sets at once (1.14): one event for each, over the same time. */
MR_LIBRARY(int, H5Dread_multi, H5Dread_multi, (size_t n, hid *d, hid *t, hid *m, hid *f, hid p, void **b),
           (n, d, t, m, f, p, b), transfers(t0, t1, CALL(H5Dread_multi), self, n, d, t, m, f, r))
MR_LIBRARY(int, H5Dwrite_multi, H5Dwrite_multi, (size_t n, hid *d, hid *t, hid *m, hid *f, hid p, const void **b),
           (n, d, t, m, f, p, b), transfers(t0, t1, CALL(H5Dwrite_multi), self, n, d, t, m, f, r))

#define PLACE name_t af, name_t ac, unsigned al
#define PASS af, ac, al
MR_LIBRARY(hid, H5Fopen_async, H5Fopen_async, (PLACE, name_t p, unsigned f, hid a, hid e), (PASS, p, f, a, e),
           opened_file(t0, t1, CALL(H5Fopen), p, r))
MR_LIBRARY(hid, H5Fcreate_async, H5Fcreate_async, (PLACE, name_t p, unsigned f, hid c, hid a, hid e),
           (PASS, p, f, c, a, e), opened_file(t0, t1, CALL(H5Fcreate), p, r))
MR_LIBRARY(int, H5Fclose_async, H5Fclose_async, (PLACE, hid f, hid e), (PASS, f, e),
           on_handle(t0, t1, CALL(H5Fclose), f, r))
MR_LIBRARY(int, H5Fflush_async, H5Fflush_async, (PLACE, hid f, int s, hid e), (PASS, f, s, e),
           on_handle(t0, t1, CALL(H5Fflush), f, r))
MR_LIBRARY(hid, H5Dopen_async, H5Dopen_async, (PLACE, hid l, name_t n, hid a, hid e), (PASS, l, n, a, e),
           opened_object(t0, t1, CALL(H5Dopen2), self, l, n, r))
MR_LIBRARY(hid, H5Dcreate_async, H5Dcreate_async, (PLACE, hid l, name_t n, hid t, hid s, hid p, hid c, hid a, hid e),
           (PASS, l, n, t, s, p, c, a, e), opened_object(t0, t1, CALL(H5Dcreate2), self, l, n, r))
MR_LIBRARY(int, H5Dclose_async, H5Dclose_async, (PLACE, hid d, hid e), (PASS, d, e),
           on_handle(t0, t1, CALL(H5Dclose), d, r))
MR_LIBRARY(int, H5Dread_async, H5Dread_async, (PLACE, hid d, hid t, hid m, hid f, hid p, void *b, hid e),
           (PASS, d, t, m, f, p, b, e), transfer(t0, t1, CALL(H5Dread), self, d, t, m, f, r))
MR_LIBRARY(int, H5Dwrite_async, H5Dwrite_async, (PLACE, hid d, hid t, hid m, hid f, hid p, const void *b, hid e),
           (PASS, d, t, m, f, p, b, e), transfer(t0, t1, CALL(H5Dwrite), self, d, t, m, f, r))
MR_LIBRARY(hid, H5Oopen_async, H5Oopen_async, (PLACE, hid l, name_t n, hid a, hid e), (PASS, l, n, a, e),
           opened_object(t0, t1, CALL(H5Oopen), self, l, n, r))
MR_LIBRARY(int, H5Oclose_async, H5Oclose_async, (PLACE, hid o, hid e), (PASS, o, e),
           on_handle(t0, t1, CALL(H5Oclose), o, r))
