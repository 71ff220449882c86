/* Payloads that only their schema explains (avro, protobuf): where the schema is from, and the plan by which
 * a payload becomes columns. A source embeds struct payload_options, and gives its decoders what payload_open
 * made in format_config.payload.
 *
 * Plain: one schema, from a file. With a registry each payload begins with the number of its schema (a byte
 * 0, four bytes of number; protobuf: and which message), and the registry is asked for it once. Nobody waits
 * inside `decode`: whoever reads records asks payload_ready for each before it is put into a batch, and reads
 * later where the schema is not there yet. */
#ifndef LEAT_FORMATS_PAYLOAD_H
#define LEAT_FORMATS_PAYLOAD_H

#include "formats/formats.h"
#include "formats/schema_registry.h"

struct payload_options {
    struct str schema_file, message;
    struct schema_registry_options registry;
};

#define PAYLOAD_OPTIONS(structure, member)                                                                   \
    OPTION_TEXT(structure, member.schema_file, "schema_file", OPTION_RUNTIME | OPTION_READS, "\"\"",         \
                "avro: the schema (.avsc) of the payloads, or beside a registry what gives defaults and "    \
                "aliases; protobuf: a .proto file or a compiled FileDescriptorSet"),                         \
        OPTION_TEXT(structure, member.message, "message", 0, "\"\"",                                         \
                    "protobuf: the message's name; by default the only one of the file"),                    \
        OPTION_BLOCK(structure, member.registry, struct schema_registry_options, "registry", OPTION_RUNTIME, \
                     schema_registry_options,                                                                \
                     "avro, protobuf: a Schema Registry; payloads begin with the number of their schema")

enum { PAYLOAD_SCHEMA_BYTES_MAX = 1 << 20, PAYLOAD_SCHEMAS_MAX = 4096 };

struct payload_request;
struct payload_plan;

/* What a format brings; in its file. */
struct payload_kind {
    const struct format_kind *format;
    const char *registry_type; /* as registries call it */
    bool has_path;             /* message indexes behind the number */
    /* NULL after diagnostics, or with request->bad: what the payloads have that the columns cannot hold.
     * Everything lives in the request's arena. Any thread. */
    const struct payload_plan *(*plan_new)(struct payload_request *request);
};
extern const struct payload_kind payload_avro, payload_protobuf;

/* What a format's maker of plans gets. */
struct payload_request {
    struct arena *arena; /* the plan's */
    struct diag_list *diags;
    const struct schema *schema; /* the columns */
    const struct registry_schema *writer;
    const char *name;    /* of the writer's schema: the file, or "schema 17" */
    struct str reader;   /* text of the schema with defaults and aliases; empty: none */
    struct str message;  /* protobuf; empty: by path, or the only one */
    const uint8_t *path; /* protobuf, registry: the message indexes as they stand in the payload; else NULL */
    size_t path_bytes;
    bool is_file; /* of the option schema_file: has every column; others change, and what they lack is null */
    /* Set, with NULL returned and no diagnostic: records with this `path` are bad, and why. */
    const char *bad;
};

/* Whether these options go together, before anything is opened; diagnostics. */
LEAT_CHECKED bool payload_bind(const struct format_kind *format, const struct payload_options *options,
                               struct diag_list *diags, struct span span);

struct payload;

/* Reads the schema file. *made: NULL for formats that need none. false after diagnostics. options and schema
 * live as long. wake(engine) is called, from a thread of its own, when payload_ready would answer
 * otherwise. */
LEAT_CHECKED bool payload_open(const struct format_kind *format, const struct payload_options *options,
                               const struct schema *schema, void (*wake)(void *engine), void *engine,
                               struct diag_list *diags, struct payload **made);
/* Of a schema's text, as if it were in a file of that name; NULL after diagnostics. */
struct payload *payload_of_text(const struct format_kind *format, const char *name, struct str text,
                                struct str message, const struct schema *schema, struct diag_list *diags);
/* NULL is allowed. No decoder may use it any more. */
void payload_close(struct payload *payload);

enum payload_status {
    PAYLOAD_READY,  /* `decode` may have it; it may still be bad */
    PAYLOAD_LATER,  /* its schema was asked for: once more after `wake`, or after a while */
    PAYLOAD_FAILED, /* its schema cannot be had or does not fit the columns: payload_report says why */
};
enum payload_status payload_ask(struct payload *payload, const char *data, size_t bytes);

/* Any thread; cheap where the schema is that of the payload before. NULL: always ready. */
static inline enum payload_status payload_ready(struct payload *payload, const char *data, size_t bytes)
{
    return payload == NULL ? PAYLOAD_READY : payload_ask(payload, data, bytes);
}

/* After PAYLOAD_FAILED for these bytes: adds the diagnostics. place: the record's, "topic/3, offset 17". */
void payload_report(struct payload *payload, const char *data, size_t bytes, const char *place,
                    struct diag_list *diags);

/* For decoders: the plan of a payload, and where its body begins. NULL: *reason says why it is bad. */
const struct payload_plan *payload_plan(struct payload *payload, const char *data, size_t bytes,
                                        size_t *header, const char **reason);

#endif
