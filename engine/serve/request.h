/* Rules for the rows of requests, whatever form they come in: which columns they must have, and their
 * times. */
#ifndef LEAT_SERVE_REQUEST_H
#define LEAT_SERVE_REQUEST_H

#include "core/batch.h"
#include "plan/plan.h"

/* The source's schema, where only columns that the way needs are required; the event time is not. */
struct schema *request_schema(const struct plan_node *source, const struct plan_serve *serve,
                              struct arena *arena);

/* The latest event time that a request may have. now_us: the event time of requests that give none.
 * newest_us: about the newest event time known. TIME_MAX: any. */
int64_t request_latest_us(const struct plan_node *source, int64_t now_us, int64_t newest_us);
/* Why a request with a later event time cannot be used. */
extern const char request_too_far[];

/* Sets the row's event time; a row without one gets now_us, in the column as well. */
void request_set_time(const struct plan_node *source, struct batch *batch, uint32_t row, int64_t now_us);
/* Gives a batch of requests the schema and the times that rows of the source have: order and arrival time
 * are the event time. */
void request_set_source(const struct plan_node *source, struct batch *batch);

#endif
