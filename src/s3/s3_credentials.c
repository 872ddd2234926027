/* Credentials: see s3_credentials.h. */
#include "s3/s3_credentials.h"
#include "base/common.h"
#include "s3/s3_sign.h"
#include "s3/s3_xml.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX ((size_t)1 << 20)
#define ANSWER_MAX 65536

static const char *env(const char *name)
{
    const char *v = secure_getenv(name);
    return v && *v ? v : NULL;
}

/* A small file, NUL-terminated; NULL where there is none. The caller wipes and frees it. */
static char *read_text(const char *path)
{
    FILE *f = fopen(path, "re");
    char *text = f ? malloc(FILE_MAX + 1) : NULL;
    if (text)
        text[fread(text, 1, FILE_MAX, f)] = '\0';
    if (f)
        fclose(f);
    return text;
}

static void drop_text(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}

/* ---- profiles ---- */

static bool is_section(const char *line, size_t len, const char *section)
{
    while (len && (line[len - 1] == ' ' || line[len - 1] == '\t'))
        len--;
    if (len > 8 && !strncmp(line, "profile ", 8)) {
        line += 8;
        len -= 8;
    }
    return strlen(section) == len && !memcmp(line, section, len);
}

bool mr_s3_ini_value(const char *text, const char *section, const char *key, char *out, size_t cap)
{
    bool inside = false;
    for (const char *line = text, *next; *line; line = next) {
        size_t len = strcspn(line, "\r\n");
        next = line + len + strspn(line + len, "\r\n");
        if (*line == '[') {
            const char *end = memchr(line, ']', len);
            inside = end && is_section(line + 1, (size_t)(end - line - 1), section);
            continue;
        }
        const char *eq = inside && *line != '#' && *line != ' ' ? memchr(line, '=', len) : NULL;
        if (!eq)
            continue;
        size_t name = (size_t)(eq - line);
        while (name && (line[name - 1] == ' ' || line[name - 1] == '\t'))
            name--;
        if (strlen(key) != name || memcmp(line, key, name) != 0)
            continue;
        const char *from = eq + 1, *end = line + len;
        while (from < end && (*from == ' ' || *from == '\t'))
            from++;
        while (end > from && (end[-1] == ' ' || end[-1] == '\t'))
            end--;
        return (size_t)snprintf(out, cap, "%.*s", (int)(end - from), from) < cap;
    }
    return false;
}

static const char *profile_name(const char *profile)
{
    const char *v = profile && *profile ? profile : env("AWS_PROFILE");
    return v ? v : "default";
}

static char *read_aws_file(const char *variable, const char *name)
{
    char path[4096];
    const char *set = env(variable), *home = env("HOME");
    if (!set && !home)
        return NULL;
    if (set)
        snprintf(path, sizeof path, "%s", set);
    else
        snprintf(path, sizeof path, "%s/.aws/%s", home, name);
    return read_text(path);
}

void mr_s3_profile_read(const char *profile, struct mr_s3_profile *out)
{
    char *text = read_aws_file("AWS_CONFIG_FILE", "config");
    *out = (struct mr_s3_profile){0};
    if (text) {
        mr_s3_ini_value(text, profile_name(profile), "region", out->region, sizeof out->region);
        mr_s3_ini_value(text, profile_name(profile), "endpoint_url", out->endpoint, sizeof out->endpoint);
    }
    drop_text(text);
}

static bool from_file(const char *text, const char *section, struct mr_s3_credentials *out)
{
    if (!text || !mr_s3_ini_value(text, section, "aws_access_key_id", out->access_key, sizeof out->access_key) ||
        !mr_s3_ini_value(text, section, "aws_secret_access_key", out->secret, sizeof out->secret))
        return false;
    mr_s3_ini_value(text, section, "aws_session_token", out->token, sizeof out->token);
    return true;
}

static bool find_profile(const struct mr_s3_credentials_params *p, struct mr_s3_credentials *out)
{
    const char *name = profile_name(p->profile);
    char *text = read_aws_file("AWS_SHARED_CREDENTIALS_FILE", "credentials");
    bool found = from_file(text, name, out);
    drop_text(text);
    if (!found) {
        text = read_aws_file("AWS_CONFIG_FILE", "config");
        found = from_file(text, name, out);
        drop_text(text);
    }
    if (found)
        snprintf(out->source, sizeof out->source, "profile '%.48s'", name);
    return found;
}

