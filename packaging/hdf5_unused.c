/* For the portable build only. Debian's static HDF5 contains a read-only S3 driver that refers to libcurl and libcrypto.
 * Millrace never opens a file through that driver, and linking both libraries statically would bring in twenty more.
 * These symbols satisfy the linker; each fails in the way its caller checks for, so that a mistake ends in an HDF5 error
 * and not in a crash. */
#include <stddef.h>

void *curl_easy_init(void);
void curl_easy_cleanup(void *handle);
int curl_easy_perform(void *handle);
int curl_easy_setopt(void *handle, int option, ...);
int curl_easy_getinfo(void *handle, int info, ...);
const char *curl_easy_strerror(int code);
int curl_global_init(long flags);
void curl_global_cleanup(void);
void *curl_slist_append(void *list, const char *text);
void curl_slist_free_all(void *list);
const void *EVP_sha256(void);
unsigned char *HMAC(const void *md, const void *key, int key_len, const unsigned char *data, size_t n, unsigned char *out,
                    unsigned *out_len);
unsigned char *SHA256(const unsigned char *data, size_t n, unsigned char *out);

enum { CURL_FAILED = 2 };

void *curl_easy_init(void)
{
    return NULL;
}

void curl_easy_cleanup(void *handle)
{
    (void)handle;
}

int curl_easy_perform(void *handle)
{
    (void)handle;
    return CURL_FAILED;
}

int curl_easy_setopt(void *handle, int option, ...)
{
    (void)handle;
    (void)option;
    return CURL_FAILED;
}

int curl_easy_getinfo(void *handle, int info, ...)
{
    (void)handle;
    (void)info;
    return CURL_FAILED;
}

const char *curl_easy_strerror(int code)
{
    (void)code;
    return "the S3 driver is not part of this build";
}

int curl_global_init(long flags)
{
    (void)flags;
    return CURL_FAILED;
}

void curl_global_cleanup(void)
{
}

void *curl_slist_append(void *list, const char *text)
{
    (void)list;
    (void)text;
    return NULL;
}

void curl_slist_free_all(void *list)
{
    (void)list;
}

const void *EVP_sha256(void)
{
    return NULL;
}

unsigned char *HMAC(const void *md, const void *key, int key_len, const unsigned char *data, size_t n, unsigned char *out,
                    unsigned *out_len)
{
    (void)md;
    (void)key;
    (void)key_len;
    (void)data;
    (void)n;
    (void)out;
    (void)out_len;
    return NULL;
}

unsigned char *SHA256(const unsigned char *data, size_t n, unsigned char *out)
{
    (void)data;
    (void)n;
    (void)out;
    return NULL;
}
