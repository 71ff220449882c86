#include "serve/metrics_table.h"

const struct metric_meaning serve_metrics[SERVE_METRICS] = {
    [METRIC_SERVE_REQUESTS] = {"leat_serve_requests_total", "counter", "model, outcome",
                               "Requests by what became of them."},
    [METRIC_SERVE_ROWS] = {"leat_serve_rows_total", "counter", "model, outcome",
                           "Rows of requests by what became of them."},
    [METRIC_SERVE_ROWS_LATE] = {"leat_serve_rows_late_total", "counter", "model",
                                "Answered rows whose time is behind the watermark."},
    [METRIC_SERVE_BATCHES] = {"leat_serve_batches_total", "counter", "model", "Batches that were computed."},
    [METRIC_SERVE_SECONDS] =
        {"leat_serve_seconds", "histogram", "model, phase",
         "Time of a request by phase: `read`, `queue`, `compute`, `write`, and `all` of them."},
    [METRIC_SERVE_STALENESS] =
        {"leat_serve_staleness_seconds", "gauge", "model",
         "Age of what answers: of the checkpoint, or of what the job published since; -1: none "
         "yet."},
    [METRIC_SERVE_WAITING_ROWS] = {"leat_serve_waiting_rows", "gauge", "model", "Rows in the queue."},
    [METRIC_SERVE_LOADED] = {"leat_serve_loaded", "gauge", "model",
                             "1: the model is loaded, or waits for its job's first checkpoint."},
    [METRIC_SERVE_CONTROL] = {"leat_serve_control_total", "counter", "model, outcome",
                              "Requests to load or to unload, by what became of them."},
    [METRIC_SERVE_LOG_LINES] =
        {"leat_serve_log_lines_total", "counter", "model, outcome",
         "Lines of the log of what was served; lost ones were not written, or nobody said that "
         "they were."},
    [METRIC_SERVE_LOG_WAITING] = {"leat_serve_log_lines_waiting", "gauge", "model",
                                  "Lines that are neither written nor lost yet."},
    [METRIC_SERVE_UNKNOWN_MODELS] = {"leat_serve_unknown_models_total", "counter", "",
                                     "Requests that name no model of this server."},
    [METRIC_FOLLOW_LIVE] = {"leat_follow_live", "gauge", "job",
                            "1: the job's changes are followed as they are published."},
    [METRIC_FOLLOW_FEATURES] = {"leat_follow_features", "gauge", "job",
                                "Features have the rows of the micro-batches below this number."},
    [METRIC_FOLLOW_ROWS] = {"leat_follow_rows_total", "counter", "job",
                            "Rows that the job published and that were applied to features."},
    [METRIC_FOLLOW_CUTS] = {"leat_follow_cuts_total", "counter", "job",
                            "Cuts of models that the job published and that were applied."},
    [METRIC_FOLLOW_BYTES] = {"leat_follow_bytes_total", "counter", "job",
                             "Bytes that the job published and that were applied."},
    [METRIC_LINK_UP] = {"leat_link_up", "gauge", "job",
                        "1: the last request to the offering server had a good answer."},
    [METRIC_LINK_ANSWERS] = {"leat_link_answers_total", "counter", "job", "Good answers."},
    [METRIC_LINK_UNANSWERED] = {"leat_link_unanswered_total", "counter", "job",
                                "Requests without an answer."},
    [METRIC_LINK_REFUSED] = {"leat_link_refused_total", "counter", "job", "Requests that were refused."},
    [METRIC_LINK_DAMAGED] = {"leat_link_damaged_total", "counter", "job",
                             "Answers that were damaged on the way, and asked for again."},
    [METRIC_LINK_BYTES] = {"leat_link_received_bytes_total", "counter", "job", "Bytes of good answers."},
    [METRIC_LINK_CHECKPOINTS] = {"leat_link_checkpoints_total", "counter", "job",
                                 "Checkpoints put in place."},
    [METRIC_LINK_OFFERED_ANSWERS] = {"leat_link_offered_answers_total", "counter", "", "Answers to mirrors."},
    [METRIC_LINK_OFFERED_REFUSALS] = {"leat_link_offered_refusals_total", "counter", "",
                                      "Requests of mirrors that were refused."},
    [METRIC_LINK_OFFERED_BYTES] = {"leat_link_offered_bytes_total", "counter", "",
                                   "Bytes of answers to mirrors."},
};

void serve_metric_begin(struct metrics_text *text, enum serve_metric metric, struct str whose)
{
    metrics_begin(text, serve_metrics[metric].name);
    metrics_label(text, strncmp(serve_metrics[metric].labels, "job", 3) == 0 ? "job" : "model", whose);
}