static bool find_environment(struct mr_s3_credentials *out)
{
    const char *key = env("AWS_ACCESS_KEY_ID"), *secret = env("AWS_SECRET_ACCESS_KEY"),
               *token = env("AWS_SESSION_TOKEN");
    if (!key || !secret)
        return false;
    snprintf(out->access_key, sizeof out->access_key, "%s", key);
    snprintf(out->secret, sizeof out->secret, "%s", secret);
    snprintf(out->token, sizeof out->token, "%s", token ? token : "");
    snprintf(out->source, sizeof out->source, "environment");
    return true;
}

/* ---- services that hand them out ---- */

struct answer {
    struct mr_http_request r;
    char text[ANSWER_MAX];
    size_t len;
};

static bool on_data(struct mr_http_request *r, const void *data, size_t n)
{
    struct answer *a = (struct answer *)r;
    if (n > sizeof a->text - 1 - a->len)
        return false;
    memcpy(a->text + a->len, data, n);
    a->len += n;
    return true;
}

/* One small request; its answer's text in `a`. */
static int ask(const struct mr_http_ops *http, struct answer *a, const char *what, struct mr_error *err)
{
    const struct mr_http_config c = {.connections = 1, .connect_timeout_ms = 2000, .stall_timeout_ms = 5000};
    struct mr_http_client *client = http->open(&c);
    a->r.data = on_data;
    a->len = 0;
    int rc = client ? http->start(client, &a->r) : -ENOMEM;
    while (!rc && !http->poll(client, 1000))
        ;
    http->close(client);
    a->text[a->len] = '\0';
    if (rc)
        return mr_error_set(err, rc, "cannot get credentials from %s", what);
    if (a->r.failure)
        return mr_error_plain(err, -EACCES, "cannot get credentials from %s: %s", what, a->r.why);
    if (a->r.status != 200)
        return mr_error_plain(err, -EACCES, "cannot get credentials from %s: status %ld", what, a->r.status);
    return 0;
}

static void drop_answer(struct answer *a)
{
    explicit_bzero(a, sizeof(*a));
    free(a);
}

static const char *text_at(const json_t *j, const char *key)
{
    const char *v = json_string_value(json_object_get(j, key));
    return v ? v : "";
}

/* {"AccessKeyId": ..., "SecretAccessKey": ..., "Token": ..., "Expiration": ...} */
static int take_json(const struct answer *a, const char *what, struct mr_s3_credentials *out, struct mr_error *err)
{
    json_t *j = json_loads(a->text, 0, NULL);
    snprintf(out->access_key, sizeof out->access_key, "%s", text_at(j, "AccessKeyId"));
    snprintf(out->secret, sizeof out->secret, "%s", text_at(j, "SecretAccessKey"));
    snprintf(out->token, sizeof out->token, "%s", text_at(j, "Token"));
    out->expires = (time_t)mr_s3_parse_time(text_at(j, "Expiration"));
    snprintf(out->source, sizeof out->source, "%s", what);
    json_decref(j);
    return *out->access_key && *out->secret
               ? 0
               : mr_error_plain(err, -EACCES, "cannot get credentials from %s: the answer has no key", what);
}

