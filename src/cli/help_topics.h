/* Topics of `millrace help` that are not commands. To add one: add a row in help_topics.c. */
#ifndef MR_CLI_HELP_TOPICS_H
#define MR_CLI_HELP_TOPICS_H

#include <stdio.h>

struct mr_help_topic {
    const char *name, *summary;
    const char *text;         /* paragraphs, or */
    void (*print)(FILE *out); /* generated from the tables */
};

extern const struct mr_help_topic mr_help_topics[]; /* ends with name NULL */

#endif
