/* CSV -> columns. An empty field is null. A quoted empty field is an empty text, and null in other types. */
#include "formats/csv.h"
#include "formats/rows.h"
#include "formats/text.h"

#include "core/base64.h"
#include "core/civil.h"
#include "core/mem.h"

#include <emmintrin.h>
#include <stdlib.h>

struct csv_decoder {
    struct rows *rows;
    char delimiter;
    bool has_header, trims;
    char *header; /* the header line that `columns` was made from */
    size_t header_bytes;
    struct row_column **columns; /* the column of each field of the file; NULL: not in the schema */
    uint32_t columns_count;
    struct row_column **absent; /* columns of the schema that the file does not have */
    uint32_t absent_count;
    /* The record in progress. */
    const char *begin;
    const char *reason;
    const char *at;
};

static struct str header_line(struct str header)
{
    if (header.length >= 3 && memcmp(header.data, "\xef\xbb\xbf", 3) == 0)
        header = (struct str){header.data + 3, header.length - 3};
    while (header.length > 0 &&
           (header.data[header.length - 1] == '\n' || header.data[header.length - 1] == '\r'))
        header.length--;
    return header;
}

/* Copies a field's text to `out`, which has room for it, with each "" made one quote. Returns its length. */
static size_t unquote(const struct csv_field *field, char *out)
{
    size_t length = 0;
    for (const char *at = field->begin; at < field->end; at++) {
        out[length++] = *at;
        at += *at == '"' && field->has_escape;
    }
    return length;
}

static inline const char *next_field(const char *at, const char *end, char delimiter, bool trims,
                                     struct csv_field *field, const char **wrong)
{
    return unlikely(trims) ? csv_field_trimmed(at, end, delimiter, field, wrong)
                           : csv_field(at, end, delimiter, field, wrong);
}

/* Reads the names in a header line, at most CSV_FIELDS_MAX. Returns their count. */
static uint32_t header_names(struct arena *arena, struct str line, char delimiter, bool trims,
                             struct str *names)
{
    uint32_t count = 0;
    const char *at = line.data, *end = line.data + line.length, *wrong;
    struct csv_field field;
    while (count < CSV_FIELDS_MAX && (at = next_field(at, end, delimiter, trims, &field, &wrong)) != NULL) {
        char *name = arena_alloc(arena, (size_t)(field.end - field.begin) + 1);
        names[count++] = (struct str){name, unquote(&field, name)};
        if (at == end)
            break;
        at++;
    }
    return count;
}

static const char *list_names(struct arena *arena, const struct str *names, uint32_t count)
{
    const char *text = "";
    for (uint32_t i = 0; i < MIN(count, 20); i++)
        text = arena_printf(arena, "%s%s%.*s", text, i > 0 ? ", " : "", (int)MIN(names[i].length, 64),
                            names[i].data);
    return arena_printf(arena, "%s%s", text, count > 20 ? " ..." : "");
}

/* Whether some name equals `name` once the spaces and tabs around it are removed. */
static bool names_trimmed(const struct str *names, uint32_t count, struct str name)
{
    for (uint32_t i = 0; i < count; i++) {
        struct str own = names[i];
        while (own.length > 0 && (own.data[0] == ' ' || own.data[0] == '\t'))
            own = (struct str){own.data + 1, own.length - 1};
        while (own.length > 0 && (own.data[own.length - 1] == ' ' || own.data[own.length - 1] == '\t'))
            own.length--;
        if (str_equal(own, name))
            return true;
    }
    return false;
}

bool csv_header_check(const struct schema *schema, const void *config, struct str header,
                      struct diag_list *diags)
{
    struct arena arena = {0};
    struct str *names = arena_array(&arena, struct str, CSV_FIELDS_MAX);
    bool is_good = true;
    if (!csv_has_header(config))
        goto done;
    uint32_t count =
        header_names(&arena, header_line(header), csv_delimiter(config), csv_trims(config), names);
    for (uint32_t i = 0; i < schema->count; i++) {
        struct str name = schema->fields[i].name;
        uint32_t found = 0;
        for (uint32_t j = 0; j < count; j++)
            found += str_equal(names[j], name);
        if (found == 1 || (found == 0 && csv_may_lack(config) && !schema->fields[i].is_required))
            continue;
        is_good = false;
        struct diag *d = diag_error(diags, DIAG_FILE_COLUMNS, (struct span){0, 0},
                                    found == 0 ? "the header line has no column `%.*s`"
                                               : "the header line has several columns `%.*s`",
                                    STR_ARGS(name));
        if (found == 0 && names_trimmed(names, count, name))
            diag_hint(
                diags, d,
                "the header line has the name with spaces around it: `trim: true` removes spaces around "
                "names and fields");
        else
            diag_hint(diags, d,
                      "the header line names %s; for files without a header line set `header: false`",
                      list_names(&arena, names, count));
    }
done:
    arena_free(&arena);
    return is_good;
}

