/* What the decoders of avro and protobuf share: the plan for each record of a batch, and the plans' constants
 * (symbols and defaults), which are copied into the batch's text once. */
#ifndef LEAT_FORMATS_PAYLOAD_BATCH_H
#define LEAT_FORMATS_PAYLOAD_BATCH_H

#include "formats/payload.h"
#include "formats/rows.h"

#include "core/varint.h"

enum { PAYLOAD_CONSTANTS_BYTES_MAX = 64 << 10 };

/* Every plan begins with this struct. */
struct payload_plan {
    struct byte_buffer constants;
};

/* For the maker of a plan: stores a text in plan->constants, its place in *ref. False after a diagnostic. */
LEAT_CHECKED bool payload_constant(struct payload_plan *plan, const struct payload_request *request,
                                   const char *data, size_t bytes, struct text_ref *ref);
/* Lets the request's arena free the plan's constants when the arena is freed. */
void payload_plan_init(struct payload_plan *plan, const struct payload_request *request);

/* A plan that the batch uses; base: where its constants begin in the batch's text. */
struct payload_use {
    const struct payload_plan *plan;
    uint32_t base;
};

struct payload_batch {
    struct payload *payload;
    struct payload_use uses[BATCH_ROWS];
    uint32_t uses_count;
    /* For each record: index in `uses`, UINT16_MAX where it is bad; bytes before its body; why it is bad. */
    uint16_t use_of[BATCH_ROWS];
    uint8_t header_of[BATCH_ROWS];
    const char *reason_of[BATCH_ROWS];
};

/* Finds the plans of all records, and calls rows_begin with room for text_bytes and the plans' constants.
 * text_bytes: bound of all other text of the batch. */
void payload_batch_begin(struct payload_batch *batch, struct rows *rows, struct raw_batch *raw,
                         struct decode_output *output, size_t text_bytes);

/* The plan of a record, or NULL where the record is bad and reason_of[row] says why. */
static inline const struct payload_use *payload_batch_use(const struct payload_batch *batch, uint32_t row)
{
    return batch->use_of[row] == UINT16_MAX ? NULL : &batch->uses[batch->use_of[row]];
}

/* A decoder and the record in progress. RAW_PADDING bytes behind `end` may be loaded, but mean nothing. */
struct payload_decoder {
    struct rows *rows;
    struct payload_batch batch;
    const char *begin, *end;
    uint32_t base;           /* where the constants of the record's plan begin */
    int64_t budget;          /* avro: values that may still be read */
    const char *reason, *at; /* why the record is bad, and where */
};

void *payload_decoder_new(const struct schema *schema, const void *config);
void payload_decoder_free(void *decoder); /* NULL is allowed */

/* Says what is wrong with a varint that payload_number refuses; judged by the bytes before `end` alone. */
const char *payload_bad_number(const char *at, const char *end);
/* Returns "`column`: what", in the batch's arena. */
const char *payload_of_column(const struct payload_decoder *decoder, const struct row_column *column,
                              const char *what);

/* Marks the record as bad. Returns NULL. */
static inline const char *payload_fail(struct payload_decoder *decoder, const char *at, const char *what)
{
    decoder->at = MIN(at, decoder->end);
    decoder->reason = what;
    return NULL;
}

static inline const char *payload_fail_column(struct payload_decoder *decoder, const char *at,
                                              const struct row_column *column, const char *what)
{
    return payload_fail(decoder, at, payload_of_column(decoder, column, what));
}

extern const char payload_ends_inside[];

/* Reads a varint of at most 64 bits that ends before `end`. Returns the byte behind it, or NULL after
 * payload_fail. May load 10 bytes. */
static inline const char *payload_number(struct payload_decoder *decoder, const char *at, const char *end,
                                         uint64_t *value)
{
    const char *behind = varint_take_padded(at, end, value);
    return likely(behind != NULL) ? behind : payload_fail(decoder, at, payload_bad_number(at, end));
}

/* Decodes all records of a raw batch. decode: decodes one record whose body begins at `body`. */
static inline void payload_decode(struct payload_decoder *decoder, struct raw_batch *raw,
                                  struct decode_output *output,
                                  bool (*decode)(struct payload_decoder *decoder,
                                                 const struct payload_plan *plan, uint32_t row,
                                                 const char *body))
{
    struct rows *rows = decoder->rows;
    payload_batch_begin(&decoder->batch, rows, raw, output, raw->data_bytes);
    for (uint32_t row = 0; row < raw->count; row++) {
        const struct payload_use *use = payload_batch_use(&decoder->batch, row);
        decoder->at = decoder->begin = raw->data + raw->records[row].offset;
        decoder->end = decoder->begin + raw->records[row].length;
        decoder->reason = decoder->batch.reason_of[row];
        decoder->base = use == NULL ? 0 : use->base;
        rows_mark(rows);
        if (use == NULL || !decode(decoder, use->plan, row, decoder->begin + decoder->batch.header_of[row]))
            rows_bad(rows, row, (uint32_t)(decoder->at - decoder->begin), decoder->reason);
    }
    rows_end(rows);
}

#endif
