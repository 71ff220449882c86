/* Option tables: one row has an option's name, type, place in the struct, default, bounds, choices and help.
 * Parsing of values, range errors, "did you mean", `leat help`, the reference docs and the fuzz dictionary
 * all use these rows. OPTION_INCLUDE stands for the rows of another table, which users write like the table's
 * own.
 *
 * In a job an option is written either as `name: value` in a block (sources, sinks, learners) or as `name
 * value...` after an operator's name (`dedup by a, b within 1h`). OPTION_POSITIONAL takes what directly
 * follows the operator's name (`where EXPR`, `with a = x, b = y`), OPTION_BODY the block at the end (`window
 * ... { n: count() }`).
 *
 * Defaults and bounds are job-language text ("1ms", "64MiB", "0.05", "[128, 64]"); a test checks that
 * each default passes its own row. The struct is zeroed before binding; a default applies where the job
 * gives no value. */
#ifndef LEAT_CORE_OPTION_H
#define LEAT_CORE_OPTION_H

#include "core/ast.h"
#include "core/schema.h"

enum option_type {
    OPTION_BOOL_T,
    OPTION_INT_T,
    OPTION_FLOAT_T,
    OPTION_TEXT_T,
    OPTION_TEXTS_T,
    OPTION_DURATION_T,
    OPTION_DURATIONS_T,
    OPTION_BYTES_T,
    OPTION_ENUM_T,
    OPTION_INTS_T,
    OPTION_COLUMN_T,
    OPTION_COLUMNS_T,
    OPTION_EXPRESSION_T,
    OPTION_EXPRESSIONS_T,
    OPTION_ASSIGNMENTS_T,
    OPTION_NAME_T,
    OPTION_STREAM_T,
    OPTION_STREAMS_T, /* member: struct columns; streams, NAME or NAME.OUTPUT, that become inputs 1, 2 ... */
    OPTION_SCHEMA_T,
    OPTION_BLOCK_T,
    OPTION_KIND_T,
};

enum option_flags {
    OPTION_REQUIRED = 1,
    OPTION_POSITIONAL = 2, /* directly after the operator's name, without a keyword */
    OPTION_BODY = 4,       /* the { } block that ends the step */
    OPTION_SECRET = 8,     /* only by env(...) or file(...); never printed */
    OPTION_RUNTIME = 16,   /* not part of the job's fingerprint: brokers, intervals, paths */
    OPTION_FOREVER = 32,   /* a duration that may be the word `forever`: INT64_MAX */
    OPTION_READS = 64,     /* a text or texts: files that are read, as names, globs
                              or directories (core/claims.h) */
    OPTION_WRITES = 128,   /* a text: the path of an output */
    OPTION_INPUT = 256,    /* a text: a file, or a glob, that is read besides the records (plan_input) */
    OPTION_RECORDS =
        1024, /* with OPTION_READS: a source's files of records, which all workers of a cluster must see */
    OPTION_PRIVATE = 512, /* values may be secrets: the list of inputs leaves them out */
};

/* The member types of option structs. */
struct texts {
    struct str *items;
    uint32_t count;
};
struct durations {
    int64_t *items;     /* microseconds */
    struct span *spans; /* of each item */
    uint32_t count;
};
struct ints {
    int64_t *items;
    uint32_t count;
};
/* A column named in the job; bind resolves `index` in the input schema with column_resolve. */
struct column_ref {
    struct str name;
    struct span span;
    int index;
};
struct columns {
    struct column_ref *items;
    uint32_t count;
};
struct expression {
    const struct ast *ast; /* NULL: not given */
};
struct expressions {
    const struct ast **items;
    uint32_t count;
};
struct assignment {
    struct str name;
    struct span name_span;
    const struct ast *value;
};
struct assignments {
    struct assignment *items;
    uint32_t count;
};
/* A new name that the step introduces (`as clicked`), or a stream it reads (`from clicks`). */
struct name_ref {
    struct str name; /* length 0: not given */
    struct span span;
};
/* One choice of an option like `optimizer: adagrad { rate: 0.05 }`: its name, its option table and
 * its struct's size. */
struct kind_choice {
    const char *name;
    const struct option *options;
    size_t size;
    const char *summary;
};
struct kind_ref {
    int choice;   /* index into the row's kinds */
    void *config; /* the choice's option struct */
};

