/* Types, fields and schemas: what the columns of a batch are. Immutable once built; any thread. */
#ifndef LEAT_CORE_SCHEMA_H
#define LEAT_CORE_SCHEMA_H

#include "core/arena.h"

enum type_tag {
    TYPE_BOOL,
    TYPE_INT,   /* i64 */
    TYPE_FLOAT, /* f64 */
    TYPE_TEXT,  /* UTF-8 */
    TYPE_BYTES,
    TYPE_TIME,   /* i64, microseconds, UTC */
    TYPE_LIST,   /* of `element` */
    TYPE_RECORD, /* only as the element of a list: list of records */
};

/* How a source writes a time; inside leat a time is always in microseconds. */
enum time_unit {
    TIME_UNIT_US,
    TIME_UNIT_MS,
    TIME_UNIT_S,
    TIME_UNIT_RFC3339,
    TIME_UNIT_DATETIME,
    TIME_UNIT_NS,
};

struct type {
    enum type_tag tag;
    enum time_unit unit;         /* TYPE_TIME; used only in a source's or sink's schema */
    const struct type *element;  /* TYPE_LIST */
    const struct schema *fields; /* TYPE_RECORD */
    uint32_t length_max;         /* TYPE_LIST: most elements a list can have; 0: not known */
};

/* Which source columns and labels a column's value derives from, for the rule that no learner may see its
 * label: one bit for each column of each source and for each label that `attribute` makes. Every operator's
 * `bind` sets the lineage of its output columns. */
enum { LINEAGE_ROOTS_MAX = 1024, LINEAGE_WORDS = LINEAGE_ROOTS_MAX / 64 };

struct lineage {
    uint64_t words[LINEAGE_WORDS];
};

static inline void lineage_merge(struct lineage *into, const struct lineage *from)
{
    for (size_t i = 0; i < LINEAGE_WORDS; i++)
        into->words[i] |= from->words[i];
}

static inline bool lineage_intersects(const struct lineage *a, const struct lineage *b)
{
    for (size_t i = 0; i < LINEAGE_WORDS; i++)
        if ((a->words[i] & b->words[i]) != 0)
            return true;
    return false;
}

struct field {
    struct str name;
    struct type type;
    bool is_required; /* a source's record without this field is a bad record; written `name: int!` */
    struct lineage lineage;
    /* The roots in `lineage` that decide only whether rows exist, not what the values are. A feature derives
     * from these roots, too. A label with such a root does not forbid features that derive from the root. */
    struct lineage rows_only;
};

/* Adds `rows` to the field's lineage: these roots decided which rows exist. */
static inline void field_chosen(struct field *field, const struct lineage *rows)
{
    for (size_t i = 0; i < LINEAGE_WORDS; i++) {
        field->rows_only.words[i] |= rows->words[i] & ~field->lineage.words[i];
        field->lineage.words[i] |= rows->words[i];
    }
}

/* Adds the lineage of `from`: the field's values may come from it as well. */
static inline void field_merge(struct field *field, const struct field *from)
{
    for (size_t i = 0; i < LINEAGE_WORDS; i++) {
        uint64_t values = (field->lineage.words[i] & ~field->rows_only.words[i]) |
                          (from->lineage.words[i] & ~from->rows_only.words[i]);
        field->lineage.words[i] |= from->lineage.words[i];
        field->rows_only.words[i] = field->lineage.words[i] & ~values;
    }
}

enum { SCHEMA_FIELDS_MAX = 512 };

struct schema {
    struct field *fields;
    uint32_t count;
    /* Roots that decide which rows exist: a `where` on a label taints the output of a later union. */
    struct lineage rows_lineage;
    /* Several rows may stem from one event (`union` of streams that share a source, `unnest`): an
     * earlier row may be a copy of the current one, so an operator that reads only earlier rows does not
     * clear a taint. */
    bool repeats;
};

/* A copy with room for `extra` more fields, which are zeroed and not counted. */
struct schema *schema_copy(struct arena *arena, const struct schema *schema, uint32_t extra);
/* Adds a field and returns it; the schema must have room (schema_copy). The name is not copied. */
struct field *schema_add(struct schema *schema, struct str name, struct type type);
/* Index of the field of that name; -1: there is none. */
int schema_find(const struct schema *schema, struct str name);
bool type_equal(const struct type *a, const struct type *b);
bool schema_equal(const struct schema *a, const struct schema *b);
/* The type's name: "int", "list(int)", "list({ aid: int, ts: time })". In the arena. */
const char *type_name(struct arena *arena, const struct type *type);
/* The fields' names, terminated by NULL, for "did you mean". */
const char **schema_names(struct arena *arena, const struct schema *schema);

static inline struct type type_of(enum type_tag tag)
{
    return (struct type){.tag = tag};
}

/* length_max for a value that has either type a or type b: the larger one; 0 if either is unknown. */
static inline uint32_t type_length_max(const struct type *a, const struct type *b)
{
    uint32_t longer = a->length_max > b->length_max ? a->length_max : b->length_max;
    return a->length_max == 0 || b->length_max == 0 ? 0 : longer;
}

static inline bool type_is_number(struct type type)
{
    return type.tag == TYPE_INT || type.tag == TYPE_FLOAT;
}

#endif
