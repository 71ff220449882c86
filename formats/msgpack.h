/* The parts of the msgpack format; private to msgpack*.c. */
#ifndef LEAT_FORMATS_MSGPACK_H
#define LEAT_FORMATS_MSGPACK_H

#include "formats/formats.h"

enum msgpack_kind {
    MSGPACK_NIL,
    MSGPACK_BOOL,
    MSGPACK_INT,      /* in `integer` */
    MSGPACK_UNSIGNED, /* above INT64_MAX; no value is stored */
    MSGPACK_FLOAT,
    MSGPACK_TEXT, /* `length` bytes follow */
    MSGPACK_BYTES,
    MSGPACK_LIST,      /* `length` values follow */
    MSGPACK_MAP,       /* `length` pairs follow */
    MSGPACK_EXTENSION, /* `length` bytes follow; `integer` is the extension's type */
    MSGPACK_MORE,      /* the bytes end inside the head */
    MSGPACK_BAD,       /* the byte 0xc1, which begins no value */
};

/* The head of a value: everything but the bytes or values that follow. */
struct msgpack_head {
    enum msgpack_kind kind;
    uint32_t length;
    int64_t integer;
    double real;
};

/* Reads the head at `at`. Returns the byte behind it. */
const char *msgpack_head(const char *at, const char *end, struct msgpack_head *head);
/* Returns the byte behind the value at `at`. NULL: the value is damaged (*is_bad), or does not end before
 * `end`. */
const char *msgpack_skip(const char *at, const char *end, bool *is_bad);

/* Members of format_msgpack (struct format_kind, core/connector.h). */
void *msgpack_encoder_new(const struct schema *schema, const void *config);
void msgpack_encode(void *encoder, const struct batch *batch, uint32_t first, uint32_t count,
                    struct byte_buffer *out);
void msgpack_encoder_free(void *encoder);

void *msgpack_decoder_new(const struct schema *schema, const void *config);
void msgpack_decode(void *decoder, struct raw_batch *raw, struct decode_output *output);
void msgpack_decoder_free(void *decoder);

#endif
