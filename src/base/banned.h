/* Functions that must not be used, turned into compile errors. Force-included into every source file of the project
 * (see cmake/), after the system headers that declare them. Each has a better one: snprintf, memcpy, strtok_r,
 * strtol, gmtime_r, localtime_r, malloc, posix_spawn, mr_rng_at. */
#ifndef MR_BASE_BANNED_H
#define MR_BASE_BANNED_H

#ifndef __cplusplus
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define MR_BANNED(f) f##_is_banned_see_src_base_banned_h()

#undef strcpy
#define strcpy(...) MR_BANNED(strcpy)
#undef strcat
#define strcat(...) MR_BANNED(strcat)
#undef sprintf
#define sprintf(...) MR_BANNED(sprintf)
#undef vsprintf
#define vsprintf(...) MR_BANNED(vsprintf)
#undef strtok
#define strtok(...) MR_BANNED(strtok)
#undef atoi
#define atoi(...) MR_BANNED(atoi)
#undef gmtime
#define gmtime(...) MR_BANNED(gmtime)
#undef localtime
#define localtime(...) MR_BANNED(localtime)
#undef alloca
#define alloca(...) MR_BANNED(alloca)
#undef system
#define system(...) MR_BANNED(system)
#undef rand
#define rand(...) MR_BANNED(rand)

#endif
#endif
