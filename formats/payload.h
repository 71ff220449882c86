/* Payloads whose bytes only a schema explains (avro, protobuf): where the schema comes from, and the plan by
 * which a payload becomes columns. A source embeds struct payload_options and puts the struct payload of
 * payload_open into format_config.payload of its decoders.
 *
 * Without a registry there is one schema, from a file. With a registry each payload begins with the number of
 * its schema (a byte 0, then the number in four bytes, big-endian, then, for protobuf, the path of the
 * message), and the registry is asked once for each schema (protobuf: each message). `decode` never waits:
 * before a record goes into a batch, the reader calls payload_ready, and reads the record later if the schema
 * has not come yet. */
#ifndef LEAT_FORMATS_PAYLOAD_H
#define LEAT_FORMATS_PAYLOAD_H

#include "formats/formats.h"
#include "formats/schema_registry.h"

struct payload_options {
    struct str schema_file, message;
    struct schema_registry_options registry;
};

#define PAYLOAD_OPTIONS(structure, member)                                                                   \
    OPTION_TEXT(structure, member.schema_file, "schema_file", OPTION_RUNTIME | OPTION_READS | OPTION_INPUT,  \
                "\"\"",                                                                                      \
                "avro: the schema (.avsc) of the payloads, or beside a registry the schema that gives "      \
                "defaults and aliases; protobuf: a .proto file or a compiled FileDescriptorSet"),            \
        OPTION_TEXT(structure, member.message, "message", 0, "\"\"",                                         \
                    "protobuf: name of the message; by default the only message of the file"),               \
        OPTION_BLOCK(structure, member.registry, struct schema_registry_options, "registry", OPTION_RUNTIME, \
                     schema_registry_options,                                                                \
                     "avro, protobuf: a Schema Registry; payloads begin with the number of their schema")

enum { PAYLOAD_SCHEMA_BYTES_MAX = 1 << 20, PAYLOAD_SCHEMAS_MAX = 4096 };

struct payload_request;
struct payload_plan;

/* What a payload format contributes; defined in the format's own file. */
struct payload_kind {
    const struct format_kind *format;
    const char *registry_type; /* the schema type as registries write it */
    bool has_path;             /* message indexes follow the schema number */
    /* Makes the plan for request->writer. Returns NULL after diagnostics (the schema does not fit the
     * columns), or with request->bad set. The plan lives in the request's arena. Any thread. */
    const struct payload_plan *(*plan_new)(struct payload_request *request);
};
extern const struct payload_kind payload_avro, payload_protobuf;

/* The arguments of payload_kind.plan_new. */
struct payload_request {
    struct arena *arena; /* the plan lives in it */
    struct diag_list *diags;
    const struct schema *schema; /* the columns of the job */
    const struct registry_schema *writer;
    const char *name;    /* of the writer's schema, for messages: the file, or "schema 17" */
    struct str reader;   /* text of the schema that gives defaults and aliases; empty: none */
    struct str message;  /* protobuf: the message's name; empty: by path, or the only message */
    const uint8_t *path; /* protobuf with a registry: the message indexes as in the payload; else NULL */
    size_t path_bytes;
    /* The writer's schema is the option schema_file and must have every column. Schemas of a registry
     * change over time: columns that they lack are null. */
    bool is_file;
    /* Set where plan_new returns NULL without a diagnostic: why records with this `path` are bad (static). */
    const char *bad;
};

/* Checks, before anything is opened, that the options fit the format and each other; false after
 * diagnostics. */
LEAT_CHECKED bool payload_bind(const struct format_kind *format, const struct payload_options *options,
                               struct diag_list *diags, struct span span);

struct payload;

/* Reads the schema file. *made: NULL for formats that need no schema. Returns false after diagnostics.
 * `options` and `schema` must outlive the payload. wake(engine) is called, from the payload's own thread,
 * when the answer of payload_ready may have changed. */
LEAT_CHECKED bool payload_open(const struct format_kind *format, const struct payload_options *options,
                               const struct schema *schema, void (*wake)(void *engine), void *engine,
                               struct diag_list *diags, struct payload **made);
/* A payload for the schema `text`, as if it were read from a file called `name`; NULL after diagnostics. */
struct payload *payload_of_text(const struct format_kind *format, const char *name, struct str text,
                                struct str message, const struct schema *schema, struct diag_list *diags);
/* Free all decoders that use the payload first. NULL is allowed. */
void payload_close(struct payload *payload);

enum payload_status {
    PAYLOAD_READY,  /* `decode` may have the payload; it may still be bad */
    PAYLOAD_LATER,  /* the schema was asked for: ask again after `wake`, or after a while */
    PAYLOAD_FAILED, /* the schema cannot be had or does not fit the columns: payload_report says why */
};
enum payload_status payload_ask(struct payload *payload, const char *data, size_t bytes);

/* Whether a payload can be decoded now. Any thread; cheap where recent payloads had the same schema. payload
 * NULL: always ready. */
static inline enum payload_status payload_ready(struct payload *payload, const char *data, size_t bytes)
{
    return payload == NULL ? PAYLOAD_READY : payload_ask(payload, data, bytes);
}

/* Adds the diagnostics after PAYLOAD_FAILED for these bytes. place: of the record: "topic/3, offset 17". */
void payload_report(struct payload *payload, const char *data, size_t bytes, const char *place,
                    struct diag_list *diags);

/* For decoders: returns the plan of the record `data`; the plan lives as long as `payload`. *header: bytes
 * before the record's body. Returns NULL if the record is bad, with the cause in *reason (static text). */
const struct payload_plan *payload_plan(struct payload *payload, const char *data, size_t bytes,
                                        size_t *header, const char **reason);

#endif
