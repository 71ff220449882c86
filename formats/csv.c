/* CSV by RFC 4180: where records and fields end.
 *
 * A record ends at a line end outside quotes. A record whose quotes are wrong (never closed, closed before
 * something that is no delimiter, opened within a field) would swallow its neighbours: such a record is cut
 * at its first line end and is bad, and reading goes on at the next line.
 *
 * Where fields are trimmed, spaces and tabs may stand before an opening quote, and between a closing quote
 * and the delimiter. */
#include "formats/csv.h"
#include "formats/lines.h"

/* A record of this many bytes without an end is too long: this is the size of the longest record with its
 * `\r` and newline. */
enum { TOO_LONG = SOURCE_RECORD_BYTES_MAX + 2 };

enum walk { WALK_RECORD, WALK_MORE, WALK_TORN };

/* Returns the byte behind the closing quote, or NULL if there is no closing quote before `end`. */
static const char *skip_quoted(const char *at, const char *end, bool *has_escape)
{
    for (;;) {
        at = memchr(at, '"', (size_t)(end - at));
        if (at == NULL)
            return NULL;
        if (end - at < 2 || at[1] != '"')
            return at + 1;
        *has_escape = true;
        at += 2;
    }
}

const char *csv_field(const char *at, const char *end, char delimiter, struct csv_field *field,
                      const char **wrong)
{
    *field = (struct csv_field){.begin = at};
    if (at < end && *at == '"') {
        field->is_quoted = true;
        field->begin++;
        const char *behind = skip_quoted(at + 1, end, &field->has_escape);
        *wrong = behind == NULL ? at : behind;
        if (behind == NULL || (behind < end && *behind != delimiter))
            return NULL;
        field->end = behind - 1;
        return behind;
    }
    while (at < end && *at != delimiter && *at != '"')
        at++;
    field->end = *wrong = at;
    return at < end && *at == '"' ? NULL : at;
}

/* Skips spaces and tabs, but not the delimiter where that is a space or a tab. */
static const char *skip_blanks(const char *at, const char *end, char delimiter)
{
    while (at < end && (*at == ' ' || *at == '\t') && *at != delimiter)
        at++;
    return at;
}

const char *csv_field_trimmed(const char *at, const char *end, char delimiter, struct csv_field *field,
                              const char **wrong)
{
    at = skip_blanks(at, end, delimiter);
    if (at < end && *at == '"') {
        *field = (struct csv_field){.begin = at + 1, .is_quoted = true};
        const char *behind = skip_quoted(at + 1, end, &field->has_escape);
        *wrong = at;
        if (behind == NULL)
            return NULL;
        field->end = behind - 1;
        *wrong = behind = skip_blanks(behind, end, delimiter);
        return behind < end && *behind != delimiter ? NULL : behind;
    }
    at = csv_field(at, end, delimiter, field, wrong);
    while (field->end > field->begin && (field->end[-1] == ' ' || field->end[-1] == '\t'))
        field->end--;
    return at;
}

/* Finds the end of a record that has a quote somewhere. *end: the offset of its newline, or `bytes`. */
static enum walk walk_quoted(const char *data, size_t bytes, char delimiter, bool trims, bool is_last,
                             size_t *end)
{
    size_t limit = MIN(bytes, (size_t)TOO_LONG);
    const char *at = data, *stop = data + limit;
    for (;;) {
        bool has_escape = false;
        if (trims)
            at = skip_blanks(at, stop, delimiter);
        if (at < stop && *at == '"') {
            at = skip_quoted(at + 1, stop, &has_escape);
            if (at == NULL)
                return is_last || bytes >= TOO_LONG ? WALK_TORN : WALK_MORE;
            if (trims)
                at = skip_blanks(at, stop, delimiter);
        } else {
            while (at < stop && *at != delimiter && *at != '\n' && *at != '"')
                at++;
        }
        if (at == stop) {
            *end = bytes;
            return bytes >= TOO_LONG ? WALK_TORN : is_last ? WALK_RECORD : WALK_MORE;
        }
        bool is_crlf = *at == '\r' && (stop - at > 1 ? at[1] == '\n' : is_last);
        if (*at == '\r' && stop - at == 1 && !is_last && bytes < TOO_LONG)
            return WALK_MORE;
        *end = (size_t)(at - data) + is_crlf;
        if (*at == '\n' || is_crlf)
            return WALK_RECORD;
        if (*at != delimiter)
            return WALK_TORN;
        at++;
    }
}

