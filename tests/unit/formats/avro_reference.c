#include "unit/formats/avro_reference.h"

#include <avro.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(int is_true, const char *what)
{
    if (is_true)
        return;
    fprintf(stderr, "avro_reference: %s: %s\n", what, avro_strerror());
    abort();
}

/* The allocator of Avro C, which allocates what a length in the payload says before it checks that the bytes
 * are there, and does not free its memory when reading fails. So an allocation of more than 1 MiB fails, and
 * free_since frees all blocks that are newer than `kept`. */
struct block {
    struct block *next, *last;
};
static struct block blocks = {&blocks, &blocks};

static void unlink_block(struct block *block)
{
    block->next->last = block->last;
    block->last->next = block->next;
}

static void *allocate(void *user, void *data, size_t old_bytes, size_t bytes)
{
    (void)user;
    (void)old_bytes;
    struct block *block = data == NULL ? NULL : (struct block *)data - 1;
    if (bytes > 1 << 20)
        return NULL;
    if (block != NULL)
        unlink_block(block);
    if (bytes == 0) {
        free(block);
        return NULL;
    }
    block = realloc(block, sizeof(*block) + bytes);
    must(block != NULL, "memory");
    *block = (struct block){blocks.next, &blocks};
    blocks.next->last = block;
    blocks.next = block;
    return block + 1;
}

static void free_since(const struct block *kept)
{
    while (blocks.next != kept) {
        struct block *block = blocks.next;
        unlink_block(block);
        free(block);
    }
}

/* The class and the parsed schema of a JSON text. They are kept for the next call with the same address. */
static avro_value_iface_t *class_of(const char *json, avro_schema_t *schema)
{
    enum { SCHEMAS_MAX = 16 };
    static struct {
        const char *json;
        avro_schema_t schema;
        avro_value_iface_t *class;
    } known[SCHEMAS_MAX];
    static size_t count;
    for (size_t i = 0; i < count; i++)
        if (known[i].json == json) {
            *schema = known[i].schema;
            return known[i].class;
        }
    must(count < SCHEMAS_MAX, "too many schemas");
    if (count == 0)
        avro_set_allocator(allocate, NULL);
    must(avro_schema_from_json_length(json, strlen(json), &known[count].schema) == 0, "the schema");
    known[count].class = avro_generic_class_from_schema(known[count].schema);
    known[count].json = json;
    *schema = known[count].schema;
    return known[count++].class;
}

/* --- writing --- */

struct source {
    uint64_t (*draw)(void *argument);
    void *argument;
};

static uint64_t below(struct source *source, uint64_t limit)
{
    return source->draw(source->argument) % limit;
}

static void fill(avro_value_t *value, struct source *source);

static void fill_text(avro_value_t *value, struct source *source, avro_type_t type)
{
    static const char *const pieces[] = {"", "a", "Zürich", "日本", "plain text of some length", "\"\\\n"};
    char text[256] = "";
    uint64_t count = below(source, 4);
    for (uint64_t i = 0; i < count; i++)
        strcat(text, pieces[below(source, 6)]);
    if (type == AVRO_STRING)
        must(avro_value_set_string(value, text) == 0, "a string");
    else
        must(avro_value_set_bytes(value, text, strlen(text)) == 0, "bytes");
}

static void fill_items(avro_value_t *value, struct source *source, avro_type_t type)
{
    uint64_t count = below(source, 4);
    for (uint64_t i = 0; i < count; i++) {
        avro_value_t item;
        char key[32];
        snprintf(key, sizeof(key), "k%llu", (unsigned long long)i);
        if (type == AVRO_MAP)
            must(avro_value_add(value, key, &item, NULL, NULL) == 0, "a map");
        else
            must(avro_value_append(value, &item, NULL) == 0, "an array");
        fill(&item, source);
    }
}

static void fill_fields(avro_value_t *value, struct source *source)
{
    size_t count = 0;
    must(avro_value_get_size(value, &count) == 0, "a record");
    for (size_t i = 0; i < count; i++) {
        avro_value_t field;
        must(avro_value_get_by_index(value, i, &field, NULL) == 0, "a field");
        fill(&field, source);
    }
}

static void fill(avro_value_t *value, struct source *source)
{
    uint64_t bits = source->draw(source->argument) >> below(source, 64);
    double real = (double)(int64_t)bits / 1000;
    avro_type_t type = avro_value_get_type(value);
    avro_schema_t schema = avro_value_get_schema(value);
    avro_value_t branch;
    switch (type) {
    case AVRO_NULL: avro_value_set_null(value); break;
    case AVRO_BOOLEAN: avro_value_set_boolean(value, bits & 1); break;
    case AVRO_INT32: avro_value_set_int(value, (int32_t)bits); break;
    case AVRO_INT64: avro_value_set_long(value, bits & 1 ? (int64_t)bits : -(int64_t)(bits >> 1)); break;
    case AVRO_FLOAT: avro_value_set_float(value, (float)real); break;
    case AVRO_DOUBLE: avro_value_set_double(value, real); break;
    case AVRO_STRING:
    case AVRO_BYTES: fill_text(value, source, type); break;
    case AVRO_FIXED: {
        char bytes[64] = {(char)bits, (char)(bits >> 8)};
        must(avro_value_set_fixed(value, bytes, (size_t)avro_schema_fixed_size(schema)) == 0, "fixed");
        break;
    }
    case AVRO_ENUM:
        avro_value_set_enum(value, (int)below(source, (uint64_t)avro_schema_enum_number_of_symbols(schema)));
        break;
    case AVRO_ARRAY:
    case AVRO_MAP: fill_items(value, source, type); break;
    case AVRO_UNION:
        must(avro_value_set_branch(value, (int)below(source, avro_schema_union_size(schema)), &branch) == 0,
             "a branch");
        fill(&branch, source);
        break;
    case AVRO_RECORD: fill_fields(value, source); break;
    default: must(0, "a type");
    }
}

