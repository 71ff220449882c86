#include "connectors/kafka/client.h"
#include "connectors/kafka/waits.h"

#include "connectors/kafka/errors.h"
#include "connectors/kafka/properties.h"
#include "connectors/kafka/token.h"

#include "core/mem.h"
#include "core/refused.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { METADATA_ATTEMPT_MS = 1000, DESTROY_SECONDS = 3 };

#define MECHANISMS "scram_sha_256|scram_sha_512|plain|oauthbearer"

const struct option kafka_security_options[] = {
    OPTION_ENUM(struct kafka_security, protocol, "protocol", 0, "plaintext",
                "plaintext|ssl|sasl_ssl|sasl_plaintext", "protocol that the brokers' port speaks"),
    OPTION_ENUM(struct kafka_security, mechanism, "mechanism", 0, "scram_sha_512", MECHANISMS,
                "sasl: mechanism of the login"),
    OPTION_TEXT(struct kafka_security, user, "user", 0, "\"\"", "sasl: user name of the login"),
    OPTION_TEXT(struct kafka_security, password, "password", OPTION_SECRET, NULL,
                "sasl: password of the login"),
    OPTION_TEXT(
        struct kafka_security, ca, "ca", OPTION_READS, "\"\"",
        "ssl: path of the certificates of the authority that signed the brokers' certificates (PEM); by "
        "default the system's authorities"),
    OPTION_TEXT(struct kafka_security, certificate, "certificate", OPTION_READS, "\"\"",
                "ssl: path of this client's certificate (PEM), if the brokers require a client certificate"),
    OPTION_TEXT(struct kafka_security, key, "key", OPTION_READS, "\"\"",
                "ssl: path of the client certificate's private key (PEM)"),
    OPTION_TEXT(struct kafka_security, key_password, "key_password", OPTION_SECRET, NULL,
                "ssl: password of the encrypted private key"),
    OPTION_TEXT(struct kafka_security, token_file, "token_file", OPTION_READS, "\"\"",
                "oauthbearer: path of a file with a JSON web token; read again before the token expires"),
    OPTIONS_END,
};

static bool has_tls(const struct kafka_client *client)
{
    return client->security.protocol == KAFKA_SSL || client->security.protocol == KAFKA_SASL_SSL;
}

static bool has_sasl(const struct kafka_client *client)
{
    return client->security.protocol == KAFKA_SASL_SSL || client->security.protocol == KAFKA_SASL_PLAINTEXT;
}

static bool is_loopback(struct str broker)
{
    static const char *const hosts[] = {"localhost", "127.", "[::1]", "::1"};
    for (size_t i = 0; i < ARRAY_COUNT(hosts); i++)
        if (broker.length >= strlen(hosts[i]) && memcmp(broker.data, hosts[i], strlen(hosts[i])) == 0)
            return true;
    return false;
}

/* Takes the next broker from `left`, without spaces around it. Returns false if there are no more. */
static bool next_broker(struct str *left, struct str *broker)
{
    if (left->length == 0)
        return false;
    const char *comma = memchr(left->data, ',', left->length);
    size_t length = comma == NULL ? left->length : (size_t)(comma - left->data);
    *broker = (struct str){left->data, length};
    size_t taken = MIN(length + 1, left->length);
    *left = (struct str){left->data + taken, left->length - taken};
    while (broker->length > 0 && broker->data[0] == ' ')
        *broker = (struct str){broker->data + 1, broker->length - 1};
    while (broker->length > 0 && broker->data[broker->length - 1] == ' ')
        broker->length--;
    return true;
}

