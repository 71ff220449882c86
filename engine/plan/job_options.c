/* The options of the `job` block and those that every source has. */
#include "plan/plan.h"

static const struct option keep_options[] = {
    OPTION_INT(struct job_keep, last, "last", OPTION_RUNTIME, "3", "1", "1000",
               "the newest checkpoints that stay"),
    OPTION_INT(struct job_keep, hourly, "hourly", OPTION_RUNTIME, "0", "0", "1000",
               "hours of which the last checkpoint stays"),
    OPTION_INT(struct job_keep, daily, "daily", OPTION_RUNTIME, "0", "0", "1000",
               "days of which the last checkpoint stays"),
    OPTIONS_END,
};

static const struct option checkpoint_options[] = {
    OPTION_DURATION(struct job_checkpoint, every_us, "every", OPTION_RUNTIME, "10s", "10ms", "1d",
                    "how often a checkpoint is taken"),
    OPTION_TEXT(struct job_checkpoint, directory, "dir", OPTION_RUNTIME, "\"\"",
                "where checkpoints lie; without it the job cannot resume"),
    OPTION_BLOCK(struct job_checkpoint, keep, struct job_keep, "keep", OPTION_RUNTIME, keep_options,
                 "which checkpoints stay"),
    OPTION_BYTES(struct job_checkpoint, free_bytes, "min_free", OPTION_RUNTIME, "64MiB", "0B", "1TiB",
                 "sources pause while the disk of `dir` has less free space than this"),
    OPTIONS_END,
};

const struct option job_options[] = {
    OPTION_INT(struct job_config, workers, "workers", OPTION_RUNTIME, "0", "0", "256",
               "lanes, each a thread; 0: one per core"),
    OPTION_BYTES(
        struct job_config, memory_bytes, "memory", OPTION_RUNTIME, "1GiB", "32MiB", "16TiB",
        "budget for state, models' rows, queues and caches; state and rows beyond it go to disk, but for a "
        "model with `rows_max`, which that bounds"),
    OPTION_BLOCK(struct job_config, checkpoint, struct job_checkpoint, "checkpoint", OPTION_RUNTIME,
                 checkpoint_options, "checkpoints"),
    OPTIONS_END,
};

const struct option source_options[] = {
    OPTION_SCHEMA(struct source_common, schema, "schema", 0, "the columns to read, with their types"),
    OPTION_COLUMN(struct source_common, event_time, "event_time", 0,
                  "the column (of type time) that says when an event happened"),
    OPTION_DURATION(
        struct source_common, max_delay_us, "max_delay", 0, "0s", "0s", "365d",
        "how much later than its neighbours an event may come: the watermark stays this far behind"),
    OPTION_DURATION(
        struct source_common, idle_after_us, "idle_after", 0, "0s", "0s", "1d",
        "live only: a partition without records for this long is left out of the watermark; 0s: never"),
    OPTION_DURATION(struct source_common, order_wait_us, "order_wait", OPTION_RUNTIME, "10s", "0s", "1h",
                    "live only: how long rows wait for a partition that is known to have more and does not "
                    "deliver it, so that all stay in the order of their arrival at the broker"),
    OPTIONS_END,
};