size_t avro_reference_write(const char *json, uint64_t (*draw)(void *argument), void *argument, char *out,
                            size_t room)
{
    struct source source = {draw, argument};
    avro_schema_t schema;
    avro_value_iface_t *class = class_of(json, &schema);
    avro_value_t value;
    avro_writer_t writer = avro_writer_memory(out, (int64_t)room);
    must(avro_generic_value_new(class, &value) == 0, "a value");
    fill(&value, &source);
    must(avro_value_write(writer, &value) == 0, "writing");
    size_t bytes = (size_t)avro_writer_tell(writer);
    avro_value_decref(&value);
    avro_writer_free(writer);
    return bytes;
}

/* --- reading --- */

struct text {
    char *at, *end;
    int is_bad;
};

static void put(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text->at, (size_t)(text->end - text->at), format, arguments);
    va_end(arguments);
    must(length >= 0 && length < text->end - text->at, "room for the text");
    text->at += length;
}

static void put_bytes(struct text *text, const void *data, size_t bytes)
{
    put(text, "'");
    for (size_t i = 0; i < bytes; i++)
        put(text, "%02x", ((const unsigned char *)data)[i]);
}

static void put_whole(struct text *text, int64_t value, bool is_float)
{
    if (is_float)
        put(text, "%a", (double)value);
    else
        put(text, "%lld", (long long)value);
}

static void put_value(struct text *text, avro_value_t *value, bool is_float);

static void put_items(struct text *text, avro_value_t *value, char open, char close)
{
    size_t count = 0;
    avro_value_get_size(value, &count);
    put(text, "%c", open);
    for (size_t i = 0; i < count; i++) {
        avro_value_t item;
        must(avro_value_get_by_index(value, i, &item, NULL) == 0, "an item");
        put(text, "%s", i > 0 ? "," : "");
        put_value(text, &item, false);
    }
    put(text, "%c", close);
}

static void put_value(struct text *text, avro_value_t *value, bool is_float)
{
    int32_t narrow = 0;
    int64_t wide = 0;
    float single = 0;
    double real = 0;
    int flag = 0;
    const char *string = "";
    const void *data = "";
    size_t bytes = 1;
    avro_value_t branch;
    switch (avro_value_get_type(value)) {
    case AVRO_NULL: put(text, "-"); break;
    case AVRO_BOOLEAN: avro_value_get_boolean(value, &flag), put(text, "%d", flag); break;
    case AVRO_INT32: avro_value_get_int(value, &narrow), put_whole(text, narrow, is_float); break;
    case AVRO_INT64: avro_value_get_long(value, &wide), put_whole(text, wide, is_float); break;
    case AVRO_FLOAT: avro_value_get_float(value, &single), put(text, "%a", (double)single); break;
    case AVRO_DOUBLE: avro_value_get_double(value, &real), put(text, "%a", real); break;
    case AVRO_STRING:
        avro_value_get_string(value, &string, &bytes), put_bytes(text, string, bytes - 1);
        break;
    case AVRO_BYTES: avro_value_get_bytes(value, &data, &bytes), put_bytes(text, data, bytes); break;
    case AVRO_FIXED: avro_value_get_fixed(value, &data, &bytes), put_bytes(text, data, bytes); break;
    case AVRO_ENUM:
        avro_value_get_enum(value, &flag);
        /* Avro C accepts any number of a symbol. */
        text->is_bad |= flag < 0 || flag >= avro_schema_enum_number_of_symbols(avro_value_get_schema(value));
        string = text->is_bad ? "" : avro_schema_enum_get(avro_value_get_schema(value), flag);
        put_bytes(text, string, strlen(string));
        break;
    case AVRO_ARRAY: put_items(text, value, '[', ']'); break;
    case AVRO_RECORD: put_items(text, value, '{', '}'); break;
    case AVRO_UNION:
        must(avro_value_get_current_branch(value, &branch) == 0, "a branch");
        put_value(text, &branch, is_float);
        break;
    default: must(0, "a type");
    }
}

bool avro_reference_read(const char *json, const char *data, size_t bytes, const char *const *names,
                         char *out, size_t room)
{
    struct text text = {out, out + room, 0};
    avro_schema_t schema;
    avro_value_iface_t *class = class_of(json, &schema);
    avro_value_t value, field;
    const struct block *kept = blocks.next;
    avro_reader_t reader = avro_reader_memory(data, (int64_t)bytes);
    must(avro_generic_value_new(class, &value) == 0, "a value");
    char rest;
    bool is_good = avro_value_read(reader, &value) == 0 && avro_read(reader, &rest, 1) != 0;
    for (size_t i = 0; is_good && names[i] != NULL; i++) {
        bool is_float = names[i][0] == '+';
        const char *name = names[i] + is_float;
        must(avro_value_get_by_name(&value, name, &field, NULL) == 0, "a field");
        put(&text, "%s%s=", i > 0 ? " " : "", name);
        put_value(&text, &field, is_float);
    }
    avro_value_decref(&value);
    avro_reader_free(reader);
    free_since(kept);
    return is_good && !text.is_bad;
}
