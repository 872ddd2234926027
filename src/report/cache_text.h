/* Results of `millrace cache` as text and JSON. JSON is NULL when out of memory. */
#ifndef MR_REPORT_CACHE_TEXT_H
#define MR_REPORT_CACHE_TEXT_H

#include "base/strbuf.h"
#include "cache/cache_admin.h"

#include <jansson.h>

void mr_report_cache_list(const char *folder, const struct mr_cache_list *l, uint64_t folder_bytes,
                          struct mr_strbuf *o);
json_t *mr_report_cache_list_json(const char *folder, const struct mr_cache_list *l, uint64_t folder_bytes);

void mr_report_cache_verified(const char *folder, const struct mr_cache_verified *v, struct mr_strbuf *o);
json_t *mr_report_cache_verified_json(const char *folder, const struct mr_cache_verified *v);

/* `sets`: data sets that were dropped; `kept`: files that could not be removed. */
void mr_report_cache_dropped(const char *folder, uint64_t freed, struct mr_strbuf *o);
json_t *mr_report_cache_dropped_json(const char *folder, size_t sets, uint64_t freed, unsigned kept);

/* `of_samples`: of the data set `data`. */
void mr_report_cache_filled(const char *folder, const char *data, uint64_t of_samples, const struct mr_cache_filled *f,
                            struct mr_strbuf *o);
json_t *mr_report_cache_filled_json(const char *folder, uint64_t of_samples, const struct mr_cache_filled *f);

#endif
