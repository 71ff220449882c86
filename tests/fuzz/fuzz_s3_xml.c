/* Arbitrary XML answers of an object store. What is read whole is bounded and complete: texts lie in the arena and are short, an
 * entry has its key, a list that goes on says where. What is not read has a reason. The same bytes read twice are the same. */
#include "state/objects/s3_xml.h"

#include "fuzz.h"

#include <stdlib.h>

static void check_text(struct str text)
{
    must(text.length <= S3_XML_TEXT_MAX, "a text is bounded");
    must(text.length == 0 || text.data[text.length] == '\0', "a text is terminated");
    must(memchr(text.length == 0 ? "" : text.data, '\0', text.length) == NULL, "a text has no NUL");
}

static void check_document(const struct s3_document *document)
{
    must(document->count <= S3_XML_ENTRIES_MAX, "entries are bounded");
    check_text(document->message);
    check_text(document->etag);
    check_text(document->next_token);
    must(document->root != S3_ROOT_ERROR || document->code.length > 0, "an error has a code");
    must(document->root != S3_ROOT_UPLOAD || document->upload_id.length > 0, "an upload has an id");
    must(!document->is_truncated || document->next_token.length > 0 ||
             (document->next_key.length > 0 && document->next_upload.length > 0),
         "what goes on says where");
    for (uint32_t i = 0; i < document->count; i++) {
        check_text(document->entries[i].key);
        must(document->entries[i].key.length > 0, "an entry has a key");
        must(document->root != S3_ROOT_UPLOADS || document->entries[i].upload_id.length > 0,
             "an upload has an id");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena = {.block_bytes = 4096};
    struct s3_document first, second;
    const char *why = NULL;
    char *copy = malloc(size == 0 ? 1 : size); /* so that reading behind its end is seen */
    memcpy(copy, data == NULL ? (const uint8_t *)"" : data, size);
    struct str xml = {copy, size};
    bool is_read = s3_xml_read(xml, &arena, &first, &why);
    must(is_read == (why == NULL), "what is not read has a reason");
    if (is_read) {
        check_document(&first);
        must(s3_xml_read(xml, &arena, &second, &why) && first.count == second.count &&
                 first.root == second.root,
             "the same bytes are the same");
        for (uint32_t i = 0; i < first.count; i++)
            must(str_equal(first.entries[i].key, second.entries[i].key) &&
                     first.entries[i].bytes == second.entries[i].bytes,
                 "the same bytes are the same");
    }
    free(copy);
    arena_free(&arena);
    return 0;
}
