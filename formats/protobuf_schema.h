/* What formats/ borrows from libprotobuf, behind C: .proto files and descriptor sets as plain tables. Any
 * thread; no exception comes out. */
#ifndef LEAT_FORMATS_PROTOBUF_SCHEMA_H
#define LEAT_FORMATS_PROTOBUF_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers of descriptor.proto. */
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
    bool is_required;             /* proto2: a message without it is none */
    bool has_presence;            /* absent is null; else it is the default */
    bool has_default;             /* the schema gives one: absent is that */
    int32_t oneof;                /* fields with the same number push each other out; -1: none */
    int32_t message, enumeration; /* indexes in the schema; -1: none */
    /* Of fields without presence, or with a default. Whole numbers, bools and enums; floats; texts. */
    int64_t default_int;
    double default_float;
    const char *default_text;
    size_t default_bytes;
};

struct protobuf_message {
    const char *name;                    /* with its package */
    const struct protobuf_field *fields; /* by number */
    uint32_t count;
    uint32_t oneofs_count;
};

struct protobuf_enum_value {
    int32_t number;
    const char *name;
};

struct protobuf_enum {
    bool is_closed;                           /* proto2: a number that has no name is no value */
    const struct protobuf_enum_value *values; /* by number, each once */
    uint32_t count;
};

/* messages[0] is the one that was asked for; the others can be reached from it. */
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
    bool is_set;                /* the latter */
    const char *imports_folder; /* where imports are looked for; NULL: nowhere */
    const struct protobuf_file *imports;
    uint32_t imports_count;
    const char *message;    /* NULL: by indexes, or the only one of the file */
    const int32_t *indexes; /* of the message in its file, then of those nested in it; NULL: by name */
    uint32_t indexes_count;
};

/* NULL after writing why. *is_bad_index: it is because no message has these indexes. */
struct protobuf_schema *protobuf_schema_new(const struct protobuf_request *request, bool *is_bad_index,
                                            char *why, size_t why_bytes);
void protobuf_schema_free(void *schema);

#ifdef __cplusplus
}
#endif

#endif
