/* Classes of descriptors by name: a table of beginnings, the first that fits counts. */
#include "event/fd_class.h"
#include "base/common.h"

#include <string.h>

static const struct {
    const char *begins;
    enum mr_fd_class is;
} names[] = {
    {"pipe:[", MR_FD_PIPE},
    {"socket:[inet", MR_FD_SOCKET_NET},
    {"socket:[", MR_FD_SOCKET_LOCAL},
    {"anon_inode:", MR_FD_EVENT},
    {"/memfd:", MR_FD_MEMORY},
    {"/dev/shm/", MR_FD_MEMORY},
    {"/dev/hugepages/", MR_FD_MEMORY},
    {"/dev/zero (deleted)", MR_FD_MEMORY}, /* shared memory without a name */
    {"/SYSV", MR_FD_MEMORY},
    {"/proc/", MR_FD_MEMORY},
    {"/sys/", MR_FD_MEMORY},
    {"/dev/pts/", MR_FD_TTY},
    {"/dev/tty", MR_FD_TTY},
    {"/dev/ptmx", MR_FD_TTY},
    {"/dev/console", MR_FD_TTY},
    {"/dev/sd", MR_FD_BLOCK},
    {"/dev/vd", MR_FD_BLOCK},
    {"/dev/xvd", MR_FD_BLOCK},
    {"/dev/hd", MR_FD_BLOCK},
    {"/dev/dm-", MR_FD_BLOCK},
    {"/dev/md", MR_FD_BLOCK},
    {"/dev/mapper/", MR_FD_BLOCK},
    {"/dev/disk/", MR_FD_BLOCK},
    {"/dev/loop", MR_FD_BLOCK},
    {"/dev/zram", MR_FD_BLOCK},
    {"/dev/pmem", MR_FD_BLOCK},
    {"/dev/mmcblk", MR_FD_BLOCK},
    {"/dev/rbd", MR_FD_BLOCK},
    {"/dev/nbd", MR_FD_BLOCK},
    {"/dev/ram", MR_FD_BLOCK},
    {"/dev/", MR_FD_DEVICE},
};

static const char *const memory_types[] = {
    "tmpfs",      "ramfs",  "devtmpfs", "proc", "sysfs",  "hugetlbfs",   "debugfs", "tracefs", "cgroup",  "cgroup2",
    "securityfs", "mqueue", "configfs", "bpf",  "pstore", "binfmt_misc", "fusectl", "nsfs",    "efivarfs"};

static const char *const class_names[MR_FD_CLASSES] = {
    "unknown",          "file",  "block device", "folder", "pipe",  "socket (local)",
    "socket (network)", "event", "terminal",     "device", "memory"};

/* /dev/nvme0 is the controller, /dev/nvme0n1 a disk. */
static bool is_nvme_disk(const char *name, size_t len)
{
    static const char stem[] = "/dev/nvme";
    size_t n = sizeof(stem) - 1;
    return len > n && !memcmp(name, stem, n) && memchr(name + n, 'n', len - n);
}

enum mr_fd_class mr_fd_class_of(const char *name, size_t len, const char *fs_type)
{
    if (!name || !len)
        return MR_FD_UNKNOWN;
    if (is_nvme_disk(name, len))
        return MR_FD_BLOCK;
    for (size_t i = 0; i < MR_ARRAY_LEN(names); i++) {
        size_t n = strlen(names[i].begins);
        if (len >= n && !memcmp(name, names[i].begins, n))
            return names[i].is;
    }
    return mr_fs_is_memory(fs_type) ? MR_FD_MEMORY : MR_FD_FILE;
}

const char *mr_fd_class_name(enum mr_fd_class c)
{
    return (unsigned)c < MR_FD_CLASSES ? class_names[c] : "unknown";
}

bool mr_fd_class_stores(enum mr_fd_class c)
{
    switch (c) {
    case MR_FD_PIPE:
    case MR_FD_SOCKET_LOCAL:
    case MR_FD_SOCKET_NET:
    case MR_FD_EVENT:
    case MR_FD_TTY:
    case MR_FD_DEVICE: return false;
    default: return true;
    }
}

bool mr_fs_is_memory(const char *fs_type)
{
    for (size_t i = 0; fs_type && i < MR_ARRAY_LEN(memory_types); i++)
        if (!strcmp(fs_type, memory_types[i]))
            return true;
    return false;
}
