# What `make install` puts where.
if(TARGET millrace)
  install(TARGETS millrace RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET millrace_mpi)
  install(TARGETS millrace_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/millrace)
endif()
install(DIRECTORY include/millrace DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY workloads DESTINATION ${CMAKE_INSTALL_DATADIR}/millrace)
