/* The client: its options and endpoints. */
#include "cluster/etcd.h"

#include "cluster/etcd_internal.h"
#include "core/mem.h"
#include "net/rules.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

enum { REQUEST_US = 5000000, HOST_BYTES_MAX = 253 };

static void begin_curl(void)
{
    leat_assert(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
}

static bool refuse(struct diag_list *diags, enum diag_code code, const char *hint, const char *format, ...)
    LEAT_PRINTF(4, 5);
static bool refuse(struct diag_list *diags, enum diag_code code, const char *hint, const char *format, ...)
{
    va_list arguments;
    char text[600];
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    struct diag *d = diag_error(diags, code, (struct span){0}, "%s", text);
    diag_hint(diags, d, "%s", hint);
    return false;
}

/* --- Endpoints --- */

/* *open: an endpoint beyond loopback, or left as it is. */
static bool add_endpoint(struct etcd *etcd, struct str text, struct str *open, struct diag_list *diags)
{
    static const char hint[] = "write `etcd-1:2379,etcd-2:2379`, or `[fd00::1]:2379`";
    struct authority authority;
    if (!authority_parse(text, &authority) || authority.port == 0 || authority.host.length > HOST_BYTES_MAX)
        return refuse(diags, DIAG_COORDINATION_FAILED, hint,
                      "etcd's endpoints: expected HOST:PORT, found `%.*s`", (int)MIN(text.length, (size_t)80),
                      text.data);
    if (etcd->endpoints_count == ETCD_ENDPOINTS_MAX)
        return refuse(diags, DIAG_COORDINATION_FAILED, "name some of the members; one that answers is enough",
                      "etcd's endpoints: expected at most %d, found more", ETCD_ENDPOINTS_MAX);
    if (!host_is_loopback(authority.host))
        *open = text;
    bool is_v6 = memchr(authority.host.data, ':', authority.host.length) != NULL;
    etcd->endpoints[etcd->endpoints_count++] =
        mem_printf("%s%.*s%s:%d", is_v6 ? "[" : "", STR_ARGS(authority.host), is_v6 ? "]" : "",
                   authority.port < 0 ? ETCD_PORT : authority.port);
    return true;
}

static bool add_endpoints(struct etcd *etcd, struct str text, struct str *open, struct diag_list *diags)
{
    for (size_t begin = 0; begin <= text.length;) {
        size_t end = begin;
        while (end < text.length && text.data[end] != ',')
            end++;
        if (!add_endpoint(etcd, (struct str){text.data + begin, end - begin}, open, diags))
            return false;
        begin = end + 1;
    }
    return true;
}

/* --- Options --- */

static bool check_file(const char *what, const char *path, struct diag_list *diags)
{
    if (path == NULL || access(path, R_OK) == 0)
        return true;
    return refuse(diags, DIAG_COORDINATION_FAILED, "give the path of a PEM file that leat may read",
                  "etcd's %s `%.200s` cannot be read", what, path);
}

static bool check_options(const struct etcd_options *options, struct str open, struct diag_list *diags)
{
    if ((options->user == NULL) != (options->password == NULL))
        return refuse(diags, DIAG_COORDINATION_FAILED, "give both, or neither",
                      "etcd's user and password: expected both, found one");
    if ((options->certificate == NULL) != (options->key == NULL))
        return refuse(diags, DIAG_COORDINATION_FAILED, "give both, or neither",
                      "etcd's client certificate and key: expected both, found one");
    if (options->certificate != NULL && options->authority == NULL)
        return refuse(diags, DIAG_COORDINATION_FAILED, "give the authority of etcd's certificates, too",
                      "a client certificate for etcd: expected TLS, found no authority");
    if (!check_file("authority", options->authority, diags) ||
        !check_file("client certificate", options->certificate, diags) ||
        !check_file("key", options->key, diags))
        return false;
    if (options->authority == NULL && open.length > 0) {
        struct diag *d = diag_warning(
            diags, DIAG_OPEN_CONNECTION, (struct span){0},
            "the connection to etcd at `%.*s` is not encrypted: others on the network can read %s",
            STR_ARGS(open),
            options->user != NULL ? "the password, and what authenticates the workers"
                                  : "what authenticates the workers");
        diag_hint(diags, d, "give the authority of etcd's certificates; or is this network private?");
    }
    return true;
}

static char *copy(const char *text)
{
    return text == NULL ? NULL : mem_strdup(text);
}

struct etcd *etcd_open(const struct etcd_options *options, struct diag_list *diags)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct etcd *etcd = mem_calloc(1, sizeof(*etcd));
    struct str open = {0};
    if (!add_endpoints(etcd, options->endpoints, &open, diags) || !check_options(options, open, diags)) {
        etcd_close(etcd);
        return NULL;
    }
    pthread_once(&once, begin_curl);
    etcd->authority = copy(options->authority);
    etcd->certificate = copy(options->certificate);
    etcd->key = copy(options->key);
    etcd->user = copy(options->user);
    etcd->password = copy(options->password);
    etcd->request_us = options->request_us > 0 ? options->request_us : REQUEST_US;
    etcd->curl = curl_easy_init();
    leat_assert(etcd->curl != NULL);
    return etcd;
}

static void free_secret(char *text)
{
    if (text != NULL)
        explicit_bzero(text, strlen(text));
    free(text);
}

void etcd_close(struct etcd *etcd)
{
    if (etcd == NULL)
        return;
    if (etcd->curl != NULL)
        curl_easy_cleanup(etcd->curl);
    for (uint32_t i = 0; i < etcd->endpoints_count; i++)
        free(etcd->endpoints[i]);
    free(etcd->authority);
    free(etcd->certificate);
    free(etcd->key);
    free(etcd->user);
    free_secret(etcd->password);
    free_secret(etcd->token);
    free(etcd);
}

void etcd_stop(struct etcd *etcd)
{
    atomic_store(&etcd->must_stop, true);
}

bool etcd_is_stopped(const struct etcd *etcd)
{
    return atomic_load(&etcd->must_stop);
}

void etcd_set_deadline(struct etcd *etcd, int64_t request_us)
{
    etcd->request_us = request_us;
}

const char *etcd_endpoint(const struct etcd *etcd)
{
    return etcd->endpoints[etcd->current];
}
