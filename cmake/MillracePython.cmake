# The Python extension millrace._core: what the front ends are made of, over libmillrace.so. Limited API of Python 3.10, so
# one file serves every later version. It lies beside the Python sources in build/python, which works as it stands.
#
# MR_WHEEL: the build that packaging/wheel_backend.py makes a wheel of. Programs and libraries look for each other, and for
# the third-party libraries that are copied beside them, relative to where they lie; DT_RPATH, not DT_RUNPATH, because only
# the former counts for what those libraries need in turn.
option(MR_WHEEL "Build for a Python wheel: libraries are found relative to the package" OFF)
if(MR_WITH_PYTHON AND TARGET millrace_python_trace AND TARGET millrace_shared)
  file(GLOB core_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/python/ext/*.c)
  add_library(millrace_python_core MODULE ${core_sources})
  set_target_properties(millrace_python_core PROPERTIES PREFIX "" OUTPUT_NAME "_core" SUFFIX ".abi3.so"
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/python/millrace)
  target_include_directories(millrace_python_core PRIVATE ${CMAKE_SOURCE_DIR}/include)
  target_include_directories(millrace_python_core SYSTEM PRIVATE ${python_include})
  target_compile_options(millrace_python_core PRIVATE -O2)
  target_link_libraries(millrace_python_core PRIVATE millrace_shared Threads::Threads)
  add_dependencies(millrace_python millrace_python_core)
  install(TARGETS millrace_python_core LIBRARY DESTINATION ${CMAKE_INSTALL_DATADIR}/millrace/python/millrace)
  if(MR_WHEEL)
    foreach(target millrace_python_core millrace_shared millrace)
      target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
      set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH TRUE)
    endforeach()
    set_target_properties(millrace_python_core PROPERTIES INSTALL_RPATH "$ORIGIN/_home/lib")
    set_target_properties(millrace_shared PROPERTIES INSTALL_RPATH "$ORIGIN")
    set_target_properties(millrace PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
  else()
    file(RELATIVE_PATH core_up "/${CMAKE_INSTALL_DATADIR}/millrace/python/millrace" "/${CMAKE_INSTALL_LIBDIR}")
    set_target_properties(millrace_python_core PROPERTIES INSTALL_RPATH "$ORIGIN/${core_up}")
  endif()
endif()
