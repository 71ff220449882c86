/* The parts of the protobuf format; private to protobuf*.c. Schemas: protobuf_schema.h. */
#ifndef LEAT_FORMATS_PROTOBUF_H
#define LEAT_FORMATS_PROTOBUF_H

#include "formats/payload_batch.h"
#include "formats/protobuf_schema.h"

enum { PROTOBUF_DEPTH_MAX = 100, PROTOBUF_STEPS_MAX = 64 << 10 };
/* Fields with numbers below this are found by a table. */
enum { PROTOBUF_DIRECT_MAX = 256 };

/* How a value is stored in its column. */
enum protobuf_target {
    PROTOBUF_TO_INT,
    PROTOBUF_TO_FLOAT,
    PROTOBUF_TO_BOOL,
    PROTOBUF_TO_TIME,  /* a number of units of the scale `unit_us` (core/base.h) */
    PROTOBUF_TO_CIVIL, /* a text like 2015-09-12T00:46:58Z */
    PROTOBUF_TO_TEXT,
    PROTOBUF_TO_BYTES,
    PROTOBUF_TO_NAME,      /* enum: the name of the number */
    PROTOBUF_TO_TIMESTAMP, /* google.protobuf.Timestamp */
    PROTOBUF_TO_WRAPPED,   /* google.protobuf.Int64Value and its like: record->steps[0] */
    PROTOBUF_TO_RECORD,    /* an element of a list of records: `record` */
};

/* The value of a column whose field is absent. */
enum protobuf_absent {
    PROTOBUF_ABSENT_NULL,
    PROTOBUF_ABSENT_VALUE,
    PROTOBUF_ABSENT_TEXT,
    PROTOBUF_ABSENT_LIST
};

struct protobuf_step {
    uint32_t number; /* the field's; 0: the message has no such field */
    enum protobuf_type type;
    enum protobuf_target target;
    enum protobuf_absent absent;
    bool is_list;
    bool is_required;         /* null is bad */
    bool is_message_required; /* proto2: a message without the field is bad */
    uint32_t column;          /* index in the batch's columns, or in those of the list that has the value */
    int32_t oneof;            /* as in struct protobuf_field */
    int64_t unit_us;
    int64_t value;        /* of an absent field: int, bool, time, or the bits of a float */
    struct text_ref text; /* of an absent field: text in the plan's constants */
    const struct protobuf_enum *enumeration;
    const struct text_ref *names; /* of the enum's values, in the plan's constants */
    struct protobuf_record *record;
};

/* A message whose fields go into the columns of the job, or into those of a list's elements. */
struct protobuf_record {
    struct protobuf_step *steps; /* one for each column, sorted by number; steps without a field last */
    uint32_t count;
    uint16_t direct[PROTOBUF_DIRECT_MAX]; /* by field number: index in `steps` + 1, 0: none */
};

struct protobuf_plan {
    struct payload_plan base;
    struct protobuf_record record;
};

/* payload_kind.plan_new. */
const struct payload_plan *protobuf_plan_new(struct payload_request *request);

void protobuf_decode(void *decoder, struct raw_batch *raw, struct decode_output *output);

#endif
