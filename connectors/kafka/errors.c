#include "connectors/kafka/errors.h"

#include "core/mem.h"
#include "core/os.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Why the brokers cannot be used, the least informative reason first. A failure is explained by the most
 * informative of the recent messages: after one broker has said that the password is wrong, librdkafka may
 * still say that other brokers are down, and "all brokers are down" follows any error. */
enum reason {
    REASON_OTHER,
    REASON_TIMEOUT,
    REASON_REFUSED,
    REASON_UNKNOWN_HOST,
    REASON_CLOSED,
    REASON_LOGIN,
    REASON_PROTOCOL,
    REASON_TLS,
    REASON_MECHANISM,
    REASON_OUR_CERTIFICATE,
    REASON_UNTRUSTED,
    REASON_HOST_NAME,
    REASON_EXPIRED,
    REASON_TOKEN,
    REASON_PASSWORD,
    REASONS,
};

enum { REASON_ROOM = 400, BROKER_ROOM = 128, RECENT_US = 60 * 1000000 };

/* The last message with one reason. */
struct told {
    char text[REASON_ROOM];
    int64_t at_us; /* monotonic time of the message; 0: never */
};

struct kafka_errors {
    const struct kafka_client *client;
    struct kafka_hooks hooks;
    pthread_mutex_t mutex;
    struct told told[REASONS]; /* guarded by the mutex */
};

/* The hint for each reason. */
static const char *const hints[REASONS] = {
    [REASON_OTHER] = "check `brokers` and `security`",
    [REASON_TIMEOUT] = "check that this machine can reach the host, and that no firewall is between them",
    [REASON_REFUSED] = "start the broker, or correct `brokers`",
    [REASON_UNKNOWN_HOST] = ("correct `brokers`; this machine must also know the host that the broker "
                             "announces (its advertised.listeners)"),
    [REASON_CLOSED] =
        "give the broker time to start (`patience`), or set `protocol` in `security` to that of the broker's "
        "listener at this port",
    [REASON_LOGIN] = "check the network; with SCRAM, install librdkafka 2.6.1 or newer",
    [REASON_PROTOCOL] = "`protocol` in `security` must be that of the broker's listener at this port",
    [REASON_TLS] =
        "check `ca` in `security`: it names the file of the authority that signed the broker's certificate",
    [REASON_MECHANISM] = "`mechanism` in `security` must be one that the broker offers",
    [REASON_OUR_CERTIFICATE] =
        "`certificate` and `key` in `security` must be a pair that the broker's authority has signed",
    [REASON_UNTRUSTED] =
        "`ca` in `security` must name the file of the authority that signed the broker's certificate",
    [REASON_HOST_NAME] =
        "write the broker's name in `brokers` as in its certificate, or give the broker a certificate for "
        "this name",
    [REASON_EXPIRED] = "give the broker a new certificate; or correct this machine's clock",
    [REASON_TOKEN] = "`token_file` in `security` must name a file with a JSON web token that has not expired",
    [REASON_PASSWORD] = "correct `user` and `password` in `security`",
};

/* Texts searched for in a log line; the first match counts. says: leat's message, which the log line follows
 * in brackets; NULL: the log line alone. */
static const struct {
    const char *part;
    enum reason reason;
    const char *says;
} patterns[] = {
    {"OAUTHBEARER config", REASON_TOKEN, NULL},
    {"SaslAuthenticateRequest failed: Local:", REASON_LOGIN,
     "the connection ends during the login: the network fails, or the broker runs Kafka 4, which refuses "
     "SCRAM from librdkafka before 2.6.1"},
    {"Authentication failed", REASON_PASSWORD, "the user or the password is wrong"},
    {"SASL authentication error", REASON_PASSWORD, "the user or the password is wrong"},
    {"mechanism handshake failed", REASON_MECHANISM, "the broker does not offer this mechanism"},
    {"alert certificate", REASON_OUR_CERTIFICATE,
     "the broker does not accept this client's certificate, or requires a certificate"},
    {"alert bad certificate", REASON_OUR_CERTIFICATE, "the broker does not accept this client's certificate"},
    {"alert unknown ca", REASON_OUR_CERTIFICATE,
     "the broker does not know the authority that signed this client's certificate"},
    {"client SSL authentication might be required", REASON_OUR_CERTIFICATE,
     "the broker requires a client certificate"},
    {"certificate verify failed", REASON_TLS, "the broker's certificate cannot be verified"},
    {"Disconnected while requesting ApiVersion", REASON_CLOSED,
     "the broker ends the connection at once: it is starting, or does not speak this protocol"},
    {"ApiVersionRequest failed: Local: Timed out", REASON_TIMEOUT,
     "the broker accepts connections but does not answer: it is starting, or it hangs"},
    {"wrong version number", REASON_PROTOCOL, "the broker does not speak TLS at this port"},
    {"connecting to a PLAINTEXT", REASON_CLOSED,
     "the broker ends the connection at once: it is starting, or does not speak TLS at this port"},
    {"unexpected eof while reading", REASON_CLOSED,
     "the broker ends the connection at once: it is starting, or does not speak TLS at this port"},
    {"security.protocol", REASON_CLOSED,
     "the broker ends the connection at once: it is starting, or does not speak this protocol"},
    {"SSL handshake failed", REASON_TLS, "the TLS handshake failed"},
    {"Failed to resolve", REASON_UNKNOWN_HOST, "no such host is known"},
    {"Connection refused", REASON_REFUSED, "no process listens at this port"},
    {"timed out", REASON_TIMEOUT, "no answer in time"},
    {"Timed out", REASON_TIMEOUT, "no answer in time"},
};

