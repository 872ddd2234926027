/* What formats say of fields by their names. */
#ifndef MR_FORMAT_FIELD_NAMES_H
#define MR_FORMAT_FIELD_NAMES_H

#include "format/format.h"

/* The role of an array beside the primary one: targets and weights have usual names, all others are inputs. */
enum mr_field_role mr_field_role_of_name(const char *name);

#endif
