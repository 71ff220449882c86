/* Addresses of workers: "HOST:PORT". */
#include "cluster/link_address.h"
#include "core/option.h"

#include <netdb.h>
#include <stdio.h>

static bool refuse(struct diag_list *diags, const char *text, const char *reason, const char *cause)
{
    char shown[LINK_ADDRESS_MAX + 1];
    snprintf(shown, sizeof(shown), "%s", text);
    struct diag *d = diag_error(diags, DIAG_LINK_FAILED, (struct span){0},
                                "`%s` is no address of a worker: %s", shown, reason);
    if (cause != NULL)
        diag_cause(diags, d, "%s", cause);
    diag_hint(
        diags, d,
        "an address is HOST:PORT, for example 10.0.0.7:7400: an IPv4 address of one machine or a name, and a port up to 65535");
    return false;
}

bool link_address_parse(const char *text, bool may_be_any, struct sockaddr_in *address,
                        struct diag_list *diags)
{
    char host[LINK_ADDRESS_MAX + 1];
    size_t length = strnlen(text, LINK_ADDRESS_MAX + 1);
    if (length > LINK_ADDRESS_MAX)
        return refuse(diags, text, "it is too long", NULL);
    const char *colon = memchr(text, ':', length);
    if (colon == NULL || colon == text || strchr(colon + 1, ':') != NULL)
        return refuse(diags, text, "it is not one host, a colon, and a port", NULL);
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = '\0';
    int64_t port;
    if (!literal_int(str_from(colon + 1), &port) || port < (may_be_any ? 0 : 1) || port > UINT16_MAX)
        return refuse(diags, text, "the port is none", NULL);
    struct addrinfo wanted = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
    int error = getaddrinfo(host, NULL, &wanted, &found);
    if (error != 0)
        return refuse(diags, text, "the host cannot be resolved", gai_strerror(error));
    memcpy(address, found->ai_addr, sizeof(*address));
    freeaddrinfo(found);
    address->sin_port = htons((uint16_t)port);
    if (!may_be_any && address->sin_addr.s_addr == INADDR_ANY)
        return refuse(diags, text, "it stands for all interfaces of the machine", NULL);
    return true;
}
