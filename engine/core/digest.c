/* batch_digest of core/batch.h. Each row is folded into a running xxh3-128 stream as bytes that do not depend
 * on how rows were cut into batches; a block is collected first, because hashing a few bytes at a time is
 * slow. */
#include "core/batch.h"

#include "core/buffer.h"

#include <stdio.h>
#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { DIGEST_BLOCK_BYTES = 64 << 10 };

struct batch_digest {
    XXH3_state_t *state;
    struct byte_buffer block;
};

struct batch_digest *batch_digest_new(void)
{
    struct batch_digest *digest = calloc(1, sizeof(*digest));
    leat_assert(digest != NULL);
    digest->state = XXH3_createState();
    leat_assert(digest->state != NULL);
    XXH3_128bits_reset(digest->state);
    return digest;
}

void batch_digest_free(struct batch_digest *digest)
{
    if (digest == NULL)
        return;
    XXH3_freeState(digest->state);
    buffer_free(&digest->block);
    free(digest);
}

static void add_value(struct byte_buffer *out, const struct column *column, uint32_t row)
{
    if (!column_is_valid(column, row)) {
        buffer_append(out, "\xff", 1);
        return;
    }
    switch (column->tag) {
    case TYPE_BOOL: buffer_append(out, &column->bools[row], 1); break;
    case TYPE_TEXT:
    case TYPE_BYTES: {
        struct str text = column_text(column, row);
        uint32_t length = (uint32_t)text.length;
        buffer_append(out, &length, sizeof(length));
        buffer_append(out, text.data, text.length);
        break;
    }
    case TYPE_LIST: {
        struct list_ref list = column->lists[row];
        buffer_append(out, &list.length, sizeof(list.length));
        for (uint32_t child = 0; child < column->children_count; child++)
            for (uint32_t k = 0; k < list.length; k++)
                add_value(out, &column->children[child], list.offset + k);
        break;
    }
    default: buffer_append(out, &column->ints[row], sizeof(int64_t)); break;
    }
}

static void flush(struct batch_digest *digest)
{
    XXH3_128bits_update(digest->state, digest->block.data, digest->block.length);
    buffer_clear(&digest->block);
}

void batch_digest_add(struct batch_digest *digest, const struct batch *batch)
{
    for (uint32_t i = 0; i < batch->selected; i++) {
        uint32_t row = batch_row(batch, i);
        buffer_append(&digest->block, &batch->event_time[row], sizeof(int64_t));
        for (uint32_t column = 0; column < batch->schema->count; column++)
            add_value(&digest->block, &batch->columns[column], row);
        if (digest->block.length >= DIGEST_BLOCK_BYTES)
            flush(digest);
    }
}

void batch_digest_hex(const struct batch_digest *digest, char hex[33])
{
    XXH3_state_t copy;
    XXH3_copyState(&copy, digest->state);
    XXH3_128bits_update(&copy, digest->block.data, digest->block.length);
    XXH128_hash_t hash = XXH3_128bits_digest(&copy);
    snprintf(hex, 33, "%016llx%016llx", (unsigned long long)hash.high64, (unsigned long long)hash.low64);
}

void batch_digest_save(const struct batch_digest *digest, struct byte_buffer *out)
{
    /* Where xxhash keeps its secret is this process's own affair. */
    XXH3_state_t copy;
    memcpy(&copy, digest->state, sizeof(copy));
    copy.extSecret = NULL;
    buffer_append(out, &copy, sizeof(copy));
    buffer_append(out, digest->block.data, digest->block.length);
}

bool batch_digest_load(struct batch_digest *digest, const char *data, size_t bytes)
{
    if (bytes < sizeof(*digest->state))
        return false;
    const unsigned char *secret = digest->state->extSecret;
    memcpy(digest->state, data, sizeof(*digest->state));
    bool is_ours = digest->state->extSecret == NULL;
    digest->state->extSecret = secret;
    if (!is_ours || digest->state->bufferedSize > sizeof(digest->state->buffer))
        return false;
    buffer_clear(&digest->block);
    buffer_append(&digest->block, data + sizeof(*digest->state), bytes - sizeof(*digest->state));
    return true;
}
