/* The parts of the avro format; private to avro*.c.
 *
 * A writer's schema (JSON) is parsed into a tree of types. That tree and the columns of the job are compiled
 * into a plan, which is followed once for each record. Everything that can be wrong with a schema is found
 * when the plan is made. */
#ifndef LEAT_FORMATS_AVRO_H
#define LEAT_FORMATS_AVRO_H

#include "formats/payload_batch.h"

#include <jansson.h>

/* The deepest nesting of types in a schema, and of values in a record. */
enum { AVRO_NESTING_MAX = 64, AVRO_DEPTH_MAX = 200 };
/* At most this many values are read or skipped in one record: VALUES_MAX, and VALUES_PER_BYTE more for each
 * byte of the record. Without this limit, six bytes could hold a list of a thousand million empty records. */
enum { AVRO_VALUES_MAX = 64 << 10, AVRO_VALUES_PER_BYTE = 16 };
enum { AVRO_TYPES_MAX = 1024, AVRO_FIELDS_MAX = 4096, AVRO_STEPS_MAX = 64 << 10 };

enum avro_tag {
    AVRO_NULL,
    AVRO_BOOLEAN,
    AVRO_INT,
    AVRO_LONG,
    AVRO_FLOAT,
    AVRO_DOUBLE,
    AVRO_BYTES,
    AVRO_STRING,
    AVRO_FIXED,
    AVRO_ENUM,
    AVRO_ARRAY,
    AVRO_MAP,
    AVRO_UNION,
    AVRO_RECORD,
};

enum avro_logical { AVRO_PLAIN, AVRO_DATE, AVRO_TIMESTAMP_MS, AVRO_TIMESTAMP_US, AVRO_TIMESTAMP_NS };

struct avro_field {
    struct str name;
    struct avro_type *type;
    const json_t *default_value; /* NULL: none */
    const json_t *aliases;       /* an array, or NULL */
};

struct avro_type {
    enum avro_tag tag;
    enum avro_logical logical;
    uint8_t mark;             /* set while the tree is checked for endless records */
    struct str name;          /* of fixed, enum, record: with the namespace */
    uint32_t count;           /* of symbols, items or fields */
    uint32_t size;            /* fixed: bytes */
    struct str *symbols;      /* enum */
    struct avro_type **items; /* array, map: one; union: the branches */
    struct avro_field *fields;
};

/* The named types known while a schema is parsed, also those of the schemas that it refers to. */
struct avro_names {
    struct avro_type *types[AVRO_TYPES_MAX];
    uint32_t count;
};

/* Parses a schema into a tree in the arena; NULL with the cause in *why (text in the arena). names: zeroed
 * before the first call; the schema may refer to the types in it, and its own are added. */
struct avro_type *avro_type_parse(struct arena *arena, struct str text, struct avro_names *names,
                                  const char **why);
/* "long", "array", "record click.Event", for messages. */
const char *avro_type_name(struct arena *arena, const struct avro_type *type);
/* The index of the field with that name, or -1. */
int avro_field_find(const struct avro_type *record, struct str name);

/* What a step of a plan does with the next bytes. */
enum avro_op {
    AVRO_OP_NULL, /* takes no bytes */
    AVRO_OP_BOOL,
    AVRO_OP_INT,    /* 32 bits -> int */
    AVRO_OP_LONG,   /* -> int */
    AVRO_OP_TIME,   /* an int of `count` bits, in units of the scale `number` (core/base.h) */
    AVRO_OP_DATE,   /* 32 bits: days */
    AVRO_OP_CIVIL,  /* a text like 2015-09-12T00:46:58Z -> time */
    AVRO_OP_WHOLE,  /* an int of `number` bits -> float */
    AVRO_OP_FLOAT,  /* 4 bytes */
    AVRO_OP_DOUBLE, /* 8 bytes */
    AVRO_OP_TEXT,
    AVRO_OP_BYTES,
    AVRO_OP_FIXED, /* `number` bytes -> bytes */
    AVRO_OP_ENUM,  /* symbols -> text */
    AVRO_OP_UNION,
    AVRO_OP_LIST,   /* steps[0]: the items */
    AVRO_OP_MAP,    /* a list of records with `key` and `value`: steps[0], steps[1] */
    AVRO_OP_RECORD, /* the writer's fields, then constants for columns that the writer does not have */
    AVRO_OP_CONSTANT_NULL,
    AVRO_OP_CONSTANT_BOOL,
    AVRO_OP_CONSTANT_INT, /* int, time; the bits of a float */
    AVRO_OP_CONSTANT_TEXT,
    AVRO_OP_CONSTANT_LIST, /* an empty list */
    AVRO_OP_SKIP,          /* a value of `type` */
    AVRO_OP_SKIP_VARINT,
    AVRO_OP_SKIP_TEXT,
    AVRO_OP_SKIP_FIXED, /* `number` bytes */
};

struct avro_step {
    enum avro_op op;
    bool is_required; /* null is bad */
    uint32_t column;  /* index in the batch's columns, or in those of the list that has the value */
    uint32_t count;   /* of `steps`, or of symbols; else see enum avro_op */
    int64_t number;   /* see enum avro_op */
    struct avro_step *steps;
    const struct text_ref *texts; /* symbols, or one constant; in the plan's constants */
    const struct avro_type *type; /* AVRO_OP_SKIP */
};

struct avro_plan {
    struct payload_plan base;
    struct avro_step record;
};

/* payload_kind.plan_new. */
const struct payload_plan *avro_plan_new(struct payload_request *request);
void avro_decode(void *decoder, struct raw_batch *raw, struct decode_output *output);

#endif
