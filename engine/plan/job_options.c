/* The options of the `job` block, and the options that every source has. */
#include "plan/plan.h"

static const struct option keep_options[] = {
    OPTION_INT(struct job_keep, last, "last", OPTION_RUNTIME, "3", "1", "1000",
               "how many of the newest checkpoints are kept"),
    OPTION_INT(struct job_keep, hourly, "hourly", OPTION_RUNTIME, "0", "0", "1000",
               "of how many hours the last checkpoint is kept"),
    OPTION_INT(struct job_keep, daily, "daily", OPTION_RUNTIME, "0", "0", "1000",
               "of how many days the last checkpoint is kept"),
    OPTIONS_END,
};

static const struct option checkpoint_options[] = {
    OPTION_DURATION(struct job_checkpoint, every_us, "every", OPTION_RUNTIME, "10s", "10ms", "1d",
                    "how often a checkpoint is taken"),
    OPTION_TEXT(struct job_checkpoint, directory, "dir", OPTION_RUNTIME, "\"\"",
                "the checkpoint directory; without it the job cannot resume"),
    OPTION_TEXT(
        struct job_checkpoint, store, "store", OPTION_RUNTIME, "\"\"",
        "where checkpoints are copied to, so that the job outlives its disk: \"s3://bucket/prefix\" or "
        "\"file:/shared/dir\", one for each job; keys for S3 come from the environment"),
    OPTION_ENUM(
        struct job_checkpoint, commit, "commit", OPTION_RUNTIME, "local", "local|store",
        "when sinks give away what a checkpoint covers (transactions of Kafka, final names of files): once it "
        "is in `dir`, or once it is in `store`"),
    OPTION_INT(
        struct job_checkpoint, behind, "behind", OPTION_RUNTIME, "1000", "1", "1000000",
        "with `commit: store`, how many checkpoints may wait for the store; with more the sources wait"),
    OPTION_BLOCK(struct job_checkpoint, keep, struct job_keep, "keep", OPTION_RUNTIME, keep_options,
                 "which checkpoints are kept"),
    OPTION_BYTES(struct job_checkpoint, free_bytes, "min_free", OPTION_RUNTIME, "64MiB", "0B", "1TiB",
                 "sources pause while the disk of `dir` has less free space than this"),
    OPTION_BYTES(
        struct job_checkpoint, log_bytes, "log", OPTION_RUNTIME, "256MiB", "64KiB", "1TiB",
        "bytes in `dir` for what a job with a `serve` publishes while `leat serve` follows it; the oldest goes "
        "first"),
    OPTIONS_END,
};

static const struct option ui_options[] = {
    OPTION_TEXT(
        struct job_ui, listen, "listen", OPTION_RUNTIME, "\"\"",
        "where `leat run` listens for the page and the control API, for example \"127.0.0.1:8081\"; port 0: any "
        "free one; without it: only with --ui. A replay does not listen"),
    OPTION_TEXT(struct job_ui, token_file, "token_file", OPTION_RUNTIME, "\"\"",
                "a file with a token that clients must send; needed off loopback"),
    OPTION_TEXT(struct job_ui, certificate, "certificate", OPTION_RUNTIME, "\"\"",
                "a file with the certificate chain for TLS (PEM); needed off loopback"),
    OPTION_TEXT(struct job_ui, key, "key", OPTION_RUNTIME, "\"\"",
                "a file with the certificate's private key (PEM)"),
    OPTIONS_END,
};

const struct option job_options[] = {
    OPTION_INT(struct job_config, workers, "workers", OPTION_RUNTIME, "0", "0", "256",
               "lanes, each a thread; 0: one per core"),
    OPTION_BYTES(
        struct job_config, memory_bytes, "memory", OPTION_RUNTIME, "1GiB", "32MiB", "16TiB",
        "budget for state, models' rows, queues and caches; state and rows beyond the budget go to disk, "
        "except those of a model with `rows_max`, which limits its rows"),
    OPTION_BLOCK(struct job_config, checkpoint, struct job_checkpoint, "checkpoint", OPTION_RUNTIME,
                 checkpoint_options, "checkpoints"),
    OPTION_BLOCK(struct job_config, ui, struct job_ui, "ui", OPTION_RUNTIME, ui_options,
                 "the page that shows the run, and the control API behind it"),
    OPTIONS_END,
};

static const struct option per_key_options[] = {
    OPTION_COLUMNS(struct watermark_per_key, by, "by", OPTION_REQUIRED,
                   "the key's columns; rows of the same key must come in the order of their event times"),
    OPTION_DURATION(struct watermark_per_key, within_us, "within", 0, "10m", "1ms", "365d",
                    "a key without rows for this long, in event time, no longer holds the watermark back"),
    OPTION_INT(struct watermark_per_key, keys_max, "keys_max", 0, "4096", "16", "65536",
               "keys remembered per partition; beyond this number the slowest keys are forgotten"),
    OPTIONS_END,
};

static const struct option punctuation_options[] = {
    OPTION_EXPRESSION(struct watermark_punctuation, when, "when", OPTION_REQUIRED,
                      "the rows that carry the watermark: a condition over the source's columns"),
    OPTION_BOOL(struct watermark_punctuation, drops, "drop", "false",
                "whether these rows are dropped after they have moved the watermark"),
    OPTIONS_END,
};

static const struct kind_choice watermark_kinds[] = {
    [WATERMARK_BOUNDED] = {"bounded", NULL, 0, "the newest event so far, less `max_delay`"},
    [WATERMARK_PER_KEY] = {"per_key", per_key_options, sizeof(struct watermark_per_key),
                           "the newest event of the slowest key, less `max_delay`"},
    [WATERMARK_PUNCTUATION] = {"punctuation", punctuation_options, sizeof(struct watermark_punctuation),
                               "the newest row that carries the watermark, less `max_delay`"},
    {0},
};

const struct option source_options[] = {
    OPTION_SCHEMA(struct source_common, schema, "schema", 0, "the columns to read, with their types"),
    OPTION_COLUMN(struct source_common, event_time, "event_time", 0,
                  "the column (of type time) with the time at which an event happened"),
    OPTION_DURATION(
        struct source_common, max_delay_us, "max_delay", 0, "0s", "0s", "365d",
        "how far events may be out of order: the watermark stays this far behind the newest event"),
    OPTION_KIND(struct source_common, watermark, "watermark", 0, "bounded", watermark_kinds,
                "how to tell that no earlier event will come"),
    OPTION_DURATION(
        struct source_common, max_jump_us, "max_jump", OPTION_FOREVER, NULL, "1s", "3650d",
        "how far an event time may be ahead of the row's arrival (default: 1d), or, if rows have no arrival "
        "times, of the newest event before it, unless the next two rows agree with it (default: no limit); "
        "rows further ahead go to dead letters"),
    OPTION_DURATION(
        struct source_common, align_us, "align", 0, "0s", "0s", "365d",
        "rows of this source wait while their event time is more than this ahead of the slowest partition of "
        "all sources with `align:`; 0s: never"),
    OPTION_DURATION(
        struct source_common, idle_after_us, "idle_after", 0, "0s", "0s", "1d",
        "live only: a partition without records for this long is left out of the watermark; 0s: never"),
    OPTION_DURATION(
        struct source_common, order_wait_us, "order_wait", OPTION_RUNTIME, "10s", "0s", "1h",
        "live only: how long rows wait for a partition that has more records but does not deliver them, to "
        "keep rows in the order of their arrival at the broker"),
    OPTIONS_END,
};
