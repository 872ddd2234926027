/* DFTracer's C and C++ macro names over <millrace/trace.h>, for programs that are annotated with them: include this in
 * place of <dftracer/dftracer.h>, or put the folder millrace/dropin on the include path. Log file, data folders and
 * process id have no effect here: `millrace trace` decides.
 *
 * What compiles with DFTracer's header compiles with this one: a semicolon after a macro may be missing where it may be
 * missing there, and a region that is left by return, break or goto ends there. Keys and texts are copied; of an
 * argument that is given twice the last value counts. Kinds of arguments and relations to what DFTracer calls entities
 * are accepted without effect. */
#ifndef MILLRACE_DFTRACER_H
#define MILLRACE_DFTRACER_H

#include <millrace/trace.h>
#include <stdlib.h>

#ifdef __cplusplus
#define MILLRACE_DFTRACER_KIND : uint8_t
extern "C" {
#else
#define MILLRACE_DFTRACER_KIND
#endif

enum MetadataType MILLRACE_DFTRACER_KIND { MT_KEY = 0, MT_VALUE = 1, MT_IGNORE = 2 };
typedef uint64_t EntityID;
typedef enum {
    DFT_STORE_MEMORY,
    DFT_STORE_GPU_MEMORY,
    DFT_STORE_LOCAL_DISK,
    DFT_STORE_PARALLEL_FS,
    DFT_STORE_BURST_BUFFER,
    DFT_STORE_OBJECT_STORE,
    DFT_STORE_DATABASE,
    DFT_STORE_NETWORK,
    DFT_STORE_OTHER
} EntityStore;
typedef enum {
    DFT_ROLE_UNKNOWN,
    DFT_ROLE_INPUT,
    DFT_ROLE_OUTPUT,
    DFT_ROLE_INTERMEDIATE,
    DFT_ROLE_PARAMETER,
    DFT_ROLE_REFERENCE
} EntityRole;
typedef enum {
    DFT_REL_USED,
    DFT_REL_GENERATED,
    DFT_REL_INVALIDATED,
    DFT_REL_UPDATED,
    DFT_REL_DERIVED_FROM = 16,
    DFT_REL_REVISION_OF,
    DFT_REL_CONTAINS,
    DFT_REL_PART_OF,
    DFT_REL_SPECIALIZATION_OF,
    DFT_REL_ALTERNATE_OF,
    DFT_REL_DEPENDS_ON
} EntityRelation;
#define DFT_ENTITY_NONE ((EntityID)0)

/* What DFTracer gives an entity as its number, the same in every program: FNV-1a of type, 0x1f and key. */
static inline EntityID millrace_dftracer_entity(const char *type, const char *key)
{
    EntityID id = 1469598103934665603u;
    const char *part[3];
    part[0] = millrace_text(type), part[1] = "\x1f", part[2] = millrace_text(key);
    if (!millrace_trace_active())
        return DFT_ENTITY_NONE;
    for (int i = 0; i < 3; i++)
        for (const char *at = part[i]; *at; at++)
            id = (id ^ (unsigned char)*at) * 1099511628211u;
    return id;
}

/* A region that ends with its block at the latest. */
struct millrace_dftracer_region {
    const void *open; /* its own address from start to end: what a jump past the start leaves here is not that */
    struct millrace_span span;
    char *copy[MILLRACE_ARGS_MAX]; /* key and text of each argument: programs use their buffers for the next one */
};

static inline void millrace_dftracer_start(struct millrace_dftracer_region *r, struct millrace_site *site)
{
    r->open = r;
    r->span.site = site;
    r->span.args = 0;
    r->span.begin = millrace_trace_now ? millrace_trace_now() : 0;
}

/* Not inlined, or compilers warn of jumps past the start. */
__attribute__((noinline, unused)) static void millrace_dftracer_end(struct millrace_dftracer_region *r)
{
    if (r->open != r)
        return;
    r->open = 0;
    if (r->span.begin)
        millrace_trace_span(r->span.site, r->span.begin, r->span.arg, r->span.args);
    for (unsigned i = 0; i < r->span.args; i++)
        free(r->copy[i]);
}

/* The argument of that key, with copies of both texts; NULL if it is not to be recorded. */
static inline struct millrace_arg *millrace_dftracer_arg(struct millrace_dftracer_region *r, const char *key,
                                                         const char *text)
{
    size_t k = __builtin_strlen(millrace_text(key)) + 1, n = __builtin_strlen(text) + 1;
    unsigned before = r->span.args, at;
    struct millrace_arg *arg = r->open == r && r->span.begin ? millrace_arg_of(r->span.arg, &r->span.args, key) : 0;
    char *copy = arg ? (char *)malloc(k + n) : 0;
    if (!arg)
        return 0;
    at = (unsigned)(arg - r->span.arg);
    if (copy) {
        __builtin_memcpy(copy, millrace_text(key), k);
        __builtin_memcpy(copy + k, text, n);
    }
    if (at < before)
        free(r->copy[at]);
    r->copy[at] = copy;
    arg->key = copy ? copy : "";
    arg->value.s = copy ? copy + k : "";
    return arg;
}

static inline void millrace_dftracer_int(struct millrace_dftracer_region *r, const char *key, int64_t value)
{
    struct millrace_arg *arg = millrace_dftracer_arg(r, key, "");
    if (arg) {
        arg->type = MILLRACE_INT;
        arg->value.i = value;
    }
}

static inline void millrace_dftracer_text(struct millrace_dftracer_region *r, const char *key, const char *value)
{
    struct millrace_arg *arg = millrace_dftracer_arg(r, key, millrace_text(value));
    if (arg)
        arg->type = MILLRACE_TEXT;
}

static inline void millrace_dftracer_fact(const char *key, enum millrace_arg_type type, int64_t number,
                                          const char *text)
{
    struct millrace_arg fact;
    fact.key = key;
    fact.type = type;
    if (type == MILLRACE_TEXT)
        fact.value.s = millrace_text(text);
    else
        fact.value.i = number;
    if (millrace_trace_metadata)
        millrace_trace_metadata(&fact, 1);
}

#ifdef __cplusplus
}
#endif

