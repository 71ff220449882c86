/* Prints the state stored for a key as names and values, for people or as JSON. Operators write it in
 * operator_kind.describe.
 *
 *     describe_time(out, "seen", first);
 *     describe_list(out, "panes");
 *     for (...) { describe_record(out, NULL); describe_time(out, "start", t); ... describe_close(out); }
 *     describe_close(out);
 *
 * Names are static or live until describe_end. Items of a list have name NULL. One thread at a time. */
#ifndef LEAT_CORE_DESCRIBE_H
#define LEAT_CORE_DESCRIBE_H

#include "core/batch.h"
#include "core/buffer.h"

enum { DESCRIBE_DEPTH_MAX = 16 };

struct describe {
    struct byte_buffer *out;
    bool is_json;
    size_t bytes_max; /* set by the caller, behind describe_begin; 0: no limit */
    uint32_t depth;
    bool is_list[DESCRIBE_DEPTH_MAX], has_item[DESCRIBE_DEPTH_MAX];
};

/* Starts a record, which describe_end ends. */
void describe_begin(struct describe *d, struct byte_buffer *out, bool is_json);
/* Ends the output. Every record and list must be closed. */
void describe_end(struct describe *d);

/* Whether `out` has more than bytes_max bytes: more need not be written, it will not be shown. */
static inline bool describe_is_full(const struct describe *d)
{
    return d->bytes_max > 0 && d->out->length > d->bytes_max;
}

void describe_int(struct describe *d, const char *name, int64_t value);
void describe_float(struct describe *d, const char *name, double value);
/* A float32: prints only as many digits as float32 needs. */
void describe_float32(struct describe *d, const char *name, float value);
void describe_text(struct describe *d, const char *name, struct str value);
/* Prints null for TIME_MIN and TIME_MAX. */
void describe_time(struct describe *d, const char *name, int64_t value);
/* Prints the row's value, of any type. */
void describe_value(struct describe *d, const char *name, const struct column *column,
                    const struct type *type, uint32_t row);
/* Begin a record or a list inside the current one; describe_close ends it. At most DESCRIBE_DEPTH_MAX
 * deep. */
void describe_record(struct describe *d, const char *name);
void describe_list(struct describe *d, const char *name);
void describe_close(struct describe *d);

/* The reverse of describe_value: parses a text as people write it (an int, a time like 2024-05-01T00:00:00Z,
 * true, a text; `null`, except for texts) into the column's row. The column's data must be allocated. false:
 * not a value of the type. */
bool describe_parse(struct batch *batch, struct column *column, const struct type *type, uint32_t row,
                    struct str text);

#endif