struct kafka_errors *kafka_errors_new(const struct kafka_client *client, const struct kafka_hooks *hooks)
{
    struct kafka_errors *errors = mem_calloc(1, sizeof(*errors));
    errors->client = client;
    if (hooks != NULL)
        errors->hooks = *hooks;
    pthread_mutex_init(&errors->mutex, NULL);
    return errors;
}

void kafka_errors_free(struct kafka_errors *errors)
{
    if (errors == NULL)
        return;
    pthread_mutex_destroy(&errors->mutex);
    free(errors);
}

const struct kafka_hooks *kafka_errors_hooks(const struct kafka_errors *errors)
{
    return &errors->hooks;
}

const struct kafka_client *kafka_errors_client(const struct kafka_errors *errors)
{
    return errors->client;
}

static void keep(struct kafka_errors *errors, enum reason reason, const char *text)
{
    pthread_mutex_lock(&errors->mutex);
    struct told *told = &errors->told[reason];
    snprintf(told->text, sizeof(told->text), "%s", text);
    told->at_us = os_monotonic_us();
    pthread_mutex_unlock(&errors->mutex);
}

/* librdkafka does not print secrets; if a log line ever shows one, the line is dropped. */
static bool shows_a_secret(const struct kafka_errors *errors, const char *line)
{
    const struct kafka_security *security = &errors->client->security;
    const struct str secrets[] = {security->password, security->key_password};
    for (size_t i = 0; i < ARRAY_COUNT(secrets); i++)
        if (secrets[i].length >= 4 && memmem(line, strlen(line), secrets[i].data, secrets[i].length) != NULL)
            return true;
    return false;
}

/* Splits a log line `[thrd:NAME]: sasl_ssl://host:9093/bootstrap: TEXT`: copies host:port to `broker` (empty:
 * the line names no broker) and returns TEXT. */
static const char *split_line(const char *line, char broker[BROKER_ROOM])
{
    broker[0] = '\0';
    if (strncmp(line, "[thrd:", 6) == 0) {
        const char *end = strstr(line, "]: ");
        line = end == NULL ? line : end + 3;
    }
    const char *end = strstr(line, ": ");
    const char *scheme = strstr(line, "://");
    const char *begin = scheme != NULL && (end == NULL || scheme < end) ? scheme + 3 : line;
    const char *name_end = begin + strcspn(begin, "/ ");
    bool is_broker = end != NULL && name_end <= end && memchr(begin, ':', (size_t)(name_end - begin)) != NULL;
    if (!is_broker)
        return line;
    if (name_end[-1] == ':')
        name_end--;
    snprintf(broker, BROKER_ROOM, "%.*s", (int)MIN(name_end - begin, BROKER_ROOM - 1), begin);
    return end + 2;
}

void kafka_errors_add(struct kafka_errors *errors, const char *line)
{
    char broker[BROKER_ROOM], text[REASON_ROOM];
    if (shows_a_secret(errors, line))
        return;
    const char *what = split_line(line, broker);
    for (size_t i = 0; i < ARRAY_COUNT(patterns); i++) {
        if (strstr(what, patterns[i].part) == NULL)
            continue;
        if (patterns[i].says == NULL)
            snprintf(text, sizeof(text), "%s", what);
        else
            snprintf(text, sizeof(text), "%s%s%s (%s)", broker, broker[0] == '\0' ? "" : ": ",
                     patterns[i].says, what);
        keep(errors, patterns[i].reason, text);
        return;
    }
    snprintf(text, sizeof(text), "%s%s%s", broker, broker[0] == '\0' ? "" : ": ", what);
    keep(errors, REASON_OTHER, text);
}

