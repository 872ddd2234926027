// Annotations for C++: a span is a scope.
//
//   #include <millrace/trace.hpp>
//   void train_step(int epoch, int step) {
//       MILLRACE_FUNCTION("train");
//       MILLRACE_SCOPE(read, "reader", "read");
//       read.arg("step", step);
//       ...
//   }
#ifndef MILLRACE_TRACE_HPP
#define MILLRACE_TRACE_HPP

#include <millrace/trace.h>

#include <cstdint>
#include <forward_list>
#include <string>
#include <type_traits>
#include <utility>
#if __cplusplus >= 201703L
#include <string_view>
#endif

namespace millrace {

namespace detail {
template <class T> typename std::enable_if<std::is_integral<T>::value && std::is_signed<T>::value>::type set(millrace_arg &a, T v)
{
    a.type = MILLRACE_INT;
    a.value.i = static_cast<std::int64_t>(v);
}
template <class T> typename std::enable_if<std::is_integral<T>::value && !std::is_signed<T>::value>::type set(millrace_arg &a, T v)
{
    a.type = MILLRACE_UINT;
    a.value.u = static_cast<std::uint64_t>(v);
}
template <class T> typename std::enable_if<std::is_enum<T>::value>::type set(millrace_arg &a, T v)
{
    set(a, static_cast<typename std::underlying_type<T>::type>(v));
}
template <class T> typename std::enable_if<std::is_floating_point<T>::value>::type set(millrace_arg &a, T v)
{
    a.type = MILLRACE_DOUBLE;
    a.value.d = static_cast<double>(v);
}
inline void set(millrace_arg &a, const char *v)
{
    a.type = MILLRACE_TEXT;
    a.value.s = millrace_text(v);
}
} // namespace detail

// Adds an argument to a region of MILLRACE_REGION_BEGIN; a text must live until its end, so temporary strings are refused.
template <class T> void add_arg(millrace_span &span, const char *key, T value)
{
    if (millrace_arg *arg = span.begin ? millrace_arg_of(span.arg, &span.args, key) : nullptr)
        detail::set(*arg, value);
}
inline void add_arg(millrace_span &span, const char *key, const std::string &value)
{
    add_arg(span, key, value.c_str());
}
void add_arg(millrace_span &span, const char *key, std::string &&value) = delete;

// A span from construction to destruction. Not copyable; begins and ends on one thread.
class scope {
public:
    explicit scope(millrace_site &site) : site_(&site), begin_(millrace_trace_now ? millrace_trace_now() : 0) {}
    ~scope() { end(); }
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;

    // Ends the span before its block does.
    void end()
    {
        if (begin_)
            millrace_trace_span(site_, begin_, args_, n_);
        begin_ = 0;
    }

    // The span is not recorded.
    void cancel() { begin_ = 0; }

    // Integers, floating-point numbers, enumerations and texts; a key that was given before gets the new value. Strings are copied:
    // those of the block are gone before the scope ends. What a pointer shows must live until then.
    template <class T> scope &arg(const char *key, T value)
    {
        if (millrace_arg *arg = begin_ ? millrace_arg_of(args_, &n_, key) : nullptr)
            detail::set(*arg, value);
        return *this;
    }
    scope &arg(const char *key, const std::string &value)
    {
        if (millrace_arg *arg = begin_ ? millrace_arg_of(args_, &n_, key) : nullptr)
            detail::set(*arg, copy(arg, value));
        return *this;
    }
#if __cplusplus >= 201703L
    scope &arg(const char *key, std::string_view value) { return begin_ ? arg(key, std::string(value)) : *this; }
#endif

private:
    // The copy that belongs to an argument, so that one that changes often does not take more and more memory.
    const char *copy(const millrace_arg *arg, const std::string &value)
    {
        for (auto &kept : kept_)
            if (kept.first == arg)
                return (kept.second = value).c_str();
        kept_.emplace_front(arg, value);
        return kept_.front().second.c_str();
    }

    millrace_site *site_;
    std::uint64_t begin_;
    unsigned n_ = 0;
    std::forward_list<std::pair<const millrace_arg *, std::string>> kept_{};
    millrace_arg args_[MILLRACE_ARGS_MAX];
};

} // namespace millrace

#define MILLRACE_SCOPE(id, category, name)                                                                           \
    static millrace_site millrace_site_##id = {category, name, 0, 0};                                                \
    millrace::scope id(millrace_site_##id)
#define MILLRACE_FUNCTION(category) MILLRACE_SCOPE(millrace_function_, category, __func__)

#endif
