/* Sink `console`: rows to standard output. */
#include "core/connector.h"
#include "formats/formats.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "core/os.h"

struct console_sink {
    int format; /* 0: pretty */
    int64_t limit;

    void *encoder;
    struct byte_buffer buffer;
    int64_t rows, shown;
};

static const struct option console_options[] = {
    OPTION_ENUM(struct console_sink, format, "format", 0, "pretty", "pretty|json",
                "pretty: name=value, a row a line; json: JSON lines"),
    OPTION_INT(struct console_sink, limit, "limit", 0, "0", "0", "1000000000000",
               "number of rows to show, from the first on; 0: all"),
    OPTIONS_END,
};

static bool console_open(struct sink_context *context)
{
    struct console_sink *console = context->config;
    console->encoder = format_json.encoder_new(context->input, NULL);
    return true;
}

/* Writes the row for people: `a=1  b="x"` instead of `{"a":1,"b":"x"}`; the values are JSON texts. */
static void write_pretty(const struct sink_context *context, const struct batch *batch, uint32_t index,
                         struct byte_buffer *out)
{
    uint32_t row = batch_row(batch, index);
    for (uint32_t i = 0; i < context->input->count; i++) {
        const struct str name = context->input->fields[i].name;
        buffer_printf(out, "%s%.*s=", i > 0 ? "  " : "", STR_ARGS(name));
        format_json_value(&batch->columns[i], &context->input->fields[i].type, row, out);
    }
    buffer_append(out, "\n", 1);
}

static bool console_write(struct sink_context *context, const struct batch *batch)
{
    struct console_sink *console = context->config;
    uint32_t count = batch->selected;
    if (console->limit > 0)
        count = (uint32_t)MIN((int64_t)count, console->limit - console->shown);
    buffer_clear(&console->buffer);
    if (console->format == 1)
        format_json.encode(console->encoder, batch, 0, count, &console->buffer);
    for (uint32_t i = 0; console->format == 0 && i < count; i++)
        write_pretty(context, batch, i, &console->buffer);
    int error = os_write_all(STDOUT_FILENO, console->buffer.data, console->buffer.length, NULL);
    if (error != 0) {
        snprintf(context->error, sizeof(context->error), "standard output cannot be written: %s",
                 strerror(error));
        return false;
    }
    console->shown += count;
    console->rows += batch->selected;
    return true;
}

static void console_describe(struct sink_context *context, struct byte_buffer *out)
{
    const struct console_sink *console = context->config;
    buffer_printf(out, "%lld of %lld rows shown", (long long)console->shown, (long long)console->rows);
}

static void console_close(struct sink_context *context)
{
    struct console_sink *console = context->config;
    format_json.encoder_free(console->encoder);
    buffer_free(&console->buffer);
    console->encoder = NULL;
}

const struct sink_kind sink_console = {
    .name = "console",
    .summary = "rows to standard output",
    .example = "sink shown = console from features { limit: 10 }",
    .details = "For inspecting a stream. After a crash, rows that were already shown may be shown again.",
    .options = console_options,
    .size = sizeof(struct console_sink),
    .open = console_open,
    .write = console_write,
    .describe = console_describe,
    .close = console_close,
};
