/* Whose requests these are. Looked for in this order, as other tools of AWS do: AWS_ACCESS_KEY_ID and its kin; a web
 * identity (AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN); AWS_PROFILE in ~/.aws/credentials and ~/.aws/config; a
 * container's AWS_CONTAINER_CREDENTIALS_*; the instance's metadata, only when asked for. Those that expire are renewed
 * five minutes before.
 *
 * A secret never leaves this folder: not into a message, a log, an event or a file. The environment is read here, with
 * secure_getenv, because that is where every S3 client looks; nothing else in the library does. */
#ifndef MR_S3_CREDENTIALS_H
#define MR_S3_CREDENTIALS_H

#include "s3/http.h"

#include <millrace/error.h>
#include <time.h>

struct mr_s3_credentials {
    char access_key[256], secret[256], token[8192];
    time_t expires;      /* 0: never */
    char source[64];     /* for people: "environment", "profile 'x'" */
    unsigned generation; /* changes when they are renewed */
};

/* What ~/.aws/config says besides. */
struct mr_s3_profile {
    char region[64], endpoint[256];
};

struct mr_s3_credentials_params {
    const char *profile; /* "" or NULL: AWS_PROFILE, else "default" */
    const char *region;  /* for the web identity's endpoint */
    bool from_instance;  /* the metadata of the instance may be asked */
};

void mr_s3_profile_read(const char *profile, struct mr_s3_profile *out);
/* -ENOENT: there are none. */
int mr_s3_credentials_find(const struct mr_http_ops *http, const struct mr_s3_credentials_params *p,
                           struct mr_s3_credentials *out, struct mr_error *err);
/* One section of an INI file as AWS writes it: the value of `key` in [section] or [profile section]. */
bool mr_s3_ini_value(const char *text, const char *section, const char *key, char *out, size_t cap);

#endif