/* Finds the column of each field, for files that have this header line. */
static void use_header(struct csv_decoder *decoder, struct str header)
{
    if (decoder->header != NULL && str_equal((struct str){decoder->header, decoder->header_bytes}, header))
        return;
    free(decoder->header);
    decoder->header = mem_alloc(header.length + 1);
    if (header.length > 0)
        memcpy(decoder->header, header.data, header.length);
    decoder->header_bytes = header.length;
    struct row_fields *fields = &decoder->rows->fields;
    if (!decoder->has_header) {
        decoder->columns_count = fields->count;
        for (uint32_t i = 0; i < fields->count; i++)
            decoder->columns[i] = &fields->columns[i];
        return;
    }
    struct arena arena = {0};
    struct str *names = arena_array(&arena, struct str, CSV_FIELDS_MAX);
    decoder->columns_count =
        header_names(&arena, header_line(header), decoder->delimiter, decoder->trims, names);
    for (uint32_t i = 0; i < decoder->columns_count; i++)
        decoder->columns[i] = rows_find(fields, names[i].data, names[i].length);
    arena_free(&arena);
    /* What csv_header_check lets through, or a caller that did not call it: nulls. */
    decoder->absent_count = 0;
    for (uint32_t i = 0; i < fields->count; i++) {
        uint32_t j = 0;
        while (j < decoder->columns_count && decoder->columns[j] != &fields->columns[i])
            j++;
        if (j == decoder->columns_count)
            decoder->absent[decoder->absent_count++] = &fields->columns[i];
    }
}

static bool fail(struct csv_decoder *decoder, const char *at, const char *reason)
{
    decoder->reason = reason;
    decoder->at = at;
    return false;
}

static bool bad_field(struct csv_decoder *decoder, const struct row_column *column,
                      const struct csv_field *field, const char *what)
{
    return fail(decoder, field->begin,
                arena_printf(&decoder->rows->output->batch->arena, "`%.*s`: %s",
                             (int)MIN(column->name.length, 64), column->name.data, what));
}

static bool read_number(struct csv_decoder *decoder, struct row_column *column, uint32_t row,
                        const struct csv_field *field)
{
    struct text_number number;
    const char *begin = field->begin;
    if (unlikely(decoder->trims) && begin[0] == '+' && begin + 1 < field->end && begin[1] != '-')
        begin++;
    if (text_number(begin, field->end, &number) != field->end)
        return bad_field(decoder, column, field, "not a number");
    enum text_result result = column->tag == TYPE_FLOAT ? text_number_double(&number, &column->floats[row])
                              : column->tag == TYPE_INT
                                  ? text_number_int(&number, &column->ints[row])
                                  : text_number_time(&number, column->unit, &column->ints[row]);
    return result == TEXT_GOOD ||
           bad_field(decoder, column, field,
                     result == TEXT_OUT_OF_RANGE ? "a number out of range" : "not a whole number");
}

static bool read_bool(struct csv_decoder *decoder, struct row_column *column, uint32_t row,
                      const struct csv_field *field)
{
    static const struct {
        const char *text;
        bool value;
    } words[] = {{"true", true}, {"false", false}, {"1", true}, {"0", false}};
    size_t length = (size_t)(field->end - field->begin);
    for (size_t i = 0; i < ARRAY_COUNT(words); i++)
        if (length == strlen(words[i].text) && strncasecmp(field->begin, words[i].text, length) == 0) {
            column->bools[row] = words[i].value;
            return true;
        }
    return bad_field(decoder, column, field, "neither true nor false");
}

/* Copies the field's text to rows->heap; false where it is not UTF-8. */
static bool copy_text(struct csv_decoder *decoder, const struct csv_field *field, size_t *length)
{
    char *out = decoder->rows->heap;
    __m128i any = _mm_setzero_si128();
    *length = (size_t)(field->end - field->begin);
    if (field->has_escape) {
        *length = unquote(field, out);
        return text_is_utf8(out, *length);
    }
    for (size_t i = 0; i < *length; i += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(field->begin + i));
        _mm_storeu_si128((__m128i *)(out + i), bytes);
        any = _mm_or_si128(any, bytes);
    }
    /* Bytes behind the field may be in `any`, too: at worst the check was not needed. */
    return _mm_movemask_epi8(any) == 0 || text_is_utf8(out, *length);
}

