#include "state/objects/s3_xml.h"

#include "core/buffer.h"
#include "core/mem.h"

#include <expat.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { DEPTH_MAX = 8, PATH_MAX_BYTES = 256 };

struct reader {
    XML_Parser parser;
    struct arena *arena;
    struct s3_document *document;
    const char *why;           /* the first thing that is wrong */
    char path[PATH_MAX_BYTES]; /* of the open element below the root: "Contents/Key" */
    uint32_t path_bytes, depth;
    size_t lengths[DEPTH_MAX]; /* of the path before each open element */
    struct byte_buffer text;   /* of the open element */
    bool is_cut;               /* the text was longer */
    uint32_t capacity;         /* of document->entries, malloc'd while they are read */
};

/* --- What is kept of which element --- */

static const struct {
    const char *name;
    enum s3_root root;
} roots[] = {
    {"Error", S3_ROOT_ERROR},
    {"ListBucketResult", S3_ROOT_LIST},
    {"InitiateMultipartUploadResult", S3_ROOT_UPLOAD},
    {"CompleteMultipartUploadResult", S3_ROOT_COMPLETE},
    {"ListMultipartUploadsResult", S3_ROOT_UPLOADS},
};

enum kept { KEPT_TEXT, KEPT_KEY, KEPT_BYTES, KEPT_BEGUN, KEPT_UPLOAD, KEPT_TRUNCATED };

static const struct element {
    enum s3_root root;
    const char *path;
    enum kept kept;
    size_t offset; /* KEPT_TEXT: of the member of struct s3_document */
} elements[] = {
    {S3_ROOT_ERROR, "Code", KEPT_TEXT, offsetof(struct s3_document, code)},
    {S3_ROOT_ERROR, "Message", KEPT_TEXT, offsetof(struct s3_document, message)},
    {S3_ROOT_LIST, "IsTruncated", KEPT_TRUNCATED, 0},
    {S3_ROOT_LIST, "NextContinuationToken", KEPT_TEXT, offsetof(struct s3_document, next_token)},
    {S3_ROOT_LIST, "Contents/Key", KEPT_KEY, 0},
    {S3_ROOT_LIST, "Contents/Size", KEPT_BYTES, 0},
    {S3_ROOT_UPLOAD, "UploadId", KEPT_TEXT, offsetof(struct s3_document, upload_id)},
    {S3_ROOT_COMPLETE, "ETag", KEPT_TEXT, offsetof(struct s3_document, etag)},
    {S3_ROOT_UPLOADS, "IsTruncated", KEPT_TRUNCATED, 0},
    {S3_ROOT_UPLOADS, "NextKeyMarker", KEPT_TEXT, offsetof(struct s3_document, next_key)},
    {S3_ROOT_UPLOADS, "NextUploadIdMarker", KEPT_TEXT, offsetof(struct s3_document, next_upload)},
    {S3_ROOT_UPLOADS, "Upload/Key", KEPT_KEY, 0},
    {S3_ROOT_UPLOADS, "Upload/UploadId", KEPT_UPLOAD, 0},
    {S3_ROOT_UPLOADS, "Upload/Initiated", KEPT_BEGUN, 0},
};

static void fail(struct reader *reader, const char *why)
{
    if (reader->why == NULL)
        reader->why = why;
    XML_StopParser(reader->parser, XML_FALSE);
}

static struct s3_entry *entry_of(struct reader *reader)
{
    struct s3_document *document = reader->document;
    return document->count == 0 ? NULL : &document->entries[document->count - 1];
}

static void begin_entry(struct reader *reader)
{
    struct s3_document *document = reader->document;
    if (document->count == S3_XML_ENTRIES_MAX) {
        fail(reader, "the answer has too many entries");
        return;
    }
    if (document->count == reader->capacity) {
        reader->capacity = MAX(64U, reader->capacity * 2);
        document->entries = mem_realloc(document->entries, reader->capacity * sizeof(*document->entries));
    }
    document->entries[document->count++] = (struct s3_entry){.begun_us = TIME_MIN};
}

static bool read_count(struct str text, uint64_t *count)
{
    *count = 0;
    for (size_t i = 0; i < text.length; i++) {
        uint64_t digit = (uint64_t)(text.data[i] - '0');
        if (text.data[i] < '0' || text.data[i] > '9' || __builtin_mul_overflow(*count, 10, count) ||
            __builtin_add_overflow(*count, digit, count))
            return false;
    }
    return text.length > 0;
}

bool s3_time_read(struct str text, int64_t *us)
{
    static const char shape[] = "dddd-dd-ddTdd:dd:dd";
    int parts[6] = {0};
    size_t part = 0;
    if (text.length < sizeof(shape) - 1 || text.data[text.length - 1] != 'Z')
        return false;
    for (size_t i = 0; i < sizeof(shape) - 1; i++) {
        bool is_digit = text.data[i] >= '0' && text.data[i] <= '9';
        if (shape[i] == 'd' ? !is_digit : text.data[i] != shape[i])
            return false;
        if (shape[i] == 'd')
            parts[part] = parts[part] * 10 + (text.data[i] - '0');
        else
            part++;
    }
    struct tm utc = {.tm_year = parts[0] - 1900,
                     .tm_mon = parts[1] - 1,
                     .tm_mday = parts[2],
                     .tm_hour = parts[3],
                     .tm_min = parts[4],
                     .tm_sec = parts[5]};
    *us = (int64_t)timegm(&utc) * US_PER_SECOND;
    return true;
}

