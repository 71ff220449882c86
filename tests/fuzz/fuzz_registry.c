/* Arbitrary answers of a Schema Registry, through functions that replace libcurl's. The first byte says in
 * how many pieces an answer comes; then follow answers, each a byte for its status and its text up to a byte
 * 0xff. A schema that is found is whole: its texts are terminated, its references have names. One that is not
 * found has a reason. */
#include "formats/schema_registry.h"
#include "fuzz.h"

#include <stdarg.h>

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

#undef curl_easy_setopt
#undef curl_easy_getinfo

static struct fuzz_input answers;
static uint32_t pieces;
static long status;
static size_t (*write_answer)(char *data, size_t size, size_t count, void *argument);
static void *write_argument;

CURLcode curl_global_init(long flags)
{
    (void)flags;
    return CURLE_OK;
}

CURL *curl_easy_init(void)
{
    return malloc(1);
}

void curl_easy_cleanup(CURL *curl)
{
    free(curl);
}

CURLcode curl_easy_setopt(CURL *curl, CURLoption option, ...)
{
    va_list arguments;
    (void)curl;
    va_start(arguments, option);
    if (option == CURLOPT_WRITEFUNCTION)
        write_answer = va_arg(arguments, size_t(*)(char *, size_t, size_t, void *));
    if (option == CURLOPT_WRITEDATA)
        write_argument = va_arg(arguments, void *);
    va_end(arguments);
    return CURLE_OK;
}

CURLcode curl_easy_getinfo(CURL *curl, CURLINFO info, ...)
{
    va_list arguments;
    (void)curl;
    must(info == CURLINFO_RESPONSE_CODE, "only the status is asked for");
    va_start(arguments, info);
    *va_arg(arguments, long *) = status;
    va_end(arguments);
    return CURLE_OK;
}

const char *curl_easy_strerror(CURLcode code)
{
    (void)code;
    return "it does not answer";
}

CURLcode curl_easy_perform(CURL *curl)
{
    static const long codes[] = {200, 200, 200, 200, 404, 500, 401, 0};
    (void)curl;
    if (answers.at == answers.end)
        return CURLE_COULDNT_CONNECT;
    status = codes[fuzz_byte(&answers) % ARRAY_COUNT(codes)];
    const uint8_t *end = memchr(answers.at, 0xff, (size_t)(answers.end - answers.at));
    size_t left = (size_t)((end == NULL ? answers.end : end) - answers.at), piece = left / pieces + 1;
    while (left > 0) {
        struct str bytes = fuzz_take(&answers, MIN(piece, left));
        size_t taken = write_answer((char *)(uintptr_t)bytes.data, 1, bytes.length, write_argument);
        free((char *)(uintptr_t)bytes.data);
        if (taken != bytes.length)
            return CURLE_WRITE_ERROR;
        left -= bytes.length;
    }
    if (end != NULL)
        answers.at = end + 1;
    return CURLE_OK;
}

static void check_text(struct str text)
{
    must(text.length == 0 || (text.data != NULL && text.data[text.length] == '\0'), "a text is terminated");
    must(strlen(text.length == 0 ? "" : text.data) <= text.length, "a text has its length");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena = {.block_bytes = 4096};
    const struct schema_registry_options options = {.url = STR("http://127.0.0.1:8081"),
                                                    .timeout_us = US_PER_SECOND};
    struct registry_schema schema;
    const char *why = NULL;
    answers = (struct fuzz_input){data, data + size};
    pieces = 1 + fuzz_byte(&answers) % 4;
    struct schema_registry *registry = schema_registry_open(&options);
    schema_registry_stop(registry); /* so that fetching does not wait between attempts */
    enum registry_result result = schema_registry_fetch(registry, 7, &arena, &schema, &why);
    must(result == REGISTRY_FOUND || (why != NULL && why[0] != '\0'), "what is not found has a reason");
    if (result == REGISTRY_FOUND) {
        must(schema.text.length > 0 && schema.references_count <= REGISTRY_REFERENCES_MAX, "a schema is one");
        check_text(schema.type);
        check_text(schema.text);
        for (uint32_t i = 0; i < schema.references_count; i++) {
            must(schema.references[i].name.length > 0, "a reference has a name");
            check_text(schema.references[i].name);
            check_text(schema.references[i].text);
        }
    }
    schema_registry_close(registry);
    arena_free(&arena);
    return 0;
}
