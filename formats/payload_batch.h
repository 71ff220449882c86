/* What the decoders of avro and protobuf share: the plan of each record of a batch, and the texts that plans
 * bring along (symbols, defaults), which lie in the batch's text once. */
#ifndef LEAT_FORMATS_PAYLOAD_BATCH_H
#define LEAT_FORMATS_PAYLOAD_BATCH_H

#include "formats/payload.h"
#include "formats/rows.h"

enum { PAYLOAD_CONSTANTS_BYTES_MAX = 64 << 10 };

/* Every plan begins with it. */
struct payload_plan {
    struct byte_buffer constants;
};

/* While the plan is made: keeps a text and says where it is. False after a diagnostic. */
LEAT_CHECKED bool payload_constant(struct payload_plan *plan, const struct payload_request *request,
                                   const char *data, size_t bytes, struct text_ref *ref);
/* Frees the constants with the request's arena. */
void payload_plan_init(struct payload_plan *plan, const struct payload_request *request);

/* A plan that the batch uses, and where its constants lie in the batch's text. */
struct payload_use {
    const struct payload_plan *plan;
    uint32_t base;
};

struct payload_batch {
    struct payload *payload;
    struct payload_use uses[BATCH_ROWS];
    uint32_t uses_count;
    /* Of each record: index in uses, UINT16_MAX: bad; bytes before the body; why it is bad. */
    uint16_t use_of[BATCH_ROWS];
    uint8_t header_of[BATCH_ROWS];
    const char *reason_of[BATCH_ROWS];
};

/* Finds the plans of all records, and calls rows_begin with room for their constants and for text_bytes. */
void payload_batch_begin(struct payload_batch *batch, struct rows *rows, struct raw_batch *raw,
                         struct decode_output *output, size_t text_bytes);

/* NULL: the record is bad, reason_of[row] says why. */
static inline const struct payload_use *payload_batch_use(const struct payload_batch *batch, uint32_t row)
{
    return batch->use_of[row] == UINT16_MAX ? NULL : &batch->uses[batch->use_of[row]];
}

#endif
