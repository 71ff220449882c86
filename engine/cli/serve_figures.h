/* The file of `leat serve --figures FILE`: what each model does, written anew each second, for the live view of
 * `leat run --serve`. The file is text:
 *
 *     leat serve figures 1 SEQUENCE MODELS
 *     NAME NUMBER ... NUMBER DOING          a line for each model; the numbers are those of struct serve_moment
 *
 * A file takes the place of the one before by rename, so that a reader never sees half of one. It is not synced: it says
 * nothing that outlives the server. */
#ifndef LEAT_CLI_SERVE_FIGURES_H
#define LEAT_CLI_SERVE_FIGURES_H

#include "cli/serve_view.h"

enum { SERVE_FIGURES_BYTES_MAX = 256 << 10, SERVE_FIGURES_MODELS_MAX = 256 };

struct serve_figures;

/* Begins a thread that writes the file, so that the caller never waits for the disk. path: copied. say: takes a message
 * when the file cannot be written, and when it can be again, from that thread. */
struct serve_figures *serve_figures_start(const char *path, void (*say)(void *user, const char *line),
                                          void *user);
/* Has what models did since the last call written. count: the same in each call. now_us: monotonic. One thread. */
void serve_figures_put(struct serve_figures *figures, const struct server_status *models, uint32_t count,
                       int64_t now_us);
/* Writes what was put last, and ends the thread. NULL is allowed. */
void serve_figures_stop(struct serve_figures *figures);

/* What a file says. */
struct serve_report {
    uint64_t sequence; /* of the file; a server's next file has a higher one */
    uint32_t count;
    struct serve_moment models[SERVE_FIGURES_MODELS_MAX];
};
/* Reads a file. Returns why it cannot be read, as an errno; EBADMSG: it is no such file, or is damaged, and *report is as it
 * was. Any thread. */
LEAT_CHECKED int serve_report_read(const char *path, struct serve_report *report);
/* Appends the text of a file; at most SERVE_FIGURES_MODELS_MAX models. Any thread. */
void serve_report_write(uint64_t sequence, const struct serve_moment *models, uint32_t count,
                        struct byte_buffer *out);

#endif
