/* The one version number of Millrace. CMake, packages and `millrace --version` all read it from here. */
#ifndef MILLRACE_VERSION_H
#define MILLRACE_VERSION_H

#define MR_VERSION_MAJOR 0
#define MR_VERSION_MINOR 1
#define MR_VERSION_PATCH 0
#define MR_VERSION "0.1.0"

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif
/* The version of the library that is loaded at run time, to compare with MR_VERSION a program was compiled with. */
const char *mr_library_version(void);
#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
