/* DFTracer's C and C++ macro names over <millrace/trace.h>, for programs that are annotated with them: include this in place of
 * <dftracer/dftracer.h>. Log file, data folders and process id have no effect here: `millrace trace` decides. */
#ifndef MILLRACE_DFTRACER_H
#define MILLRACE_DFTRACER_H

#include <millrace/trace.h>

/* The arguments count as used, so that a program's variables for them cause no warning. */
#define DFTRACER_C_INIT(log_file, data_dirs, process_id) ((void)(log_file), (void)(data_dirs), (void)(process_id))
#define DFTRACER_C_INIT_NO_BIND(log_file, data_dirs, process_id) DFTRACER_C_INIT(log_file, data_dirs, process_id)
#define DFTRACER_C_FINI() ((void)0)
#define DFTRACER_C_FUNCTION_START() MILLRACE_REGION_BEGIN(fn, "C_APP", __func__)
#define DFTRACER_C_FUNCTION_END() MILLRACE_REGION_END(fn)
#define DFTRACER_C_FUNCTION_UPDATE_INT(key, val) MILLRACE_REGION_INT(fn, key, val)
#define DFTRACER_C_FUNCTION_UPDATE_STR(key, val) MILLRACE_REGION_TEXT(fn, key, val)
#define DFTRACER_C_REGION_START(name) MILLRACE_REGION_BEGIN(name, "C_APP", #name)
#define DFTRACER_C_REGION_END(name) MILLRACE_REGION_END(name)
#define DFTRACER_C_REGION_UPDATE_INT(name, key, val) MILLRACE_REGION_INT(name, key, val)
#define DFTRACER_C_REGION_UPDATE_STR(name, key, val) MILLRACE_REGION_TEXT(name, key, val)
#define DFTRACER_C_METADATA(name, key_, val)                                                                         \
    do {                                                                                                             \
        struct millrace_arg millrace_fact_;                                                                          \
        millrace_fact_.key = key_;                                                                                   \
        millrace_fact_.type = MILLRACE_TEXT;                                                                         \
        millrace_fact_.value.s = millrace_text(val);                                                                 \
        if (millrace_trace_metadata)                                                                                 \
            millrace_trace_metadata(&millrace_fact_, 1);                                                             \
    } while (0)

#ifdef __cplusplus
#include <millrace/trace.hpp>
#define DFTRACER_CPP_INIT(log_file, data_dirs, process_id) DFTRACER_C_INIT(log_file, data_dirs, process_id)
#define DFTRACER_CPP_INIT_NO_BIND(log_file, data_dirs, process_id) DFTRACER_C_INIT(log_file, data_dirs, process_id)
#define DFTRACER_CPP_FINI() ((void)0)
#define DFTRACER_CPP_FUNCTION() MILLRACE_SCOPE(fn, "CPP_APP", __func__)
#define DFTRACER_CPP_FUNCTION_UPDATE(key, val) fn.arg(key, val)
#define DFTRACER_CPP_REGION(name) MILLRACE_SCOPE(name, "CPP_APP", #name)
#define DFTRACER_CPP_REGION_UPDATE(name, key, val) name.arg(key, val)
#define DFTRACER_CPP_REGION_START(name)                                                                              \
    static millrace_site millrace_site_##name = {"CPP_APP", #name, 0, 0};                                            \
    millrace::scope millrace_scope_##name(millrace_site_##name)
#define DFTRACER_CPP_REGION_END(name) millrace_scope_##name.end()
#define DFTRACER_CPP_REGION_DYN_UPDATE(name, key, val) millrace_scope_##name.arg(key, val)
#define DFTRACER_CPP_METADATA(name, key, val) DFTRACER_C_METADATA(name, key, val)
#endif

#endif
