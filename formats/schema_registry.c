/* Fetches schemas by their number, over HTTP (libcurl), as JSON (jansson). Every answer is checked, and
 * bounded in size and time. */
#include "formats/schema_registry.h"

#include "core/buffer.h"
#include "core/mem.h"
#include "core/wait.h"

#include <curl/curl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { MISSING_TRIES = 3, REFERENCES_DEPTH_MAX = 8, URL_BYTES_MAX = 2048 };
enum { CONNECT_TIMEOUT_MS = 5000, PAUSE_FIRST_US = 100 * 1000, PAUSE_LONGEST_US = 5000 * 1000 };
enum { CODE_NO_SCHEMA = 40403, CODE_NO_SUBJECT = 40401, CODE_NO_VERSION = 40402 };

const struct option schema_registry_options[] = {
    OPTION_TEXT(struct schema_registry_options, url, "url", OPTION_RUNTIME, "\"\"",
                "address of the registry, for example \"http://127.0.0.1:8081\""),
    OPTION_TEXT(struct schema_registry_options, user, "user", OPTION_RUNTIME, "\"\"",
                "user name for basic authentication"),
    OPTION_TEXT(struct schema_registry_options, password, "password", OPTION_SECRET | OPTION_RUNTIME, NULL,
                "password for basic authentication"),
    OPTION_TEXT(struct schema_registry_options, ca, "ca", OPTION_RUNTIME | OPTION_READS, "\"\"",
                "for https: file with the certificates to trust; by default the system's certificates"),
    OPTION_DURATION(struct schema_registry_options, timeout_us, "timeout", OPTION_RUNTIME, "10s", "100ms",
                    "10m", "how long one request may take"),
    OPTION_DURATION(struct schema_registry_options, wait_us, "wait", OPTION_RUNTIME, "1m", "0s", "30d",
                    "how long the source waits for a schema while the registry does not answer; then the "
                    "job stops"),
    OPTIONS_END,
};

struct schema_registry {
    const struct schema_registry_options *options;
    CURL *curl;
    struct curl_slist *headers;
    char *url, *user, *password, *ca;
    struct byte_buffer body;
    bool is_too_large;
    char error[CURL_ERROR_SIZE];
    pthread_mutex_t mutex;
    pthread_cond_t stopped;
    atomic_bool is_stopping;
};

/* --- options --- */

static bool begins_with(struct str text, const char *prefix)
{
    return text.length >= strlen(prefix) && memcmp(text.data, prefix, strlen(prefix)) == 0;
}

static bool is_loopback(struct str host)
{
    return begins_with(host, "127.") || begins_with(host, "localhost") || begins_with(host, "[::1]");
}

bool schema_registry_bind(const struct schema_registry_options *options, struct diag_list *diags,
                          struct span span)
{
    struct str url = options->url;
    bool is_tls = begins_with(url, "https://");
    size_t scheme = is_tls ? strlen("https://") : strlen("http://");
    if ((!is_tls && !begins_with(url, "http://")) || url.length == scheme || url.length > URL_BYTES_MAX / 2) {
        struct diag *d = diag_error(diags, DIAG_OUT_OF_RANGE, span,
                                    "the registry's `url` is not an http or https address of at most 1 KiB");
        diag_hint(diags, d, "for example `url: \"http://127.0.0.1:8081\"`");
        return false;
    }
    struct str host = {url.data + scheme, url.length - scheme};
    for (size_t i = 0; i < host.length; i++) {
        if (host.data[i] == '@') {
            struct diag *d =
                diag_error(diags, DIAG_OPEN_SECRET, span, "the registry's `url` contains a user or password");
            diag_hint(diags, d, "give `user: \"name\", password: env(\"NAME\")` instead");
            return false;
        }
        if ((unsigned char)host.data[i] <= ' ' || strchr("?#\\", host.data[i]) != NULL) {
            diag_error(diags, DIAG_OUT_OF_RANGE, span,
                       "the registry's `url` contains a character that is not allowed: a space or control "
                       "character, `?`, `#` or `\\`");
            return false;
        }
    }
    if ((options->user.length == 0) != (options->password.length == 0)) {
        struct diag *d = diag_error(diags, DIAG_OPTIONS_CLASH, span,
                                    "a registry takes both `user` and `password`, or neither");
        diag_hint(diags, d, "give the missing option");
        return false;
    }
    if (options->user.length > 0 && !is_tls && !is_loopback(host)) {
        struct diag *d = diag_warning(diags, DIAG_OPEN_CONNECTION, span,
                                      "the password is sent to the registry unencrypted");
        diag_hint(diags, d, "use an https address");
    }
    return true;
}

