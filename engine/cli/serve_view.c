#include "cli/serve_view.h"

#include "control/summary.h"
#include "core/mem.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { WIDTH_LEAST = 40, WIDTH_USUAL = 100, NAME_WIDTH = 16 };

struct serve_view {
    FILE *file;
    struct figures *before; /* of each model at the last picture */
    uint32_t count;
    atomic_uint lines; /* of the last picture, over which the next one is drawn */
    int64_t drawn_us;  /* monotonic; 0: nothing was drawn yet */
    struct byte_buffer out;
};

struct serve_view *serve_view_new(FILE *file)
{
    if (!isatty(fileno(file)))
        return NULL;
    struct serve_view *view = mem_calloc(1, sizeof(*view));
    view->file = file;
    return view;
}

void serve_view_free(struct serve_view *view)
{
    if (view == NULL)
        return;
    buffer_free(&view->out);
    free(view->before);
    free(view);
}

void serve_view_leave(struct serve_view *view)
{
    if (view != NULL)
        atomic_store(&view->lines, 0);
}

/* --- A line --- */

/* Requests of the phase since `before`. */
static struct histogram since(const struct histogram *now, const struct histogram *before)
{
    struct histogram new = {.count = now->count - before->count};
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        new.counts[i] = now->counts[i] - before->counts[i];
    return new;
}

static void add_times(const struct figures *now, const struct figures *before, struct byte_buffer *out)
{
    struct histogram all = since(&now->phases[PHASE_ALL], &before->phases[PHASE_ALL]);
    if (all.count == 0)
        return;
    buffer_printf(out, "  p50 %.2f ms  p99 %.2f (", histogram_quantile(&all, 0.5) / 1e6,
                  histogram_quantile(&all, 0.99) / 1e6);
    for (uint32_t i = 0; i < PHASE_ALL; i++) {
        struct histogram phase = since(&now->phases[i], &before->phases[i]);
        buffer_printf(out, "%s%s %.2f", i == 0 ? "" : ", ", phase_name((enum phase)i),
                      histogram_quantile(&phase, 0.99) / 1e6);
    }
    buffer_printf(out, ")");
}

void serve_view_line(const struct server_status *model, const struct figures *before, double seconds,
                     struct byte_buffer *out)
{
    const struct figures *now = model->figures;
    char rate[32], rows[32];
    buffer_printf(out, "%-*.*s", NAME_WIDTH, (int)MIN(model->name.length, (size_t)NAME_WIDTH),
                  model->name.data);
    if (model->reason != NULL)
        buffer_printf(out, "  %s", model->reason);
    buffer_printf(out, "  requests %s  rows %s",
                  format_rate((double)(now->requests - before->requests) / seconds, rate),
                  format_rate((double)(now->rows_answered - before->rows_answered) / seconds, rows));
    add_times(now, before, out);
    for (uint32_t i = OUTCOME_FILTERED; i < OUTCOMES; i++)
        if (now->outcomes[i] > before->outcomes[i])
            buffer_printf(out, "  %s %" PRIu64, outcome_name((enum outcome)i),
                          now->outcomes[i] - before->outcomes[i]);
    if (model->waiting_rows > 0)
        buffer_printf(out, "  waiting rows %" PRIu64, model->waiting_rows);
    if (model->staleness_ms >= 0)
        buffer_printf(out, "  %.*f s old", model->staleness_ms < 10000 ? 2 : 0,
                      (double)model->staleness_ms / 1e3);
}

/* --- The picture --- */

static uint32_t terminal_width(FILE *file)
{
    struct winsize size;
    if (ioctl(fileno(file), TIOCGWINSZ, &size) == 0 && size.ws_col >= WIDTH_LEAST)
        return size.ws_col;
    return WIDTH_USUAL;
}

void serve_view_draw(struct serve_view *view, const struct server_status *models, uint32_t count,
                     int64_t now_us)
{
    if (view->before == NULL) {
        view->before = mem_calloc(MAX(count, 1), sizeof(*view->before));
        view->count = count;
    }
    leat_assert(count == view->count);
    double seconds = view->drawn_us == 0 ? 1.0 : (double)MAX(now_us - view->drawn_us, 1) / 1e6;
    uint32_t width = terminal_width(view->file);
    view->drawn_us = now_us;
    buffer_clear(&view->out);
    unsigned lines = atomic_load(&view->lines);
    if (lines > 0)
        buffer_printf(&view->out, "\x1b[%uA\r", lines);
    for (uint32_t i = 0; i < count; i++) {
        size_t begin = view->out.length;
        serve_view_line(&models[i], &view->before[i], seconds, &view->out);
        view->before[i] = *models[i].figures;
        view->out.length = MIN(view->out.length, begin + width - 1); /* ASCII: a byte is a column */
        buffer_printf(&view->out, "\x1b[K\n");
    }
    atomic_store(&view->lines, count);
    fwrite(view->out.data, 1, view->out.length, view->file);
    fflush(view->file);
}
