/* A record as a msgpack map: reads exactly what recorded_put_msgpack writes. */
#include "connectors/kafka/recording_form.h"

#include <msgpack.h>

static const char damaged[] = "the record does not have the msgpack form of a recording";

/* --- Writing --- */

static int append(void *buffer, const char *data, size_t bytes)
{
    buffer_append(buffer, data, bytes);
    return 0;
}

static void put_bin(msgpack_packer *packer, struct str bytes)
{
    if (bytes.data == NULL) {
        msgpack_pack_nil(packer);
        return;
    }
    msgpack_pack_bin(packer, bytes.length);
    msgpack_pack_bin_body(packer, bytes.data, bytes.length);
}

static void put_name(msgpack_packer *packer, struct str name)
{
    msgpack_pack_str(packer, name.length);
    msgpack_pack_str_body(packer, name.data, name.length);
}

static uint32_t count_headers(struct str headers)
{
    struct str name, value;
    uint32_t count = 0;
    while (record_take_header(&headers, &name, &value))
        count++;
    return count;
}

void recorded_put_msgpack(const struct recorded *recorded, struct byte_buffer *out)
{
    msgpack_packer packer;
    struct str headers = recorded->record.headers, name, value;
    msgpack_packer_init(&packer, out, append);
    msgpack_pack_map(&packer, 5);
    put_name(&packer, STR("offset"));
    msgpack_pack_int64(&packer, recorded->offset);
    put_name(&packer, STR("time"));
    msgpack_pack_int64(&packer, recorded->time_ms);
    put_name(&packer, STR("key"));
    put_bin(&packer, recorded->record.key);
    put_name(&packer, STR("headers"));
    msgpack_pack_array(&packer, count_headers(headers));
    while (record_take_header(&headers, &name, &value)) {
        msgpack_pack_array(&packer, 2);
        put_bin(&packer, name);
        put_bin(&packer, value);
    }
    put_name(&packer, STR("value"));
    put_bin(&packer, recorded->record.value);
}

/* --- Reading --- */

/* A position in bytes from outside, which may be damaged. is_short: more bytes are needed; is_bad: the bytes
 * are not valid. */
struct cursor {
    const unsigned char *at, *end;
    bool is_short, is_bad;
};

static uint64_t take_number(struct cursor *c, int bytes)
{
    uint64_t value = 0;
    if (c->end - c->at < bytes)
        c->is_short = true;
    for (int i = 0; i < bytes && !c->is_short; i++)
        value = value << 8 | *c->at++;
    return value;
}

static unsigned take_tag(struct cursor *c)
{
    return c->is_short || c->is_bad ? 0 : (unsigned)take_number(c, 1);
}

static struct str take_bytes(struct cursor *c, uint64_t bytes)
{
    const char *begin = (const char *)c->at;
    if ((uint64_t)(c->end - c->at) < bytes)
        c->is_short = true;
    if (c->is_short || c->is_bad)
        return (struct str){NULL, 0};
    c->at += bytes;
    return (struct str){begin, bytes};
}

static struct str take_bin(struct cursor *c)
{
    unsigned tag = take_tag(c);
    if (c->is_short || c->is_bad || tag == 0xc0)
        return (struct str){NULL, 0};
    if (tag < 0xc4 || tag > 0xc6) {
        c->is_bad = true;
        return (struct str){NULL, 0};
    }
    return take_bytes(c, take_number(c, 1 << (tag - 0xc4)));
}

static int64_t take_int(struct cursor *c)
{
    unsigned tag = take_tag(c);
    if (tag < 0x80)
        return tag;
    if (tag >= 0xe0)
        return (int8_t)tag;
    if (tag >= 0xcc && tag <= 0xcf)
        return (int64_t)take_number(c, 1 << (tag - 0xcc));
    switch (tag) {
    case 0xd0: return (int8_t)take_number(c, 1);
    case 0xd1: return (int16_t)take_number(c, 2);
    case 0xd2: return (int32_t)take_number(c, 4);
    case 0xd3: return (int64_t)take_number(c, 8);
    default: c->is_bad = true; return 0;
    }
}

static void expect(struct cursor *c, const char *name)
{
    unsigned tag = take_tag(c);
    struct str found = take_bytes(c, strlen(name));
    if (!c->is_short && (tag != (0xa0 | strlen(name)) || !str_is(found, name)))
        c->is_bad = true;
}

static uint32_t take_array(struct cursor *c)
{
    unsigned tag = take_tag(c);
    if (tag >= 0x90 && tag <= 0x9f)
        return tag & 15;
    if (tag == 0xdc || tag == 0xdd)
        return (uint32_t)take_number(c, tag == 0xdc ? 2 : 4);
    c->is_bad |= !c->is_short;
    return 0;
}

static struct str take_headers(struct cursor *c, struct arena *arena)
{
    struct byte_buffer out = {0};
    struct str headers = {"", 0};
    uint32_t count = take_array(c);
    for (uint32_t i = 0; i < count && !c->is_short && !c->is_bad; i++) {
        if (take_array(c) != 2)
            c->is_bad |= !c->is_short;
        struct str name = take_bin(c), value = take_bin(c);
        c->is_bad |= !c->is_short && name.data == NULL;
        if (!c->is_short && !c->is_bad)
            record_put_header(&out, name, value);
    }
    if (!c->is_short && !c->is_bad && out.length > 0)
        headers = arena_str(arena, (struct str){out.data, out.length});
    buffer_free(&out);
    return headers;
}

const char *recorded_from_msgpack(struct str bytes, struct arena *arena, struct recorded *recorded,
                                  size_t *used)
{
    const unsigned char *begin = (const unsigned char *)bytes.data;
    struct cursor c = {begin, begin + bytes.length, false, false};
    *used = 0;
    *recorded = (struct recorded){.record = {.origin = {.partition = PARTITION_NONE}}};
    if (take_tag(&c) != 0x85 && !c.is_short)
        return damaged;
    expect(&c, "offset");
    recorded->offset = take_int(&c);
    expect(&c, "time");
    recorded->time_ms = take_int(&c);
    expect(&c, "key");
    recorded->record.key = take_bin(&c);
    expect(&c, "headers");
    recorded->record.headers = take_headers(&c, arena);
    expect(&c, "value");
    recorded->record.value = take_bin(&c);
    if (c.is_bad || recorded->offset < 0)
        return damaged;
    *used = c.is_short ? 0 : (size_t)(c.at - begin);
    return NULL;
}
