/* The one version number of Millrace. CMake, packages and `millrace --version` all read it from here. */
#ifndef MILLRACE_VERSION_H
#define MILLRACE_VERSION_H

#define MR_VERSION_MAJOR 0
#define MR_VERSION_MINOR 1
#define MR_VERSION_PATCH 0
#define MR_VERSION "0.1.0"

#endif
