/* What wrappers do after the real call, one copy of it for all. What reading a file takes (open, status, read, close)
 * is hot: see MR_HOT. */
#include "tracer/wrap.h"

void mr_put_event(uint64_t t0, uint64_t t1, uint64_t call_fd1, uint32_t file, uint64_t offset, int64_t result)
{
    mr_put_inline(t0, t1, (unsigned)(call_fd1 >> 32), file, (uint32_t)call_fd1, offset, result);
}

int64_t mr_put_other(uint64_t t0, uint64_t t1, uint64_t offset_call, uint32_t file, int fd, uint64_t result)
{
    struct mr_tls *t = &mr_tls;
    uint64_t dur = t1 - t0;
    if (MR_UNLIKELY((dur | result) >> 32 | t->busy) || MR_UNLIKELY(!mr_busy_with_room(t))) {
        mr_put_slow(t0, t1, (unsigned)(offset_call & 0xffff), file, (uint32_t)fd + 1,
                    (uint64_t)((int64_t)offset_call >> 16), (int64_t)result, NULL, 0);
        return (int64_t)result;
    }
    bool is_seek = (uint16_t)offset_call == MR_CALL_lseek;
    uint64_t offset = (uint64_t)((int64_t)offset_call >> 16), gap = t0 - t->last_end;
    if (((is_seek ? offset : t->last_result) ^ result) | (t->last_file ^ file) | (t->last_fd1 ^ ((uint32_t)fd + 1)) |
        gap >> 32) {
        mr_store(t, t->head,
                 (struct mr_raw){{offset_call, (uint64_t)file << 32 | dur, t0, result << 16 | ((uint32_t)fd + 1)}});
        return (int64_t)result;
    }
    uint64_t h = t->head, *word = mr_words_at(t, h);
    word[0] = offset_call | MR_RAW_REPEAT;
    word[1] = gap << 32 | dur;
    if (offset != MR_NO_OFFSET)
        t->last_offset = offset;
    t->last_end = t1;
    return MR_LIKELY(!mr_stored(t, word, h + 2)) ? (int64_t)result : mr_put_flushed((int64_t)result);
}

int64_t mr_put_unusual(uint64_t t0, uint64_t t1, uint64_t call_fd, uint64_t offset, uint64_t count, int64_t result)
{
    unsigned call = (unsigned)(call_fd >> 32);
    if (call != MR_CALL_lseek)
        return mr_put_fd(t0, t1, call, (int)call_fd, offset, count, result);
    mr_put_fd0(t0, t1, call, (int)call_fd, offset, result);
    return result;
}

int64_t mr_put_refused(uint64_t t0, uint64_t t1, uint64_t call_fd, uint64_t offset, uint64_t count, int64_t error)
{
    errno = (int)-error;
    return mr_put_unusual(t0, t1, call_fd, offset, count, -1);
}

int64_t mr_put_flushed(int64_t result)
{
    mr_flush_pending();
    return result;
}

void mr_put_one(uint64_t t0, uint64_t t1, unsigned call, uint32_t file, uint32_t fd1, uint64_t offset, int64_t result,
                const struct mr_extra *extra)
{
    struct mr_tls *t = &mr_tls;
    uint64_t dur = t1 - t0;
    if (mr_is_unusual(t, dur, call, offset, result)) {
        mr_put_slow(t0, t1, call, file, fd1, offset, result, extra, 1);
        return;
    }
    uint64_t h = t->head, *word = mr_words_at(t, h);
    mr_set_cells(word, mr_raw_of(t0, dur, call, file, fd1, offset, result));
    mr_set_cells(word + MR_RECORD_CELLS, mr_raw_more(extra));
    t->last_file = 0; /* none may repeat it */
    if (mr_stored(t, word, h + 2 * MR_RECORD_CELLS))
        mr_flush_pending();
}

