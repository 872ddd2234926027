/* Checks of object storage: endpoint, credentials, clock, connections. */
#include "base/common.h"
#include "probe/doctor.h"
#include "store/store.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define SKEW_REFUSED_S 900.0 /* S3 refuses requests from then on */
#define SKEW_NOTED_S 60.0
#define SHORT_LIFE_S 3600.0
#define FAR_S 0.02

static void check_endpoint(struct mr_doctor *d, const struct mr_remote_look *l)
{
    if (l->code)
        mr_doctor_add(d, "object storage", MR_DOCTOR_WARN,
                      *l->why.hint ? l->why.hint : "Nothing can be read there as things are.", "%s: %s", l->endpoint,
                      l->why.message);
    else
        mr_doctor_add(d, "object storage", MR_DOCTOR_OK, "", "%s answers, region '%s'%s", l->endpoint, l->region,
                      l->found ? "" : ", nothing below the prefix");
    if (!l->tls && !strstr(l->endpoint, "//127.") && !strstr(l->endpoint, "//localhost"))
        mr_doctor_add(d, "encryption", MR_DOCTOR_NOTE,
                      "Bodies can be read on the way; signatures protect the keys alone.", "plain HTTP");
}

static void check_credentials(struct mr_doctor *d, const struct mr_remote_look *l)
{
    if (!l->expires_s)
        mr_doctor_add(d, "credentials", MR_DOCTOR_OK, "", "%s, no end known", l->credentials);
    else if (l->expires_s <= 0)
        mr_doctor_add(d, "credentials", MR_DOCTOR_WARN, "Get new ones.", "%s, ended %.0f s ago", l->credentials,
                      -l->expires_s);
    else
        mr_doctor_add(
            d, "credentials", l->expires_s < SHORT_LIFE_S ? MR_DOCTOR_NOTE : MR_DOCTOR_OK,
            l->expires_s < SHORT_LIFE_S ? "They are renewed five minutes before, if their source has new ones." : "",
            "%s, end in %.1f h", l->credentials, l->expires_s / 3600);
    mr_doctor_figure(d, "credentials_expire_s", l->expires_s);
}

static void check_clock(struct mr_doctor *d, const struct mr_remote_look *l)
{
    double skew = fabs(l->skew_s);
    enum mr_doctor_level level = skew >= SKEW_REFUSED_S ? MR_DOCTOR_WARN
                                 : skew >= SKEW_NOTED_S ? MR_DOCTOR_NOTE
                                                        : MR_DOCTOR_OK;
    mr_doctor_add(d, "server's clock", level,
                  level == MR_DOCTOR_OK ? ""
                                        : "From 15 minutes on the server refuses requests: set this machine's clock "
                                          "(timedatectl, chronyc tracking).",
                  "%s",
                  skew < 1.5      ? "as this machine's"
                  : l->skew_s > 0 ? "ahead of this machine's"
                                  : "behind this machine's");
    mr_doctor_figure(d, "clock_skew_s", l->skew_s);
}

static void check_connections(struct mr_doctor *d, const struct mr_remote_look *l)
{
    if (!l->asked)
        return;
    bool all = l->answered == l->asked, is_far = l->first_byte_s > FAR_S;
    mr_doctor_add(d, "connections",
                  !all     ? MR_DOCTOR_WARN
                  : is_far ? MR_DOCTOR_NOTE
                           : MR_DOCTOR_OK,
                  !all     ? "The server or something before it refuses so many: --store 's3(connections=8)'."
                  : is_far ? "Far away: keep many requests in flight (more readers, --io queue), and tiers before it."
                           : "",
                  "%u of %u requests at a time answered, first byte after %.2f ms, a connection takes %.2f ms",
                  l->answered, l->asked, l->first_byte_s * 1e3, l->connect_s * 1e3);
    mr_doctor_figure(d, "first_byte_s", l->first_byte_s);
    mr_doctor_figure(d, "connect_s", l->connect_s);
}

int mr_doctor_objects(struct mr_doctor *d, struct mr_error *err)
{
    struct mr_remote_look *l = mr_arena_alloc(d->arena, sizeof(*l));
    int rc = l ? mr_store_examine_remote(d->path, l, err) : mr_error_set(err, -ENOMEM, "cannot examine '%s'", d->path);
    if (rc)
        return rc;
    check_endpoint(d, l);
    if (!l->reached)
        return 0;
    check_credentials(d, l);
    check_clock(d, l);
    check_connections(d, l);
    return 0;
}