/* Finds the end of the record that begins at `data`. *end: the offset of its newline, or `bytes`. WALK_TORN:
 * its quotes are wrong, *end is its first line end. */
static enum walk walk(const char *data, size_t bytes, char delimiter, bool trims, bool is_last, size_t *end)
{
    const char *newline = memchr(data, '\n', bytes);
    size_t line = newline == NULL ? bytes : (size_t)(newline - data);
    bool is_enough = newline != NULL || is_last || bytes >= TOO_LONG;
    *end = line;
    if (memchr(data, '"', line) == NULL)
        return is_enough ? WALK_RECORD : WALK_MORE;
    enum walk result = walk_quoted(data, bytes, delimiter, trims, is_last, end);
    if (result != WALK_TORN)
        return result;
    *end = line;
    return is_enough ? WALK_TORN : WALK_MORE;
}

static void csv_split(struct format_split *split)
{
    char delimiter = csv_delimiter(split->config);
    bool trims = csv_trims(split->config);
    split->count = split->lines = 0;
    split->used = split->need = 0;
    split->is_cut = split->is_end = false;
    split->damage = NULL;
    while (split->count < split->max && split->used < split->bytes) {
        size_t begin = split->used, length;
        const char *data = split->data + begin;
        if (walk(data, split->bytes - begin, delimiter, trims, split->is_last, &length) == WALK_MORE)
            return;
        size_t taken = MIN(length + 1, split->bytes - begin);
        size_t kept = length > 0 && data[length - 1] == '\r' ? length - 1 : length;
        if (kept > SOURCE_RECORD_BYTES_MAX) {
            split->records[split->count++] =
                (struct raw_record){(uint32_t)begin, SOURCE_RECORD_BYTES_MAX + 1};
            split->used = begin + SOURCE_RECORD_BYTES_MAX + 1;
            split->is_cut = true;
            return;
        }
        if (kept > 0)
            split->records[split->count++] = (struct raw_record){(uint32_t)begin, (uint32_t)kept};
        split->used += taken;
        for (const char *at = data; (at = memchr(at, '\n', (size_t)(data + taken - at))) != NULL; at++)
            split->lines++;
    }
}

static enum format_header_status csv_header(const void *config, const char *data, size_t bytes, bool is_last,
                                            size_t *used, const char **damage)
{
    size_t mark, length;
    enum format_header_status status = lines_header(config, data, bytes, is_last, &mark, damage);
    *used = mark;
    if (status != HEADER_READ || !csv_has_header(config) || bytes == mark)
        return status == HEADER_READ && csv_has_header(config) && bytes == mark && !is_last ? HEADER_MORE
                                                                                            : status;
    enum walk result =
        walk(data + mark, bytes - mark, csv_delimiter(config), csv_trims(config), is_last, &length);
    if (result == WALK_MORE)
        return HEADER_MORE;
    *damage = "has a header line whose quotes are wrong";
    *used = MIN(mark + length + 1, bytes);
    return result == WALK_TORN ? HEADER_BAD : HEADER_READ;
}

const struct format_kind format_csv = {
    .name = "csv",
    .summary = "comma-separated values by RFC 4180, with or without a header line",
    .suffix = ".csv",
    .has_lines = true,
    .header = csv_header,
    .header_check = csv_header_check,
    .split = csv_split,
    .decoder_new = csv_decoder_new,
    .decode = csv_decode,
    .decoder_free = csv_decoder_free,
    .encoder_new = csv_encoder_new,
    .encode_header = csv_encode_header,
    .encode = csv_encode,
    .encoder_free = csv_encoder_free,
};
