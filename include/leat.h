/* leat.h: functions and operators of your own, in C, for jobs of leat.
 *
 * A shared library provides them, by exporting `leat_library`. A job that says `use "path/libmine.so"` can
 * use the library's functions and operators, in the declarations after it, like built-in ones: `leat check`
 * knows their options, and `leat help --use path/libmine.so` shows them. examples/udf has a library with its
 * own CMakeLists.txt.
 *
 * Rules for functions and operators:
 * - A result depends on the rows alone: no clock, no random numbers, no order of hashing, nothing that
 *   another thread wrote. Then your code is as repeatable as the rest: the same bits at any number of lanes.
 * - Callbacks run on several threads at once, each with its own struct; static data must be constant.
 * - Memory that a callback is given a pointer to is leat's, and is valid until the callback returns, unless a
 *   comment says otherwise. Members named `engine` are leat's own: do not touch them.
 * - A crash in your code ends the process, after a message with the names of the library and the function. A
 *   call of exit or a similar function in this process ends it in the same way, and the run counts as failed.
 *   Processes that you fork may end as they like.
 * - The library's bytes are part of the job's fingerprint: after a new build, a run begins anew, or goes on
 *   with --from.
 * - Structs get new members only at their ends, and only under a higher LEAT_ABI; leat reports a library that
 *   was built for another LEAT_ABI. This header is C11 and C++, and needs no library of leat. */
#ifndef LEAT_H
#define LEAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LEAT_ABI 2

/* --- Values --- */

enum leat_type {
    LEAT_BOOL,
    LEAT_INT,
    LEAT_FLOAT,
    LEAT_TEXT, /* UTF-8 */
    LEAT_BYTES,
    LEAT_TIME, /* microseconds since 1970, UTC */
    LEAT_LIST, /* only as the type of columns whose values this header cannot reach */
};

/* A text or bytes: `length` bytes at `data`, without a terminating zero. */
struct leat_text {
    const char *data;
    size_t length;
};