struct option_row {
    const char *name; /* NULL: no row */
    enum option_type type;
    unsigned flags;
    size_t offset; /* of the member, from the beginning of the struct that the walked table is for */
    const char *default_text; /* NULL: none (member stays zero) */
    const char *min_text, *max_text;
    const char *choices;             /* OPTION_ENUM_T: "first|last", values 0, 1 ... in that order */
    const struct option *block;      /* OPTION_BLOCK_T: the nested table, bound into the member struct */
    const struct kind_choice *kinds; /* OPTION_KIND_T; ends with name NULL */
    const char *unit;                /* for the docs, e.g. "rows" */
    const char *help;
};

/* An item of a table: a row, or an include. Rows are read by option_walk and option_find alone: only these
 * see included rows, and know their offsets in the outer struct. */
struct option {
    struct option_row written;    /* offset: in the struct that this table is for */
    const struct option *include; /* a table for the member at written.offset; NULL: the item is a row */
};

/* A row of type OPTION_`type_`_T, name n and help h for the member m of struct s; mtype: the member's C type.
 * Then come other members of struct option_row. */
#define OPTION_ROW(type_, mtype, s, m, n, h, ...)                                                            \
    {                                                                                                        \
        .written = {                                                                                         \
            .name = n,                                                                                       \
            .type = OPTION_##type_##_T,                                                                      \
            .offset = OFFSET_OF(s, m, mtype),                                                                \
            .help = h,                                                                                       \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    }
#define OPTION_BOOL(s, m, n, def, h) OPTION_ROW(BOOL, bool, s, m, n, h, .default_text = def)
#define OPTION_INT(s, m, n, fl, def, lo, hi, h)                                                              \
    OPTION_ROW(INT, int64_t, s, m, n, h, .flags = fl, .default_text = def, .min_text = lo, .max_text = hi)
#define OPTION_FLOAT(s, m, n, fl, def, lo, hi, h)                                                            \
    OPTION_ROW(FLOAT, double, s, m, n, h, .flags = fl, .default_text = def, .min_text = lo, .max_text = hi)
#define OPTION_DURATION(s, m, n, fl, def, lo, hi, h)                                                         \
    OPTION_ROW(DURATION, int64_t, s, m, n, h, .flags = fl, .default_text = def, .min_text = lo,              \
               .max_text = hi)
#define OPTION_BYTES(s, m, n, fl, def, lo, hi, h)                                                            \
    OPTION_ROW(BYTES, int64_t, s, m, n, h, .flags = fl, .default_text = def, .min_text = lo, .max_text = hi)
#define OPTION_TEXT(s, m, n, fl, def, h)                                                                     \
    OPTION_ROW(TEXT, struct str, s, m, n, h, .flags = fl, .default_text = def)
#define OPTION_TEXTS(s, m, n, fl, def, h)                                                                    \
    OPTION_ROW(TEXTS, struct texts, s, m, n, h, .flags = fl, .default_text = def)
/* The member is an int: the index of the choice. */
#define OPTION_ENUM(s, m, n, fl, def, ch, h)                                                                 \
    OPTION_ROW(ENUM, int, s, m, n, h, .flags = fl, .default_text = def, .choices = ch)
#define OPTION_INTS(s, m, n, fl, def, lo, hi, h)                                                             \
    OPTION_ROW(INTS, struct ints, s, m, n, h, .flags = fl, .default_text = def, .min_text = lo,              \
               .max_text = hi)
#define OPTION_DURATIONS(s, m, n, fl, lo, hi, h)                                                             \
    OPTION_ROW(DURATIONS, struct durations, s, m, n, h, .flags = fl, .min_text = lo, .max_text = hi)
#define OPTION_COLUMN(s, m, n, fl, h)     OPTION_ROW(COLUMN, struct column_ref, s, m, n, h, .flags = fl)
#define OPTION_COLUMNS(s, m, n, fl, h)    OPTION_ROW(COLUMNS, struct columns, s, m, n, h, .flags = fl)
#define OPTION_EXPRESSION(s, m, n, fl, h) OPTION_ROW(EXPRESSION, struct expression, s, m, n, h, .flags = fl)
#define OPTION_EXPRESSIONS(s, m, n, fl, h)                                                                   \
    OPTION_ROW(EXPRESSIONS, struct expressions, s, m, n, h, .flags = fl)
#define OPTION_ASSIGNMENTS(s, m, n, fl, h)                                                                   \
    OPTION_ROW(ASSIGNMENTS, struct assignments, s, m, n, h, .flags = fl)
#define OPTION_NAME(s, m, n, fl, h)    OPTION_ROW(NAME, struct name_ref, s, m, n, h, .flags = fl)
#define OPTION_STREAM(s, m, n, fl, h)  OPTION_ROW(STREAM, struct name_ref, s, m, n, h, .flags = fl)
#define OPTION_STREAMS(s, m, n, fl, h) OPTION_ROW(STREAMS, struct columns, s, m, n, h, .flags = fl)
#define OPTION_SCHEMA(s, m, n, fl, h)  OPTION_ROW(SCHEMA, struct schema *, s, m, n, h, .flags = fl)
#define OPTION_BLOCK(s, m, mtype, n, fl, table, h)                                                           \
    OPTION_ROW(BLOCK, mtype, s, m, n, h, .flags = fl, .block = table)
#define OPTION_KIND(s, m, n, fl, def, choices_, h)                                                           \
    OPTION_ROW(KIND, struct kind_ref, s, m, n, h, .flags = fl, .default_text = def, .kinds = choices_)
/* The rows of `table` in this place; they are bound into the member, a struct that `table` is for. */
#define OPTION_INCLUDE(s, m, table)                                                                          \
    {                                                                                                        \
        .written = {.offset = offsetof(s, m)}, .include = table                                              \
    }
/* Likewise; both tables are for the same struct. */
#define OPTION_INCLUDE_ROWS(table)                                                                           \
    {                                                                                                        \
        .include = table                                                                                     \
    }
#define OPTIONS_END                                                                                          \
    {                                                                                                        \
        .include = NULL                                                                                      \
    }

/* A walk over the rows of a table and of the tables that it includes, in the order of help:
 *     for (struct option_walk w = option_walk(table); option_next(&w);)
 *         use(&w.row); */
enum { OPTION_INCLUDES_MAX = 4 }; /* how deep includes nest */
struct option_walk {
    struct option_row row; /* the current row */
    uint32_t count;        /* rows so far, with the current one */
    uint32_t depth;        /* index of the place that has the current row */
    struct option_place {
        const struct option *next; /* in a table; NULL: the table is NULL */
        size_t offset;             /* of the table's struct in the struct of the walked table */
    } places[1 + OPTION_INCLUDES_MAX];
};
/* table: may be NULL, and has no rows then. */
struct option_walk option_walk(const struct option *table);
/* Moves to the next row. false: there is none; the row is then empty. */
LEAT_CHECKED bool option_next(struct option_walk *walk);

/* The environment of binding; one for a whole job. */
struct option_env {
    struct arena *arena; /* everything that is bound lives here */
    struct diag_list *diags;
    ast_parse_function *parse; /* parses the rows' default_text */
};

/* Fills `target`, a zeroed option struct, from the entries by the table's rows, and applies defaults. Reports
 * every error: values out of range, unknown and repeated names, missing required options; false if there was
 * any. what: "source `kafka`", for messages; place: where a missing option is reported. `table` may be NULL:
 * then every entry is unknown. */
LEAT_CHECKED bool option_bind(const struct option *table, const char *what, struct span place,
                              const struct ast_entry *entries, uint32_t count, void *target,
                              struct option_env *env);

bool option_has_rows(const struct option *table);
/* The row of that name; its name is NULL: there is none. */
struct option_row option_find(const struct option *table, struct str name);
/* The first row that has one of the flags; its name is NULL: there is none. */
struct option_row option_find_flag(const struct option *table, unsigned flags);
/* The type's name for help and docs: "int", "duration", "first|last". */
const char *option_type_name(const struct option_row *option);
/* An example of a value, as job text: the default or, where the default means "none" (0B), a value within the
 * bounds. NULL: there is no example; show the help text instead. */
const char *option_example(const struct option_row *option);

/* Sets ref->index to the index of the column ref->name in the schema; false after a diagnostic, E0302 with
 * "did you mean". */
LEAT_CHECKED bool column_resolve(struct column_ref *ref, const struct schema *schema, struct arena *arena,
                                 struct diag_list *diags);
LEAT_CHECKED bool columns_resolve(struct columns *refs, const struct schema *schema, struct arena *arena,
                                  struct diag_list *diags);

/* Literals of the job language; the lexer and the command line use them, too. false: not such a literal, or
 * out of range. A duration or size is one number with one unit (`10s`, not `1h30m`). Units: us ms s m h d w;
 * B KB MB GB TB KiB MiB GiB TiB. */
struct literal_unit {
    const char *name;
    int64_t factor; /* microseconds, or bytes */
};
extern const struct literal_unit literal_duration_units[], literal_byte_units[]; /* both end with name NULL */
bool literal_int(struct str text, int64_t *value);
bool literal_float(struct str text, double *value);
bool literal_duration(struct str text, int64_t *microseconds);
bool literal_bytes(struct str text, int64_t *bytes);

#endif
