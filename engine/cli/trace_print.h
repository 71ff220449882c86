/* Prints the result of `leat trace`, as text and as JSON. */
#ifndef LEAT_CLI_TRACE_PRINT_H
#define LEAT_CLI_TRACE_PRINT_H

#include "run/trace.h"

#include <stdio.h>

/* records: number of records read for the answer. Call before run_free. */
void trace_text(const struct plan *plan, const struct trace *trace, uint64_t records, FILE *out);
void trace_json(const struct plan *plan, const struct trace *trace, uint64_t records, FILE *out);

#endif
