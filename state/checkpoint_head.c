/* Heads of checkpoints in an object store: lines of text, so that people can read them.
 *
 *     leat checkpoint head 1
 *     checkpoint 7-42
 *     created 1795849200000000
 *     file BYTES TAB OBJECT TAB NAME     (each file)
 *     digest XXH3-128                    (of all lines before) */
#include "state/checkpoint_store.h"

#include "core/hex.h"

#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

enum { DIGEST_TEXT = 2 * 16 + 1 };
static const char title[] = "leat checkpoint head 1", digest_word[] = "digest ", file_word[] = "file ",
                  id_word[] = "checkpoint ", created_word[] = "created ";

static void digest_text(struct str text, char digest[DIGEST_TEXT])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(text.data, text.length));
    hex_text(canonical.digest, sizeof(canonical.digest), digest);
}

void checkpoint_head_encode(const struct checkpoint_head *head, struct byte_buffer *out)
{
    char digest[DIGEST_TEXT];
    size_t begin = out->length;
    buffer_printf(out, "%s\n%s%u-%" PRIu64 "\n%s%" PRId64 "\n", title, id_word, head->id.generation,
                  head->id.epoch, created_word, head->created_us);
    for (uint32_t i = 0; i < head->count; i++)
        buffer_printf(out, "%s%" PRIu64 "\t%.*s\t%.*s\n", file_word, head->files[i].bytes,
                      STR_ARGS(head->files[i].object), STR_ARGS(head->files[i].name));
    digest_text((struct str){out->data + begin, out->length - begin}, digest);
    buffer_printf(out, "%s%s\n", digest_word, digest);
}

/* Takes the next line, without its end; false: there is none. */
static bool take_line(struct str *text, struct str *line)
{
    const char *end = text->length == 0 ? NULL : memchr(text->data, '\n', text->length);
    if (end == NULL)
        return false;
    *line = (struct str){text->data, (size_t)(end - text->data)};
    *text = (struct str){end + 1, text->length - line->length - 1};
    return true;
}

/* Takes the word from the beginning of the line; false: the line begins otherwise. */
static bool take_word(struct str *line, const char *word)
{
    size_t length = strlen(word);
    if (line->length < length || memcmp(line->data, word, length) != 0)
        return false;
    *line = (struct str){line->data + length, line->length - length};
    return true;
}

/* Takes what comes before the next tab. */
static bool take_field(struct str *line, struct str *field)
{
    const char *end = line->length == 0 ? NULL : memchr(line->data, '\t', line->length);
    if (end == NULL)
        return false;
    *field = (struct str){line->data, (size_t)(end - line->data)};
    *line = (struct str){end + 1, line->length - field->length - 1};
    return true;
}

static bool read_number(struct str text, uint64_t *number)
{
    *number = 0;
    for (size_t i = 0; i < text.length; i++)
        if (text.data[i] < '0' || text.data[i] > '9' || __builtin_mul_overflow(*number, 10, number) ||
            __builtin_add_overflow(*number, (uint64_t)(text.data[i] - '0'), number))
            return false;
    return text.length > 0;
}

static bool read_file(struct str line, struct checkpoint_head_file *file)
{
    struct str bytes;
    if (!take_word(&line, file_word) || !take_field(&line, &bytes) || !take_field(&line, &file->object))
        return false;
    file->name = line;
    return read_number(bytes, &file->bytes) && file->bytes <= INT64_MAX &&
           objects_name_is_good(file->object) && objects_name_is_good(file->name);
}

/* Checks the last line, and takes it off. */
static bool take_digest(struct str *text)
{
    char digest[DIGEST_TEXT];
    size_t length = sizeof(digest_word) - 1 + DIGEST_TEXT - 1 + 1;
    if (text->length < length)
        return false;
    struct str last = {text->data + text->length - length, length};
    text->length -= length;
    digest_text(*text, digest);
    return take_word(&last, digest_word) && last.data[last.length - 1] == '\n' &&
           memcmp(last.data, digest, DIGEST_TEXT - 1) == 0;
}

bool checkpoint_head_decode(struct str text, struct arena *arena, struct checkpoint_head *head,
                            const char **why)
{
    struct str line;
    uint64_t created = 0;
    *head = (struct checkpoint_head){0};
    *why = "its digest is wrong";
    if (!take_digest(&text))
        return false;
    *why = "it is of another version of leat";
    if (!take_line(&text, &line) || !str_is(line, title))
        return false;
    *why = "it names no checkpoint";
    if (!take_line(&text, &line) || !take_word(&line, id_word) || !checkpoint_id_parse(line, &head->id))
        return false;
    *why = "it has no time";
    if (!take_line(&text, &line) || !take_word(&line, created_word) || !read_number(line, &created) ||
        created > INT64_MAX)
        return false;
    head->created_us = (int64_t)created;
    uint32_t lines = 0;
    for (size_t i = 0; i < text.length; i++)
        lines += text.data[i] == '\n';
    *why = "it has too many files";
    if (lines > CHECKPOINT_HEAD_FILES_MAX)
        return false;
    head->files = arena_array(arena, struct checkpoint_head_file, MAX(lines, 1U));
    *why = "it has a bad line";
    for (; take_line(&text, &line); head->count++)
        if (!read_file(line, &head->files[head->count]))
            return false;
    *why = NULL;
    return text.length == 0 ? true : (*why = "it has a bad line", false);
}

bool checkpoint_head_name(struct str name, struct checkpoint_id *id)
{
    static const char *const folders[] = {"heads/", "cluster/parts/"};
    char text[64];
    unsigned generation;
    uint64_t epoch;
    int end = 0;
    if (name.length >= sizeof(text))
        return false;
    snprintf(text, sizeof(text), "%.*s", STR_ARGS(name));
    for (size_t i = 0; i < ARRAY_COUNT(folders); i++) {
        size_t length = strlen(folders[i]);
        if (strncmp(text, folders[i], length) == 0 &&
            sscanf(text + length, "%9u-%18" SCNu64 "-%n", &generation, &epoch, &end) == 2 && end > 0 &&
            generation > 0) {
            *id = (struct checkpoint_id){generation, epoch};
            return true;
        }
    }
    return false;
}
