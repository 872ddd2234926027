/* What formats have in common about fields: roles by names, shapes that fit several values. */
#ifndef MR_FORMAT_FIELD_NAMES_H
#define MR_FORMAT_FIELD_NAMES_H

#include "format/format.h"

/* The role of an array beside the primary one: targets and weights have usual names, all others are inputs. */
enum mr_field_role mr_field_role_of_name(const char *name);
/* `all` gets the shape that fits both: an axis in which they differ becomes the variable one. */
void mr_field_widen(struct mr_field *all, const struct mr_field *f);

#endif