/* --- one request --- */

static size_t take_body(char *data, size_t size, size_t count, void *argument)
{
    struct schema_registry *registry = argument;
    size_t bytes = size * count;
    registry->is_too_large = bytes > REGISTRY_BODY_BYTES_MAX - registry->body.length;
    if (registry->is_too_large)
        return 0;
    buffer_append(&registry->body, data, bytes);
    return bytes;
}

/* Called by libcurl many times a second while a request runs; a result other than 0 ends the request. */
static int look_up(void *argument, curl_off_t a LEAT_UNUSED, curl_off_t b LEAT_UNUSED,
                   curl_off_t c LEAT_UNUSED, curl_off_t d LEAT_UNUSED)
{
    struct schema_registry *registry = argument;
    return atomic_load(&registry->is_stopping);
}

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

static void curl_begin(void)
{
    leat_assert(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
}

static void set_up(struct schema_registry *registry)
{
    CURL *curl = registry->curl;
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_TIMEOUT_MS);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)(registry->options->timeout_us / 1000));
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, registry->error);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, registry);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, look_up);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, registry);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, registry->headers);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "leat/" LEAT_VERSION);
    if (registry->user[0] != '\0') {
        curl_easy_setopt(curl, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
        curl_easy_setopt(curl, CURLOPT_USERNAME, registry->user);
        curl_easy_setopt(curl, CURLOPT_PASSWORD, registry->password);
    }
    if (registry->ca[0] != '\0') { /* these authorities, and not the system's folder as well */
        curl_easy_setopt(curl, CURLOPT_CAINFO, registry->ca);
        curl_easy_setopt(curl, CURLOPT_CAPATH, NULL);
    }
}

struct schema_registry *schema_registry_open(const struct schema_registry_options *options)
{
    struct schema_registry *registry = mem_calloc(1, sizeof(*registry));
    struct str url = options->url;
    pthread_once(&curl_once, curl_begin);
    while (url.length > 0 && url.data[url.length - 1] == '/')
        url.length--;
    registry->options = options;
    registry->url = mem_str(url);
    registry->user = mem_str(options->user);
    registry->password = mem_str(options->password);
    registry->ca = mem_str(options->ca);
    registry->curl = curl_easy_init();
    registry->headers =
        curl_slist_append(NULL, "Accept: application/vnd.schemaregistry.v1+json, application/json");
    leat_assert(registry->curl != NULL && registry->headers != NULL);
    pthread_mutex_init(&registry->mutex, NULL);
    pthread_cond_init(&registry->stopped, NULL);
    set_up(registry);
    return registry;
}

void schema_registry_stop(struct schema_registry *registry)
{
    pthread_mutex_lock(&registry->mutex);
    atomic_store(&registry->is_stopping, true);
    pthread_cond_broadcast(&registry->stopped);
    pthread_mutex_unlock(&registry->mutex);
}

void schema_registry_close(struct schema_registry *registry)
{
    if (registry == NULL)
        return;
    curl_easy_cleanup(registry->curl);
    curl_slist_free_all(registry->headers);
    if (registry->password[0] != '\0')
        explicit_bzero(registry->password, strlen(registry->password));
    free(registry->url);
    free(registry->user);
    free(registry->password);
    free(registry->ca);
    buffer_free(&registry->body);
    pthread_cond_destroy(&registry->stopped);
    pthread_mutex_destroy(&registry->mutex);
    free(registry);
}

