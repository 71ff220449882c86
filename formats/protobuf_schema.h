/* What formats/ uses of libprotobuf, behind a C interface: .proto files and descriptor sets as plain tables.
 * Any thread; no exception comes out. */
#ifndef LEAT_FORMATS_PROTOBUF_SCHEMA_H
#define LEAT_FORMATS_PROTOBUF_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The values of FieldDescriptorProto.Type in descriptor.proto. */
enum protobuf_type {
    PROTOBUF_DOUBLE = 1,
    PROTOBUF_FLOAT,
    PROTOBUF_INT64,
    PROTOBUF_UINT64,
    PROTOBUF_INT32,
    PROTOBUF_FIXED64,
    PROTOBUF_FIXED32,
    PROTOBUF_BOOL,
    PROTOBUF_STRING,
    PROTOBUF_GROUP,
    PROTOBUF_MESSAGE,
    PROTOBUF_BYTES,
    PROTOBUF_UINT32,
    PROTOBUF_ENUM,
    PROTOBUF_SFIXED32,
    PROTOBUF_SFIXED64,
    PROTOBUF_SINT32,
    PROTOBUF_SINT64,
};

struct protobuf_field {
    const char *name;
    uint32_t number;
    enum protobuf_type type;
    bool is_repeated;
    bool is_required;             /* proto2: a message without this field is bad */
    bool has_presence;            /* a payload shows absence: null; without presence: the default */
    bool has_default;             /* the schema gives a default for the absent field */
    int32_t oneof;                /* at most one of the fields with the same number is set; -1: in no oneof */
    int32_t message, enumeration; /* index in schema->messages, schema->enums; -1: none */
    /* The default, of fields without presence or with has_default. default_int: ints, bools and enums. */
    int64_t default_int;
    double default_float;
    const char *default_text;
    size_t default_bytes;
};

struct protobuf_message {
    const char *name;                    /* with its package */
    const struct protobuf_field *fields; /* sorted by number */
    uint32_t count;
    uint32_t oneofs_count;
};

struct protobuf_enum_value {
    int32_t number;
    const char *name;
};

struct protobuf_enum {
    bool is_closed;                           /* proto2: a number without a name is no value */
    const struct protobuf_enum_value *values; /* sorted by number, each number once */
    uint32_t count;
};

/* messages[0] is the message that was asked for; it leads to all the others. */
struct protobuf_schema {
    const struct protobuf_message *messages;
    const struct protobuf_enum *enums;
    uint32_t messages_count, enums_count;
};

struct protobuf_file {
    const char *name;
    const char *data;
    size_t bytes;
};

struct protobuf_request {
    struct protobuf_file file;  /* .proto text, or a serialized FileDescriptorSet */
    bool is_set;                /* `file` is a FileDescriptorSet */
    const char *imports_folder; /* where imports are looked for; NULL: in `imports` alone */
    const struct protobuf_file *imports;
    uint32_t imports_count;
    const char *message;    /* name of the message; NULL: by indexes, or the only message of the file */
    const int32_t *indexes; /* of the message in its file, then of each nested message; NULL: by name */
    uint32_t indexes_count;
};

/* Returns the schema, which the caller frees with protobuf_schema_free. NULL: `why` holds the cause, cut to
 * why_bytes; *is_bad_index: the cause is that no message has these indexes. */
struct protobuf_schema *protobuf_schema_new(const struct protobuf_request *request, bool *is_bad_index,
                                            char *why, size_t why_bytes);
void protobuf_schema_free(void *schema);

#ifdef __cplusplus
}
#endif

#endif
