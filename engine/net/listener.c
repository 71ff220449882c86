/* Listeners: their addresses and what is demanded of them off loopback. */
#include "core/mem.h"
#include "net/rules.h"

#include <arpa/inet.h>
#include <stdlib.h>

enum { BACKLOG = 4096, HOST_BYTES_MAX = 63 };

/* --- Addresses --- */

struct address {
    struct sockaddr_storage socket;
    struct str host; /* without brackets; part of the text */
    bool is_loopback;
};

static bool parse_address(struct str text, struct address *address)
{
    struct authority authority;
    *address = (struct address){0};
    if (!authority_parse(text, &authority) || authority.port < 0 || authority.host.length > HOST_BYTES_MAX)
        return false;
    char host[HOST_BYTES_MAX + 1];
    memcpy(host, authority.host.data, authority.host.length);
    host[authority.host.length] = '\0';
    address->host = authority.host;
    address->is_loopback = host_is_loopback(authority.host);
    bool is_local_name = host_equals(authority.host, STR("localhost"));
    if (text.data[0] == '[')
        return uv_ip6_addr(host, authority.port, (struct sockaddr_in6 *)&address->socket) == 0;
    return uv_ip4_addr(is_local_name ? "127.0.0.1" : host, authority.port,
                       (struct sockaddr_in *)&address->socket) == 0;
}

static bool check_address(struct str text, struct span span, struct address *address, struct diag_list *diags)
{
    if (parse_address(text, address))
        return true;
    struct diag *diag = diag_error(diags, DIAG_LISTEN_FAILED, span,
                                   "expected an address with a port, found `%.*s`", STR_ARGS(text));
    diag_hint(diags, diag,
              "write `127.0.0.1:8000`, `[::1]:8000`, `localhost:8000` or `0.0.0.0:8000`; port 0 "
              "takes any free one");
    return false;
}

bool net_address_check(struct str text, struct span span, struct diag_list *diags)
{
    struct address address;
    return check_address(text, span, &address, diags);
}

/* --- What is demanded --- */

static bool check_safety(const struct net_listen *listen, const struct address *address,
                         struct diag_list *diags)
{
    struct span nowhere = {0, 0};
    const char *flags = listen->flags == NULL ? "" : listen->flags;
    bool has_tls = listen->certificate != NULL;
    if (has_tls != (listen->key != NULL) || (listen->client_authority != NULL && !has_tls)) {
        struct diag *diag = diag_error(diags, DIAG_OPTION_MISSING, nowhere,
                                       "TLS needs both a certificate and its key, also to check clients");
        diag_hint(diags, diag, "--%scertificate and --%skey go together", flags, flags);
        return false;
    }
    if (address->is_loopback)
        return true;
    if (!has_tls) {
        struct diag *diag =
            diag_error(diags, DIAG_OPEN_CONNECTION, nowhere,
                       "`%.*s` can be reached by others, and the connection would not be encrypted",
                       STR_ARGS(listen->address));
        diag_hint(diags, diag,
                  "give a certificate and its key (--%scertificate, --%skey), or listen on 127.0.0.1", flags,
                  flags);
        return false;
    }
    bool has_token = listen->token != NULL && !listen->needs_certificates;
    if (!has_token && listen->client_authority == NULL) {
        struct diag *diag = diag_error(diags, DIAG_OPTION_MISSING, nowhere,
                                       "`%.*s` can be reached by others, and anybody could send requests",
                                       STR_ARGS(listen->address));
        if (listen->flags != NULL)
            diag_hint(diags, diag, "give a token (--%stoken-file), or listen on 127.0.0.1", flags);
        else
            diag_hint(diags, diag,
                      "give %san authority for clients' certificates (--clients), or listen on 127.0.0.1",
                      listen->needs_certificates ? "" : "a token (--token-file) or ");
        return false;
    }
    return true;
}

static bool check_token(const struct net_listen *listen, struct diag_list *diags)
{
    bool is_good = listen->token == NULL || listen->token[0] != '\0';
    for (const char *at = listen->token; at != NULL && *at != '\0'; at++)
        is_good &= *at > ' ' && *at < 0x7F;
    if (is_good)
        return true;
    struct diag *diag = diag_error(diags, DIAG_OPTION_TYPE, (struct span){0, 0},
                                   "the token is empty, or has bytes that a header field cannot carry");
    diag_hint(diags, diag, "expected visible ASCII without spaces");
    return false;
}

/* --- Listening --- */