static bool read_text(struct csv_decoder *decoder, struct row_column *column, uint32_t row,
                      const struct csv_field *field)
{
    struct rows *rows = decoder->rows;
    size_t length;
    if (!copy_text(decoder, field, &length))
        return bad_field(decoder, column, field, "not valid UTF-8");
    if (column->tag == TYPE_TIME)
        return civil_parse((struct str){rows->heap, length}, &column->ints[row]) ||
               bad_field(decoder, column, field, "not a time like 2015-09-12 00:46:58");
    if (column->tag == TYPE_BYTES)
        length = base64_decode(rows->heap, length, rows->heap);
    if (length == SIZE_MAX)
        return bad_field(decoder, column, field, "not base64");
    rows_text(rows, column, row, length);
    return true;
}

static bool read_field(struct csv_decoder *decoder, struct row_column *column, uint32_t row,
                       const struct csv_field *field)
{
    bool is_text = column->tag == TYPE_TEXT || column->tag == TYPE_BYTES;
    if (field->begin == field->end && !(field->is_quoted && is_text)) {
        if (column->is_required)
            return bad_field(decoder, column, field, "empty, but the schema requires a value");
        rows_null(decoder->rows, column, row, NULL);
        return true;
    }
    if (column->tag == TYPE_BOOL)
        return read_bool(decoder, column, row, field);
    if (is_text || (column->tag == TYPE_TIME && text_unit_us(column->unit) == 0))
        return read_text(decoder, column, row, field);
    return read_number(decoder, column, row, field);
}

static bool read_record(struct csv_decoder *decoder, uint32_t row, const char *end)
{
    const char *at = decoder->begin, *wrong;
    struct csv_field field;
    uint32_t count = 0;
    for (;; at++) {
        at = next_field(at, end, decoder->delimiter, decoder->trims, &field, &wrong);
        if (at == NULL)
            return fail(decoder, wrong,
                        field.is_quoted && wrong == field.begin - 1 ? "a quote that is never closed"
                        : field.is_quoted                           ? "something follows a closing quote"
                                          : "a quote inside a field that does not begin with a quote");
        if (count < decoder->columns_count && decoder->columns[count] != NULL &&
            !read_field(decoder, decoder->columns[count], row, &field))
            return false;
        count++;
        if (at == end)
            break;
    }
    for (uint32_t i = 0; i < decoder->absent_count; i++)
        rows_null(decoder->rows, decoder->absent[i], row, NULL);
    if (count == decoder->columns_count)
        return true;
    return fail(decoder, end,
                arena_printf(&decoder->rows->output->batch->arena, "%u fields, but the %s %u", count,
                             decoder->has_header ? "header line has" : "schema has", decoder->columns_count));
}

void csv_decode(void *self, struct raw_batch *raw, struct decode_output *output)
{
    struct csv_decoder *decoder = self;
    struct rows *rows = decoder->rows;
    memset(raw->data + raw->data_bytes, 0, RAW_PADDING);
    use_header(decoder, raw->header);
    rows_begin(rows, raw, output, raw->data_bytes);
    for (uint32_t row = 0; row < raw->count; row++) {
        struct raw_record record = raw->records[row];
        decoder->begin = raw->data + record.offset;
        rows_mark(rows);
        if (record.length > SOURCE_RECORD_BYTES_MAX)
            rows_bad(rows, row, SOURCE_RECORD_BYTES_MAX, "a record longer than 1 MiB");
        else if (!read_record(decoder, row, decoder->begin + record.length))
            rows_bad(rows, row, (uint32_t)(decoder->at - decoder->begin), decoder->reason);
    }
    rows_end(rows);
}

void *csv_decoder_new(const struct schema *schema, const void *config)
{
    struct csv_decoder *decoder = mem_calloc(1, sizeof(*decoder));
    decoder->rows = rows_new(schema);
    decoder->delimiter = csv_delimiter(config);
    decoder->has_header = csv_has_header(config);
    decoder->trims = csv_trims(config);
    decoder->columns = mem_calloc(MAX((size_t)CSV_FIELDS_MAX, schema->count), sizeof(struct row_column *));
    decoder->absent = mem_calloc(schema->count + 1, sizeof(struct row_column *));
    return decoder;
}

void csv_decoder_free(void *self)
{
    struct csv_decoder *decoder = self;
    if (decoder == NULL)
        return;
    rows_free(decoder->rows);
    free(decoder->header);
    free(decoder->columns);
    free(decoder->absent);
    free(decoder);
}
