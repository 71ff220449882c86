#include "formats/formats.h"

#include "core/mem.h"

#include <stdlib.h>

const struct format_kind *const formats_all[] = {
#define FORMAT(name) &format_##name,
#include "formats/registry.def"
#undef FORMAT
    NULL,
};

const struct format_kind *format_find(struct str name)
{
    for (size_t i = 0; formats_all[i] != NULL; i++)
        if (str_is(name, formats_all[i]->name))
            return formats_all[i];
    return NULL;
}

static bool ends_with(struct str text, const char *suffix)
{
    size_t length = strlen(suffix);
    return text.length > length && memcmp(text.data + text.length - length, suffix, length) == 0;
}

const struct format_kind *format_by_suffix(struct str path)
{
    static const char *const compressions[] = {".gz", ".zst", ".lz4"};
    static const char *const part = ".part";
    if (ends_with(path, part))
        path.length -= strlen(part);
    for (size_t i = 0; i < ARRAY_COUNT(compressions); i++)
        if (ends_with(path, compressions[i])) {
            path.length -= strlen(compressions[i]);
            break;
        }
    for (size_t i = 0; formats_all[i] != NULL; i++)
        if (!formats_all[i]->is_payload && ends_with(path, formats_all[i]->suffix))
            return formats_all[i];
    /* Other usual suffixes of JSON lines. */
    if (ends_with(path, ".json") || ends_with(path, ".ndjson"))
        return &format_json;
    return NULL;
}

bool format_delimiter_check(struct str delimiter, struct diag_list *diags, struct span span)
{
    if (delimiter.length == 1 && strchr("\"\r\n", delimiter.data[0]) == NULL)
        return true;
    struct diag *d = diag_error(diags, DIAG_OUT_OF_RANGE, span,
                                "`delimiter` must be one character, and not a quote or a line end");
    diag_hint(diags, d, "for example \";\" or \"\\t\"");
    return false;
}

static bool raw_schema_check(const struct schema *schema, struct diag_list *diags, struct span span)
{
    if (schema->count == 1 &&
        (schema->fields[0].type.tag == TYPE_TEXT || schema->fields[0].type.tag == TYPE_BYTES))
        return true;
    static const char what[] = "a raw payload is one column of type text or bytes";
    struct diag *d = schema->count == 1
                         ? diag_error(diags, DIAG_TYPE_CLASH, span, "%s, but `%.*s` has another type", what,
                                      STR_ARGS(schema->fields[0].name))
                         : diag_error(diags, DIAG_TYPE_CLASH, span, "%s, but the schema has %u columns", what,
                                      schema->count);
    diag_hint(diags, d,
              "for example `schema: { payload: bytes }`; other formats decode a payload into columns");
    return false;
}

bool format_schema_check(const struct format_kind *format, const struct schema *schema,
                         struct diag_list *diags, struct span span)
{
    bool is_good = true;
    if (format == &format_raw)
        return raw_schema_check(schema, diags, span);
    for (uint32_t i = 0; format == &format_csv && i < schema->count; i++) {
        if (schema->fields[i].type.tag != TYPE_LIST)
            continue;
        is_good = false;
        struct diag *d =
            diag_error(diags, DIAG_TYPE_CLASH, span, "csv cannot have lists, but `%.*s` is a list",
                       STR_ARGS(schema->fields[i].name));
        diag_hint(diags, d, "use json, msgpack or batches, or `unnest` or `drop` the list first");
    }
    return is_good;
}

struct format_decoder {
    const struct format_kind *format;
    void *decoder;
};

void *format_decoder_new(const struct format_kind *format, const struct schema *schema, const void *config)
{
    struct format_decoder *decoder = mem_calloc(1, sizeof(*decoder));
    decoder->format = format;
    decoder->decoder = format->decoder_new(schema, config);
    return decoder;
}

void format_decode(void *self, struct raw_batch *raw, struct decode_output *output)
{
    struct format_decoder *decoder = self;
    decoder->format->decode(decoder->decoder, raw, output);
}

void format_decoder_free(void *self)
{
    struct format_decoder *decoder = self;
    if (decoder == NULL)
        return;
    decoder->format->decoder_free(decoder->decoder);
    free(decoder);
}
