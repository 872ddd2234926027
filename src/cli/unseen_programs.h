/* What a trace does not have: programs that the tracer could not be in, as its library noted them in a folder, and
 * events that nobody has written out yet. */
#ifndef MR_CLI_UNSEEN_PROGRAMS_H
#define MR_CLI_UNSEEN_PROGRAMS_H

/* Says in one warning which they were, if there were any. */
void mr_unseen_tell(const char *folder);
/* Warns that a trace, a file or a folder, is not complete, if it is not. */
void mr_rings_tell(const char *trace);

#endif
