/* Option tables: one row has an option's name, type, place in the struct, default, bounds, choices and help.
 * Parsing of values, range errors, "did you mean", `leat help`, the reference docs and the fuzz dictionary
 * all use these rows.
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

struct option {
    const char *name;
    enum option_type type;
    unsigned flags;
    size_t offset;
    const char *default_text; /* NULL: none (member stays zero) */
    const char *min_text, *max_text;
    const char *choices;             /* OPTION_ENUM_T: "first|last", values 0, 1 ... in that order */
    const struct option *block;      /* OPTION_BLOCK_T: the nested table, bound into the member struct */
    const struct kind_choice *kinds; /* OPTION_KIND_T; ends with name NULL */
    const char *unit;                /* for the docs, e.g. "rows" */
    const char *help;
};

#define OPTION_BOOL(s, m, n, def, h)                                                                         \
    {                                                                                                        \
        .name = n, .type = OPTION_BOOL_T, .offset = OFFSET_OF(s, m, bool), .default_text = def, .help = h    \
    }
#define OPTION_INT(s, m, n, fl, def, lo, hi, h)                                                              \
    {                                                                                                        \
        .name = n, .type = OPTION_INT_T, .flags = fl, .offset = OFFSET_OF(s, m, int64_t),                    \
        .default_text = def, .min_text = lo, .max_text = hi, .help = h                                       \
    }
#define OPTION_FLOAT(s, m, n, fl, def, lo, hi, h)                                                            \
    {                                                                                                        \
        .name = n, .type = OPTION_FLOAT_T, .flags = fl, .offset = OFFSET_OF(s, m, double),                   \
        .default_text = def, .min_text = lo, .max_text = hi, .help = h                                       \
    }
#define OPTION_DURATION(s, m, n, fl, def, lo, hi, h)                                                         \
    {                                                                                                        \
        .name = n, .type = OPTION_DURATION_T, .flags = fl, .offset = OFFSET_OF(s, m, int64_t),               \
        .default_text = def, .min_text = lo, .max_text = hi, .help = h                                       \
    }
#define OPTION_BYTES(s, m, n, fl, def, lo, hi, h)                                                            \
    {                                                                                                        \
        .name = n, .type = OPTION_BYTES_T, .flags = fl, .offset = OFFSET_OF(s, m, int64_t),                  \
        .default_text = def, .min_text = lo, .max_text = hi, .help = h                                       \
    }
#define OPTION_TEXT(s, m, n, fl, def, h)                                                                     \
    {                                                                                                        \
        .name = n, .type = OPTION_TEXT_T, .flags = fl, .offset = OFFSET_OF(s, m, struct str),                \
        .default_text = def, .help = h                                                                       \
    }
#define OPTION_TEXTS(s, m, n, fl, def, h)                                                                    \
    {                                                                                                        \
        .name = n, .type = OPTION_TEXTS_T, .flags = fl, .offset = OFFSET_OF(s, m, struct texts),             \
        .default_text = def, .help = h                                                                       \
    }
/* The member is an int: the index of the choice. */
#define OPTION_ENUM(s, m, n, fl, def, ch, h)                                                                 \
    {                                                                                                        \
        .name = n, .type = OPTION_ENUM_T, .flags = fl, .offset = OFFSET_OF(s, m, int), .default_text = def,  \
        .choices = ch, .help = h                                                                             \
    }
#define OPTION_INTS(s, m, n, fl, def, lo, hi, h)                                                             \
    {                                                                                                        \
        .name = n, .type = OPTION_INTS_T, .flags = fl, .offset = OFFSET_OF(s, m, struct ints),               \
        .default_text = def, .min_text = lo, .max_text = hi, .help = h                                       \
    }
#define OPTION_DURATIONS(s, m, n, fl, lo, hi, h)                                                             \
    {                                                                                                        \
        .name = n, .type = OPTION_DURATIONS_T, .flags = fl, .offset = OFFSET_OF(s, m, struct durations),     \
        .min_text = lo, .max_text = hi, .help = h                                                            \
    }