/* The outcome of one request. LATER: a later request may succeed. REFUSED: no later request can. */
enum answer { ANSWER_GOOD, ANSWER_MISSING, ANSWER_REFUSED, ANSWER_LATER };

/* The printable characters of the registry's own error message, as ": message", or ""; *code: the registry's
 * error code. */
static const char *own_words(const struct schema_registry *registry, struct arena *arena, long *code)
{
    json_error_t error;
    json_t *json =
        json_loadb(registry->body.data == NULL ? "" : registry->body.data, registry->body.length, 0, &error);
    const char *message = json_string_value(json_object_get(json, "message"));
    char shown[160] = "";
    size_t length = 0;
    *code = (long)json_integer_value(json_object_get(json, "error_code"));
    for (; message != NULL && *message != '\0' && length < sizeof(shown) - 1; message++)
        if (*message >= ' ' && *message <= '~')
            shown[length++] = *message;
    json_decref(json);
    return length == 0 ? "" : arena_printf(arena, ": %s", shown);
}

static enum answer request(struct schema_registry *registry, const char *path, struct arena *arena,
                           json_t **json, const char **why)
{
    char url[URL_BYTES_MAX];
    long status = 0, code = 0;
    json_error_t error;
    *json = NULL;
    if ((size_t)snprintf(url, sizeof(url), "%s%s", registry->url, path) >= sizeof(url)) {
        *why = "the request's address would be longer than 2 KiB";
        return ANSWER_REFUSED;
    }
    buffer_clear(&registry->body);
    registry->error[0] = '\0';
    registry->is_too_large = false;
    curl_easy_setopt(registry->curl, CURLOPT_URL, url);
    CURLcode result = curl_easy_perform(registry->curl);
    if (registry->is_too_large) {
        *why = "the answer is larger than 4 MiB";
        return ANSWER_REFUSED;
    }
    if (result != CURLE_OK) {
        *why = arena_strdup(arena, registry->error[0] != '\0' ? registry->error : curl_easy_strerror(result));
        return ANSWER_LATER;
    }
    curl_easy_getinfo(registry->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status == 200) {
        *json = json_loadb(registry->body.data == NULL ? "" : registry->body.data, registry->body.length,
                           JSON_REJECT_DUPLICATES, &error);
        *why = "the answer is not JSON";
        return *json == NULL ? ANSWER_LATER : ANSWER_GOOD;
    }
    const char *words = own_words(registry, arena, &code);
    *why = arena_printf(arena, "it answers %ld%s", status, words);
    if (status == 404 && (code == CODE_NO_SCHEMA || code == CODE_NO_SUBJECT || code == CODE_NO_VERSION))
        return ANSWER_MISSING;
    return status >= 500 || status == 408 || status == 429 ? ANSWER_LATER : ANSWER_REFUSED;
}

bool schema_registry_rest(struct schema_registry *registry, int64_t pause_us)
{
    int64_t end = os_monotonic_us() + pause_us;
    struct timespec until = wait_until(pause_us);
    pthread_mutex_lock(&registry->mutex);
    while (!atomic_load(&registry->is_stopping) && os_monotonic_us() < end)
        wait_on(&registry->stopped, &registry->mutex, &until);
    pthread_mutex_unlock(&registry->mutex);
    return !atomic_load(&registry->is_stopping);
}

/* Repeats the request until the answer is final, as schema_registry.h says. */
static enum registry_result ask(struct schema_registry *registry, const char *path, struct arena *arena,
                                json_t **json, const char **why)
{
    int64_t begin = os_monotonic_us(), pause_us = PAUSE_FIRST_US;
    for (unsigned missing = 0;;) {
        enum answer answer = request(registry, path, arena, json, why);
        if (answer == ANSWER_GOOD)
            return REGISTRY_FOUND;
        if (answer == ANSWER_REFUSED)
            return REGISTRY_FAILED;
        if (answer == ANSWER_MISSING && ++missing == MISSING_TRIES)
            return REGISTRY_MISSING;
        if (answer == ANSWER_LATER && os_monotonic_us() - begin >= registry->options->wait_us)
            return REGISTRY_FAILED;
        if (!schema_registry_rest(registry, pause_us))
            return REGISTRY_FAILED;
        pause_us = MIN(2 * pause_us, PAUSE_LONGEST_US);
    }
}

