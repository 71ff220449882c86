/* leat.h: functions and operators of your own, in C, for jobs of leat.
 *
 * A shared library that exports `leat_library` brings them; a job that says `use "path/libmine.so"` above the
 * first place where it needs one has them like those that are built in: `leat check` knows their options,
 * `leat help --use path/libmine.so` shows them. examples/udf has a library with its own CMakeLists.txt.
 *
 * What holds for all of it:
 * - A result depends on the rows alone: no clock, no random numbers, no order of hashing, nothing that
 * another thread wrote. Then your code is as repeatable as the rest: the same bits at any number of lanes.
 * - Callbacks run on several threads at once, each with its own struct; what is static must be constant.
 * - Nothing that a callback is given outlives the call, unless it is said.
 * - A crash in your code ends the process, after its library and function were named. So does a call of exit
 *   or its kind, from wherever: a run that is ended so has failed. Processes that you fork end as they like.
 * - The library's bytes are part of the job's fingerprint: after a new build, a run begins anew, or goes on
 *   with --from.
 * - Structs may gain members at their ends under a higher LEAT_ABI only; leat says so where a library was
 *   built for another one. This header is C11 and C++, and needs no library of leat's. */
#ifndef LEAT_H
#define LEAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LEAT_ABI 1

/* --- Values --- */

enum leat_type {
    LEAT_BOOL,
    LEAT_INT,
    LEAT_FLOAT,
    LEAT_TEXT, /* UTF-8 */
    LEAT_BYTES,
    LEAT_TIME, /* microseconds since 1970, UTC */
    LEAT_LIST, /* only said, of columns that this header does not reach */
};

/* Bytes, not terminated. */
struct leat_text {
    const char *data;
    size_t length;
};

/* A column: a value for each row, dense, from row 0. What lies under a null is zero or nothing. */
struct leat_column {
    int type;              /* enum leat_type */
    const uint64_t *valid; /* bit row % 64 of word row / 64 is 0: null. NULL: there are no nulls */
    union {
        const void *data; /* NULL: a list, or a column that the operator does not read */
        const uint8_t *bools;
        const int64_t *ints; /* LEAT_INT, LEAT_TIME */
        const double *floats;
        const struct leat_text *texts; /* LEAT_TEXT, LEAT_BYTES */
    } values;
};

static inline bool leat_is_null(const struct leat_column *column, uint32_t row)
{
    return column->valid != NULL && (column->valid[row / 64] >> row % 64 & 1) == 0;
}

/* --- Functions of expressions --- */

/* One call, for many rows: fill `result` for each of them. */
struct leat_call {
    uint32_t rows, arguments;
    const struct leat_column *argument;
    union {
        void *data;
        uint8_t *bools; /* 0 or 1 */
        int64_t *ints;
        double *floats;
        struct leat_text *texts; /* point into the arguments, to constants, or to what `allocate` gave */
    } result;
    /* The row's result is null. */
    void (*set_null)(struct leat_call *call, uint32_t row);
    /* It has none: the row goes to dead letters, with the reason, which is copied. */
    void (*fail)(struct leat_call *call, uint32_t row, const char *reason);
    /* Memory until the call has returned; never NULL. */
    void *(*allocate)(struct leat_call *call, size_t bytes);
    void *engine;
};

enum leat_function_flags {
    LEAT_SEES_NULLS = 1, /* without it, rows with a null argument have a null result, and are not shown */
};

struct leat_function {
    const char *name;      /* letters, digits, _ */
    const char *signature; /* for the help: "haversine(lat1, lon1, lat2, lon2)" */
    const char *summary, *example;
    const char *arguments; /* a letter each: b bool, i int, f float (takes ints), t text, y bytes, m time */
    char result;           /* likewise */
    unsigned flags;
    void (*call)(struct leat_call *call);
};

/* --- Operators: steps of a stream --- */

/* Keys as leat has them: equal rows of the key columns have equal keys. Texts up to 15 bytes and numbers are
 * kept as they are, longer ones as a hash of 120 bits. */
struct leat_key {
    uint64_t low, high;
    uint32_t group; /* for leat_writer.put; 0 to 719 */
};

struct leat_column_ref {
    struct leat_text name; /* as in the job */
    uint32_t begin, end;
    int index; /* of the input's columns */
};

struct leat_column_refs {
    struct leat_column_ref *items;
    uint32_t count;
};

/* What a member of your struct is, and how a job gives it a value: `NAME value` after the operator's name. */
enum leat_option_type {
    LEAT_OPTION_BOOL,     /* bool */
    LEAT_OPTION_INT,      /* int64_t */
    LEAT_OPTION_FLOAT,    /* double */
    LEAT_OPTION_DURATION, /* int64_t, microseconds */
    LEAT_OPTION_TEXT,     /* struct leat_text */
    LEAT_OPTION_COLUMN,   /* struct leat_column_ref, its index found */
    LEAT_OPTION_COLUMNS,  /* struct leat_column_refs, likewise */
};

enum leat_option_flags {
    LEAT_REQUIRED = 1,
    LEAT_POSITIONAL = 2, /* it stands right after the operator's name */
};

struct leat_option {
    const char *name; /* NULL ends a table */
    int type;
    unsigned flags;
    size_t offset;            /* of the member */
    const char *default_text; /* as in a job: "10s", "5", "\"x\""; NULL: the member stays zero */
    const char *min_text, *max_text;
    const char *help;
};

