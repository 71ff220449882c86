#include "net/rules.h"

#include "core/utf8.h"
#include "net/query.h"

#include <arpa/inet.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <strings.h>

static const struct broken_rule none = {0, NULL};

/* --- Method and target --- */

struct broken_rule rules_method(struct str method)
{
    static const char *const served[] = {"POST", "GET", "HEAD", "OPTIONS"};
    static const char *const known[] = {"PUT", "DELETE", "PATCH", "TRACE", "CONNECT"};
    for (size_t i = 0; i < ARRAY_COUNT(served); i++) {
        if (str_is(method, served[i]))
            return none;
    }
    for (size_t i = 0; i < ARRAY_COUNT(known); i++) {
        if (str_is(method, known[i]))
            return (struct broken_rule){405, "expected the method GET, HEAD, POST or OPTIONS"};
    }
    return (struct broken_rule){501, "the method is not known; expected GET, HEAD, POST or OPTIONS"};
}

static bool has_dots(struct str path)
{
    for (size_t begin = 0, end = 0; begin < path.length; begin = end + 1) {
        for (end = begin; end < path.length && path.data[end] != '/';)
            end++;
        if (end - begin == 2 && memcmp(path.data + begin, "..", 2) == 0)
            return true;
    }
    return false;
}

static bool is_visible(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (text[i] <= 0x20 || text[i] >= 0x7F)
            return false;
    }
    return true;
}

static bool has_control(struct str text)
{
    for (size_t i = 0; i < text.length; i++) {
        if ((unsigned char)text.data[i] < 0x20 || text.data[i] == 0x7F)
            return true;
    }
    return false;
}

/* Bytes of `http://host:port` before the path of an absolute target; 0: it is not of that authority. */
static size_t absolute_prefix(const char *target, size_t length, struct str authority)
{
    size_t scheme = length > 7 && strncasecmp(target, "http://", 7) == 0    ? 7
                    : length > 8 && strncasecmp(target, "https://", 8) == 0 ? 8
                                                                            : 0;
    size_t end = scheme;
    while (end < length && target[end] != '/' && target[end] != '?')
        end++;
    struct str named = {target + scheme, end - scheme};
    return scheme > 0 && end < length && target[end] == '/' && host_equals(named, authority) ? end : 0;
}

struct broken_rule rules_target(char *target, size_t length, struct str authority, bool is_http2,
                                struct str *path, struct str *query)
{
    if (!is_visible(target, length) || memchr(target, '#', length) != NULL)
        return (struct broken_rule){400, "the target has a byte that must be percent-encoded"};
    if (length > 0 && target[0] != '/' && !is_http2) {
        size_t prefix = absolute_prefix(target, length, authority);
        target += prefix;
        length -= prefix;
    }
    if (length == 0 || target[0] != '/')
        return (struct broken_rule){400, "expected a path that begins with `/`"};
    char *mark = memchr(target, '?', length);
    size_t path_length = mark == NULL ? length : (size_t)(mark - target);
    if (path_length > NET_PATH_BYTES_MAX)
        return (struct broken_rule){414, "the path is longer than 2048 bytes"};
    if (!query_unescape(target, &path_length))
        return (struct broken_rule){400,
                                    "a percent sign in the path is not followed by two hexadecimal digits"};
    *path = (struct str){target, path_length};
    *query = mark == NULL ? (struct str){target + length, 0}
                          : (struct str){mark + 1, length - (size_t)(mark + 1 - target)};
    if (!utf8_is_valid(*path) || has_control(*path))
        return (struct broken_rule){400, "the path is not valid UTF-8, or has control characters"};
    if (has_dots(*path))
        return (struct broken_rule){400, "the path has a segment `..`"};
    return none;
}

/* --- Host and Origin --- */

bool host_equals(struct str a, struct str b)
{
    return a.length == b.length && (a.length == 0 || strncasecmp(a.data, b.data, a.length) == 0);
}

static bool parse_port(struct str text, int *port)
{
    *port = 0;
    if (text.length == 0 || text.length > 5)
        return false;
    for (size_t i = 0; i < text.length; i++) {
        if (text.data[i] < '0' || text.data[i] > '9')
            return false;
        *port = *port * 10 + (text.data[i] - '0');
    }
    return *port <= UINT16_MAX;
}

static bool is_host_byte(char c, bool is_bracketed)
{
    bool is_alphanumeric = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    return is_alphanumeric || c == '.' || (is_bracketed ? c == ':' : c == '-' || c == '_');
}

bool authority_parse(struct str text, struct authority *authority)
{
    bool is_bracketed = text.length > 0 && text.data[0] == '[';
    size_t begin = is_bracketed, end = begin;
    while (end < text.length && is_host_byte(text.data[end], is_bracketed))
        end++;
    authority->host = (struct str){text.data + begin, end - begin};
    authority->port = -1;
    if (end == begin)
        return false;
    if (is_bracketed && (end == text.length || text.data[end++] != ']'))
        return false;
    if (end == text.length)
        return true;
    return text.data[end] == ':' &&
           parse_port((struct str){text.data + end + 1, text.length - end - 1}, &authority->port);
}