#define OPTION_COLUMN(s, m, n, fl, h)                                                                        \
    {                                                                                                        \
        .name = n, .type = OPTION_COLUMN_T, .flags = fl, .offset = OFFSET_OF(s, m, struct column_ref),       \
        .help = h                                                                                            \
    }
#define OPTION_COLUMNS(s, m, n, fl, h)                                                                       \
    {                                                                                                        \
        .name = n, .type = OPTION_COLUMNS_T, .flags = fl, .offset = OFFSET_OF(s, m, struct columns),         \
        .help = h                                                                                            \
    }
#define OPTION_EXPRESSION(s, m, n, fl, h)                                                                    \
    {                                                                                                        \
        .name = n, .type = OPTION_EXPRESSION_T, .flags = fl, .offset = OFFSET_OF(s, m, struct expression),   \
        .help = h                                                                                            \
    }
#define OPTION_EXPRESSIONS(s, m, n, fl, h)                                                                   \
    {                                                                                                        \
        .name = n, .type = OPTION_EXPRESSIONS_T, .flags = fl, .offset = OFFSET_OF(s, m, struct expressions), \
        .help = h                                                                                            \
    }
#define OPTION_ASSIGNMENTS(s, m, n, fl, h)                                                                   \
    {                                                                                                        \
        .name = n, .type = OPTION_ASSIGNMENTS_T, .flags = fl, .offset = OFFSET_OF(s, m, struct assignments), \
        .help = h                                                                                            \
    }
#define OPTION_NAME(s, m, n, fl, h)                                                                          \
    {                                                                                                        \
        .name = n, .type = OPTION_NAME_T, .flags = fl, .offset = OFFSET_OF(s, m, struct name_ref), .help = h \
    }
#define OPTION_STREAM(s, m, n, fl, h)                                                                        \
    {                                                                                                        \
        .name = n, .type = OPTION_STREAM_T, .flags = fl, .offset = OFFSET_OF(s, m, struct name_ref),         \
        .help = h                                                                                            \
    }
#define OPTION_STREAMS(s, m, n, fl, h)                                                                       \
    {                                                                                                        \
        .name = n, .type = OPTION_STREAMS_T, .flags = fl, .offset = OFFSET_OF(s, m, struct columns),         \
        .help = h                                                                                            \
    }
#define OPTION_SCHEMA(s, m, n, fl, h)                                                                        \
    {                                                                                                        \
        .name = n, .type = OPTION_SCHEMA_T, .flags = fl, .offset = OFFSET_OF(s, m, struct schema *),         \
        .help = h                                                                                            \
    }
#define OPTION_BLOCK(s, m, mtype, n, fl, table, h)                                                           \
    {                                                                                                        \
        .name = n, .type = OPTION_BLOCK_T, .flags = fl, .offset = OFFSET_OF(s, m, mtype), .block = table,    \
        .help = h                                                                                            \
    }
#define OPTION_KIND(s, m, n, fl, def, choices_, h)                                                           \
    {                                                                                                        \
        .name = n, .type = OPTION_KIND_T, .flags = fl, .offset = OFFSET_OF(s, m, struct kind_ref),           \
        .default_text = def, .kinds = choices_, .help = h                                                    \
    }
#define OPTIONS_END                                                                                          \
    {                                                                                                        \
        .name = NULL                                                                                         \
    }

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

/* The row of that name, or NULL. */
const struct option *option_find(const struct option *table, struct str name);
/* The type's name for help and docs: "int", "duration", "first|last". */
const char *option_type_name(const struct option *option);
/* An example of a value, as job text: the default or, where the default means "none" (0B), a value within the
 * bounds. NULL: there is no example; show the help text instead. */
const char *option_example(const struct option *option);

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