struct leat_column_name {
    struct leat_text name;
    int type; /* enum leat_type */
};

/* Checks the options, and says which columns come out. Pure: it is called for checks as well as for runs. */
struct leat_bind {
    void *config; /* your struct, its options filled; from here on shared, then copied to each instance */
    uint32_t columns;
    const struct leat_column_name *column; /* of the input */
    /* The input's columns come out too, those of `add` behind them (the usual); false: only those. */
    bool keeps_input;
    int64_t hold_us; /* rows may come out with an event time this far behind the watermark */
    /* The operator is shown the columns that its options name, and those that it asks for here. What comes
     * out counts as made of them: a learner refuses features that are made of its label. */
    void (*read)(struct leat_bind *bind, uint32_t column);
    /* A column of the output; its number for leat_context.set_*. */
    uint32_t (*add)(struct leat_bind *bind, const char *name, int type);
    /* The job is wrong: printed at the step. hint may be NULL. Then return false. */
    void (*error)(struct leat_bind *bind, const char *message, const char *hint);
    void *engine;
};

/* Rows that came. */
struct leat_batch {
    uint32_t rows, columns;
    const struct leat_column *column;
    const int64_t *event_time;
    const struct leat_key *key; /* of the rows, where the operator has a key */
};

/* One instance: with a key, one for each lane, which gets all rows of its keys. */
struct leat_context {
    void *config;      /* your struct, this instance's own copy */
    int64_t watermark; /* of before the rows: one with an earlier event time is late */
    uint32_t lane, lanes;
    /* A row out, in `process`: made of the input's `row`, with its event time, and its columns where
     * keeps_input is set. Rows of one row keep the order in which they are made; rows are taken in rising
     * order. */
    void (*emit)(struct leat_context *context, uint32_t row);
    /* A row out, in `on_watermark`, where keeps_input is not set. They come out in the order of their times,
     * then of their keys, whatever the order in which they are made. */
    void (*emit_at)(struct leat_context *context, int64_t event_time, struct leat_key key);
    /* Of the row that was begun last; what is not set is null. Texts are copied. */
    void (*set_bool)(struct leat_context *context, uint32_t column, bool value);
    void (*set_int)(struct leat_context *context, uint32_t column, int64_t value); /* and times */
    void (*set_float)(struct leat_context *context, uint32_t column, double value);
    void (*set_text)(struct leat_context *context, uint32_t column, const char *data, size_t length);
    /* In `process`: the row goes to dead letters, with the reason, which is copied. */
    void (*reject)(struct leat_context *context, uint32_t row, const char *reason);
    void *engine;
};

#define LEAT_ALL_GROUPS UINT32_MAX

/* State into a checkpoint. Write what belongs to a key under its group, so that the job may go on with
 * another number of lanes; the rest under LEAT_ALL_GROUPS: every instance gets those. A record has 16 MiB at
 * most. false: the disk refused; return false as well. */
struct leat_writer {
    bool (*put)(struct leat_writer *writer, uint32_t group, const void *data, size_t bytes);
    void *engine;
};

/* How an operator's rows are spread, where it has no key. */
enum leat_order {
    LEAT_ALL_ROWS, /* one instance sees all rows in the job's one order */
    LEAT_BY_ROW,   /* a row's result depends on that row alone: no state, any instance */
};

struct leat_operator {
    const char *name, *summary;
    const char *example; /* a line of a job; may be NULL */
    const char *details; /* may be NULL */
    const struct leat_option *options;
    size_t size; /* of your struct: options first seen in bind, and whatever else an instance has; zeroed */
    const char *key; /* the option, of type LEAT_OPTION_COLUMNS, that names the key's columns; NULL: none */
    int order;       /* enum leat_order */
    bool uses_time;  /* refused on sources without event time */
    bool (*bind)(struct leat_bind *bind);       /* NULL: nothing to check, the input's columns come out */
    bool (*open)(struct leat_context *context); /* NULL: nothing to do. false: the job stops */
    void (*process)(struct leat_context *context, const struct leat_batch *batch);
    /* Behind the rows of each number. NULL: nothing to do. */
    void (*on_watermark)(struct leat_context *context, int64_t watermark);
    /* Both or none. Everything that a later row's result depends on; `restore` gets each record once, after
     * `open`, those of the groups that the instance has. Its memory is yours to bound. */
    bool (*snapshot)(struct leat_context *context, struct leat_writer *writer);
    bool (*restore)(struct leat_context *context, const void *data, size_t bytes);
    /* Always called after `open`, even one that failed. NULL: nothing to do. */
    void (*close)(struct leat_context *context);
};

/* --- The library --- */

struct leat_library {
    uint32_t abi;                          /* LEAT_ABI */
    const char *name;                      /* "geo 1.2": for messages and the help */
    const struct leat_function *functions; /* the last one has the name NULL; may be NULL */
    const struct leat_operator *operators; /* likewise */
};

/* The one symbol that a library exports:  LEAT_EXPORT = {.abi = LEAT_ABI, .name = "geo 1.2", ...};  */
#define LEAT_VISIBLE __attribute__((visibility("default")))
#ifdef __cplusplus
#define LEAT_EXPORT extern "C" LEAT_VISIBLE const struct leat_library leat_library
#else
#define LEAT_EXPORT LEAT_VISIBLE const struct leat_library leat_library
#endif
extern LEAT_VISIBLE const struct leat_library leat_library;

#ifdef __cplusplus
}
#endif

#endif
