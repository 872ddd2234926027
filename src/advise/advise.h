/* The advisor: rules that read an explanation and fill its findings, the reasons of rules that did not fire, and the
 * verdict. A pure function of the explanation; README.md has the invariants A1-A3, advise_internal.h says how to add a
 * rule. */
#ifndef MR_ADVISE_ADVISE_H
#define MR_ADVISE_ADVISE_H

#include "explain/explain.h"

/* Fills findings, silences and verdict. -ENOMEM. */
int mr_advise(struct mr_explanation *x, struct mr_error *err);
/* What `report --explain ID` shows: condition, measured values, evidence, formula, fix, and why the other rules did not
 * fire. MR_E_USAGE for an id that no rule has. The caller frees. */
int mr_advise_text(const struct mr_explanation *x, const char *id, char **out, struct mr_error *err);

#endif
