# What `make install` puts where.
if(TARGET millrace)
  install(TARGETS millrace RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
foreach(kind ${MR_MPI_KINDS})
  install(TARGETS millrace_mpi_${kind} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/millrace)
endforeach()
if(TARGET millrace_wire_ucx)
  install(TARGETS millrace_wire_ucx LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/millrace)
endif()
if(TARGET millrace_s3_curl)
  install(TARGETS millrace_s3_curl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/millrace)
endif()
if(TARGET millrace_shared)
  install(TARGETS millrace_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(DIRECTORY include/millrace DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY examples/plugins DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)
# For programs (--libs) and for plug-ins, which need --cflags alone. Relative to the file, so the tree may be moved.
file(RELATIVE_PATH pc_up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" pc_up "${pc_up}")
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/millrace.pc @ONLY CONTENT "prefix=\${pcfiledir}/@pc_up@
Name: millrace
Description: measures, explains, predicts and fixes the I/O of deep-learning training
Version: @PROJECT_VERSION@
Cflags: -I\${prefix}/@CMAKE_INSTALL_INCLUDEDIR@
Libs: -L\${prefix}/@CMAKE_INSTALL_LIBDIR@ -lmillrace
")
install(FILES ${CMAKE_BINARY_DIR}/generated/millrace.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Programs that include <dftracer/dftracer.h> compile unchanged with this folder on the include path. The file is made here, since names of
# files are unique in the tree.
set(dropin ${CMAKE_BINARY_DIR}/generated/dropin)
file(CONFIGURE OUTPUT ${dropin}/dftracer/dftracer.h CONTENT "/* DFTracer's macros, from Millrace. */\n#include <millrace/dftracer.h>\n" @ONLY)
install(DIRECTORY ${dropin} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/millrace)
install(DIRECTORY workloads DESTINATION ${CMAKE_INSTALL_DATADIR}/millrace)

# llms.txt: commands from the help, pages from doc/README.md.
if(TARGET millrace)
  install(CODE "execute_process(COMMAND ${CMAKE_SOURCE_DIR}/scripts/llms $<TARGET_FILE:millrace> OUTPUT_FILE ${CMAKE_BINARY_DIR}/llms.txt COMMAND_ERROR_IS_FATAL ANY)")
  install(FILES ${CMAKE_BINARY_DIR}/llms.txt DESTINATION ${CMAKE_INSTALL_DOCDIR})
endif()

# Manual pages and shell completion come from the built program itself, which has the option tables; asked at install time,
# so that they can never be of another version. A new command needs no edit here.
if(TARGET millrace)
  install(CODE "set(program $<TARGET_FILE:millrace>)\nset(made ${CMAKE_BINARY_DIR}/generated/help)
set(man_dir \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/man1\")\nset(data_dir \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\")")
  install(SCRIPT cmake/InstallHelp.cmake)
endif()
