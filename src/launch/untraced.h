/* What is missing from a trace: programs that could not be traced, as the library noted them in the spool folder, and
 * events that are still in rings. Both are log warnings, several lines at most. */
#ifndef MR_LAUNCH_UNTRACED_H
#define MR_LAUNCH_UNTRACED_H

/* Warns, with names and reasons, of programs that were not traced; silent if there were none. */
void mr_warn_untraced(const char *folder);
/* Warns if a trace, a file or a folder, is unfinished. */
void mr_warn_unfinished(const char *trace);

#endif
