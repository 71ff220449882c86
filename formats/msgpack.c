/* MessagePack: records are maps from names to values, one after another. */
#include "formats/msgpack.h"

static uint64_t big_endian(const char *at, size_t bytes)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < bytes; i++)
        sum = sum << 8 | (unsigned char)at[i];
    return sum;
}

/* The first bytes 0xc0 to 0xdf: the kind of value, how many bytes of number follow, and how many bytes of
 * extension type follow these. */
static const struct {
    enum msgpack_kind kind;
    uint8_t bytes;
    uint8_t is_extension;
    uint8_t fixed; /* fixext: the length of the data */
} heads[32] = {
    {MSGPACK_NIL, 0, 0, 0},        {MSGPACK_BAD, 0, 0, 0},       {MSGPACK_BOOL, 0, 0, 0},
    {MSGPACK_BOOL, 0, 0, 0},       {MSGPACK_BYTES, 1, 0, 0},     {MSGPACK_BYTES, 2, 0, 0},
    {MSGPACK_BYTES, 4, 0, 0},      {MSGPACK_EXTENSION, 1, 1, 0}, {MSGPACK_EXTENSION, 2, 1, 0},
    {MSGPACK_EXTENSION, 4, 1, 0},  {MSGPACK_FLOAT, 4, 0, 0},     {MSGPACK_FLOAT, 8, 0, 0},
    {MSGPACK_UNSIGNED, 1, 0, 0},   {MSGPACK_UNSIGNED, 2, 0, 0},  {MSGPACK_UNSIGNED, 4, 0, 0},
    {MSGPACK_UNSIGNED, 8, 0, 0},   {MSGPACK_INT, 1, 0, 0},       {MSGPACK_INT, 2, 0, 0},
    {MSGPACK_INT, 4, 0, 0},        {MSGPACK_INT, 8, 0, 0},       {MSGPACK_EXTENSION, 0, 1, 1},
    {MSGPACK_EXTENSION, 0, 1, 2},  {MSGPACK_EXTENSION, 0, 1, 4}, {MSGPACK_EXTENSION, 0, 1, 8},
    {MSGPACK_EXTENSION, 0, 1, 16}, {MSGPACK_TEXT, 1, 0, 0},      {MSGPACK_TEXT, 2, 0, 0},
    {MSGPACK_TEXT, 4, 0, 0},       {MSGPACK_LIST, 2, 0, 0},      {MSGPACK_LIST, 4, 0, 0},
    {MSGPACK_MAP, 2, 0, 0},        {MSGPACK_MAP, 4, 0, 0},
};

/* Reads a head whose first byte is 0xc0 to 0xdf; at: the byte behind that first byte. */
static const char *long_head(unsigned char first, const char *at, const char *end, struct msgpack_head *head)
{
    size_t bytes = heads[first - 0xc0].bytes, more = heads[first - 0xc0].is_extension;
    head->kind = heads[first - 0xc0].kind;
    if ((size_t)(end - at) < bytes + more) {
        head->kind = MSGPACK_MORE;
        return at;
    }
    uint64_t number = big_endian(at, bytes);
    head->length =
        heads[first - 0xc0].is_extension && bytes == 0 ? heads[first - 0xc0].fixed : (uint32_t)number;
    if (head->kind == MSGPACK_BOOL)
        head->integer = first == 0xc3;
    if (head->kind == MSGPACK_EXTENSION)
        head->integer = (int8_t)at[bytes];
    if (head->kind == MSGPACK_FLOAT && bytes == 4) {
        uint32_t bits = (uint32_t)number;
        float real;
        memcpy(&real, &bits, sizeof(real));
        head->real = (double)real;
    } else if (head->kind == MSGPACK_FLOAT) {
        memcpy(&head->real, &number, sizeof(head->real));
    }
    if (head->kind == MSGPACK_INT) {
        /* Sign-extended. */
        int shift = 64 - 8 * (int)bytes;
        head->integer = (int64_t)(number << shift) >> shift;
    }
    if (head->kind == MSGPACK_UNSIGNED && number <= INT64_MAX) {
        head->kind = MSGPACK_INT;
        head->integer = (int64_t)number;
    }
    return at + bytes + more;
}

const char *msgpack_head(const char *at, const char *end, struct msgpack_head *head)
{
    *head = (struct msgpack_head){.kind = MSGPACK_MORE};
    if (at >= end)
        return at;
    unsigned char first = (unsigned char)*at++;
    if (first <= 0x7f || first >= 0xe0) {
        head->kind = MSGPACK_INT;
        head->integer = (int8_t)first;
    } else if (first <= 0x8f) {
        head->kind = MSGPACK_MAP;
        head->length = first & 0x0f;
    } else if (first <= 0x9f) {
        head->kind = MSGPACK_LIST;
        head->length = first & 0x0f;
    } else if (first <= 0xbf) {
        head->kind = MSGPACK_TEXT;
        head->length = first & 0x1f;
    } else {
        return long_head(first, at, end, head);
    }
    return at;
}

const char *msgpack_skip(const char *at, const char *end, bool *is_bad)
{
    *is_bad = false;
    for (uint64_t values = 1; values > 0; values--) {
        struct msgpack_head head;
        at = msgpack_head(at, end, &head);
        *is_bad = head.kind == MSGPACK_BAD;
        if (head.kind == MSGPACK_BAD || head.kind == MSGPACK_MORE)
            return NULL;
        if (head.kind == MSGPACK_LIST)
            values += head.length;
        if (head.kind == MSGPACK_MAP)
            values += 2 * (uint64_t)head.length;
        if (head.kind != MSGPACK_TEXT && head.kind != MSGPACK_BYTES && head.kind != MSGPACK_EXTENSION)
            continue;
        if ((size_t)(end - at) < head.length)
            return NULL;
        at += head.length;
    }
    return at;
}

static void msgpack_split(struct format_split *split)
{
    const char *end = split->data + split->bytes;
    split->count = split->lines = 0;
    split->used = split->need = 0;
    split->is_cut = split->is_end = false;
    split->damage = NULL;
    while (split->count < split->max && split->used < split->bytes) {
        bool is_bad;
        const char *begin = split->data + split->used;
        const char *stop =
            end - begin > SOURCE_RECORD_BYTES_MAX + 1 ? begin + SOURCE_RECORD_BYTES_MAX + 1 : end;
        const char *behind = msgpack_skip(begin, stop, &is_bad);
        if (is_bad)
            split->damage = "is damaged: a byte that MessagePack does not use";
        else if (behind == NULL ? stop - begin > SOURCE_RECORD_BYTES_MAX
                                : behind - begin > SOURCE_RECORD_BYTES_MAX)
            split->damage = "is damaged, or has a record longer than 1 MiB";
        if (behind == NULL || split->damage != NULL)
            return;
        split->records[split->count++] =
            (struct raw_record){(uint32_t)split->used, (uint32_t)(behind - begin)};
        split->used += (size_t)(behind - begin);
    }
}

const struct format_kind format_msgpack = {
    .name = "msgpack",
    .summary = "MessagePack: maps, one after another",
    .suffix = ".msgpack",
    .split = msgpack_split,
    .decoder_new = msgpack_decoder_new,
    .decode = msgpack_decode,
    .decoder_free = msgpack_decoder_free,
    .encoder_new = msgpack_encoder_new,
    .encode = msgpack_encode,
    .encoder_free = msgpack_encoder_free,
};
