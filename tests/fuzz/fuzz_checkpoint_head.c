/* Arbitrary heads of checkpoints in an object store, their digest set right; the first byte says whether it is. A restore makes
 * files of the names in a head: none may lie outside of its directory. What is read says the same once written. */
#include "state/checkpoint_store.h"

#include "core/hex.h"
#include "fuzz.h"

#include <stdlib.h>
#include <xxhash.h>

/* By rules of its own: below a directory, and no more than that. */
static void check_name(struct str name)
{
    struct str left = name;
    must(name.length > 0, "a name is not empty");
    while (left.length > 0) {
        const char *slash = memchr(left.data, '/', left.length);
        size_t length = slash == NULL ? left.length : (size_t)(slash - left.data);
        must(length > 0, "a name has no empty part");
        must(left.data[0] != '.', "no part of a name begins with a dot");
        must(slash == NULL || length + 1 < left.length, "a name does not end with a slash");
        left = (struct str){left.data + length + (slash != NULL), left.length - length - (slash != NULL)};
    }
    must(memchr(name.data, '\n', name.length) == NULL && memchr(name.data, '\0', name.length) == NULL,
         "a name has no control characters");
}

static void check_head(const struct checkpoint_head *head)
{
    must(head->count <= CHECKPOINT_HEAD_FILES_MAX, "files are bounded");
    must(head->created_us >= 0, "a time is a time");
    for (uint32_t i = 0; i < head->count; i++) {
        check_name(head->files[i].name);
        check_name(head->files[i].object);
        must(head->files[i].bytes <= INT64_MAX, "a size is a size");
    }
}

static void compare(const struct checkpoint_head *a, const struct checkpoint_head *b)
{
    must(a->id.generation == b->id.generation && a->id.epoch == b->id.epoch && a->count == b->count &&
             a->created_us == b->created_us,
         "a head says the same once written");
    for (uint32_t i = 0; i < a->count; i++)
        must(str_equal(a->files[i].name, b->files[i].name) &&
                 str_equal(a->files[i].object, b->files[i].object) && a->files[i].bytes == b->files[i].bytes,
             "a file says the same once written");
}

static void seal(struct byte_buffer *text)
{
    char digest[33];
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(text->data, text->length));
    hex_text(canonical.digest, sizeof(canonical.digest), digest);
    buffer_printf(text, "digest %s\n", digest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena = {.block_bytes = 4096};
    struct checkpoint_head first, second;
    struct byte_buffer text = {0}, again = {0};
    const char *why = NULL;
    bool is_sealed = size > 0 && (data[0] & 1) == 0;
    if (size > 1)
        buffer_append(&text, data + 1, size - 1);
    if (is_sealed)
        seal(&text);
    char *copy = malloc(MAX(text.length, (size_t)1)); /* so that reading behind its end is seen */
    if (text.length > 0)
        memcpy(copy, text.data, text.length);
    bool is_read = checkpoint_head_decode((struct str){copy, text.length}, &arena, &first, &why);
    must(is_read == (why == NULL), "what is not read has a reason");
    if (is_read) {
        check_head(&first);
        checkpoint_head_encode(&first, &again);
        must(checkpoint_head_decode((struct str){again.data, again.length}, &arena, &second, &why),
             "what is written is read");
        compare(&first, &second);
    }
    free(copy);
    buffer_free(&text);
    buffer_free(&again);
    arena_free(&arena);
    return 0;
}
