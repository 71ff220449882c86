/* Sink `null`: takes all rows and keeps only a digest of them. */
#include "core/connector.h"

#include <inttypes.h>

struct null_sink {
    bool has_digest;

    struct batch_digest *digest;
    uint64_t rows;
};

static const struct option null_options[] = {
    OPTION_BOOL(struct null_sink, has_digest, "digest", "true",
                "fold every column of every row into a digest, shown at the end"),
    OPTIONS_END,
};

static bool null_open(struct sink_context *context)
{
    struct null_sink *null = context->config;
    if (null->has_digest)
        null->digest = batch_digest_new();
    return true;
}

static bool null_write(struct sink_context *context, const struct batch *batch)
{
    struct null_sink *null = context->config;
    if (null->digest != NULL)
        batch_digest_add(null->digest, batch);
    null->rows += batch->selected;
    return true;
}

static bool null_snapshot(struct sink_context *context, struct snapshot_writer *writer)
{
    struct null_sink *null = context->config;
    struct byte_buffer record = {0};
    buffer_append(&record, &null->rows, sizeof(null->rows));
    if (null->digest != NULL)
        batch_digest_save(null->digest, &record);
    bool is_good = snapshot_put(writer, SNAPSHOT_GLOBAL, record.data, record.length);
    buffer_free(&record);
    return is_good;
}

static bool null_restore(struct sink_context *context, struct snapshot_reader *reader)
{
    struct null_sink *null = context->config;
    struct str record;
    uint32_t group;
    while (snapshot_get(reader, &group, &record)) {
        bool is_good = record.length >= sizeof(null->rows);
        if (is_good)
            memcpy(&null->rows, record.data, sizeof(null->rows));
        if (is_good && null->digest != NULL)
            is_good = batch_digest_load(null->digest, record.data + sizeof(null->rows),
                                        record.length - sizeof(null->rows));
        if (!is_good) {
            snapshot_corrupt(reader, context->diags, "the state of a null sink is not valid");
            return false;
        }
    }
    return true;
}

static void null_describe(struct sink_context *context, struct byte_buffer *out)
{
    const struct null_sink *null = context->config;
    buffer_printf(out, "%" PRIu64 " rows", null->rows);
    if (null->digest == NULL)
        return;
    char hex[33];
    batch_digest_hex(null->digest, hex);
    buffer_printf(out, ", digest %s", hex);
}

static void null_close(struct sink_context *context)
{
    struct null_sink *null = context->config;
    batch_digest_free(null->digest);
    null->digest = NULL;
}

const struct sink_kind sink_null = {
    .name = "null",
    .summary = "counts rows and discards them",
    .example = "sink nowhere = null from features {}",
    .details = "For benchmarks and tests: the digest covers times, nulls and values of all columns in order, "
               "so two runs gave the same rows if their digests are equal.",
    .options = null_options,
    .size = sizeof(struct null_sink),
    .open = null_open,
    .write = null_write,
    .snapshot = null_snapshot,
    .restore = null_restore,
    .describe = null_describe,
    .close = null_close,
};
