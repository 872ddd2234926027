/* storage.storage_options of a workload, for the store s3: they become the environment variables that every part of the
 * program reads (src/s3), so that data, checkpoints and the ranks that are started later see the same server. The
 * environment overrides a file; a word of the command line overrides the environment. */
#include "job/job.h"
#include "conf/workload_apply.h"

#include <stdlib.h>
#include <string.h>

static bool is_override(const struct mr_workload *w, const char *key)
{
    const struct mr_value_origin *o = mr_workload_origin(w, "storage.storage_options", key);
    return o && o->kind == MR_ORIGIN_OVERRIDE;
}

static void export_one(const struct mr_workload *w, const char *key, const char *name, const char *value)
{
    if (*value && mr_workload_is_set(w, "storage.storage_options", key))
        setenv(name, value, is_override(w, key));
}

void mr_job_export_storage(const struct mr_workload *w)
{
    const struct mr_conf_storage_options *o = &w->storage_options;
    if (w->storage.storage_type != MR_CS_S3)
        return;
    export_one(w, "endpoint_url", "AWS_ENDPOINT_URL", o->endpoint_url);
    export_one(w, "region", "AWS_REGION", o->region);
    if (*o->access_key_id && *o->secret_access_key) { /* a pair, never halves of two */
        bool both = is_override(w, "access_key_id") && is_override(w, "secret_access_key");
        if (!both && getenv("AWS_ACCESS_KEY_ID") && getenv("AWS_SECRET_ACCESS_KEY"))
            return;
        setenv("AWS_ACCESS_KEY_ID", o->access_key_id, 1);
        setenv("AWS_SECRET_ACCESS_KEY", o->secret_access_key, 1);
    }
}