static bool check_brokers(const struct kafka_client *client, struct span span, struct diag_list *diags)
{
    struct str left = client->brokers, broker, open = {NULL, 0};
    uint32_t count = 0;
    while (next_broker(&left, &broker)) {
        bool is_bad = broker.length == 0 || memchr(broker.data, ' ', broker.length) != NULL ||
                      memchr(broker.data, '/', broker.length) != NULL;
        count += !is_bad;
        if (is_bad) {
            struct diag *d = diag_error(diags, DIAG_OUT_OF_RANGE, span,
                                        "`%.*s` in `brokers` is not host:port", STR_ARGS(broker));
            diag_hint(diags, d, "for example \"kafka-1:9092, kafka-2:9092\"");
            return false;
        }
        if (!is_loopback(broker))
            open = broker;
    }
    if (count == 0) {
        struct diag *d = diag_error(diags, DIAG_OUT_OF_RANGE, span, "`brokers` names no broker");
        diag_hint(diags, d, "for example \"kafka-1:9092, kafka-2:9092\"");
        return false;
    }
    if (open.length > 0 && !has_tls(client)) {
        struct diag *d = diag_warning(
            diags, DIAG_OPEN_CONNECTION, span,
            "the connection to `%.*s` is not encrypted: others on the network can read %s", STR_ARGS(open),
            has_sasl(client) ? "the records and the messages of the login" : "the records");
        diag_hint(diags, d, "say `security: { protocol: %s }`", has_sasl(client) ? "sasl_ssl" : "ssl");
    }
    return true;
}

static bool together(struct diag_list *diags, struct span span, bool is_good, const char *what,
                     const char *hint)
{
    if (is_good)
        return true;
    struct diag *d = diag_error(diags, DIAG_OPTIONS_CLASH, span, "%s", what);
    diag_hint(diags, d, "%s", hint);
    return false;
}

static bool check_security(const struct kafka_client *client, struct span span, struct diag_list *diags)
{
    const struct kafka_security *s = &client->security;
    bool has_login = s->user.length > 0 || s->password.length > 0, has_token = s->token_file.length > 0;
    bool is_by_token = s->mechanism == KAFKA_OAUTHBEARER;
    bool has_files = s->ca.length + s->certificate.length + s->key.length + s->key_password.length > 0;
    if (!together(diags, span, has_tls(client) || !has_files,
                  "`ca`, `certificate` and `key` are for connections with TLS",
                  "say `protocol: ssl` or `sasl_ssl` in `security`") ||
        !together(diags, span, (s->certificate.length > 0) == (s->key.length > 0),
                  "`certificate` and `key` belong together",
                  "give both `certificate` and `key` in `security`, or neither") ||
        !together(diags, span, s->key.length > 0 || s->key_password.length == 0,
                  "`key_password` needs a `key`", "give `certificate` and `key` as well"))
        return false;
    if (!has_sasl(client))
        return together(diags, span, !has_login && !has_token,
                        "`user`, `password` and `token_file` are for connections with SASL",
                        "say `protocol: sasl_ssl` in `security`");
    if (is_by_token)
        return together(diags, span, has_token, "oauthbearer needs a token",
                        "give `token_file: \"path\"` in `security`") &&
               together(diags, span, !has_login, "oauthbearer takes a token instead of `user` and `password`",
                        "leave `user` and `password` out");
    return together(diags, span, s->user.length > 0 && s->password.length > 0,
                    "a login with SASL needs `user` and `password`",
                    "for example `user: \"leat\", password: env(\"KAFKA_PASSWORD\")`") &&
           together(diags, span, !has_token, "`token_file` is for `mechanism: oauthbearer`",
                    "leave `token_file` out, or say `mechanism: oauthbearer`");
}

bool kafka_client_check(const struct kafka_client *client, rd_kafka_type_t type, struct span span,
                        struct diag_list *diags)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    bool is_good = check_brokers(client, span, diags);
    is_good &= check_security(client, span, diags);
    is_good &= kafka_properties_set(&client->properties, type, conf, diags);
    rd_kafka_conf_destroy(conf);
    return is_good;
}

/* --- The client --- */

/* Sets a property from a text that is not terminated; wipes its copy, which may be a secret. */
static bool set(rd_kafka_conf_t *conf, const char *name, struct str value, struct diag_list *diags)
{
    char reason[256], *text = mem_str(value);
    bool is_good = rd_kafka_conf_set(conf, name, text, reason, sizeof(reason)) == RD_KAFKA_CONF_OK;
    explicit_bzero(text, value.length);
    free(text);
    if (is_good)
        return true;
    /* librdkafka's reason may show the value. */
    bool is_secret = strstr(name, "password") != NULL;
    struct diag *d = diag_error(diags, DIAG_KAFKA_FAILED, (struct span){0, 0},
                                "librdkafka refuses the value of its setting `%s`", name);
    diag_cause(diags, d, "%s", is_secret ? "the reason is not shown, because the value is a secret" : reason);
    return false;
}

