# The MPI modules: one for each MPI implementation whose compiler wrapper is found, since their binary interfaces differ.
# src/comm/comm_detect.c picks one by what the launcher has put into the environment. Which implementation a wrapper
# belongs to is asked of its mpi.h. MR_MPI_COMPILERS names the wrappers to try, best first.
set(MR_MPI_COMPILERS mpicc.openmpi mpicc.mpich mpicc CACHE STRING "MPI compiler wrappers, one module per implementation")

# openmpi or mpich (with its descendants, which share its binary interface), or empty.
function(mr_mpi_kind compiler out)
  file(WRITE ${CMAKE_BINARY_DIR}/generated/mpi_kind.c
    "#include <mpi.h>\n#if defined(OPEN_MPI)\nkind_is_openmpi\n#elif defined(MPICH_VERSION) || defined(MVAPICH2_VERSION)\nkind_is_mpich\n#endif\n")
  execute_process(COMMAND ${compiler} -E ${CMAKE_BINARY_DIR}/generated/mpi_kind.c OUTPUT_VARIABLE text ERROR_QUIET RESULT_VARIABLE rc)
  set(${out} "" PARENT_SCOPE)
  if(rc EQUAL 0 AND text MATCHES "kind_is_([a-z]+)")
    set(${out} ${CMAKE_MATCH_1} PARENT_SCOPE)
  endif()
endfunction()

# What the wrapper would add to a compilation; both kinds understand -show.
function(mr_mpi_flags compiler compile link)
  execute_process(COMMAND ${compiler} -show OUTPUT_VARIABLE text OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  separate_arguments(words UNIX_COMMAND "${text}")
  list(POP_FRONT words)
  set(includes ${words})
  set(libraries ${words})
  list(FILTER includes INCLUDE REGEX "^-(I|D|isystem)")
  list(FILTER libraries INCLUDE REGEX "^(-l|-L|-Wl,)|\\.(so|a)$")
  set(${compile} ${includes} PARENT_SCOPE)
  set(${link} ${libraries} PARENT_SCOPE)
endfunction()

set(MR_HAVE_MPI 0)
set(MR_MPI_KINDS "")
if(MR_WITH_MPI)
  foreach(name ${MR_MPI_COMPILERS})
    string(MAKE_C_IDENTIFIER "MR_PROGRAM_${name}" variable)
    find_program(${variable} ${name})
    if(${variable})
      mr_mpi_kind(${${variable}} kind)
      if(kind AND NOT kind IN_LIST MR_MPI_KINDS)
        list(APPEND MR_MPI_KINDS ${kind})
        mr_mpi_flags(${${variable}} MR_MPI_COMPILE_${kind} MR_MPI_LINK_${kind})
        set(MR_HAVE_MPI 1)
      endif()
    endif()
  endforeach()
endif()

function(mr_mpi_modules)
  foreach(kind ${MR_MPI_KINDS})
    set(target millrace_mpi_${kind})
    add_library(${target} MODULE ${CMAKE_SOURCE_DIR}/src/comm/comm_mpi_module.c)
    set_target_properties(${target} PROPERTIES PREFIX "")
    target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
    target_compile_options(${target} PRIVATE ${MR_MPI_COMPILE_${kind}})
    if(NOT MR_PORTABLE) # a portable module takes the MPI library that it finds, whatever its file is called there
      target_link_libraries(${target} PRIVATE ${MR_MPI_LINK_${kind}})
    endif()
  endforeach()
endfunction()
