/* Payload formats with schemas from files and registries, for tests. */
#ifndef LEAT_TESTS_UNIT_FORMATS_PAYLOADS_H
#define LEAT_TESTS_UNIT_FORMATS_PAYLOADS_H

#include "formats/payload.h"

/* A payload format that is open, with its schemas, and the columns to decode into. */
struct payloads {
    struct arena arena;
    struct diag_list diags;
    struct payload_options options;
    const struct schema *schema;
    struct payload *payload; /* NULL: it could not be opened; diags say why */
    char directory[512];     /* of the schema file; "": there is none */
    unsigned wakes;          /* atomic */
};

/* Opens a payload format. file_name: name of a schema file, which is made in a new directory from `bytes`
 * bytes of `text`, and whose suffix tells its kind; NULL: no file. message: option `message`, or NULL.
 * registry: URL of the registry, or NULL. columns: as for harness_schema. */
void payloads_open(struct payloads *payloads, const struct format_kind *format, const char *file_name,
                   const char *text, size_t bytes, const char *message, const char *registry,
                   const char *columns);
void payloads_close(struct payloads *payloads);

/* A `wake` for payload_open that counts its calls. engine: the struct payloads. */
void payloads_wake(void *engine);

/* Decodes payloads that are given in hex, with `|` between them, to lines as harness_decode
 * writes them; malloc'd. */
char *payloads_decode(struct payloads *payloads, const struct format_kind *format, const char *hex);
/* The payloads in `hex` must be decoded to `expected` with the schema in `text`. */
void payloads_check(const struct format_kind *format, const char *file_name, const char *text,
                    const char *message, const char *columns, const char *hex, const char *expected);
/* The schema must be refused (E0614), with diagnostics that begin with `expected`. */
void payloads_check_refused(const struct format_kind *format, const char *file_name, const char *text,
                            const char *message, const char *columns, const char *expected);
/* The diagnostics as text: "message [hint]\n" for each, without the directory's path; malloc'd. */
char *payloads_errors(struct payloads *payloads);

#endif