/* The arguments count as used, so that a program's variables for them cause no warning. */
#define DFTRACER_C_INIT(log_file, data_dirs, process_id) ((void)(log_file), (void)(data_dirs), (void)(process_id));
#define DFTRACER_C_INIT_NO_BIND(log_file, data_dirs, process_id) DFTRACER_C_INIT(log_file, data_dirs, process_id)
#define DFTRACER_C_FINI() ((void)0)
#define DFTRACER_C_APP_METADATA_INT(key, val) millrace_dftracer_fact(key, MILLRACE_INT, val, 0);
#define DFTRACER_C_APP_METADATA_STR(key, val) millrace_dftracer_fact(key, MILLRACE_TEXT, 0, val);
#define DFTRACER_C_MARK_USED(name) ((void)(name));
#define MILLRACE_DFTRACER_START(id, name)                                                                              \
    static struct millrace_site millrace_site_##id = {"C_APP", name, 0, 0};                                            \
    struct millrace_dftracer_region millrace_region_##id __attribute__((cleanup(millrace_dftracer_end)));              \
    millrace_dftracer_start(&millrace_region_##id, &millrace_site_##id);
#define DFTRACER_C_FUNCTION_START() MILLRACE_DFTRACER_START(fn, __func__)
#define DFTRACER_C_FUNCTION_END() DFTRACER_C_REGION_END(fn)
#define DFTRACER_C_FUNCTION_UPDATE_INT(key, val) DFTRACER_C_REGION_UPDATE_INT(fn, key, val)
#define DFTRACER_C_FUNCTION_UPDATE_STR(key, val) DFTRACER_C_REGION_UPDATE_STR(fn, key, val)
#define DFTRACER_C_FUNCTION_UPDATE_INT_TYPE(key, val, type) DFTRACER_C_REGION_UPDATE_INT_TYPE(fn, key, val, type)
#define DFTRACER_C_FUNCTION_UPDATE_STR_TYPE(key, val, type) DFTRACER_C_REGION_UPDATE_STR_TYPE(fn, key, val, type)
#define DFTRACER_C_REGION_START(name) MILLRACE_DFTRACER_START(name, #name)
#define DFTRACER_C_REGION_END(name) millrace_dftracer_end(&millrace_region_##name);
#define DFTRACER_C_REGION_UPDATE_INT(name, key, val) millrace_dftracer_int(&millrace_region_##name, key, val);
#define DFTRACER_C_REGION_UPDATE_STR(name, key, val) millrace_dftracer_text(&millrace_region_##name, key, val);
#define DFTRACER_C_REGION_UPDATE_INT_TYPE(name, key, val, type)                                                        \
    ((void)(type), millrace_dftracer_int(&millrace_region_##name, key, val));
#define DFTRACER_C_REGION_UPDATE_STR_TYPE(name, key, val, type)                                                        \
    ((void)(type), millrace_dftracer_text(&millrace_region_##name, key, val));
#define DFTRACER_C_METADATA(name, key, val)                                                                            \
    {                                                                                                                  \
        DFTRACER_C_APP_METADATA_STR(key, val)                                                                          \
    }

#define DFTRACER_C_ENTITY(type, key, store, uri) ((void)(store), (void)(uri), millrace_dftracer_entity(type, key))
#define DFTRACER_C_ENTITY_TYPE(type, role, description) ((void)(type), (void)(role), (void)(description));
#define DFTRACER_C_ENTITY_RELATE(relation, subject, object) ((void)(relation), (void)(subject), (void)(object));
#define DFTRACER_C_FUNCTION_RELATE(relation, entity) ((void)(relation), (void)(entity));
#define DFTRACER_C_FUNCTION_USES(type, key) ((void)(type), (void)(key));
#define DFTRACER_C_FUNCTION_GENERATES(type, key) DFTRACER_C_FUNCTION_USES(type, key)
#define DFTRACER_C_REGION_RELATE(name, relation, entity) DFTRACER_C_FUNCTION_RELATE(relation, entity)

#ifdef __cplusplus
#include <millrace/trace.hpp>

namespace millrace
{

// What DFTracer's macros declare; programs also use its variables (profiler_dft_fn, profiler_NAME) by name, some of
// them as pointers.
class dftracer_scope : public scope
{
  public:
    using scope::scope;
    dftracer_scope *operator->()
    {
        return this;
    }
    template <class T> void update(const char *key, const T &value, MetadataType = MT_KEY)
    {
        arg(kept(key), value);
    }
    void update(const char *key, const char *value, MetadataType = MT_KEY)
    {
        arg(kept(key), std::string(millrace_text(value)));
    }
    void finalize()
    {
        end();
    }
    void relate(EntityRelation, EntityID)
    {
    }
    EntityID relate(EntityRelation, const char *type, const char *key, EntityStore = DFT_STORE_MEMORY,
                    const char * = nullptr)
    {
        return millrace_dftracer_entity(type, key);
    }
    EntityID uses(const char *type, const char *key, EntityStore store = DFT_STORE_MEMORY, const char *uri = nullptr)
    {
        return relate(DFT_REL_USED, type, key, store, uri);
    }
    EntityID generates(const char *type, const char *key, EntityStore store = DFT_STORE_MEMORY,
                       const char *uri = nullptr)
    {
        return relate(DFT_REL_GENERATED, type, key, store, uri);
    }

  private:
    const char *kept(const char *key)
    {
        for (auto &one : keys_)
            if (one == millrace_text(key))
                return one.c_str();
        keys_.emplace_front(millrace_text(key));
        return keys_.front().c_str();
    }

    std::forward_list<std::string> keys_{};
};

} // namespace millrace

#define DF_DATA_EVENT 0
#define DF_METADATA_EVENT 1
__attribute__((unused)) static const char *CPP_LOG_CATEGORY = "CPP_APP";

// Its class, for names that are known at run time only; as a fact, `name` is the key and `cat` the value. They must
// outlive it.
class DFTracer : public millrace::dftracer_scope
{
  public:
    DFTracer(const char *name, const char *cat, int event_type = DF_DATA_EVENT)
        : dftracer_scope(own_), own_{cat, name, 0, 0}
    {
        if (event_type == DF_METADATA_EVENT) {
            millrace_dftracer_fact(name, MILLRACE_TEXT, 0, cat);
            cancel();
        }
    }
    ~DFTracer()
    {
        end();
    }

  private:
    millrace_site own_;
};

#define DFTRACER_CPP_INIT(log_file, data_dirs, process_id) DFTRACER_C_INIT(log_file, data_dirs, process_id)
#define DFTRACER_CPP_INIT_NO_BIND(log_file, data_dirs, process_id) DFTRACER_C_INIT(log_file, data_dirs, process_id)
#define DFTRACER_CPP_FINI() ((void)0)
#define DFTRACER_CPP_APP_METADATA_INT(key, val) DFTRACER_C_APP_METADATA_INT(key, val)
#define DFTRACER_CPP_APP_METADATA_STR(key, val) DFTRACER_C_APP_METADATA_STR(key, val)
#define DFTRACER_CPP_MARK_USED(name) DFTRACER_C_MARK_USED(name)
#define MILLRACE_DFTRACER_SCOPE(id, name)                                                                              \
    static millrace_site millrace_site_##id = {"CPP_APP", name, 0, 0};                                                 \
    millrace::dftracer_scope profiler_##id(millrace_site_##id);
#define DFTRACER_CPP_FUNCTION() MILLRACE_DFTRACER_SCOPE(dft_fn, __func__)
#define DFTRACER_CPP_FUNCTION_UPDATE(key, val) profiler_dft_fn.update(key, val);
#define DFTRACER_CPP_FUNCTION_UPDATE_TYPE(key, val, type) profiler_dft_fn.update(key, val, type);
#define DFTRACER_CPP_REGION(name) MILLRACE_DFTRACER_SCOPE(name, #name)
#define DFTRACER_CPP_REGION_UPDATE(name, key, val) profiler_##name.update(key, val);
#define DFTRACER_CPP_REGION_UPDATE_TYPE(name, key, val, type) profiler_##name.update(key, val, type);
#define DFTRACER_CPP_REGION_START(name) MILLRACE_DFTRACER_SCOPE(name, #name)
#define DFTRACER_CPP_REGION_END(name) profiler_##name.end()
#define DFTRACER_CPP_REGION_DYN_UPDATE(name, key, val) profiler_##name->update(key, val);
#define DFTRACER_CPP_REGION_DYN_UPDATE_TYPE(name, key, val, type) profiler_##name->update(key, val, type);
#define DFTRACER_CPP_METADATA(name, key, val) DFTRACER_C_METADATA(name, key, val)

#define DFTRACER_CPP_ENTITY(type, key, store, uri) DFTRACER_C_ENTITY(type, key, store, uri)
#define DFTRACER_CPP_ENTITY_TYPE(type, role, description) DFTRACER_C_ENTITY_TYPE(type, role, description)
#define DFTRACER_CPP_ENTITY_RELATE(relation, subject, object) DFTRACER_C_ENTITY_RELATE(relation, subject, object)
#define DFTRACER_CPP_FUNCTION_RELATE(relation, entity) profiler_dft_fn.relate(relation, entity);
#define DFTRACER_CPP_FUNCTION_USES(type, key) profiler_dft_fn.uses(type, key);
#define DFTRACER_CPP_FUNCTION_GENERATES(type, key) profiler_dft_fn.generates(type, key);
#define DFTRACER_CPP_REGION_RELATE(name, relation, entity) profiler_##name.relate(relation, entity);
#define DFTRACER_CPP_REGION_DYN_RELATE(name, relation, entity) profiler_##name->relate(relation, entity);
#endif

#endif
