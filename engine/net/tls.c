#include "net/tls.h"

#include "core/mem.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>

enum { SLICE_BYTES = 16 << 10 /* a record of TLS */ };

struct tls_context {
    SSL_CTX *ssl;
};

struct tls {
    SSL *ssl;
    BIO *in, *out;
};

/* --- The listener's --- */

static int choose_protocol(SSL *ssl, const unsigned char **chosen, unsigned char *length,
                           const unsigned char *offered, unsigned offered_length, void *unused)
{
    (void)ssl;
    (void)unused;
    static const unsigned char ours[] = "\x02h2\x08http/1.1";
    unsigned char *found = NULL;
    int result = SSL_select_next_proto(&found, length, ours, sizeof(ours) - 1, offered, offered_length);
    *chosen = found;
    return result == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

static const char *reason(void)
{
    unsigned long error = ERR_peek_last_error();
    const char *text = ERR_reason_error_string(error);
    return text != NULL ? text : "unknown error of OpenSSL";
}

static bool refuse_file(const char *what, const char *path, struct diag_list *diags)
{
    struct diag *diag =
        diag_error(diags, DIAG_FILE_UNREADABLE, (struct span){0, 0}, "cannot use %s `%s`", what, path);
    diag_cause(diags, diag, "%s", reason());
    diag_hint(diags, diag, "expected a file in PEM form");
    return false;
}

static bool load_files(SSL_CTX *ssl, const struct net_listen *listen, struct diag_list *diags)
{
    ERR_clear_error();
    if (SSL_CTX_use_certificate_chain_file(ssl, listen->certificate) != 1)
        return refuse_file("the certificate", listen->certificate, diags);
    if (SSL_CTX_use_PrivateKey_file(ssl, listen->key, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(ssl) != 1)
        return refuse_file("the key", listen->key, diags);
    if (listen->client_authority == NULL)
        return true;
    STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(listen->client_authority);
    if (names == NULL || SSL_CTX_load_verify_file(ssl, listen->client_authority) != 1) {
        sk_X509_NAME_pop_free(names, X509_NAME_free);
        return refuse_file("the authority of clients", listen->client_authority, diags);
    }
    SSL_CTX_set_client_CA_list(ssl, names);
    SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return true;
}

struct tls_context *tls_context_open(const struct net_listen *listen, struct diag_list *diags)
{
    SSL_CTX *ssl = SSL_CTX_new(TLS_server_method());
    leat_assert(ssl != NULL);
    struct tls_context *context = mem_alloc(sizeof(*context));
    context->ssl = ssl;
    SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION);
    /* No resumption: each connection shows its certificate. */
    SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_num_tickets(ssl, 0);
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_alpn_select_cb(ssl, choose_protocol, NULL);
    if (load_files(ssl, listen, diags))
        return context;
    tls_context_close(context);
    return NULL;
}

void tls_context_close(struct tls_context *context)
{
    if (context == NULL)
        return;
    SSL_CTX_free(context->ssl);
    free(context);
}

/* --- A connection's --- */

struct tls *tls_open(struct tls_context *context)
{
    struct tls *tls = mem_alloc(sizeof(*tls));
    *tls = (struct tls){SSL_new(context->ssl), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem())};
    leat_assert(tls->ssl != NULL && tls->in != NULL && tls->out != NULL);
    BIO_set_mem_eof_return(tls->in, -1);
    BIO_set_mem_eof_return(tls->out, -1);
    SSL_set_bio(tls->ssl, tls->in, tls->out);
    SSL_set_accept_state(tls->ssl);
    return tls;
}

void tls_close(struct tls *tls)
{
    if (tls == NULL)
        return;
    SSL_free(tls->ssl);
    free(tls);
}

void tls_put(struct tls *tls, const char *bytes, size_t count)
{
    int put = BIO_write(tls->in, bytes, (int)count);
    leat_assert(put == (int)count);
}

static enum tls_state state_of(struct tls *tls, int result)
{
    int error = SSL_get_error(tls->ssl, result);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
        return TLS_WANTS_BYTES;
    return error == SSL_ERROR_ZERO_RETURN ? TLS_ENDED : TLS_FAILED;
}

enum tls_state tls_handshake(struct tls *tls)
{
    if (SSL_is_init_finished(tls->ssl))
        return TLS_DONE;
    ERR_clear_error();
    int result = SSL_do_handshake(tls->ssl);
    return result == 1 ? TLS_DONE : state_of(tls, result);
}

bool tls_is_http2(const struct tls *tls)
{
    const unsigned char *name = NULL;
    unsigned length = 0;
    SSL_get0_alpn_selected(tls->ssl, &name, &length);
    return length == 2 && memcmp(name, "h2", 2) == 0;
}

enum tls_state tls_read(struct tls *tls, char *plain, size_t room, size_t *got)
{
    ERR_clear_error();
    int result = SSL_read_ex(tls->ssl, plain, room, got);
    if (result == 1)
        return TLS_DONE;
    *got = 0;
    return state_of(tls, result);
}

static void take_out(struct tls *tls, struct byte_buffer *out)
{
    char *bytes = NULL;
    long count = BIO_get_mem_data(tls->out, &bytes);
    if (count <= 0)
        return;
    buffer_append(out, bytes, (size_t)count);
    (void)BIO_reset(tls->out);
}

bool tls_write(struct tls *tls, struct str plain, struct byte_buffer *out)
{
    ERR_clear_error();
    /* In slices: OpenSSL's own buffer keeps the memory that it once had. */
    for (size_t at = 0, written = 0; at < plain.length; at += written) {
        if (SSL_write_ex(tls->ssl, plain.data + at, MIN(plain.length - at, SLICE_BYTES), &written) != 1)
            return false;
        take_out(tls, out);
    }
    take_out(tls, out);
    return true;
}

void tls_end(struct tls *tls)
{
    ERR_clear_error();
    if (SSL_is_init_finished(tls->ssl))
        SSL_shutdown(tls->ssl);
    ERR_clear_error();
}