bool host_is_loopback(struct str host)
{
    if (host_equals(host, STR("localhost")))
        return true;
    char text[INET6_ADDRSTRLEN];
    if (host.length >= sizeof(text))
        return false;
    memcpy(text, host.data, host.length);
    text[host.length] = '\0';
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, text, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, text, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool origin_is_of(struct str origin, const struct authority *authority)
{
    size_t scheme = origin.length > 7 && strncasecmp(origin.data, "http://", 7) == 0    ? 7
                    : origin.length > 8 && strncasecmp(origin.data, "https://", 8) == 0 ? 8
                                                                                        : 0;
    struct authority named;
    if (scheme == 0 || !authority_parse((struct str){origin.data + scheme, origin.length - scheme}, &named))
        return false;
    int usual = scheme == 7 ? 80 : 443;
    return host_equals(named.host, authority->host) &&
           (named.port < 0 ? usual : named.port) == (authority->port < 0 ? usual : authority->port);
}

/* The client has named this server: not a name that somebody made point to it (DNS rebinding), and not a page of
 * another server. */
static struct broken_rule check_names(const struct exchange *exchange)
{
    const struct net_listener *listener = exchange->listener;
    struct authority authority = {.port = -1};
    /* HTTP/1.0 may leave Host out; browsers never do. */
    bool is_named = exchange->authority.length > 0;
    if (!is_named && exchange->public.is_http2)
        return (struct broken_rule){400, "expected `:authority` or the field `host`"};
    if (is_named && !authority_parse(exchange->authority, &authority))
        return (struct broken_rule){400, "the field `host` is not a host with or without a port"};
    if (is_named && listener->is_loopback && !host_is_loopback(authority.host) &&
        !host_equals(authority.host, listener->host))
        return (struct broken_rule){421,
                                    "this server listens on loopback alone: expected `host` to be localhost, "
                                    "127.0.0.1 or [::1]"};
    for (uint32_t i = 0; i < exchange->public.fields_count; i++) {
        const struct net_field *field = &exchange->public.fields[i];
        if (str_is(field->name, "origin") && !(is_named && origin_is_of(field->value, &authority)))
            return (struct broken_rule){403, "the request comes from a page of another origin"};
    }
    return none;
}

/* --- Token --- */

void token_digest(struct str token, uint8_t digest[32])
{
    SHA256((const unsigned char *)token.data, token.length, digest);
}

bool authorization_is_good(struct str value, const uint8_t digest[32])
{
    static const struct str scheme = {"bearer ", 7};
    if (value.length <= scheme.length || strncasecmp(value.data, scheme.data, scheme.length) != 0)
        return false;
    size_t begin = scheme.length;
    while (begin < value.length && value.data[begin] == ' ')
        begin++;
    uint8_t given[32];
    token_digest((struct str){value.data + begin, value.length - begin}, given);
    return CRYPTO_memcmp(given, digest, sizeof(given)) == 0;
}

/* Whether there is one field `authorization`, with the token of that digest. */
static bool sends(const struct net_exchange *exchange, const uint8_t digest[32])
{
    uint32_t found = 0, good = 0;
    for (uint32_t i = 0; i < exchange->fields_count; i++)
        if (str_is(exchange->fields[i].name, "authorization")) {
            found++;
            good += authorization_is_good(exchange->fields[i].value, digest);
        }
    return found == 1 && good == 1;
}

bool net_sends_token(const struct net_exchange *exchange, const char *token)
{
    uint8_t digest[32];
    token_digest(str_from(token), digest);
    return sends(exchange, digest);
}

static bool has_token(const struct exchange *exchange)
{
    const struct net_listener *listener = exchange->listener;
    bool is_first = sends(&exchange->public, listener->token_digest);
    bool is_second =
        listener->listen.second_token != NULL && sends(&exchange->public, listener->second_digest);
    return is_first || is_second;
}

/* Whether the request may come without the token: GET or HEAD of one of the listener's open paths. */
static bool is_open(const struct exchange *exchange)
{
    const struct net_exchange *public = &exchange->public;
    const char *const *path = exchange->listener->listen.open_paths;
    if (path == NULL || !(str_is(public->method, "GET") || str_is(public->method, "HEAD")))
        return false;
    while (*path != NULL && !str_is(public->path, *path))
        path++;
    return *path != NULL;
}

/* --- All --- */

struct broken_rule rules_check(struct exchange *exchange, int64_t content_length)
{
    struct net_exchange *public = &exchange->public;
    const struct net_listen *listen = &exchange->listener->listen;
    struct broken_rule broken = rules_method(public->method);
    if (broken.status != 0)
        return broken;
    /* The target is in the exchange's own buffer. */
    char *target = exchange->head.data + (exchange->target.data - exchange->head.data);
    broken = rules_target(target, exchange->target.length, exchange->authority, public->is_http2,
                          &public->path, &public->query);
    if (broken.status != 0)
        return broken;
    broken = check_names(exchange);
    if (broken.status != 0)
        return broken;
    if (listen->token != NULL && !has_token(exchange) && !is_open(exchange))
        return (struct broken_rule){
            401, "expected the field `authorization: Bearer TOKEN` with this server's token"};
    if (content_length > (int64_t)listen->body_bytes_max)
        return (struct broken_rule){413, "the body is longer than this server allows"};
    /* A sixteenth more is for requests without a body: whether a server is alive can be asked while it is full. */
    uint64_t most = exchange->loop->memory_max + (content_length > 0 ? 0 : exchange->loop->memory_max / 16);
    if (exchange->loop->counters.memory_now + (uint64_t)MAX(content_length, 0) > most)
        return (struct broken_rule){503, "this server has no memory left for more requests; try again"};
    return none;
}
