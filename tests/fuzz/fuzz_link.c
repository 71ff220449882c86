/* Arbitrary bytes where a link reads them. The first byte says what the others are: a request's path and query, a list of
 * files, or an answer. What is taken must be within bounds, and the same once written and read; a name that is taken stays
 * below the mirror's directory. An answer's digest is made right, so that the fuzzer gets past it. */
#include "fuzz.h"
#include "serve/link_format.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static void check_ask(struct str text)
{
    struct link_ask ask, again;
    const char *question = memchr(text.data, '?', text.length);
    if (question == NULL || memchr(text.data, '\0', text.length) != NULL) /* the head of a request has none */
        return;
    struct str path = {text.data, (size_t)(question - text.data)};
    struct str query = {question + 1, text.length - path.length - 1};
    if (!link_ask_parse(path, query, &ask))
        return;
    struct byte_buffer out = {0};
    link_ask_write(&ask, &out);
    question = memchr(out.data, '?', out.length);
    path = (struct str){out.data, (size_t)(question - out.data)};
    query = (struct str){question + 1, out.length - path.length - 1};
    must(link_ask_parse(path, query, &again), "a request that was written is read");
    must(again.kind == ask.kind && str_equal(again.job, ask.job) &&
             str_equal(again.fingerprint, ask.fingerprint),
         "a request is the same once written and read");
    must(ask.kind != LINK_LOG || (again.segment == ask.segment && again.offset == ask.offset &&
                                  again.generation == ask.generation && ask.segment <= INT64_MAX),
         "so is its place");
    buffer_free(&out);
}

/* By the meaning of a path, not by the rules of link_name_is_good. */
static bool stays_below(struct str name)
{
    size_t begin = 0;
    for (size_t i = 0; i <= name.length; i++) {
        if (i < name.length && name.data[i] != '/')
            continue;
        if (i == begin || name.data[begin] == '.')
            return false;
        begin = i + 1;
    }
    return memchr(name.data, '\0', name.length) == NULL;
}

static void check_list(struct str list)
{
    struct link_file file;
    bool is_good;
    size_t before = list.length;
    while (link_list_take(&list, &file, &is_good)) {
        must(is_good && list.length < before, "a list gets shorter");
        must(file.bytes <= INT64_MAX && file.changed_us >= 0 && file.name.length <= LINK_NAME_MAX,
             "a file is within bounds");
        must(stays_below(file.name), "a name stays below the directory");
        must(link_name_checkpoint(file.name) < file.name.length, "a checkpoint has files");
        before = list.length;
    }
    must(!is_good || list.length == 0, "a list ends at its end");
}

static void check_answer(char *data, size_t size, bool is_sealed)
{
    struct link_head head;
    struct str bytes;
    if (is_sealed && size >= sizeof(head)) {
        memcpy(&head, data, sizeof(head));
        uint32_t length = head.length;
        link_head_seal(&head, (struct str){data + sizeof(head), size - sizeof(head)});
        head.length = length; /* as it came; its digest is right */
        size_t from = offsetof(struct link_head, kind);
        uint64_t seed = XXH3_64bits((const char *)&head + from, sizeof(head) - from);
        head.digest = XXH3_64bits_withSeed(data + sizeof(head), size - sizeof(head), seed);
        memcpy(data, &head, sizeof(head));
    }
    if (link_head_open((struct str){data, size}, LINK_LOG, &head, &bytes) != NULL)
        return;
    must(bytes.length == head.length && bytes.data + bytes.length == data + size,
         "the bytes are those of the answer");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    char *copy = malloc(size);
    must(copy != NULL, "there is memory");
    memcpy(copy, data + 1, size - 1);
    struct str text = {copy, size - 1};
    switch (data[0] % 4) {
    case 0: check_ask(text); break;
    case 1: check_list(text); break;
    default: check_answer(copy, size - 1, data[0] % 4 == 2); break;
    }
    free(copy);
    return 0;
}
