#include "serve/link_format.h"

#include "core/option.h"

#include <inttypes.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const char magic[] = "leatlnk1";

enum { DIGESTED_FROM = offsetof(struct link_head, kind) };

static uint64_t digest_of(const struct link_head *head, struct str bytes)
{
    uint64_t seed = XXH3_64bits((const char *)head + DIGESTED_FROM, sizeof(*head) - DIGESTED_FROM);
    return XXH3_64bits_withSeed(bytes.data, bytes.length, seed);
}

void link_head_seal(struct link_head *head, struct str bytes)
{
    memcpy(head->magic, magic, sizeof(head->magic));
    head->length = (uint32_t)bytes.length;
    head->digest = digest_of(head, bytes);
}

const char *link_head_open(struct str body, enum link_kind kind, struct link_head *head, struct str *bytes)
{
    if (body.length < sizeof(*head))
        return "the answer is too short";
    memcpy(head, body.data, sizeof(*head));
    *bytes = (struct str){body.data + sizeof(*head), body.length - sizeof(*head)};
    if (memcmp(head->magic, magic, sizeof(head->magic)) != 0)
        return "the answer is not of a link";
    if (head->length != bytes->length || head->digest != digest_of(head, *bytes))
        return "the answer's digest does not match its bytes";
    if (head->kind != (uint32_t)kind)
        return "the answer is of another kind than the request";
    return NULL;
}

/* --- Requests --- */

static const char *const paths[] = {
    [LINK_CHECKPOINT] = LINK_PATH "checkpoint", [LINK_FILE] = LINK_PATH "file", [LINK_LOG] = LINK_PATH "log"};

static bool number_parse(struct str text, uint64_t most, uint64_t *number)
{
    int64_t value;
    if (!literal_int(text, &value) || value < 0 || (uint64_t)value > most)
        return false;
    *number = (uint64_t)value;
    return true;
}

/* Takes one NAME=VALUE. */
static bool field_parse(struct str name, struct str value, struct link_ask *ask)
{
    uint64_t number;
    const struct {
        const char *name;
        uint64_t *number;
    } numbers[] = {
        {"pack", &ask->pack}, {"file", &ask->file}, {"segment", &ask->segment}, {"offset", &ask->offset}};
    for (size_t i = 0; i < ARRAY_COUNT(numbers); i++)
        if (str_is(name, numbers[i].name))
            return number_parse(value, INT64_MAX, numbers[i].number);
    if (str_is(name, "job"))
        ask->job = value;
    else if (str_is(name, "fingerprint"))
        ask->fingerprint = value;
    else if (str_is(name, "run"))
        ask->run = value;
    else if (str_is(name, "have"))
        return checkpoint_id_parse(value, &ask->have);
    else if (str_is(name, "want"))
        ask->wants = str_is(value, "1");
    else if (str_is(name, "generation") && number_parse(value, UINT32_MAX, &number))
        ask->generation = (uint32_t)number;
    else
        return false;
    return true;
}

bool link_ask_parse(struct str path, struct str query, struct link_ask *ask)
{
    *ask = (struct link_ask){.kind = LINK_NONE};
    for (size_t i = LINK_NONE + 1; i < ARRAY_COUNT(paths); i++)
        if (str_is(path, paths[i]))
            ask->kind = (enum link_kind)i;
    while (query.length > 0) {
        const char *end = memchr(query.data, '&', query.length);
        size_t length = end == NULL ? query.length : (size_t)(end - query.data);
        const char *equal = memchr(query.data, '=', length);
        if (equal == NULL)
            return false;
        size_t name = (size_t)(equal - query.data);
        if (!field_parse((struct str){query.data, name}, (struct str){equal + 1, length - name - 1}, ask))
            return false;
        length += end != NULL;
        query = (struct str){query.data + length, query.length - length};
    }
    return ask->kind != LINK_NONE;
}

void link_ask_write(const struct link_ask *ask, struct byte_buffer *out)
{
    buffer_printf(out, "%s?job=%.*s&fingerprint=%.*s", paths[ask->kind], STR_ARGS(ask->job),
                  STR_ARGS(ask->fingerprint));
    if (ask->kind == LINK_FILE)
        buffer_printf(out, "&pack=%" PRIu64 "&file=%" PRIu64 "&offset=%" PRIu64, ask->pack, ask->file,
                      ask->offset);
    if (ask->kind == LINK_LOG)
        buffer_printf(out, "&generation=%u&segment=%" PRIu64 "&offset=%" PRIu64, ask->generation,
                      ask->segment, ask->offset);
    if (ask->have.generation != 0)
        buffer_printf(out, "&have=%u-%" PRIu64 "&run=%.*s", ask->have.generation, ask->have.epoch,
                      STR_ARGS(ask->run));
    if (ask->wants)
        buffer_printf(out, "&want=1");
}

/* --- Lists of files --- */

void link_list_add(struct byte_buffer *list, const struct link_file *file)
{
    buffer_printf(list, "%" PRIu64 " %" PRIi64 " %.*s\n", file->bytes, file->changed_us,
                  STR_ARGS(file->name));
}

/* Takes a number and the space behind it off the line. */
static bool take_number(struct str *line, uint64_t *number)
{
    const char *space = memchr(line->data, ' ', line->length);
    if (space == NULL ||
        !number_parse((struct str){line->data, (size_t)(space - line->data)}, INT64_MAX, number))
        return false;
    *line = (struct str){space + 1, line->length - (size_t)(space + 1 - line->data)};
    return true;
}

bool link_list_take(struct str *list, struct link_file *file, bool *is_good)
{
    *is_good = true;
    if (list->length == 0)
        return false;
    const char *end = memchr(list->data, '\n', list->length);
    uint64_t changed_us = 0;
    file->name = (struct str){list->data, end == NULL ? 0 : (size_t)(end - list->data)};
    *is_good = end != NULL && take_number(&file->name, &file->bytes) && take_number(&file->name, &changed_us);
    if (!*is_good)
        return false;
    file->changed_us = (int64_t)changed_us;
    *is_good = link_name_is_good(file->name);
    size_t length = (size_t)(end + 1 - list->data);
    *list = (struct str){list->data + length, list->length - length};
    return *is_good;
}

/* The bytes of `prefix` and at least one digit at the beginning of the text; 0: it does not begin so. */
static size_t numbered(struct str text, const char *prefix)
{
    size_t length = strlen(prefix), at = length;
    if (text.length < length || memcmp(text.data, prefix, length) != 0)
        return 0;
    while (at < text.length && text.data[at] >= '0' && text.data[at] <= '9')
        at++;
    return at == length ? 0 : at;
}

size_t link_name_checkpoint(struct str name)
{
    size_t generation = numbered(name, "gen-");
    if (generation == 0 || generation == name.length || name.data[generation] != '/')
        return 0;
    struct str rest = {name.data + generation + 1, name.length - generation - 1};
    size_t epoch = numbered(rest, "ckpt-");
    if (epoch == 0 || epoch + 1 >= rest.length || rest.data[epoch] != '/')
        return 0;
    return generation + 1 + epoch;
}

bool link_name_is_good(struct str name)
{
    bool is_tables = name.length > 7 && memcmp(name.data, "tables/", 7) == 0;
    if (name.length > LINK_NAME_MAX || (!is_tables && link_name_checkpoint(name) == 0))
        return false;
    char before = '/';
    for (size_t i = 0; i < name.length; i++) {
        char c = name.data[i];
        bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                        c == '_' || c == '-';
        if (!is_plain && (before == '/' || (c != '.' && c != '/')))
            return false;
        before = c;
    }
    return before != '/';
}
