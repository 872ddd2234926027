# What `make install` puts where.
if(TARGET millrace)
  install(TARGETS millrace RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
foreach(kind ${MR_MPI_KINDS})
  install(TARGETS millrace_mpi_${kind} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/millrace)
endforeach()
if(TARGET millrace_shared)
  install(TARGETS millrace_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(DIRECTORY include/millrace DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

# Programs that include <dftracer/dftracer.h> compile unchanged with this folder on the include path. The file is made here, since names of
# files are unique in the tree.
set(dropin ${CMAKE_BINARY_DIR}/generated/dropin)
file(CONFIGURE OUTPUT ${dropin}/dftracer/dftracer.h CONTENT "/* DFTracer's macros, from Millrace. */\n#include <millrace/dftracer.h>\n" @ONLY)
install(DIRECTORY ${dropin} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/millrace)
install(DIRECTORY workloads DESTINATION ${CMAKE_INSTALL_DATADIR}/millrace)

# Manual pages and shell completion come from the built program itself, which has the option tables; asked at install time,
# so that they can never be of another version. A new command needs no edit here.
if(TARGET millrace)
  install(CODE "set(program $<TARGET_FILE:millrace>)\nset(made ${CMAKE_BINARY_DIR}/generated/help)
set(man_dir \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/man1\")\nset(data_dir \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\")")
  install(SCRIPT cmake/InstallHelp.cmake)
endif()
