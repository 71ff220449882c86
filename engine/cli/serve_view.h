/* The live view of `leat serve` on a terminal: a line for each model, drawn again every second. One thread, but for
 * serve_view_leave. */
#ifndef LEAT_CLI_SERVE_VIEW_H
#define LEAT_CLI_SERVE_VIEW_H

#include "serve/server.h"

#include <stdio.h>

struct serve_view;

/* NULL: `file` is no terminal, and there is nothing to draw. */
struct serve_view *serve_view_new(FILE *file);
void serve_view_free(struct serve_view *view); /* NULL is allowed; the last picture stays */
/* Draws what models did since the last call. now_us: monotonic. */
void serve_view_draw(struct serve_view *view, const struct server_status *models, uint32_t count,
                     int64_t now_us);
/* Another line was written: the next picture is drawn below it. NULL is allowed. Any thread. */
void serve_view_leave(struct serve_view *view);
/* Appends the line of a model, without a newline: what it did in `seconds`, from the figures `before` to those of now. */
void serve_view_line(const struct server_status *model, const struct figures *before, double seconds,
                     struct byte_buffer *out);

#endif
