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
            ${CMAKE_SOURCE_DIR}/src/event/mrt_encode.c ${CMAKE_SOURCE_DIR}/src/event/mrt_tally.c ${CMAKE_SOURCE_DIR}/src/event/path_glob.c
            ${CMAKE_SOURCE_DIR}/src/event/mounts.c ${CMAKE_SOURCE_DIR}/src/event/start.c
            ${CMAKE_SOURCE_DIR}/src/base/crc32c.c)
target_include_directories(millrace_trace PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
target_compile_options(millrace_trace PRIVATE -U_FILE_OFFSET_BITS -O2 -U_FORTIFY_SOURCE -fno-sanitize=all -fno-builtin-printf
                       -fno-builtin-fprintf -fno-builtin-puts)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU") # else the end of a hot wrapper lies in another page, with the cold ones
  target_compile_options(millrace_trace PRIVATE -fno-reorder-blocks-and-partition)
endif()
target_link_options(millrace_trace PRIVATE -fno-sanitize=all -Wl,--exclude-libs,ALL -Wl,-z,defs -Wl,-z,now)
target_link_libraries(millrace_trace PRIVATE ${MR_ZSTD_STATIC} dl pthread)
install(TARGETS millrace_trace LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/millrace)

# The Python package: sources are copied next to the extension, so that build/python works as it stands. The extension
# keeps to the limited API: one file for every Python from 3.10 on. Without Python headers annotations pass through.
option(MR_WITH_PYTHON "Build the Python extension for trace annotations" ON)
file(GLOB_RECURSE python_sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/python
     ${CMAKE_SOURCE_DIR}/python/*.py ${CMAKE_SOURCE_DIR}/python/*.pyi ${CMAKE_SOURCE_DIR}/python/py.typed)
set(python_copies)
foreach(source ${python_sources})
  set(copy ${CMAKE_BINARY_DIR}/python/${source})
  add_custom_command(OUTPUT ${copy} DEPENDS ${CMAKE_SOURCE_DIR}/python/${source}
                     COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_SOURCE_DIR}/python/${source} ${copy})
  list(APPEND python_copies ${copy})
endforeach()
add_custom_target(millrace_python ALL DEPENDS ${python_copies})
if(MR_WITH_PYTHON)
  find_package(Python3 3.10 COMPONENTS Interpreter QUIET)
  if(Python3_Interpreter_FOUND)
    execute_process(COMMAND ${Python3_EXECUTABLE} -c "import sysconfig;print(sysconfig.get_paths()['include'])"
                    OUTPUT_VARIABLE python_include OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(NOT EXISTS "${python_include}/Python.h") # the first python3 in PATH has no headers; Debian's python3-dev has
      file(GLOB python_headers /usr/include/python3.1*/Python.h)
      if(python_headers) # the limited API: any of them will do
        list(GET python_headers 0 python_headers)
        get_filename_component(python_include "${python_headers}" DIRECTORY)
      endif()
    endif()
    if(EXISTS "${python_include}/Python.h")
      add_library(millrace_python_trace MODULE ${CMAKE_SOURCE_DIR}/python/millrace/trace/_trace.c)
      set_target_properties(millrace_python_trace PROPERTIES PREFIX "" OUTPUT_NAME "_trace" SUFFIX ".abi3.so"
                            LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/python/millrace/trace)
      target_include_directories(millrace_python_trace PRIVATE ${CMAKE_SOURCE_DIR}/include)
      target_include_directories(millrace_python_trace SYSTEM PRIVATE ${python_include})
      target_compile_options(millrace_python_trace PRIVATE -O2 -fno-sanitize=all)
      target_link_options(millrace_python_trace PRIVATE -fno-sanitize=all)
      add_dependencies(millrace_python millrace_python_trace)
      install(TARGETS millrace_python_trace LIBRARY DESTINATION ${CMAKE_INSTALL_DATADIR}/millrace/python/millrace/trace)
    endif()
  endif()
endif()
install(DIRECTORY ${CMAKE_SOURCE_DIR}/python/ DESTINATION ${CMAKE_INSTALL_DATADIR}/millrace/python FILES_MATCHING
        PATTERN "*.py" PATTERN "*.pyi" PATTERN "py.typed")

# Benchmarks of the tracer: bench/run_trace.
add_executable(bench_trace EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/bench_trace/bench_trace.c
               ${CMAKE_SOURCE_DIR}/bench/bench_trace/turns_cost.c)
target_link_libraries(bench_trace PRIVATE mr_event PkgConfig::DEFLATE)
add_library(trace_floor MODULE EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/bench_trace/trace_floor.c)
set_target_properties(trace_floor PROPERTIES PREFIX "")
target_compile_options(trace_floor PRIVATE -O2 -fno-sanitize=all -Wno-missing-prototypes)
target_link_options(trace_floor PRIVATE -fno-sanitize=all)
