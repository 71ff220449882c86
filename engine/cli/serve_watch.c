#include "cli/serve_watch.h"

#include "cli/serve_beside.h"
#include "cli/serve_figures.h"
#include "core/mem.h"
#include "core/os.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_US = 250 * 1000, SILENT_US = 4 * 1000 * 1000, NAME_WIDTH = 30, WARNING_BYTES = 400 };

struct serve_watch {
    const struct job_load *load;
    char *path;         /* of the figures */
    int64_t looked_us;  /* monotonic: when the file was last read */
    int64_t renewed_us; /* monotonic: when it was first found as it is */
    int error;          /* of the last reading */
    bool has_read, has_ended, has_warned;
    struct serve_report report; /* the newest that could be read */
    struct summary_served totals[SERVE_FIGURES_MODELS_MAX];
    char warning[WARNING_BYTES];
};

struct serve_watch *serve_watch_new(const struct job_load *load)
{
    struct serve_watch *watch = mem_calloc(1, sizeof(*watch));
    watch->load = load;
    watch->path = serve_beside_figures(load);
    watch->renewed_us = os_monotonic_us();
    return watch;
}

void serve_watch_free(struct serve_watch *watch)
{
    if (watch == NULL)
        return;
    free(watch->path);
    free(watch);
}

static void look(struct serve_watch *watch, int64_t now_us)
{
    uint64_t before = watch->report.sequence;
    watch->looked_us = now_us;
    watch->error = serve_report_read(watch->path, &watch->report);
    if (watch->error == 0 && (!watch->has_read || watch->report.sequence != before)) {
        watch->has_read = true;
        watch->renewed_us = now_us;
        watch->has_ended = false;
    }
    if (now_us - watch->renewed_us >= SILENT_US)
        watch->has_ended = !serve_beside_is_there(watch->load);
}

/* Why there are no new figures, which is for as long as silent_us. */
static void add_silence(const struct serve_watch *watch, int64_t silent_us, struct byte_buffer *out)
{
    char time[32];
    format_duration(silent_us, time);
    if (watch->has_ended)
        buffer_printf(out, "serve  the server has ended\n");
    else if (watch->error == ENOENT && !watch->has_read)
        buffer_printf(out,
                      silent_us < SILENT_US ? "serve  the server starts\n"
                                            : "serve  the server has given no figures for %s\n",
                      time);
    else if (watch->error != 0)
        buffer_printf(out, "serve  the server's figures cannot be read: %s\n",
                      watch->error == EBADMSG ? "the file is damaged, or of another version of leat"
                                              : strerror(watch->error));
    else
        buffer_printf(out, "serve  the server has not answered for %s\n", time);
}

static const char *warning_of(struct serve_watch *watch)
{
    if (!watch->has_ended)
        watch->has_warned = false;
    if (!watch->has_ended || watch->has_warned)
        return NULL;
    watch->has_warned = true;
    struct str directory = watch->load->plan->config.checkpoint.directory;
    snprintf(watch->warning, sizeof(watch->warning),
             "the server beside the run has ended; its messages are in "
             "%.*s/serve.log; `leat serve %s` serves again",
             STR_ARGS(directory), watch->load->path);
    return watch->warning;
}

static const char *show(void *user, unsigned width, struct byte_buffer *out)
{
    struct serve_watch *watch = user;
    int64_t now_us = os_monotonic_us();
    if (now_us - watch->looked_us >= LOOK_US)
        look(watch, now_us);
    int64_t silent_us = now_us - watch->renewed_us;
    if (!watch->has_read || watch->has_ended || silent_us >= SILENT_US) {
        add_silence(watch, silent_us, out);
        return warning_of(watch);
    }
    for (uint32_t i = 0; i < watch->report.count; i++) {
        struct serve_moment moment = watch->report.models[i];
        snprintf(moment.name, sizeof(moment.name), "serve %.*s", (int)sizeof(moment.name) - 8,
                 watch->report.models[i].name);
        serve_moment_line(&moment, NAME_WIDTH, width, out);
        buffer_printf(out, "\n");
    }
    return warning_of(watch);
}

/* Of what was read last. */
static const struct summary_served *totals(void *user, uint32_t *count)
{
    struct serve_watch *watch = user;
    *count = watch->has_read ? watch->report.count : 0;
    for (uint32_t i = 0; i < *count; i++) {
        const struct serve_moment *moment = &watch->report.models[i];
        struct summary_served *served = &watch->totals[i];
        *served = (struct summary_served){.name = moment->name, .kinds = OUTCOMES};
        leat_assert(OUTCOMES <= ARRAY_COUNT(served->counts));
        for (uint32_t k = 0; k < OUTCOMES; k++) {
            served->kind_names[k] = outcome_name((enum outcome)k);
            served->counts[k] = moment->totals[k];
            served->requests += moment->totals[k];
        }
    }
    return watch->totals;
}

struct view_more serve_watch_more(struct serve_watch *watch)
{
    return (struct view_more){.show = show, .totals = totals, .user = watch};
}

const struct summary_served *serve_watch_totals(struct serve_watch *watch, uint32_t *count)
{
    look(watch, os_monotonic_us());
    return totals(watch, count);
}
