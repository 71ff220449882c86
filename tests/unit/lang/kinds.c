/* See kinds.h. */
#include "kinds.h"

#define ROW(n, t, f)                                                                                         \
    {                                                                                                        \
        .written = {.name = n, .type = OPTION_##t##_T, .flags = f }                                          \
    }

static const struct option where_options[] = {
    ROW("cond", EXPRESSION, OPTION_POSITIONAL | OPTION_REQUIRED),
    OPTIONS_END,
};
static const struct option with_options[] = {
    ROW("items", ASSIGNMENTS, OPTION_POSITIONAL | OPTION_REQUIRED),
    OPTIONS_END,
};
static const struct option select_options[] = {
    ROW("items", ASSIGNMENTS, OPTION_POSITIONAL | OPTION_REQUIRED),
    OPTIONS_END,
};
static const struct option drop_options[] = {
    ROW("columns", COLUMNS, OPTION_POSITIONAL | OPTION_REQUIRED),
    OPTIONS_END,
};
static const struct option rename_options[] = {
    ROW("items", ASSIGNMENTS, OPTION_POSITIONAL | OPTION_REQUIRED),
    OPTIONS_END,
};
static const struct option cast_options[] = {
    ROW("items", ASSIGNMENTS, OPTION_POSITIONAL | OPTION_REQUIRED),
    OPTIONS_END,
};
static const struct option clean_options[] = {
    ROW("columns", COLUMNS, OPTION_POSITIONAL),
    ROW("rules", BLOCK, OPTION_BODY),
    OPTIONS_END,
};
static const struct option dedup_options[] = {
    ROW("by", COLUMNS, OPTION_REQUIRED),
    ROW("within", DURATION, OPTION_REQUIRED),
    ROW("keep", ENUM, 0),
    OPTIONS_END,
};
static const struct option unnest_options[] = {
    ROW("column", COLUMN, OPTION_POSITIONAL | OPTION_REQUIRED),
    ROW("as", NAME, 0),
    OPTIONS_END,
};
static const struct option union_options[] = {
    ROW("streams", STREAMS, OPTION_POSITIONAL | OPTION_REQUIRED),
    OPTIONS_END,
};
static const struct option sample_options[] = {
    ROW("rate", FLOAT, OPTION_POSITIONAL | OPTION_REQUIRED),
    ROW("by", COLUMNS, 0),
    OPTIONS_END,
};
static const struct option feature_options[] = {
    ROW("from", STREAM, 0),
    ROW("by", COLUMNS, OPTION_REQUIRED),
    ROW("over", DURATIONS, OPTION_REQUIRED),
    ROW("every", DURATION, 0),
    ROW("including", NAME, 0),
    ROW("values", ASSIGNMENTS, OPTION_BODY | OPTION_REQUIRED),
    OPTIONS_END,
};
static const struct option window_options[] = {
    ROW("by", COLUMNS, 0), ROW("over", EXPRESSION, OPTION_REQUIRED),
    ROW("emit", ENUM, 0),  ROW("values", ASSIGNMENTS, OPTION_BODY | OPTION_REQUIRED),
    OPTIONS_END,
};
static const struct option attribute_options[] = {
    ROW("stream", STREAM, OPTION_POSITIONAL | OPTION_REQUIRED),
    ROW("on", COLUMNS, OPTION_REQUIRED),
    ROW("within", DURATION, OPTION_REQUIRED),
    ROW("as", NAME, OPTION_REQUIRED),
    OPTIONS_END,
};
static const struct option limit_options[] = {
    ROW("rows", INT, OPTION_POSITIONAL),
    OPTIONS_END,
};
static const struct option encode_options[] = {
    ROW("columns", COLUMNS, OPTION_POSITIONAL),
    ROW("using", KIND, 0),
    OPTIONS_END,
};
static const struct operator_kind where_kind = {.name = "where", .options = where_options};
static const struct operator_kind with_kind = {.name = "with", .options = with_options};
static const struct operator_kind select_kind = {.name = "select", .options = select_options};
static const struct operator_kind drop_kind = {.name = "drop", .options = drop_options};
static const struct operator_kind rename_kind = {.name = "rename", .options = rename_options};
static const struct operator_kind cast_kind = {.name = "cast", .options = cast_options};
static const struct operator_kind clean_kind = {.name = "clean", .options = clean_options};
static const struct operator_kind dedup_kind = {.name = "dedup", .options = dedup_options};
static const struct operator_kind unnest_kind = {.name = "unnest", .options = unnest_options};
static const struct operator_kind union_kind = {.name = "union", .options = union_options};
static const struct operator_kind sample_kind = {.name = "sample", .options = sample_options};
static const struct operator_kind feature_kind = {.name = "feature", .options = feature_options};
static const struct operator_kind window_kind = {.name = "window", .options = window_options};
static const struct operator_kind attribute_kind = {.name = "attribute", .options = attribute_options};
static const struct operator_kind limit_kind = {.name = "limit", .options = limit_options};
static const struct operator_kind encode_kind = {.name = "encode", .options = encode_options};

static const struct operator_kind *const operators[] = {
    &where_kind,  &with_kind,      &select_kind, &drop_kind,   &rename_kind, &cast_kind,
    &clean_kind,  &dedup_kind,     &unnest_kind, &union_kind,  &sample_kind, &feature_kind,
    &window_kind, &attribute_kind, &limit_kind,  &encode_kind, NULL,
};

static const struct operator_kind linear_kind = {.name = "linear"};
static const struct operator_kind fm_kind = {.name = "fm"};
static const struct operator_kind ffm_kind = {.name = "ffm"};
static const struct operator_kind mf_kind = {.name = "mf"};
static const struct operator_kind deepfm_kind = {.name = "deepfm"};
static const struct operator_kind *const learners[] = {&linear_kind, &fm_kind,     &ffm_kind,
                                                       &mf_kind,     &deepfm_kind, NULL};

static const struct source_kind file_source = {.name = "file"};
static const struct source_kind generator_source = {.name = "generator"};
static const struct source_kind console_source = {.name = "console"};
static const struct source_kind kafka_source = {.name = "kafka"};
static const struct source_kind *const sources[] = {&file_source, &generator_source, &console_source,
                                                    &kafka_source, NULL};

static const struct sink_kind file_sink = {.name = "file"};
static const struct sink_kind console_sink = {.name = "console"};
static const struct sink_kind null_sink = {.name = "null"};
static const struct sink_kind kafka_sink = {.name = "kafka"};
static const struct sink_kind *const sinks[] = {&file_sink, &console_sink, &null_sink, &kafka_sink, NULL};

static const struct function_help functions[] = {
    {.name = "abs", .signature = "abs(x)"},
    {.name = "count", .signature = "count()", .is_aggregate = true},
    {.name = "log1p", .signature = "log1p(x)"},
    {.name = NULL},
};

const struct registry lang_test_registry = {
    .operators = operators,
    .learners = learners,
    .sources = sources,
    .sinks = sinks,
    .functions = functions,
};
