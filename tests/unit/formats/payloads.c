#include "unit/formats/payloads.h"

#include "unit/formats/harness.h"
#include "unit/support/temporary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

void payloads_wake(void *engine)
{
    struct payloads *payloads = engine;
    __atomic_add_fetch(&payloads->wakes, 1, __ATOMIC_SEQ_CST);
}

void payloads_open(struct payloads *payloads, const struct format_kind *format, const char *file_name,
                   const char *text, size_t bytes, const char *message, const char *registry,
                   const char *columns)
{
    *payloads = (struct payloads){0};
    diag_list_init(&payloads->diags, &payloads->arena);
    payloads->schema = harness_schema(&payloads->arena, columns);
    payloads->options.registry.timeout_us = 20 * US_PER_SECOND;
    if (file_name != NULL) {
        temporary_make(payloads->directory);
        char *path = arena_printf(&payloads->arena, "%s/%s", payloads->directory, file_name);
        FILE *file = fopen(path, "wb");
        leat_assert(file != NULL && fwrite(text, 1, bytes, file) == bytes && fclose(file) == 0);
        payloads->options.schema_file = str_from(path);
    }
    if (message != NULL)
        payloads->options.message = str_from(message);
    if (registry != NULL)
        payloads->options.registry.url = str_from(registry);
    if (payload_bind(format, &payloads->options, &payloads->diags, (struct span){0, 0}) &&
        payload_open(format, &payloads->options, payloads->schema, payloads_wake, payloads, &payloads->diags,
                     &payloads->payload))
        leat_assert(payloads->diags.errors == 0);
}

void payloads_close(struct payloads *payloads)
{
    payload_close(payloads->payload);
    if (payloads->directory[0] != '\0')
        temporary_remove(payloads->directory);
    arena_free(&payloads->arena);
}

char *payloads_decode(struct payloads *payloads, const struct format_kind *format, const char *hex)
{
    struct byte_buffer out = {0};
    struct format_config config = {.payload = payloads->payload};
    struct str items[64];
    uint32_t count = 0;
    char *copy = strdup(hex), *bytes = malloc(strlen(hex) + 1);
    size_t used = 0;
    leat_assert(copy != NULL && bytes != NULL);
    for (char *part = copy, *next; part != NULL; part = next) {
        next = strchr(part, '|');
        if (next != NULL)
            *next++ = '\0';
        leat_assert(count < ARRAY_COUNT(items));
        items[count++] = (struct str){bytes + used, harness_from_hex(part, bytes + used)};
        used += items[count - 1].length;
    }
    harness_payloads(format, payloads->schema, &config, items, count, &out);
    buffer_append(&out, "", 1);
    free(copy);
    free(bytes);
    return out.data;
}

char *payloads_errors(struct payloads *payloads)
{
    struct byte_buffer out = {0};
    for (unsigned i = 0; i < payloads->diags.count; i++) {
        const struct diag *diag = &payloads->diags.items[i];
        const char *at = strstr(diag->message, payloads->directory);
        size_t before = at == NULL || payloads->directory[0] == '\0' ? strlen(diag->message)
                                                                     : (size_t)(at - diag->message);
        buffer_append(&out, diag->message, before);
        if (diag->message[before] != '\0')
            buffer_printf(&out, "%s", diag->message + before + strlen(payloads->directory) + 1);
        if (diag->hint != NULL)
            buffer_printf(&out, " [%s]", diag->hint);
        buffer_printf(&out, "\n");
    }
    buffer_append(&out, "", 1);
    return out.data;
}

void payloads_check(const struct format_kind *format, const char *file_name, const char *text,
                    const char *message, const char *columns, const char *hex, const char *expected)
{
    struct payloads payloads;
    payloads_open(&payloads, format, file_name, text, strlen(text), message, NULL, columns);
    char *errors = payloads_errors(&payloads);
    assert_string_equal(errors, "");
    char *found = payloads_decode(&payloads, format, hex);
    if (strcmp(found, expected) != 0)
        fail_msg("%s\n  expected %s\n  got      %s", text, expected, found);
    free(found);
    free(errors);
    payloads_close(&payloads);
}

void payloads_check_refused(const struct format_kind *format, const char *file_name, const char *text,
                            const char *message, const char *columns, const char *expected)
{
    struct payloads payloads;
    payloads_open(&payloads, format, file_name, text, strlen(text), message, NULL, columns);
    assert_null(payloads.payload);
    assert_int_equal(payloads.diags.items[0].code, DIAG_BAD_PAYLOAD_SCHEMA);
    char *errors = payloads_errors(&payloads);
    if (strncmp(errors, expected, strlen(expected)) != 0)
        assert_string_equal(errors, expected);
    free(errors);
    payloads_close(&payloads);
}
