/* The figures of mirrors and of the offer for GET /metrics. */
#include "serve/link.h"

#include <inttypes.h>

static void put_head(struct byte_buffer *out, const char *name, const char *type, const char *help)
{
    buffer_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_mirrors(struct link_mirror *const *mirrors, const struct link_job *jobs, uint32_t count,
                        struct byte_buffer *out)
{
    static const struct {
        const char *name, *type, *help;
        size_t at; /* in struct link_mirror_figures; SIZE_MAX: is_linked */
    } rows[] = {
        {"leat_link_up", "gauge", "1: the last request to the offering server had a good answer.", SIZE_MAX},
        {"leat_link_answers_total", "counter", "Good answers.",
         offsetof(struct link_mirror_figures, answers)},
        {"leat_link_unanswered_total", "counter", "Requests without an answer.",
         offsetof(struct link_mirror_figures, unanswered)},
        {"leat_link_refused_total", "counter", "Requests that were refused.",
         offsetof(struct link_mirror_figures, refusals)},
        {"leat_link_damaged_total", "counter", "Answers that were damaged on the way, and asked for again.",
         offsetof(struct link_mirror_figures, damaged)},
        {"leat_link_received_bytes_total", "counter", "Bytes of good answers.",
         offsetof(struct link_mirror_figures, bytes)},
        {"leat_link_checkpoints_total", "counter", "Checkpoints put in place.",
         offsetof(struct link_mirror_figures, checkpoints)},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        put_head(out, rows[i].name, rows[i].type, rows[i].help);
        for (uint32_t j = 0; j < count; j++) {
            if (mirrors[j] == NULL)
                continue;
            struct link_mirror_figures figures = link_mirror_figures(mirrors[j]);
            uint64_t value = figures.is_linked;
            if (rows[i].at != SIZE_MAX)
                memcpy(&value, (const char *)&figures + rows[i].at, sizeof(value));
            buffer_printf(out, "%s{job=\"%.*s\"} %" PRIu64 "\n", rows[i].name, STR_ARGS(jobs[j].name), value);
        }
    }
}

static void put_offer(struct link_offer *offer, struct byte_buffer *out)
{
    struct link_offer_figures figures = link_offer_figures(offer);
    put_head(out, "leat_link_offered_answers_total", "counter", "Answers to mirrors.");
    buffer_printf(out, "leat_link_offered_answers_total %" PRIu64 "\n", figures.answers);
    put_head(out, "leat_link_offered_refusals_total", "counter", "Requests of mirrors that were refused.");
    buffer_printf(out, "leat_link_offered_refusals_total %" PRIu64 "\n", figures.refusals);
    put_head(out, "leat_link_offered_bytes_total", "counter", "Bytes of answers to mirrors.");
    buffer_printf(out, "leat_link_offered_bytes_total %" PRIu64 "\n", figures.bytes);
}

void link_write_metrics(struct link_mirror *const *mirrors, const struct link_job *jobs, uint32_t count,
                        struct link_offer *offer, struct byte_buffer *out)
{
    bool has_mirrors = false;
    for (uint32_t i = 0; i < count; i++)
        has_mirrors |= mirrors[i] != NULL;
    if (has_mirrors)
        put_mirrors(mirrors, jobs, count, out);
    if (offer != NULL)
        put_offer(offer, out);
}