static bool set_security(const struct kafka_client *client, rd_kafka_conf_t *conf, struct diag_list *diags)
{
    static const char *const protocols[] = {"plaintext", "ssl", "sasl_ssl", "sasl_plaintext"};
    static const char *const mechanisms[] = {"SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"};
    const struct kafka_security *s = &client->security;
    const struct {
        const char *name;
        struct str value;
    } settings[] = {
        {"ssl.ca.location", s->ca},   {"ssl.certificate.location", s->certificate},
        {"ssl.key.location", s->key}, {"ssl.key.password", s->key_password},
        {"sasl.username", s->user},   {"sasl.password", s->password},
    };
    bool is_good = set(conf, "security.protocol", str_from(protocols[s->protocol]), diags);
    for (size_t i = 0; i < ARRAY_COUNT(settings); i++)
        is_good = is_good &&
                  (settings[i].value.length == 0 || set(conf, settings[i].name, settings[i].value, diags));
    if (has_tls(client)) /* explicit, whatever the library's defaults become */
        is_good = is_good && set(conf, "enable.ssl.certificate.verification", STR("true"), diags) &&
                  set(conf, "ssl.endpoint.identification.algorithm", STR("https"), diags);
    if (!has_sasl(client))
        return is_good;
    if (s->mechanism == KAFKA_OAUTHBEARER) {
        rd_kafka_conf_set_oauthbearer_token_refresh_cb(conf, kafka_token_refresh);
        rd_kafka_conf_enable_sasl_queue(conf, 1);
    }
    return is_good && set(conf, "sasl.mechanism", str_from(mechanisms[s->mechanism]), diags);
}

/* Any thread of librdkafka. */
static void on_log(const rd_kafka_t *client, int level LEAT_UNUSED, const char *facility, const char *line)
{
    struct kafka_errors *errors = client == NULL ? NULL : rd_kafka_opaque(client);
    bool is_about_settings = strcmp(facility, "CONFWARN") == 0;
    if (errors != NULL && !is_about_settings)
        kafka_errors_add(errors, line);
}

/* Called for each certificate of a broker's chain; keeps OpenSSL's verdict, and notes what is wrong. */
static int on_certificate(rd_kafka_t *client LEAT_UNUSED, const char *broker, int32_t id LEAT_UNUSED,
                          int *error, int depth LEAT_UNUSED, const char *der LEAT_UNUSED,
                          size_t bytes LEAT_UNUSED, char *reason, size_t room, void *opaque)
{
    if (*error == 0)
        return 1;
    kafka_errors_certificate(opaque, broker, *error);
    snprintf(reason, room, "OpenSSL's error %d", *error);
    return 0;
}

static void on_delivery(rd_kafka_t *client LEAT_UNUSED, const rd_kafka_message_t *message, void *opaque)
{
    const struct kafka_hooks *hooks = kafka_errors_hooks(opaque);
    hooks->delivered(hooks->argument, message);
}

static int on_statistics(rd_kafka_t *client LEAT_UNUSED, char *json, size_t bytes, void *opaque)
{
    const struct kafka_hooks *hooks = kafka_errors_hooks(opaque);
    hooks->statistics(hooks->argument, json, bytes);
    return 0; /* librdkafka frees the text */
}

/* Defaults that `properties` may change. */
static bool set_defaults(rd_kafka_conf_t *conf, rd_kafka_type_t type, struct diag_list *diags)
{
    bool is_good = set(conf, "reconnect.backoff.max.ms", STR("1000"), diags);
    if (type == RD_KAFKA_PRODUCER) /* how soon a sink notices that its topic has more partitions */
        return is_good && set(conf, "topic.metadata.refresh.interval.ms", STR("30000"), diags);
    /* Brokers tell the end of a log only in an answer without records, which they hold back this long. */
    return is_good && set(conf, "fetch.wait.max.ms", STR("100"), diags);
}