static void keep(struct reader *reader, const struct element *element)
{
    struct str text = {reader->text.data, reader->text.length};
    struct s3_entry *entry = entry_of(reader);
    bool ok = !reader->is_cut || element->root == S3_ROOT_ERROR;
    if (!ok) {
        fail(reader, "a text of the answer is too long");
        return;
    }
    switch (element->kept) {
    case KEPT_TEXT:
        *(struct str *)((char *)reader->document + element->offset) = arena_str(reader->arena, text);
        break;
    case KEPT_KEY: entry->key = arena_str(reader->arena, text); break;
    case KEPT_UPLOAD: entry->upload_id = arena_str(reader->arena, text); break;
    case KEPT_BYTES:
        if (!read_count(text, &entry->bytes))
            fail(reader, "a size is no number");
        break;
    case KEPT_BEGUN:
        if (!s3_time_read(text, &entry->begun_us))
            fail(reader, "a time is none");
        break;
    case KEPT_TRUNCATED: reader->document->is_truncated = str_is(text, "true"); break;
    }
}

/* --- The parser's callbacks --- */

static const char *without_prefix(const char *name)
{
    const char *colon = strrchr(name, ':');
    return colon == NULL ? name : colon + 1;
}

static void begin_root(struct reader *reader, const char *name)
{
    for (size_t i = 0; i < ARRAY_COUNT(roots); i++)
        if (strcmp(roots[i].name, name) == 0)
            reader->document->root = roots[i].root;
}

static void begin_element(void *user, const char *full, const char **attributes LEAT_UNUSED)
{
    struct reader *reader = user;
    const char *name = without_prefix(full);
    size_t length = strlen(name);
    buffer_clear(&reader->text);
    reader->is_cut = false;
    if (reader->depth == DEPTH_MAX || reader->path_bytes + length + 2 > PATH_MAX_BYTES) {
        fail(reader, "the answer is nested too deeply");
        return;
    }
    reader->lengths[reader->depth++] = reader->path_bytes;
    if (reader->depth == 1) {
        begin_root(reader, name);
        return;
    }
    reader->path_bytes +=
        (uint32_t)snprintf(reader->path + reader->path_bytes, PATH_MAX_BYTES - reader->path_bytes, "%s%s",
                           reader->path_bytes == 0 ? "" : "/", name);
    enum s3_root root = reader->document->root;
    if ((root == S3_ROOT_LIST && strcmp(reader->path, "Contents") == 0) ||
        (root == S3_ROOT_UPLOADS && strcmp(reader->path, "Upload") == 0))
        begin_entry(reader);
}

static void take_text(void *user, const char *data, int length)
{
    struct reader *reader = user;
    size_t room = S3_XML_TEXT_MAX - reader->text.length, bytes = (size_t)length;
    reader->is_cut = reader->is_cut || bytes > room;
    buffer_append(&reader->text, data, MIN(bytes, room));
}

static void end_element(void *user, const char *name LEAT_UNUSED)
{
    struct reader *reader = user;
    if (reader->why != NULL)
        return; /* the element may not have been opened */
    for (size_t i = 0; i < ARRAY_COUNT(elements) && reader->why == NULL; i++)
        if (elements[i].root == reader->document->root && strcmp(elements[i].path, reader->path) == 0)
            keep(reader, &elements[i]);
    reader->path_bytes = (uint32_t)reader->lengths[--reader->depth];
    reader->path[reader->path_bytes] = '\0';
    buffer_clear(&reader->text);
    reader->is_cut = false;
}

static void refuse_type(void *user, const char *name LEAT_UNUSED, const char *system LEAT_UNUSED,
                        const char *public LEAT_UNUSED, int has_subset LEAT_UNUSED)
{
    fail(user, "the answer declares a document type");
}

/* --- The whole --- */

static const char *check_document(const struct s3_document *document)
{
    if (document->root == S3_ROOT_ERROR && document->code.length == 0)
        return "an error has no code";
    if (document->root == S3_ROOT_UPLOAD && document->upload_id.length == 0)
        return "a new upload has no id";
    if (document->is_truncated && document->root == S3_ROOT_LIST && document->next_token.length == 0)
        return "a list goes on, and does not say where";
    if (document->is_truncated && document->root == S3_ROOT_UPLOADS &&
        (document->next_key.length == 0 || document->next_upload.length == 0))
        return "a list goes on, and does not say where";
    for (uint32_t i = 0; i < document->count; i++) {
        if (document->entries[i].key.length == 0)
            return "an entry has no key";
        if (document->root == S3_ROOT_UPLOADS && document->entries[i].upload_id.length == 0)
            return "an upload has no id";
    }
    return NULL;
}

bool s3_xml_read(struct str xml, struct arena *arena, struct s3_document *document, const char **why)
{
    struct reader reader = {.arena = arena, .document = document, .parser = XML_ParserCreate("UTF-8")};
    *document = (struct s3_document){0};
    leat_assert(reader.parser != NULL);
    XML_SetUserData(reader.parser, &reader);
    XML_SetElementHandler(reader.parser, begin_element, end_element);
    XML_SetCharacterDataHandler(reader.parser, take_text);
    XML_SetStartDoctypeDeclHandler(reader.parser, refuse_type);
    enum XML_Status status = XML_STATUS_ERROR;
    if (xml.length > S3_XML_BYTES_MAX)
        reader.why = "the answer is too long";
    else
        status = XML_Parse(reader.parser, xml.length == 0 ? "" : xml.data, (int)xml.length, 1);
    if (status != XML_STATUS_OK && reader.why == NULL)
        reader.why = XML_ErrorString(XML_GetErrorCode(reader.parser));
    if (reader.why == NULL)
        reader.why = check_document(document);
    struct s3_entry *entries = document->entries;
    if (document->count > 0)
        document->entries = arena_copy(arena, entries, document->count * sizeof(*entries));
    free(entries);
    buffer_free(&reader.text);
    XML_ParserFree(reader.parser);
    *why = reader.why;
    return reader.why == NULL;
}
