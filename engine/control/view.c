#include "control/view.h"

#include "control/api.h"
#include "control/picture.h"
#include "control/progress.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/os.h"

#include <stdlib.h>
#include <unistd.h>

enum { VIEW_REDRAW_US = 250 * 1000, VIEW_LOOK_US = 500 * 1000, BESIDE_WIDTH = 200, BESIDE_LEAST = 40 };

struct view {
    const struct plan *plan;
    struct dead_watch *watch;
    struct bottleneck *bottleneck;
    struct api *api;
    bool is_quiet, is_terminal;
    struct progress progress; /* used where stderr is no terminal */
    int64_t looked_us;        /* when run_stats was called last */
    struct pace pace;
    uint32_t lines; /* number of lines of the last picture, over which the next one is drawn */
    struct run_stats stats;
    struct byte_buffer out;
    struct view_more more;
    struct byte_buffer beside; /* its lines, of the last look */
};

struct view *view_new(const struct view_options *options)
{
    struct view *view = mem_calloc(1, sizeof(*view));
    view->plan = options->plan;
    view->watch = options->watch;
    view->bottleneck = options->bottleneck;
    view->api = options->api;
    view->is_quiet = options->is_quiet;
    view->progress = options->progress;
    view->is_terminal = isatty(STDERR_FILENO) != 0 && log_form() == LOG_FORM_TEXT;
    view->more = options->more;
    view->looked_us = os_monotonic_us();
    pace_begin(&view->pace, 0, view->looked_us);
    return view;
}

static void draw_screen(struct view *view, const struct picture *picture)
{
    struct picture_size size = picture_terminal(STDERR_FILENO);
    uint32_t lines = MAX(size.rows, 2) - 1; /* the cursor's row is below */
    buffer_clear(&view->out);
    if (view->lines > 0)
        buffer_printf(&view->out, "\x1b[%uA\r", MIN(view->lines, lines));
    view->lines = picture_fit(picture, size, lines, "make the terminal higher", &view->out);
    buffer_printf(&view->out, "\x1b[J");
    fwrite(view->out.data, 1, view->out.length, stderr);
}

static void print_line(struct view *view, const struct picture *picture)
{
    buffer_clear(&view->out);
    picture_line(picture, &view->out);
    log_progress((struct str){view->out.data, view->out.length});
}

/* The state of which each change is reported at once (control/progress.h). */
static const char *state_of(struct view *view, struct byte_buffer *out)
{
    buffer_clear(out);
    for (uint32_t i = 0; i < view->stats.nodes_count; i++) {
        const struct run_node_stats *node = &view->stats.nodes[i];
        if (node->counters.dead > 0)
            buffer_printf(out, "%.*s: dead; ", STR_ARGS(node->node->name));
        if (node->report.error[0] != '\0')
            buffer_printf(out, "%.*s: %s; ", STR_ARGS(node->node->name), node->report.error);
        const struct report_item *hot = report_find(&node->report, "hot_key");
        if (hot != NULL && hot->text != NULL && hot->text[0] != '\0')
            buffer_printf(out, "%.*s: hot key; ", STR_ARGS(node->node->name));
    }
    if (view->pace.still_us > 0)
        buffer_printf(out, "still; ");
    buffer_append(out, "", 1);
    return out->data;
}

/* Writes new warnings, as lines that stay, even where no progress is shown. */
static void warn(struct view *view)
{
    bool is_new[PLAN_NODES_MAX];
    if (!dead_watch_look(view->watch, &view->stats, is_new))
        return;
    for (uint32_t i = 0; i < view->stats.nodes_count; i++)
        if (is_new[i])
            log_say(LOG_LEVEL_WARNING, "WARNING: %s", view->watch->nodes[i].text);
    view->lines = 0;
}

/* Looks at what is beside the run; writes its warning, as a line that stays. */
static void look_beside(struct view *view)
{
    buffer_clear(&view->beside);
    if (view->more.show == NULL)
        return;
    uint32_t width =
        view->is_terminal ? MAX(picture_terminal(STDERR_FILENO).columns, BESIDE_LEAST) - 3 : BESIDE_WIDTH;
    const char *warning = view->more.show(view->more.user, width, &view->beside);
    if (view->api != NULL) {
        uint32_t count;
        const struct summary_served *served = view->more.totals(view->more.user, &count);
        api_served(view->api, served, count);
    }
    if (warning == NULL)
        return;
    log_say(LOG_LEVEL_WARNING, "WARNING: %s", warning);
    view->lines = 0;
}

void view_update(struct view *view, struct run *run)
{
    int64_t now = os_monotonic_us();
    bool is_drawn = view->is_terminal && !view->is_quiet;
    struct bottleneck_found recent;
    if (now - view->looked_us < (is_drawn ? VIEW_REDRAW_US : VIEW_LOOK_US))
        return;
    view->looked_us = now;
    log_look();
    run_stats(run, &view->stats);
    bottleneck_look(view->bottleneck, &view->stats);
    bool is_known = bottleneck_recent(view->bottleneck, &recent);
    warn(view);
    look_beside(view);
    if (view->api != NULL)
        api_publish(view->api, run, &view->stats, view->watch, is_known ? &recent : NULL);
    if (view->is_quiet)
        return;
    int64_t every_us = view->progress.every_us == 0 ? PROGRESS_EVERY_US : view->progress.every_us;
    /* Said after half the time between two lines of progress. */
    pace_look_at_watermark(&view->pace, &view->stats, every_us / 2, now);
    if (!view->is_terminal && !progress_is_due(&view->progress, now, state_of(view, &view->out)))
        return;
    pace_look_at_rate(&view->pace, &view->stats, now);
    struct picture picture = {.job = view->plan->name,
                              .stats = &view->stats,
                              .watch = view->watch,
                              .recent = is_known ? &recent : NULL,
                              .pace = &view->pace,
                              .beside = {view->beside.data, view->beside.length}};
    if (view->is_terminal)
        draw_screen(view, &picture);
    else
        print_line(view, &picture);
}

void view_message(struct view *view, const char *text)
{
    if (!view->is_quiet && log_form() == LOG_FORM_TEXT)
        fprintf(stderr, "\n"); /* behind the view, or what the terminal shows of Ctrl-C */
    if (!view->is_quiet)
        log_say(LOG_LEVEL_INFO, "%s", text);
    view->lines = 0;
}

void view_free(struct view *view)
{
    buffer_free(&view->out);
    buffer_free(&view->beside);
    free(view);
}