static bool set_all(rd_kafka_conf_t *conf, const struct kafka_property *properties, struct diag_list *diags)
{
    bool is_good = true;
    for (const struct kafka_property *p = properties; is_good && p != NULL && p->name != NULL; p++)
        is_good = set(conf, p->name, str_from(p->value), diags);
    return is_good;
}

static bool configure(rd_kafka_conf_t *conf, const struct kafka_client *client, rd_kafka_type_t type,
                      const struct kafka_property *fixed, const struct kafka_hooks *hooks, struct str job,
                      struct str name, struct kafka_errors *errors, struct diag_list *diags)
{
    static const struct kafka_property reads[] = {{"isolation.level", "read_committed"},
                                                  {"allow.auto.create.topics", "false"},
                                                  {"auto.offset.reset", "error"},
                                                  {"enable.auto.commit", "false"},
                                                  {"enable.auto.offset.store", "false"},
                                                  {"enable.partition.eof", "true"},
                                                  {"check.crcs", "true"},
                                                  {NULL, NULL}};
    char id[256];
    snprintf(id, sizeof(id), "leat.%.*s.%.*s", STR_ARGS(job), STR_ARGS(name));
    rd_kafka_conf_set_opaque(conf, errors);
    rd_kafka_conf_set_log_cb(conf, on_log);
    if (hooks != NULL && hooks->delivered != NULL)
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    if (hooks != NULL && hooks->statistics != NULL)
        rd_kafka_conf_set_stats_cb(conf, on_statistics);
    if (has_tls(client))
        rd_kafka_conf_set_ssl_cert_verify_cb(conf, on_certificate);
    return set_defaults(conf, type, diags) &&
           kafka_properties_set_some(&client->properties, type, conf, diags) &&
           set(conf, "bootstrap.servers", client->brokers, diags) &&
           set(conf, "client.id", str_from(id), diags) && set_security(client, conf, diags) &&
           set_all(conf, type == RD_KAFKA_CONSUMER ? reads : NULL, diags) && set_all(conf, fixed, diags);
}

/* Checked here because librdkafka reports some missing files only as "No such file or directory". */
static bool check_files(const struct kafka_client *client, struct diag_list *diags)
{
    const struct str paths[] = {client->security.ca, client->security.certificate, client->security.key,
                                client->security.token_file};
    for (size_t i = 0; i < ARRAY_COUNT(paths); i++) {
        char *path = mem_str(paths[i]);
        int error = path[0] != '\0' && access(path, R_OK) != 0 ? errno : 0;
        if (error != 0) {
            struct diag *d = diag_error(diags, DIAG_KAFKA_FAILED, (struct span){0, 0},
                                        "the file `%s` of `security` cannot be read", path);
            diag_errno(diags, d, error);
        }
        free(path);
        if (error != 0)
            return false;
    }
    return true;
}

rd_kafka_t *kafka_client_new(const struct kafka_client *client, rd_kafka_type_t type,
                             const struct kafka_property *fixed, const struct kafka_hooks *hooks,
                             struct str job, struct str name, struct kafka_errors **errors,
                             struct diag_list *diags)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_t *made = NULL;
    char reason[512] = "";
    *errors = kafka_errors_new(client, hooks);
    if (check_files(client, diags) &&
        configure(conf, client, type, fixed, hooks, job, name, *errors, diags)) {
        made = rd_kafka_new(type, conf, reason, sizeof(reason));
        if (made == NULL) {
            struct diag *d = diag_error(diags, DIAG_KAFKA_FAILED, (struct span){0, 0},
                                        "librdkafka refuses `security` or `properties`");
            diag_cause(diags, d, "%s", reason);
        }
    }
    if (made == NULL) {
        rd_kafka_conf_destroy(conf);
        kafka_errors_free(*errors);
        *errors = NULL;
        return NULL;
    }
    if (has_sasl(client) && client->security.mechanism == KAFKA_OAUTHBEARER) {
        rd_kafka_error_t *error = rd_kafka_sasl_background_callbacks_enable(made);
        leat_assert(error == NULL);
    }
    return made;
}

