/* Reads cases from standard input and prints what leat's decoders make of them, for
 * tests/formats/reference.py, which compares it with what other libraries encoded. A case is five texts, each
 * after its length (u32, little-endian): the format's name; the columns, as harness_schema reads them; the
 * schema of payloads (avro; else empty); a count as a decimal text, the number of payloads or of records to
 * decode at once; and all payloads, each after its length, or the bytes of a file. The answer is a line for
 * each record (harness_decode), or a line "*" with the reason why the schema is refused; then a line "=". */
#include "formats/payload.h"
#include "unit/formats/harness.h"

#include <stdio.h>
#include <stdlib.h>

enum { TEXT_BYTES_MAX = 64 << 20 };

/* Reads a text, malloc'd and terminated; returns false at the end of the input. */
static bool read_text(struct str *text)
{
    uint32_t length;
    if (fread(&length, sizeof(length), 1, stdin) != 1)
        return false;
    leat_assert(length <= TEXT_BYTES_MAX);
    char *data = malloc(length + 1);
    leat_assert(data != NULL && fread(data, 1, length, stdin) == length);
    data[length] = '\0';
    *text = (struct str){data, length};
    return true;
}

static void decode_payloads(const struct format_kind *format, const struct schema *schema, struct str text,
                            struct str payloads, uint32_t count, struct arena *arena, struct byte_buffer *out)
{
    struct diag_list diags;
    diag_list_init(&diags, arena);
    struct payload *payload = payload_of_text(format, "case.avsc", text, (struct str){"", 0}, schema, &diags);
    struct format_config config = {.payload = payload};
    struct str *items = arena_array(arena, struct str, count + 1);
    size_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t length;
        memcpy(&length, payloads.data + at, sizeof(length));
        items[i] = (struct str){payloads.data + at + sizeof(length), length};
        at += sizeof(length) + length;
    }
    if (payload != NULL)
        harness_payloads(format, schema, &config, items, count, out);
    else
        buffer_printf(out, "*%s\n", diags.count > 0 ? diags.items[0].message : "no diagnostic");
    payload_close(payload);
}

int main(void)
{
    struct str name, columns, text, number, payloads;
    while (read_text(&name) && read_text(&columns) && read_text(&text) && read_text(&number) &&
           read_text(&payloads)) {
        struct arena arena = {0};
        struct byte_buffer out = {0};
        const struct schema *schema = harness_schema(&arena, columns.data);
        const struct format_kind *format = format_find(name);
        uint32_t count = (uint32_t)atoi(number.data);
        leat_assert(format != NULL);
        if (format->is_payload)
            decode_payloads(format, schema, text, payloads, count, &arena, &out);
        else
            harness_decode(format, schema, NULL, payloads.data, payloads.length, count, &out);
        buffer_printf(&out, "=\n");
        fwrite(out.data, 1, out.length, stdout);
        fflush(stdout);
        buffer_free(&out);
        arena_free(&arena);
        free((char *)(uintptr_t)name.data);
        free((char *)(uintptr_t)columns.data);
        free((char *)(uintptr_t)text.data);
        free((char *)(uintptr_t)number.data);
        free((char *)(uintptr_t)payloads.data);
    }
    return 0;
}
