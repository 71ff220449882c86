/* What the URL and the environment say about a bucket. Values of the environment that may hold a secret are never printed. */
#include "state/objects/s3.h"

#include "core/mem.h"

#include <stdlib.h>

enum { BUCKET_MIN = 3, BUCKET_MAX = 63, VALUE_MAX = 4096 };

static bool bad_environment(const struct objects *objects, struct diag_list *diags, const char *what,
                            const char *hint)
{
    struct diag *d = diag_error(diags, DIAG_STORE_FAILED, (struct span){0}, "`%s`: %s", objects->url, what);
    diag_hint(diags, d, "%s", hint);
    return false;
}

/* The variable's value; NULL where it is not set, or empty. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value == NULL || value[0] == '\0' ? NULL : value;
}

static const char *either(const char *first, const char *second)
{
    const char *value = variable(first);
    return value != NULL ? value : variable(second);
}

/* Whether the text has only printable ASCII without spaces, so that it can stand in a header field. */
static bool is_token(const char *text)
{
    size_t length = strlen(text);
    for (size_t i = 0; i < length; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return false;
    return length > 0 && length <= VALUE_MAX;
}

static bool read_keys(struct objects *objects, struct s3 *s3, struct diag_list *diags)
{
    const char *access = variable("AWS_ACCESS_KEY_ID"), *secret = variable("AWS_SECRET_ACCESS_KEY");
    const char *token = variable("AWS_SESSION_TOKEN");
    if (access == NULL || secret == NULL)
        return bad_environment(
            objects, diags, "the environment has no key for the store",
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN, where there is one)");
    if (!is_token(access) || !is_token(secret) || (token != NULL && !is_token(token)))
        return bad_environment(
            objects, diags, "a key in the environment has a space, a newline or another odd character",
            "look at AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN: were they cut out of a "
            "file with more than the key?");
    s3->access = mem_strdup(access);
    s3->secret = mem_strdup(secret);
    s3->token = token == NULL ? NULL : mem_strdup(token);
    s3->keys = (struct s3_keys){s3->access, s3->secret, s3->token};
    return true;
}

static bool read_region(struct objects *objects, struct s3 *s3, struct diag_list *diags)
{
    const char *region = either("AWS_REGION", "AWS_DEFAULT_REGION");
    region = region == NULL ? "us-east-1" : region;
    if (strlen(region) > 64 || strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(region))
        return bad_environment(objects, diags, "AWS_REGION is no region",
                               "set it to a name such as `eu-central-1`");
    s3->region = mem_strdup(region);
    return true;
}

/* `s3://BUCKET/PREFIX` */
static bool read_url(struct objects *objects, struct s3 *s3, struct diag_list *diags)
{
    const char *bucket = objects->url + strlen(objects_s3.scheme);
    size_t length = strcspn(bucket, "/");
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    if (length < BUCKET_MIN || length > BUCKET_MAX || strspn(bucket, allowed) < length)
        return bad_environment(
            objects, diags, "expected the name of a bucket behind `s3://`",
            "a bucket's name has 3 to 63 letters, digits, dots and hyphens: `s3://bucket/prefix`");
    struct str prefix = str_from(bucket + length);
    while (prefix.length > 0 && prefix.data[0] == '/')
        prefix = (struct str){prefix.data + 1, prefix.length - 1};
    while (prefix.length > 0 && prefix.data[prefix.length - 1] == '/')
        prefix.length--;
    if (prefix.length > 0 && !objects_name_is_good(prefix))
        return bad_environment(objects, diags, "the prefix behind the bucket cannot be part of a name",
                               "no part between slashes may be empty or begin with a dot");
    s3->bucket = mem_str((struct str){bucket, length});
    s3->prefix = mem_printf("%.*s%s", STR_ARGS(prefix), prefix.length == 0 ? "" : "/");
    return true;
}

static bool is_loopback(struct str host)
{
    static const char *const names[] = {"127.", "localhost", "[::1]"};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        if (host.length >= strlen(names[i]) && memcmp(host.data, names[i], strlen(names[i])) == 0)
            return true;
    return host.length > 10 && memcmp(host.data + host.length - 10, ".localhost", 10) == 0;
}

/* Splits "https://HOST[:PORT][/]"; *host: with the port, unless it is the scheme's own; *name: without it. */
static bool split_endpoint(const char *endpoint, struct str *host, struct str *name, bool *is_tls)
{
    *is_tls = strncmp(endpoint, "https://", 8) == 0;
    if (!*is_tls && strncmp(endpoint, "http://", 7) != 0)
        return false;
    *host = str_from(endpoint + (*is_tls ? 8 : 7));
    while (host->length > 0 && host->data[host->length - 1] == '/')
        host->length--;
    size_t end = host->length > 0 && host->data[0] == '[' ? 0 : SIZE_MAX; /* of an IPv6 address */
    for (size_t i = 0; i < host->length; i++) {
        char c = host->data[i];
        bool is_good = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       strchr("-._:[]", c) != NULL;
        if (!is_good)
            return false;
        if (c == ']')
            end = i;
    }
    size_t from = end == SIZE_MAX ? 0 : end;
    const char *colon = host->length == 0 ? NULL : memchr(host->data + from, ':', host->length - from);
    *name = colon == NULL ? *host : (struct str){host->data, (size_t)(colon - host->data)};
    if (colon != NULL && str_is((struct str){colon, host->length - name->length}, *is_tls ? ":443" : ":80"))
        *host = *name;
    return name->length > 0;
}

/* Sets base, host and root. virtual: the bucket is part of the host. */
static void set_address(struct s3 *s3, struct str host, bool is_tls, bool is_virtual)
{
    s3->host = is_virtual ? mem_printf("%s.%.*s", s3->bucket, STR_ARGS(host)) : mem_str(host);
    s3->base = mem_printf("%s://%s", is_tls ? "https" : "http", s3->host);
    s3->root = is_virtual ? mem_strdup("") : mem_printf("/%s", s3->bucket);
}

static bool read_endpoint(struct objects *objects, struct s3 *s3, struct diag_list *diags)
{
    const char *given = either("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
               *style = variable("LEAT_S3_ADDRESSING");
    char *endpoint =
        given != NULL ? mem_strdup(given) : mem_printf("https://s3.%s.amazonaws.com", s3->region);
    struct str host, name;
    bool is_tls,
        is_virtual = given == NULL && strchr(s3->bucket, '.') == NULL; /* a certificate covers no dots */
    bool ok = strlen(endpoint) <= VALUE_MAX && split_endpoint(endpoint, &host, &name, &is_tls);
    if (!ok)
        bad_environment(
            objects, diags, "AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL is no http or https address of a host",
            "write `https://store.example.com` or `http://127.0.0.1:9000`, without a path, user or password");
    if (ok && style != NULL && strcmp(style, "path") != 0 && strcmp(style, "virtual") != 0)
        ok = bad_environment(objects, diags, "LEAT_S3_ADDRESSING is neither `path` nor `virtual`",
                             "leave it out, unless the store serves only one of them");
    if (ok) {
        is_virtual = style != NULL ? strcmp(style, "virtual") == 0 : is_virtual;
        set_address(s3, host, is_tls, is_virtual);
    }
    if (ok && !is_tls && !is_loopback(name)) {
        struct diag *d =
            diag_warning(diags, DIAG_OPEN_CONNECTION, (struct span){0},
                         "`%s`: what is stored is sent unencrypted to `%.*s`", objects->url, STR_ARGS(name));
        diag_hint(diags, d, "use an https address in AWS_ENDPOINT_URL_S3");
    }
    free(endpoint);
    return ok;
}

static void begin_curl(void)
{
    leat_assert(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
}

bool s3_make(struct objects *objects, struct diag_list *diags)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct s3 *s3 = objects->store = mem_calloc(1, sizeof(*s3));
    const char *authorities = variable("AWS_CA_BUNDLE");
    pthread_once(&once, begin_curl);
    s3->curl = curl_easy_init();
    leat_assert(s3->curl != NULL);
    s3->authorities = authorities == NULL ? NULL : mem_strdup(authorities);
    return read_url(objects, s3, diags) && read_keys(objects, s3, diags) && read_region(objects, s3, diags) &&
           read_endpoint(objects, s3, diags);
}

static void free_secret(char *secret)
{
    if (secret != NULL)
        explicit_bzero(secret, strlen(secret));
    free(secret);
}

void s3_free(struct objects *objects)
{
    struct s3 *s3 = objects->store;
    if (s3 == NULL)
        return;
    curl_easy_cleanup(s3->curl);
    free_secret(s3->access);
    free_secret(s3->secret);
    free_secret(s3->token);
    free(s3->base);
    free(s3->host);
    free(s3->bucket);
    free(s3->root);
    free(s3->prefix);
    free(s3->region);
    free(s3->authorities);
    free(s3);
}
