/* The batches format: leat's own recording of decoded columns. Private to batches*.c; this is the one place
 * where its bytes are defined. All numbers are little-endian.
 *
 *   file   := header block* end
 *   header := "LEATBATS" version:u32 bytes:u32 fields digest          bytes: of the whole header
 *   fields := count:u32 (type name_length:u16 name)*
 *   type   := tag:u8 [element type, if a list] [fields, if a record]
 *   block  := block_head time sections, column sections, digest
 *   end    := block_head (BATCHES_END, rows 0) rows:u64 blocks:u64 digest
 *
 * A digest is the xxh3-128 of everything before it in its header, block or end. A block has BATCH_ROWS rows,
 * or fewer where their values would exceed BATCHES_BLOCK_BYTES; where a block ends depends on the rows alone.
 *
 *   section := section_head [valid: one bit a row, in whole words] payload
 *
 * Encodings of a payload:
 *   PLAIN       ints, times: 8 bytes; floats: 8 bytes; bools: 1 byte
 *   OFFSETS_n   base:i64, then n bytes a row (n = 0, 1, 2, 4): value = base + offset
 *   DECIMAL_n   floats: power:u32 base:i32, then n bytes a row: value = (base + offset) / 10^power, exactly
 *   TEXT_n      total:u32, n bytes of length a row (n = 1, 2, 4), the bytes
 *   DICTIONARY  count:u32 total:u32, 4 bytes of length an entry, the bytes, then 1 byte a row
 *   LIST        rows of elements:u32, 4 bytes of length a row, then a section for each field of the elements
 * A null row has whatever value packs smallest; the decoder makes it zero. */
#ifndef LEAT_FORMATS_BATCHES_H
#define LEAT_FORMATS_BATCHES_H

#include "formats/formats.h"

enum {
    BATCHES_VERSION = 1,
    BATCHES_BLOCK = 0x4b4c424c, /* "LBLK" */
    BATCHES_END = 0x444e454c,   /* "LEND" */
    BATCHES_BLOCK_BYTES = 1 << 20,
    BATCHES_DIGEST_BYTES = 16,
    BATCHES_NESTING_MAX = 8,
};

#define BATCHES_MAGIC "LEATBATS"

enum batches_times {
    BATCHES_EVENT_TIME = 1,      /* the event times have a section */
    BATCHES_EVENT_COLUMN = 2,    /* the event times are those of the file's column `event_column` */
    BATCHES_ARRIVAL_TIME = 4,    /* the arrival times have a section */
    BATCHES_ORDER_TIME = 8,      /* the order times have a section */
    BATCHES_ORDER_IS_EVENT = 16, /* the order times are the event times */
};

struct batches_head {
    uint32_t magic, rows;
    uint32_t bytes; /* of the whole block, head and digest included */
    uint16_t times; /* bits of enum batches_times */
    uint16_t event_column;
};

enum batches_encoding {
    BATCHES_PLAIN,
    BATCHES_OFFSETS_0,
    BATCHES_OFFSETS_1,
    BATCHES_OFFSETS_2,
    BATCHES_OFFSETS_4,
    BATCHES_DECIMAL_1,
    BATCHES_DECIMAL_2,
    BATCHES_DECIMAL_4,
    BATCHES_TEXT_1,
    BATCHES_TEXT_2,
    BATCHES_TEXT_4,
    BATCHES_DICTIONARY,
    BATCHES_LIST,
};

struct batches_section {
    uint32_t bytes;   /* of the section, this head included */
    uint8_t encoding; /* enum batches_encoding */
    uint8_t has_valid;
    uint16_t unused;
};

enum { BATCHES_POWERS = 7 };
extern const double batches_powers[BATCHES_POWERS]; /* 10^0 ... */

/* Scratch memory for packing columns into sections, which are appended to `out`. A packer is used by one
 * thread at a time. */
struct batches_packer;
struct batches_packer *batches_packer_new(void);
void batches_packer_free(struct batches_packer *packer);
void batches_pack_column(struct batches_packer *packer, const struct column *column, uint32_t rows,
                         struct byte_buffer *out);

/* Reads the section at `data` into `column`, which was initialized with `type` for `rows` rows of the batch
 * (elements of lists: in the batch's arena). Returns the bytes of the section, or 0 if it is invalid. */
size_t batches_unpack_column(struct batch *batch, struct column *column, const struct type *type,
                             uint32_t rows, const char *data, size_t bytes);

/* Members of format_batches (struct format_kind, core/connector.h). */
void *batches_encoder_new(const struct schema *schema, const void *config);
void batches_encode_header(void *encoder, struct byte_buffer *out);
void batches_encode(void *encoder, const struct batch *batch, uint32_t first, uint32_t count,
                    struct byte_buffer *out);
void batches_encode_end(void *encoder, struct byte_buffer *out);
void batches_encoder_save(void *encoder, struct byte_buffer *out);
bool batches_encoder_load(void *encoder, const char *data, size_t bytes);
void batches_encoder_free(void *encoder);

/* Reads one block, digest included, into a batch of its schema that was made with the block's rows. Column i
 * comes from the file's column from[i]; -1: the column is left alone. False where the block is invalid. */
bool batches_unpack_block(struct batch *batch, const struct schema *file, const int *from, const char *data,
                          size_t bytes);

#endif
