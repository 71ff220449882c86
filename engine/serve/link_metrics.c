/* The figures of mirrors and of the offer for GET /metrics. */
#include "serve/link.h"
#include "serve/metrics_table.h"

static void put_mirrors(struct link_mirror *const *mirrors, const struct link_job *jobs, uint32_t count,
                        struct metrics_text *text)
{
    static const struct {
        enum serve_metric metric;
        size_t at; /* of the uint64_t in struct link_mirror_figures; SIZE_MAX: is_linked */
    } rows[] = {
        {METRIC_LINK_UP, SIZE_MAX},
        {METRIC_LINK_ANSWERS, offsetof(struct link_mirror_figures, answers)},
        {METRIC_LINK_UNANSWERED, offsetof(struct link_mirror_figures, unanswered)},
        {METRIC_LINK_REFUSED, offsetof(struct link_mirror_figures, refusals)},
        {METRIC_LINK_DAMAGED, offsetof(struct link_mirror_figures, damaged)},
        {METRIC_LINK_BYTES, offsetof(struct link_mirror_figures, bytes)},
        {METRIC_LINK_CHECKPOINTS, offsetof(struct link_mirror_figures, checkpoints)},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        metrics_head(text, &serve_metrics[rows[i].metric]);
        for (uint32_t j = 0; j < count; j++) {
            if (mirrors[j] == NULL)
                continue;
            struct link_mirror_figures figures = link_mirror_figures(mirrors[j]);
            uint64_t value = figures.is_linked;
            if (rows[i].at != SIZE_MAX)
                memcpy(&value, (const char *)&figures + rows[i].at, sizeof(value));
            serve_metric_begin(text, rows[i].metric, jobs[j].name);
            metrics_count(text, value);
        }
    }
}

void link_write_metrics(struct link_mirror *const *mirrors, const struct link_job *jobs, uint32_t count,
                        struct link_offer *offer, struct metrics_text *text)
{
    bool has_mirrors = false;
    for (uint32_t i = 0; i < count; i++)
        has_mirrors |= mirrors[i] != NULL;
    if (has_mirrors)
        put_mirrors(mirrors, jobs, count, text);
    if (offer == NULL)
        return;
    struct link_offer_figures figures = link_offer_figures(offer);
    metrics_single(text, &serve_metrics[METRIC_LINK_OFFERED_ANSWERS], figures.answers);
    metrics_single(text, &serve_metrics[METRIC_LINK_OFFERED_REFUSALS], figures.refusals);
    metrics_single(text, &serve_metrics[METRIC_LINK_OFFERED_BYTES], figures.bytes);
}
