/* Programs that the tracer could not be in, as its library noted them in a folder. */
#ifndef MR_CLI_UNSEEN_PROGRAMS_H
#define MR_CLI_UNSEEN_PROGRAMS_H

/* Says in one warning which they were, if there were any. */
void mr_unseen_tell(const char *folder);

#endif