int64_t mr_put_fd(uint64_t t0, uint64_t t1, unsigned call, int fd, uint64_t offset, uint64_t count, int64_t result)
{
    int64_t stored = result == -1 ? -errno : result;
    if ((int64_t)count == stored) {
        mr_put_fd0(t0, t1, call, fd, offset, stored);
        return result;
    }
    const struct mr_extra extra = {.type = MR_MORE_COUNT, .value = count}; /* a program's last read of a file, mostly */
    uint32_t file = mr_file_of(fd);
    if (MR_LIKELY(file != MR_FILE_EXCLUDED))
        mr_put_one(t0, t1, call, file, mr_fd1(fd), offset, stored, &extra);
    return result;
}

void mr_put_fd0(uint64_t t0, uint64_t t1, unsigned call, int fd, uint64_t offset, int64_t result)
{
    uint32_t file = mr_file_of(fd);
    if (MR_UNLIKELY(result == -1))
        result = -errno;
    if (MR_LIKELY(file != MR_FILE_EXCLUDED))
        mr_put(t0, t1, call, file, mr_fd1(fd), offset, result);
}

void mr_put_path(uint64_t t0, uint64_t t1, unsigned call, int dirfd, const char *path, uint64_t offset, int64_t result)
{
    if (result == -1)
        result = -errno;
    uint32_t file = result < 0 ? mr_path_failed(result, dirfd, path) : mr_path_id(dirfd, path);
    if (file != MR_FILE_EXCLUDED)
        mr_put(t0, t1, call, file, 0, offset, result);
}

void mr_put_second_path(uint64_t t0, uint64_t t1, unsigned call, int dirfd, const char *path, int64_t result)
{
    if (result == -1)
        result = -errno;
    uint32_t file = result < 0 ? mr_path_failed(MR_UNREAD, dirfd, path) : mr_path_id(dirfd, path);
    if (file != MR_FILE_EXCLUDED)
        mr_put(t0, t1, call, file, 0, MR_NO_OFFSET, result);
}

void mr_put_open(uint64_t t0, uint64_t t1, unsigned call, int dirfd, const char *path, uint64_t flags, int fd)
{
    int64_t result = fd == -1 ? -errno : fd;
    uint32_t file = result < 0 ? mr_path_failed(result, dirfd, path) : mr_opened_id(dirfd, path, flags, fd);
    if (fd >= 0)
        mr_file_set(fd, file);
    if (file != MR_FILE_EXCLUDED)
        mr_put(t0, t1, call, file, fd >= 0 ? mr_fd1(fd) : 0, flags, result);
    if (MR_UNLIKELY(mr_core.python_waits))
        mr_python_opened();
}

void mr_put_path2(uint64_t t0, uint64_t t1, unsigned call, int dir1, const char *path1, int dir2, const char *path2,
                  int64_t result)
{
    if (result == -1)
        result = -errno;
    uint32_t one = result < 0 ? mr_path_failed(MR_UNREAD, dir1, path1) : mr_path_id(dir1, path1);
    uint32_t two = result < 0 ? mr_path_failed(MR_UNREAD, dir2, path2) : mr_path_id(dir2, path2);
    if (one == MR_FILE_EXCLUDED && two == MR_FILE_EXCLUDED)
        return;
    const struct mr_extra extra = {.type = MR_MORE_FILE2, .value = two == MR_FILE_EXCLUDED ? 0 : two};
    mr_put_slow(t0, t1, call, one == MR_FILE_EXCLUDED ? 0 : one, 0, MR_NO_OFFSET, result, &extra, 1);
}

void mr_put_copy(uint64_t t0, uint64_t t1, unsigned call, int in, int out, uint64_t offset, uint64_t count,
                 int64_t result)
{
    if (result == -1)
        result = -errno;
    uint32_t one = mr_file_of(in), two = mr_file_of(out);
    if (one == MR_FILE_EXCLUDED && two == MR_FILE_EXCLUDED)
        return;
    const struct mr_extra extra[] = {{.type = MR_MORE_FILE2, .value = two == MR_FILE_EXCLUDED ? 0 : two},
                                     {.type = MR_MORE_COUNT, .value = count}};
    mr_put_slow(t0, t1, call, one == MR_FILE_EXCLUDED ? 0 : one, in >= 0 ? mr_fd1(in) : 0, offset, result, extra,
                (int64_t)count == result ? 1 : 2);
}