void kafka_errors_certificate(struct kafka_errors *errors, const char *broker, int code)
{
    /* From x509_vfy.h; these numbers are part of OpenSSL's interface. */
    enum { NOT_YET_VALID = 9, HAS_EXPIRED = 10, HOSTNAME_MISMATCH = 62, IP_MISMATCH = 64 };
    char name[BROKER_ROOM], line[REASON_ROOM], text[REASON_ROOM];
    snprintf(line, sizeof(line), "%s: ", broker);
    split_line(line, name);
    bool is_of_other_host = code == HOSTNAME_MISMATCH || code == IP_MISMATCH;
    bool is_out_of_date = code == HAS_EXPIRED || code == NOT_YET_VALID;
    snprintf(text, sizeof(text), "%s: the broker's certificate %s (OpenSSL's error %d)",
             name[0] == '\0' ? broker : name,
             is_of_other_host        ? "is for another host name"
             : code == HAS_EXPIRED   ? "has expired"
             : code == NOT_YET_VALID ? "is not valid yet"
                                     : "is not signed by a trusted authority",
             code);
    keep(errors,
         is_of_other_host ? REASON_HOST_NAME
         : is_out_of_date ? REASON_EXPIRED
                          : REASON_UNTRUSTED,
         text);
}

void kafka_errors_token(struct kafka_errors *errors, const char *why)
{
    keep(errors, REASON_TOKEN, why);
}

/* The most informative reason of the last minute; if that minute has none, the newest reason; REASONS: none
 * yet. Call under the mutex. */
static enum reason most_telling(const struct kafka_errors *errors)
{
    int64_t now = os_monotonic_us();
    enum reason newest = REASONS;
    for (int i = REASONS - 1; i >= 0; i--) {
        const struct told *told = &errors->told[i];
        if (told->at_us != 0 && now - told->at_us < RECENT_US)
            return (enum reason)i;
        if (told->at_us != 0 && (newest == REASONS || told->at_us > errors->told[newest].at_us))
            newest = (enum reason)i;
    }
    return newest;
}

size_t kafka_errors_why(struct kafka_errors *errors, char *out, size_t room)
{
    leat_assert(room > 0);
    pthread_mutex_lock(&errors->mutex);
    enum reason reason = most_telling(errors);
    snprintf(out, room, "%s", reason == REASONS ? "" : errors->told[reason].text);
    pthread_mutex_unlock(&errors->mutex);
    return strlen(out);
}

bool kafka_errors_are_final(struct kafka_errors *errors)
{
    pthread_mutex_lock(&errors->mutex);
    enum reason reason = most_telling(errors);
    bool is_sure = reason != REASON_PROTOCOL || !atomic_load(&errors->client->was_well);
    pthread_mutex_unlock(&errors->mutex);
    return reason != REASONS && reason >= REASON_PROTOCOL && is_sure;
}

/* Whether the client logs in by SCRAM with a librdkafka before 2.6.1, which repeats the client's nonce: Kafka
 * 4 rejects such logins (librdkafka's pull request 4895). */
static bool has_old_scram(const struct kafka_client *client)
{
    enum { FIRST_GOOD = 0x02060100 };
    int mechanism = client->security.mechanism;
    return (mechanism == KAFKA_SCRAM_SHA_256 || mechanism == KAFKA_SCRAM_SHA_512) &&
           rd_kafka_version() < FIRST_GOOD;
}

void kafka_errors_report(struct kafka_errors *errors, rd_kafka_resp_err_t err, struct diag_list *diags,
                         const char *format, ...)
{
    char what[REASON_ROOM], why[REASON_ROOM];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&errors->mutex);
    enum reason reason = most_telling(errors);
    snprintf(why, sizeof(why), "%s", reason == REASONS ? rd_kafka_err2str(err) : errors->told[reason].text);
    pthread_mutex_unlock(&errors->mutex);
    struct diag *d = diag_error(diags, DIAG_KAFKA_FAILED, (struct span){0, 0}, "cannot %s: %s", what, why);
    if (reason == REASON_PASSWORD && has_old_scram(errors->client))
        diag_hint(
            diags, d,
            "correct `user` and `password` in `security`; if they are right, install a newer librdkafka: "
            "Kafka 4 refuses SCRAM from librdkafka before 2.6.1, and this one is %s",
            rd_kafka_version_str());
    else
        diag_hint(diags, d, "%s", hints[reason == REASONS ? REASON_OTHER : reason]);
}
