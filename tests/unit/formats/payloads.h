/* Payload formats by schema files and registries, for tests. */
#ifndef LEAT_TESTS_FORMATS_PAYLOADS_H
#define LEAT_TESTS_FORMATS_PAYLOADS_H

#include "formats/payload.h"

/* A schema in a file, and the columns that are wanted. */
struct payloads {
    struct arena arena;
    struct diag_list diags;
    struct payload_options options;
    const struct schema *schema;
    struct payload *payload; /* NULL: diags say why */
    char directory[512];
    unsigned wakes; /* atomic */
};

/* file_name: of the schema file in a directory of its own, NULL: none; its suffix tells what it is. columns:
 * as for harness_schema. registry: its address, or NULL. */
void payloads_open(struct payloads *payloads, const struct format_kind *format, const char *file_name,
                   const char *text, size_t bytes, const char *message, const char *registry,
                   const char *columns);
void payloads_close(struct payloads *payloads);

/* payload_open's `wake`, with the payloads as its argument: counts. */
void payloads_wake(void *engine);

/* Payloads in hex, `|` between them, to JSON lines as harness_decode; malloc'd. */
char *payloads_decode(struct payloads *payloads, const struct format_kind *format, const char *hex);
/* What the diagnostics say: "message [hint]\n" each; malloc'd. The directory is left out of it. */
char *payloads_errors(struct payloads *payloads);

#endif