static int find_container(const struct mr_http_ops *http, struct answer *a, struct mr_s3_credentials *out,
                          struct mr_error *err)
{
    static const char what[] = "the container's credential service";
    char url[1024], header[4200];
    const char *relative = env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
               *full = env("AWS_CONTAINER_CREDENTIALS_FULL_URI"), *file = env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
               *token = env("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    if (!relative && !full)
        return -ENOENT;
    snprintf(url, sizeof url, "%s%s", relative ? "http://169.254.170.2" : "", relative ? relative : full);
    char *text = file ? read_text(file) : NULL;
    if (text)
        text[strcspn(text, "\r\n")] = '\0';
    a->r = (struct mr_http_request){.method = "GET", .url = url};
    if (text || token) {
        snprintf(header, sizeof header, "Authorization: %s", text ? text : token);
        a->r.header[a->r.headers++] = header;
    }
    int rc = ask(http, a, what, err);
    drop_text(text);
    explicit_bzero(header, sizeof header);
    return rc ? rc : take_json(a, what, out, err);
}

static int find_web_identity(const struct mr_http_ops *http, const struct mr_s3_credentials_params *p, struct answer *a,
                             struct mr_s3_credentials *out, struct mr_error *err)
{
    static const char what[] = "the token service (web identity)";
    const char *file = env("AWS_WEB_IDENTITY_TOKEN_FILE"), *role = env("AWS_ROLE_ARN"),
               *session = env("AWS_ROLE_SESSION_NAME"), *endpoint = env("AWS_ENDPOINT_URL_STS");
    char base[300], arn[768], name[256], expires[64];
    if (!file || !role)
        return -ENOENT;
    char *token = read_text(file), *url = malloc(3 * FILE_MAX / 64);
    char *encoded = token ? malloc(3 * strlen(token) + 1) : NULL;
    int rc = 0;
    if (!token || !url || !encoded)
        rc = mr_error_plain(err, -EACCES, "cannot read the web identity token '%s'", file);
    if (!rc) {
        token[strcspn(token, "\r\n")] = '\0';
        if (endpoint)
            snprintf(base, sizeof base, "%s", endpoint);
        else
            snprintf(base, sizeof base, "https://sts.%s.amazonaws.com", p->region);
        mr_s3_encode(token, false, encoded, 3 * strlen(token) + 1);
        mr_s3_encode(role, false, arn, sizeof arn);
        mr_s3_encode(session ? session : "millrace", false, name, sizeof name);
        snprintf(url, 3 * FILE_MAX / 64,
                 "%s/?Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=%s&RoleSessionName=%s&"
                 "WebIdentityToken=%s",
                 base, arn, name, encoded);
        a->r = (struct mr_http_request){.method = "GET", .url = url};
        rc = ask(http, a, what, err);
    }
    if (!rc) {
        mr_s3_xml_find(a->text, a->len, "AccessKeyId", out->access_key, sizeof out->access_key);
        mr_s3_xml_find(a->text, a->len, "SecretAccessKey", out->secret, sizeof out->secret);
        mr_s3_xml_find(a->text, a->len, "SessionToken", out->token, sizeof out->token);
        mr_s3_xml_find(a->text, a->len, "Expiration", expires, sizeof expires);
        out->expires = (time_t)mr_s3_parse_time(expires);
        snprintf(out->source, sizeof out->source, "web identity");
        if (!*out->access_key || !*out->secret)
            rc = mr_error_plain(err, -EACCES, "cannot get credentials from %s: the answer has no key", what);
    }
    drop_text(token);
    drop_text(encoded);
    free(url);
    return rc;
}

/* Version 2 of the instance's metadata: a token first, then the role's name, then its credentials. */
static int find_instance(const struct mr_http_ops *http, struct answer *a, struct mr_s3_credentials *out,
                         struct mr_error *err)
{
    static const char what[] = "the instance's metadata";
    const char *set = env("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    const char *base = set ? set : "http://169.254.169.254";
    char url[1024], role[256], token[600];
    snprintf(url, sizeof url, "%s/latest/api/token", base);
    a->r = (struct mr_http_request){
        .method = "PUT", .url = url, .header = {"X-aws-ec2-metadata-token-ttl-seconds: 21600"}, .headers = 1};
    int rc = ask(http, a, what, err);
    if (rc)
        return rc;
    snprintf(token, sizeof token, "X-aws-ec2-metadata-token: %.500s", a->text);
    snprintf(url, sizeof url, "%s/latest/meta-data/iam/security-credentials/", base);
    a->r = (struct mr_http_request){.method = "GET", .url = url, .header = {token}, .headers = 1};
    if ((rc = ask(http, a, what, err)))
        return rc;
    snprintf(role, sizeof role, "%.*s", (int)strcspn(a->text, "\r\n"), a->text);
    snprintf(url, sizeof url, "%s/latest/meta-data/iam/security-credentials/%s", base, role);
    a->r = (struct mr_http_request){.method = "GET", .url = url, .header = {token}, .headers = 1};
    rc = ask(http, a, what, err);
    return rc ? rc : take_json(a, what, out, err);
}

static int none(struct mr_error *err)
{
    mr_error_plain(err, -ENOENT, "no credentials for object storage");
    return mr_error_hint(err, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; for a public bucket "
                              "use --store 's3(anonymous=true)'"),
           -ENOENT;
}

int mr_s3_credentials_find(const struct mr_http_ops *http, const struct mr_s3_credentials_params *p,
                           struct mr_s3_credentials *out, struct mr_error *err)
{
    unsigned generation = out->generation;
    *out = (struct mr_s3_credentials){.generation = generation + 1};
    if (!(p->profile && *p->profile) && find_environment(out))
        return 0;
    struct answer *a = calloc(1, sizeof(*a));
    if (!a)
        return mr_error_set(err, -ENOMEM, "cannot get credentials");
    int rc = find_web_identity(http, p, a, out, err);
    if (rc == -ENOENT && find_profile(p, out))
        rc = 0;
    if (rc == -ENOENT)
        rc = find_container(http, a, out, err);
    if (rc == -ENOENT && p->from_instance)
        rc = find_instance(http, a, out, err);
    drop_answer(a);
    return rc == -ENOENT ? none(err) : rc;
}
