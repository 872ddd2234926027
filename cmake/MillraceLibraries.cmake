# Third-party libraries. Required ones stop the configuration with the package to install; optional ones only turn a
# feature off, which `millrace --version` then says.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
if(MR_PORTABLE)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a) # third-party code goes into our binary; only glibc stays outside
endif()

function(mr_require target module package)
  pkg_check_modules(${target} IMPORTED_TARGET ${module})
  if(NOT ${target}_FOUND)
    message(FATAL_ERROR "${module} not found: install ${package} (or run scripts/setup)")
  endif()
endfunction()

mr_require(YAML yaml-0.1 libyaml-dev)
mr_require(JANSSON jansson libjansson-dev)
mr_require(JPEG libjpeg libjpeg62-turbo-dev)
mr_require(PNG libpng libpng-dev)
mr_require(ZSTD libzstd libzstd-dev)
mr_require(DEFLATE libdeflate libdeflate-dev)
mr_require(XXHASH libxxhash libxxhash-dev)
mr_require(ZLIB zlib zlib1g-dev)

set(MR_HAVE_URING 0)
if(MR_WITH_URING)
  pkg_check_modules(URING IMPORTED_TARGET liburing)
  if(URING_FOUND)
    set(MR_HAVE_URING 1)
  endif()
endif()

include(MillraceMpi) # MR_HAVE_MPI, mr_mpi_modules()
include(MillraceUcx) # MR_HAVE_UCX, mr_ucx_module()
include(MillraceS3)  # MR_HAVE_S3, mr_s3_module()

pkg_check_modules(CMOCKA IMPORTED_TARGET cmocka)

# Which optional parts this build has; only build_info.c reads these, so the core has no #ifdef HAVE_X.
configure_file(${CMAKE_SOURCE_DIR}/cmake/build_info.h.in ${CMAKE_BINARY_DIR}/generated/build_info.h)