/* A column: a value for each row, dense, from row 0. The value of a null row is zero or empty. */
struct leat_column {
    int type; /* enum leat_type */
    /* Null rows have bit row % 64 of word row / 64 at 0; NULL: there are no null rows. */
    const uint64_t *valid;
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

/* One call of a function for many rows: set `result` for each row that gets neither set_null nor fail. */
struct leat_call {
    uint32_t rows, arguments;           /* how many there are of each */
    const struct leat_column *argument; /* `arguments` columns of `rows` rows each */
    /* leat's memory, with room for a value per row; the member to use follows from the type of the result. */
    union {
        void *data;
        uint8_t *bools; /* 0 or 1 */
        int64_t *ints;
        double *floats;
        /* May point into the arguments, to constants, or to memory from `allocate`. */
        struct leat_text *texts;
    } result;
    /* Makes the row's result null. */
    void (*set_null)(struct leat_call *call, uint32_t row);
    /* The row has no result: it goes to dead letters, with the reason, which is copied (NULL: "failed"). */
    void (*fail)(struct leat_call *call, uint32_t row, const char *reason);
    /* Memory that lasts until the call returns; never NULL. */
    void *(*allocate)(struct leat_call *call, size_t bytes);
    void *engine;
};

enum leat_function_flags {
    /* Without this flag, rows with a null argument get a null result, and the function does not see them. */
    LEAT_SEES_NULLS = 1,
};

struct leat_function {
    const char *name;      /* letters, digits, _ */
    const char *signature; /* for the help: "haversine(lat1, lon1, lat2, lon2)" */
    const char *summary, *example;
    /* The types of 1 to 16 arguments, a letter each: b bool, i int, f float (an int argument is converted), t
     * text, y bytes, m time. */
    const char *arguments;
    char result; /* type of the result, one of the same letters */
    unsigned flags;
    void (*call)(struct leat_call *call);
};

/* --- Operators: steps of a stream --- */

/* The key of a row: rows with equal key columns have equal keys. Numbers and texts up to 15 bytes are kept
 * as they are, longer texts as a hash of 120 bits. */
struct leat_key {
    uint64_t low, high;
    uint32_t group; /* for leat_writer.put; below LEAT_GROUPS */
};

struct leat_column_ref {
    struct leat_text name; /* as written in the job; length 0: the option is not given */
    uint32_t begin, end;   /* offsets of the name in the job's text, in bytes */
    int index;             /* index among the input's columns */
};

struct leat_column_refs {
    struct leat_column_ref *items;
    uint32_t count;
};

/* The type of an option, which is a member of your struct. A job gives the option a value by `NAME value`
 * after the operator's name. */
enum leat_option_type {
    LEAT_OPTION_BOOL,     /* bool */
    LEAT_OPTION_INT,      /* int64_t */
    LEAT_OPTION_FLOAT,    /* double */
    LEAT_OPTION_DURATION, /* int64_t, microseconds */
    LEAT_OPTION_TEXT,     /* struct leat_text */
    LEAT_OPTION_COLUMN,   /* struct leat_column_ref, with its index set */
    LEAT_OPTION_COLUMNS,  /* struct leat_column_refs, with their indices set */
};

enum leat_option_flags {
    LEAT_REQUIRED = 1,
    LEAT_POSITIONAL = 2, /* the value stands right after the operator's name, without NAME */
};

struct leat_option {
    const char *name; /* NULL ends a table */
    int type;
    unsigned flags;
    size_t offset;            /* offset of the member in your struct */
    const char *default_text; /* as written in a job: "10s", "5", "\"x\""; NULL: the member stays zero */
    const char *min_text, *max_text; /* bounds of numbers and durations, written the same; NULL: none */
    const char *help;
};

struct leat_column_name {
    struct leat_text name;
    int type; /* enum leat_type */
};

/* What leat_operator.bind gets. That callback checks the options and declares the columns of the output; it
 * must have no side effects, as `leat check` calls it, too. */
struct leat_bind {
    /* Your struct with its options set. After bind each instance gets a copy of it, byte by byte: what it
     * points to is shared by all instances, and must not change. */
    void *config;
    uint32_t columns;
    const struct leat_column_name *column; /* the input's columns */
    /* true (the usual): the output has the input's columns, and those of `add` behind them; false: only the
     * columns of `add`. */
    bool keeps_input;
    int64_t hold_us; /* output rows may have an event time this far behind the watermark, in microseconds */
    /* Declares that the operator reads this input column. It reads the columns that its options name without
     * this call, and gets the values of no other columns. The output counts as made from all columns that the
     * operator reads: a learner refuses features that are made from its label. */
    void (*read)(struct leat_bind *bind, uint32_t column);
    /* Adds a column to the output; returns its index for leat_context.set_*. */
    uint32_t (*add)(struct leat_bind *bind, const char *name, int type);
    /* Reports an error in the job, at the step; message and hint are copied, hint may be NULL. Then return
     * false. */
    void (*error)(struct leat_bind *bind, const char *message, const char *hint);
    void *engine;
};

/* Rows of the input. */
struct leat_batch {
    uint32_t rows, columns;
    const struct leat_column *column;
    const int64_t *event_time;  /* of each row, in microseconds since 1970, UTC */
    const struct leat_key *key; /* of each row; NULL: the operator has no key */
};

/* One instance of the operator. An operator with a key has one instance per lane, and each key's rows all go
 * to the same instance. */
struct leat_context {
    void *config; /* your struct: this instance's own copy, until `close` returns */
    /* The watermark before these rows, in microseconds: rows with an earlier event time are late. */
    int64_t watermark;
    uint32_t lane, lanes; /* the instance's lane, from 0; number of lanes */
    /* In `process`: begins an output row, made from input row `row`, with the event time of that row, and
     * with its columns where keeps_input is set. From call to call `row` must not fall; output rows of one
     * input row keep the order in which they are made. */
    void (*emit)(struct leat_context *context, uint32_t row);
    /* In `on_watermark`, where keeps_input is not set: begins an output row with this event time, in
     * microseconds. These rows come out in the order of their event times, then of a hash of their keys, then
     * in the order in which they are made. */
    void (*emit_at)(struct leat_context *context, int64_t event_time, struct leat_key key);
    /* Set a column of the row that was begun last. column: index that leat_bind.add returned. Columns that
     * are not set are null. Texts are copied. */
    void (*set_bool)(struct leat_context *context, uint32_t column, bool value);
    void (*set_int)(struct leat_context *context, uint32_t column, int64_t value); /* also for LEAT_TIME */
    void (*set_float)(struct leat_context *context, uint32_t column, double value);
    /* Also for LEAT_BYTES. */
    void (*set_text)(struct leat_context *context, uint32_t column, const char *data, size_t length);
    /* In `process`: input row `row` goes to dead letters, with the reason, which is copied (NULL: "refused").
     * Does nothing if the row was rejected before, or if an output row was made from it. */
    void (*reject)(struct leat_context *context, uint32_t row, const char *reason);
    void *engine;
};

#define LEAT_ALL_GROUPS UINT32_MAX
#define LEAT_GROUPS     720

/* Writes state into a checkpoint, a record a call. Write the state of a key under the key's group, so that
 * the job can go on with another number of lanes, and all other state under LEAT_ALL_GROUPS: every instance
 * gets these records. A record has at most 16 MiB. put returns false if the checkpoint could not be written:
 * then return false from `snapshot`, too. */
struct leat_writer {
    bool (*put)(struct leat_writer *writer, uint32_t group, const void *data, size_t bytes);
    void *engine;
};

/* How rows are spread over instances, where the operator has no key. */
enum leat_order {
    LEAT_ALL_ROWS, /* one instance sees all rows, in an order that does not depend on the number of lanes */
    /* A row's result depends on that row alone: no state, any instance. Without `on_watermark` and `snapshot` the
     * operator answers requests, too (`leat score`): `process` is then given their rows. */
    LEAT_BY_ROW,
};

struct leat_operator {
    const char *name, *summary;
    const char *example; /* a line of a job; may be NULL */
    const char *details; /* may be NULL */
    const struct leat_option *options;
    /* Bytes of your struct: the options, and whatever else an instance needs. The struct begins zeroed. */
    size_t size;
    /* Name of the option (LEAT_OPTION_COLUMNS, LEAT_REQUIRED) that names the key columns; NULL: no key. */
    const char *key;
    int order;                            /* enum leat_order */
    bool uses_time;                       /* the operator is refused on sources without event time */
    bool (*bind)(struct leat_bind *bind); /* NULL: nothing to check, and the output has the input's columns */
    bool (*open)(struct leat_context *context); /* NULL: nothing to do. false: the job stops */
    void (*process)(struct leat_context *context, const struct leat_batch *batch);
    /* Called after the rows of each micro-batch; watermark in microseconds. NULL: nothing to do. */
    void (*on_watermark)(struct leat_context *context, int64_t watermark);
    /* Set both or neither. `snapshot` writes everything on which the results of later rows depend. `restore`
     * is called after `open`, once for each record of the instance's groups and each record of
     * LEAT_ALL_GROUPS. Either returns false if it failed. You must bound the memory that this state takes. */
    bool (*snapshot)(struct leat_context *context, struct leat_writer *writer);
    bool (*restore)(struct leat_context *context, const void *data, size_t bytes);
    /* Always called after `open`, even if that failed. NULL: nothing to do. */
    void (*close)(struct leat_context *context);
    /* Set both or neither; with a key, and with `snapshot`. Keys may move to another instance while the job runs. `give`
     * writes all state of the groups that leave this instance, those with leaving[group], and forgets it: no row of these
     * keys comes any more, unless the group comes back. `take` gets each of these records in the other instance, before the
     * first row of these keys: like `restore`, but while the instance is at work. Either returns false if it failed: the job
     * stops. NULL: keys of this operator cannot move. */
    bool (*give)(struct leat_context *context, const bool *leaving, struct leat_writer *writer);
    bool (*take)(struct leat_context *context, const void *data, size_t bytes);
};

/* --- The library --- */

struct leat_library {
    uint32_t abi;                          /* LEAT_ABI */
    const char *name;                      /* "geo 1.2", for messages and the help */
    const struct leat_function *functions; /* ends with an element whose name is NULL; may itself be NULL */
    const struct leat_operator *operators; /* ends with an element whose name is NULL; may itself be NULL */
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