static void *destroy(void *client)
{
    rd_kafka_destroy(client);
    return NULL;
}

/* rd_kafka_destroy of librdkafka 2.0 never returns if the topic of a partition being read was deleted,
 * because a reference to the partition is lost. Then the client is abandoned after DESTROY_SECONDS. */
void kafka_client_free(rd_kafka_t *client, struct kafka_errors *errors)
{
    pthread_t thread;
    if (client != NULL) {
        refused_unless_begun(pthread_create(&thread, NULL, destroy, client));
        if (!kafka_waits_join(thread, DESTROY_SECONDS * US_PER_SECOND)) {
            pthread_detach(thread);
            return; /* the thread may still write to `errors` */
        }
    }
    kafka_errors_free(errors);
}

const struct rd_kafka_metadata *kafka_client_metadata(rd_kafka_t *client, struct kafka_errors *errors,
                                                      rd_kafka_topic_t *only, struct kafka_patience *patience,
                                                      struct diag_list *diags)
{
    const struct rd_kafka_metadata *metadata = NULL;
    for (;;) {
        rd_kafka_resp_err_t err =
            rd_kafka_metadata(client, only == NULL, only, &metadata, METADATA_ATTEMPT_MS);
        if (err == RD_KAFKA_RESP_ERR_NO_ERROR)
            return metadata;
        if (kafka_patience_lasts(patience, errors))
            continue;
        if (!kafka_patience_is_stopped(patience))
            kafka_errors_report(errors, err, diags, "ask the Kafka cluster for its topics");
        return NULL;
    }
}

void kafka_client_ask_leaders(rd_kafka_t *client, const char *topic)
{
    const struct rd_kafka_metadata *metadata = NULL;
    rd_kafka_topic_t *handle = rd_kafka_topic_new(client, topic, NULL);
    if (handle == NULL)
        return;
    if (rd_kafka_metadata(client, 0, handle, &metadata, METADATA_ATTEMPT_MS) == RD_KAFKA_RESP_ERR_NO_ERROR)
        rd_kafka_metadata_destroy(metadata);
    rd_kafka_topic_destroy(handle);
}

/* what: RD_KAFKA_OFFSET_BEGINNING or RD_KAFKA_OFFSET_END, which have the protocol's own values. */
static rd_kafka_resp_err_t ask_end(rd_kafka_t *client, const char *topic, int32_t partition, int64_t what,
                                   int64_t *offset, int timeout_ms)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_t *asked = rd_kafka_topic_partition_list_add(list, topic, partition);
    asked->offset = what;
    rd_kafka_resp_err_t error = rd_kafka_offsets_for_times(client, list, timeout_ms);
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR)
        error = asked->err;
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR)
        *offset = asked->offset;
    rd_kafka_topic_partition_list_destroy(list);
    return error;
}

rd_kafka_resp_err_t kafka_client_ends(rd_kafka_t *client, const char *topic, int32_t partition,
                                      int64_t *begin, int64_t *end, int timeout_ms)
{
    int64_t first;
    rd_kafka_resp_err_t error =
        ask_end(client, topic, partition, RD_KAFKA_OFFSET_BEGINNING, &first, timeout_ms);
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR)
        error = ask_end(client, topic, partition, RD_KAFKA_OFFSET_END, end, timeout_ms);
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR)
        *begin = first;
    return error;
}

/* librdkafka 2.0 cannot wake its broker threads directly; setting the same SASL credentials again does it. */
void kafka_client_nudge(rd_kafka_t *client, const struct kafka_client *options)
{
    const struct kafka_security *s = &options->security;
    char *user = mem_str(s->user.length == 0 ? STR("-") : s->user);
    char *password = mem_str(s->password.length == 0 ? STR("-") : s->password);
    rd_kafka_error_t *error = rd_kafka_sasl_set_credentials(client, user, password);
    leat_assert(error == NULL);
    explicit_bzero(password, strlen(password));
    free(user);
    free(password);
}
