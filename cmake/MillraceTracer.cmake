# The preload library: an island of its own sources plus the malloc-free part of event and base, with zstd linked in
# statically and hidden, so that it brings no library into a traced program and takes no symbol from it. Built without
# sanitizers even where the rest has them: it must run inside programs that have none.
find_library(MR_ZSTD_STATIC NAMES libzstd.a)
if(NOT MR_ZSTD_STATIC)
  message(FATAL_ERROR "libzstd.a not found: install libzstd-dev (or run scripts/setup)")
endif()
file(GLOB tracer_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/tracer/*.c)
if(NOT MR_HAVE_URING)
  list(FILTER tracer_sources EXCLUDE REGEX "/wrap_uring\\.c$")
endif()
add_library(millrace_trace SHARED ${tracer_sources} ${CMAKE_SOURCE_DIR}/src/event/calls.c
            ${CMAKE_SOURCE_DIR}/src/event/mrt_encode.c ${CMAKE_SOURCE_DIR}/src/base/crc32c.c)
target_include_directories(millrace_trace PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
target_compile_options(millrace_trace PRIVATE -U_FILE_OFFSET_BITS -O2 -U_FORTIFY_SOURCE -fno-sanitize=all -fno-builtin-printf
                       -fno-builtin-fprintf -fno-builtin-puts)
target_link_options(millrace_trace PRIVATE -fno-sanitize=all -Wl,--exclude-libs,ALL -Wl,-z,defs -Wl,-z,now)
target_link_libraries(millrace_trace PRIVATE ${MR_ZSTD_STATIC} dl pthread)
install(TARGETS millrace_trace LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/millrace)