static void arrived(uv_stream_t *stream, int status)
{
    struct net_listener *listener = stream->data;
    if (status == 0) {
        connection_accept(listener);
        return;
    }
    /* The process has no descriptors left: libuv has closed the connection. */
    listener->loop->counters.connections_refused++;
    loop_refused(listener->loop, listener, 0);
}

static char *copy(const char *text)
{
    return text == NULL ? NULL : mem_strdup(text);
}

static struct net_listener *listener_new(struct net_loop *loop, const struct net_listen *listen)
{
    struct net_listener *listener = mem_calloc(1, sizeof(*listener));
    listener->loop = loop;
    listener->listen = *listen;
    listener->listen.address.data = mem_str(listen->address);
    listener->listen.certificate = copy(listen->certificate);
    listener->listen.key = copy(listen->key);
    listener->listen.client_authority = copy(listen->client_authority);
    listener->listen.token = copy(listen->token);
    listener->listen.second_token = copy(listen->second_token);
    if (listen->token != NULL)
        token_digest(str_from(listen->token), listener->token_digest);
    if (listen->second_token != NULL)
        token_digest(str_from(listen->second_token), listener->second_digest);
    return listener;
}

void listener_free(struct net_listener *listener)
{
    tls_context_close(listener->tls);
    free((char *)listener->listen.address.data);
    free((char *)listener->listen.certificate);
    free((char *)listener->listen.key);
    free((char *)listener->listen.client_authority);
    free((char *)listener->listen.token);
    free((char *)listener->listen.second_token);
    free(listener);
}

void listener_close(struct net_listener *listener)
{
    if (!uv_is_closing((uv_handle_t *)&listener->tcp))
        uv_close((uv_handle_t *)&listener->tcp, NULL);
}

/* Returns the port; 0: *error is libuv's. */
static uint16_t open_socket(struct net_listener *listener, const struct address *address, int *error)
{
    uv_tcp_init(&listener->loop->uv, &listener->tcp);
    listener->tcp.data = listener;
    *error = uv_tcp_bind(&listener->tcp, (const struct sockaddr *)&address->socket, 0);
    if (*error == 0)
        *error = uv_listen((uv_stream_t *)&listener->tcp, BACKLOG, arrived);
    struct sockaddr_storage bound = {0};
    int length = sizeof(bound);
    if (*error == 0)
        *error = uv_tcp_getsockname(&listener->tcp, (struct sockaddr *)&bound, &length);
    if (*error != 0)
        return 0;
    return ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                             : ((struct sockaddr_in *)&bound)->sin_port);
}

uint16_t net_loop_listen(struct net_loop *loop, const struct net_listen *listen,
                         const struct net_service *service, void *user, struct diag_list *diags)
{
    struct span nowhere = {0, 0};
    struct address address;
    if (!check_address(listen->address, nowhere, &address, diags) || !check_safety(listen, &address, diags) ||
        !check_token(listen, diags))
        return 0;
    struct net_listener *listener = listener_new(loop, listen);
    if (listen->certificate != NULL) {
        listener->tls = tls_context_open(listen, diags);
        if (listener->tls == NULL) {
            listener_free(listener);
            return 0;
        }
    }
    parse_address(listener->listen.address, &address); /* of the copy */
    listener->host = address.host;
    listener->is_loopback = address.is_loopback;
    listener->service = service;
    listener->user = user;
    listener->next = loop->listeners;
    loop->listeners = listener;
    connections_deadlines(listener);
    int error = 0;
    uint16_t port = open_socket(listener, &address, &error);
    if (port == 0) {
        listener_close(listener);
        struct diag *diag = diag_error(diags, DIAG_LISTEN_FAILED, nowhere, "cannot listen on `%.*s`",
                                       STR_ARGS(listen->address));
        diag_errno(diags, diag, -error);
        diag_hint(
            diags, diag,
            error == UV_EADDRINUSE
                ? "another process listens there, perhaps another `leat serve` or `leat run`: stop it, or choose another "
                  "port (`listen` of the `serve` or `ui`, --ui, --listen or --control)"
                : "choose an address of this machine, and a port that this user may listen on (`listen` of the "
                  "`serve` or `ui`, --ui, --listen or --control)");
    }
    return port;
}

struct net_listen net_listen_defaults(struct str address)
{
    return (struct net_listen){.address = address,
                               .connections_max = 10000,
                               .body_bytes_max = 256 << 10,
                               .head_ms = 5000,
                               .body_ms = 10000,
                               .idle_ms = 60000,
                               .write_ms = 10000};
}
