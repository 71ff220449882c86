/* Rows -> records: each row makes one record. One thread at a time.
 *
 * A row may be a change (core/change.h). A delete becomes a tombstone, a record without a value; any other
 * change becomes a record whose value is the row without `_op`. So a reader that keeps the last record of
 * each key has the current rows. */
#ifndef LEAT_CONNECTORS_KAFKA_ENCODE_H
#define LEAT_CONNECTORS_KAFKA_ENCODE_H

#include "connectors/kafka/record.h"
#include "core/connector.h"
#include "formats/formats.h"

struct encode_options {
    const struct schema *schema; /* of the values: the rows' schema without the column `change` */
    const struct format_kind *format;
    struct format_config config;
    int key, partition, change; /* indices of columns of the rows; -1: none */
    const struct columns *headers;
};

struct encode {
    struct encode_options options;
    void *encoder;
    struct byte_buffer key, value, headers;
    struct column *columns; /* columns of the values; used where `change` is not the last column */
};

/* Check that the column's type can be a key or header, or a partition. Return false after E0303. */
bool encode_check_text(const struct column_ref *column, const struct schema *schema, struct diag_list *diags);
bool encode_check_partition(const struct column_ref *column, const struct schema *schema,
                            struct diag_list *diags);

/* Schema of the values: all columns but `change`. In the arena. */
const struct schema *encode_values(const struct schema *schema, int change, struct arena *arena);

void encode_open(struct encode *encode, const struct encode_options *options);
/* The record of the index-th selected row; its bytes are valid until the next call. */
struct kafka_record encode_row(struct encode *encode, const struct batch *batch, uint32_t index);
/* Accepts a zeroed encode. */
void encode_close(struct encode *encode);

#endif