/* --- schemas --- */

static enum registry_result add_references(struct schema_registry *registry, const json_t *list,
                                           struct arena *arena, struct registry_schema *schema,
                                           const char **why, int depth);

static bool is_known(const struct registry_schema *schema, struct str name)
{
    for (uint32_t i = 0; i < schema->references_count; i++)
        if (str_equal(schema->references[i].name, name))
            return true;
    return false;
}

static struct str text_of(struct arena *arena, const json_t *json)
{
    return json_is_string(json)
               ? arena_str(arena, (struct str){json_string_value(json), json_string_length(json)})
               : (struct str){"", 0};
}

static enum registry_result add_reference(struct schema_registry *registry, const json_t *item,
                                          struct arena *arena, struct registry_schema *schema,
                                          const char **why, int depth)
{
    const json_t *version = json_object_get(item, "version");
    struct str name = text_of(arena, json_object_get(item, "name"));
    struct str subject = text_of(arena, json_object_get(item, "subject"));
    json_t *json = NULL;
    if (name.length == 0 || subject.length == 0 || !json_is_integer(version) ||
        depth > REFERENCES_DEPTH_MAX) {
        *why = "a reference in the schema is incomplete, or references are nested too deep";
        return REGISTRY_FAILED;
    }
    if (is_known(schema, name))
        return REGISTRY_FOUND;
    char *escaped = curl_easy_escape(registry->curl, subject.data, (int)MIN(subject.length, 1024));
    leat_assert(escaped != NULL);
    const char *path =
        arena_printf(arena, "/subjects/%s/versions/%lld", escaped, (long long)json_integer_value(version));
    curl_free(escaped);
    enum registry_result result = ask(registry, path, arena, &json, why);
    if (result == REGISTRY_FOUND)
        result = add_references(registry, json_object_get(json, "references"), arena, schema, why, depth + 1);
    if (result == REGISTRY_FOUND && !is_known(schema, name)) {
        if (schema->references_count == REGISTRY_REFERENCES_MAX) {
            *why = "the schema refers to more than 32 other schemas";
            result = REGISTRY_FAILED;
        } else {
            uint32_t at = schema->references_count++;
            schema->references[at].name = name;
            schema->references[at].text = text_of(arena, json_object_get(json, "schema"));
        }
    }
    json_decref(json);
    return result;
}

static enum registry_result add_references(struct schema_registry *registry, const json_t *list,
                                           struct arena *arena, struct registry_schema *schema,
                                           const char **why, int depth)
{
    enum registry_result result = REGISTRY_FOUND;
    for (size_t i = 0; i < json_array_size(list) && result == REGISTRY_FOUND; i++)
        result = add_reference(registry, json_array_get(list, i), arena, schema, why, depth);
    return result;
}

enum registry_result schema_registry_fetch(struct schema_registry *registry, uint32_t number,
                                           struct arena *arena, struct registry_schema *schema,
                                           const char **why)
{
    char path[64];
    json_t *json = NULL;
    *schema = (struct registry_schema){0};
    snprintf(path, sizeof(path), "/schemas/ids/%u", number);
    enum registry_result result = ask(registry, path, arena, &json, why);
    if (result != REGISTRY_FOUND)
        return result;
    schema->text = text_of(arena, json_object_get(json, "schema"));
    schema->type = text_of(arena, json_object_get(json, "schemaType"));
    if (schema->type.length == 0)
        schema->type = STR("AVRO");
    result = add_references(registry, json_object_get(json, "references"), arena, schema, why, 0);
    json_decref(json);
    if (result == REGISTRY_FOUND && schema->text.length == 0) {
        *why = "the answer has no `schema`";
        return REGISTRY_FAILED;
    }
    /* The registry has the schema but not a schema that it refers to: the registry contradicts itself. */
    return result == REGISTRY_MISSING ? REGISTRY_FAILED : result;
}
