/* What models of a server do, as a line each: for the live view of `leat serve` on a terminal, and for that of
 * `leat run --serve`, which reads the figures from a file (cli/serve_figures.h). */
#ifndef LEAT_CLI_SERVE_VIEW_H
#define LEAT_CLI_SERVE_VIEW_H

#include "serve/server.h"

#include <stdio.h>

enum { SERVE_NAME_BYTES = 64, SERVE_DOING_BYTES = 160 };

/* What a model did in an interval, which is a second in general. */
struct serve_moment {
    char name[SERVE_NAME_BYTES];   /* printable ASCII; a longer one is cut */
    char doing[SERVE_DOING_BYTES]; /* why it takes no requests, or what it does besides; "": nothing to say */
    double seconds;                /* length of the interval */
    uint64_t requests, rows;       /* in the interval; rows that were answered */
    uint64_t outcomes[OUTCOMES];   /* requests in the interval */
    uint64_t totals[OUTCOMES];     /* requests since the server began */
    double p50_ms;                 /* of PHASE_ALL; 0: no request was answered in the interval */
    double p99_ms[PHASES];
    uint64_t waiting_rows;
    int64_t staleness_ms; /* -1: there is no checkpoint */
};

/* Figures of models at the end of the interval before. Zeroed: there was none. One thread. */
struct serve_past {
    struct figures *figures;
    uint32_t count;
    int64_t at_us; /* monotonic */
};
void serve_past_free(struct serve_past *past);
/* Writes what each of `count` models did since the last call into moments[count]. count: the same in each call. now_us:
 * monotonic. */
void serve_moments(struct serve_past *past, const struct server_status *models, uint32_t count,
                   int64_t now_us, struct serve_moment *moments);
/* Appends the model's name, filled up with blanks to name_width, and what it did, without a newline: at most `width`
 * columns, each a byte of printable ASCII. Where the phases of a request do not fit, only the slowest is named. Any
 * thread. */
void serve_moment_line(const struct serve_moment *moment, unsigned name_width, unsigned width,
                       struct byte_buffer *out);
/* Copies printable ASCII into out[bytes], and `?` for each other byte. Any thread. */
void serve_plain_text(struct str text, char *out, size_t bytes);

struct serve_view;

/* NULL: `file` is no terminal, and there is nothing to draw. */
struct serve_view *serve_view_new(FILE *file);
void serve_view_free(struct serve_view *view); /* NULL is allowed; the last picture stays */
/* Draws what models did since the last call, over the last picture. now_us: monotonic. One thread. */
void serve_view_draw(struct serve_view *view, const struct server_status *models, uint32_t count,
                     int64_t now_us);
/* Another line was written: the next picture is drawn below it. NULL is allowed. Any thread. */
void serve_view_leave(struct serve_view *view);

#endif
