/* Rows -> records: one row makes one record. One thread at a time. */
#ifndef LEAT_CONNECTORS_KAFKA_ENCODE_H
#define LEAT_CONNECTORS_KAFKA_ENCODE_H

#include "connectors/kafka/record.h"
#include "core/connector.h"
#include "formats/formats.h"

struct encode_options {
    const struct schema *schema;
    const struct format_kind *format;
    struct format_config config;
    int key, partition; /* columns; -1: none */
    const struct columns *headers;
};

struct encode {
    struct encode_options options;
    void *encoder;
    struct byte_buffer key, value, headers;
};

/* What can be a key or a header, and what a partition; E0303. */
bool encode_check_text(const struct column_ref *column, const struct schema *schema, struct diag_list *diags);
bool encode_check_partition(const struct column_ref *column, const struct schema *schema,
                            struct diag_list *diags);

void encode_open(struct encode *encode, const struct encode_options *options);
/* The index-th selected row; valid until the next call. */
struct kafka_record encode_row(struct encode *encode, const struct batch *batch, uint32_t index);
/* Tolerates zeroed state. */
void encode_close(struct encode *encode);

#endif
