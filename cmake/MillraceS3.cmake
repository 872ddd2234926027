# HTTP and hashes of the store s3, by libcurl and OpenSSL: a module that is loaded when such a store is opened, so that
# nothing else depends on either. Without it `s3://` is refused with what to install. The portable tarball carries it too:
# it takes the libcurl.so.4 and libcrypto.so.3 of the machine where it runs.
option(MR_WITH_S3 "Build the module that reaches object storage (libcurl, OpenSSL)" ON)
set(MR_HAVE_S3 0)
if(MR_WITH_S3)
  set(mr_suffixes ${CMAKE_FIND_LIBRARY_SUFFIXES})
  set(CMAKE_FIND_LIBRARY_SUFFIXES .so)
  pkg_check_modules(CURL IMPORTED_TARGET libcurl)
  pkg_check_modules(CRYPTO IMPORTED_TARGET libcrypto>=3.0)
  set(CMAKE_FIND_LIBRARY_SUFFIXES ${mr_suffixes})
  if(CURL_FOUND AND CRYPTO_FOUND)
    set(MR_HAVE_S3 1)
  else()
    message(STATUS "Object storage (s3://) is left out: install libcurl4-openssl-dev and libssl-dev")
  endif()
endif()

function(mr_s3_module)
  if(NOT MR_HAVE_S3)
    return()
  endif()
  add_library(millrace_s3_curl MODULE ${CMAKE_SOURCE_DIR}/src/s3/http_curl_module.c
              ${CMAKE_SOURCE_DIR}/src/s3/http_direct_module.c ${CMAKE_SOURCE_DIR}/src/s3/http_answer.c)
  set_target_properties(millrace_s3_curl PROPERTIES PREFIX "")
  target_include_directories(millrace_s3_curl PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(millrace_s3_curl PRIVATE PkgConfig::CURL PkgConfig::CRYPTO Threads::Threads)
endfunction()
