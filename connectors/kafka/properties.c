#include "connectors/kafka/properties.h"

#include <stdio.h>

/* An allow-list, because other settings of librdkafka run programs, load libraries, fetch addresses or read
 * files (as in CVE-2023-25194 of another program), and because a job must not change the settings that make
 * leat exact. */
enum { FOR_SOURCES = 1, FOR_SINKS = 2, FOR_BOTH = 3 };

static const struct {
    const char *name;
    int who;
} allowed[] = {
    {"api.version.request.timeout.ms", FOR_BOTH},
    {"broker.address.family", FOR_BOTH},
    {"broker.address.ttl", FOR_BOTH},
    {"client.rack", FOR_BOTH},
    {"connections.max.idle.ms", FOR_BOTH},
    {"metadata.max.age.ms", FOR_BOTH},
    {"receive.message.max.bytes", FOR_BOTH},
    {"reconnect.backoff.max.ms", FOR_BOTH},
    {"reconnect.backoff.ms", FOR_BOTH},
    {"socket.connection.setup.timeout.ms", FOR_BOTH},
    {"socket.keepalive.enable", FOR_BOTH},
    {"socket.max.fails", FOR_BOTH},
    {"socket.nagle.disable", FOR_BOTH},
    {"socket.receive.buffer.bytes", FOR_BOTH},
    {"socket.send.buffer.bytes", FOR_BOTH},
    {"socket.timeout.ms", FOR_BOTH},
    {"ssl.cipher.suites", FOR_BOTH},
    {"ssl.curves.list", FOR_BOTH},
    {"ssl.sigalgs.list", FOR_BOTH},
    {"topic.metadata.propagation.max.ms", FOR_BOTH},
    {"topic.metadata.refresh.interval.ms", FOR_BOTH},
    {"fetch.error.backoff.ms", FOR_SOURCES},
    {"fetch.max.bytes", FOR_SOURCES},
    {"fetch.min.bytes", FOR_SOURCES},
    {"fetch.wait.max.ms", FOR_SOURCES},
    {"batch.num.messages", FOR_SINKS},
    {"batch.size", FOR_SINKS},
    {"compression.level", FOR_SINKS},
    {"linger.ms", FOR_SINKS},
    {"message.max.bytes", FOR_SINKS},
    {"request.timeout.ms", FOR_SINKS},
    {"retry.backoff.ms", FOR_SINKS},
    {"sticky.partitioning.linger.ms", FOR_SINKS},
};

enum { NAME_ROOM = 64, VALUE_ROOM = 256 };

static bool refuse_name(const struct assignment *property, const char *name, int who, struct diag_list *diags)
{
    const char *names[ARRAY_COUNT(allowed)];
    size_t count = 0;
    for (size_t i = 0; i < ARRAY_COUNT(allowed); i++) {
        if (strcmp(allowed[i].name, name) == 0) {
            struct diag *d =
                diag_error(diags, DIAG_NO_OPTION, property->name_span, "the property `%s` is only for %s",
                           name, who == FOR_SINKS ? "sources" : "sinks");
            diag_hint(diags, d, "leave it out");
            return false;
        }
        if ((allowed[i].who & who) != 0)
            names[count++] = allowed[i].name;
    }
    struct diag *d = diag_error(diags, DIAG_NO_OPTION, property->name_span,
                                "the property `%s` cannot be set in a job", name);
    const char *near = diag_nearest(str_from(name), names, count);
    if (near != NULL)
        diag_hint(diags, d, "did you mean `%s`?", near);
    else
        diag_hint(
            diags, d,
            "`properties` accepts only properties that cannot change the records read or written, run a "
            "program or load a file, for example `socket_timeout_ms`; see the options for other settings");
    return false;
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* Writes the literal as librdkafka expects it. Returns false if the property cannot have such a value. */
static bool value_text(const struct ast *value, const char *name, char text[VALUE_ROOM])
{
    switch (value->tag) {
    case AST_INT: snprintf(text, VALUE_ROOM, "%lld", (long long)value->integer); return true;
    case AST_FLOAT: snprintf(text, VALUE_ROOM, "%g", value->real); return true;
    case AST_BOOL: snprintf(text, VALUE_ROOM, "%s", value->boolean ? "true" : "false"); return true;
    case AST_DURATION:
        snprintf(text, VALUE_ROOM, "%lld", (long long)value->integer / 1000);
        return ends_with(name, ".ms");
    case AST_SIZE:
        snprintf(text, VALUE_ROOM, "%lld", (long long)value->integer);
        return ends_with(name, ".bytes") || ends_with(name, ".size");
    case AST_NAME:
    case AST_TEXT:
        snprintf(text, VALUE_ROOM, "%.*s", STR_ARGS(value->text));
        return value->text.length < VALUE_ROOM;
    default: return false;
    }
}

static bool set_property(const struct assignment *property, int who, bool is_some, rd_kafka_conf_t *conf,
                         struct diag_list *diags)
{
    char name[NAME_ROOM], value[VALUE_ROOM], reason[512];
    snprintf(name, sizeof(name), "%.*s", STR_ARGS(property->name));
    for (char *c = name; *c != '\0'; c++)
        *c = *c == '_' ? '.' : *c; /* no allowed name has a _ */
    int for_whom = 0;
    for (size_t i = 0; i < ARRAY_COUNT(allowed); i++)
        for_whom |= strcmp(allowed[i].name, name) == 0 ? allowed[i].who : 0;
    if ((for_whom & who) == 0)
        return (is_some && for_whom != 0) || refuse_name(property, name, who, diags);
    if (!value_text(property->value, name, value)) {
        diag_error(diags, DIAG_OPTION_TYPE, property->value->span, "the property `%s` cannot have this value",
                   name);
        return false;
    }
    if (rd_kafka_conf_set(conf, name, value, reason, sizeof(reason)) == RD_KAFKA_CONF_OK)
        return true;
    struct diag *d = diag_error(diags, DIAG_OUT_OF_RANGE, property->value->span,
                                "the property `%s` does not take this value", name);
    diag_cause(diags, d, "%s",
               property->value->origin.length > 0
                   ? "the reason is not shown, because the value may be a secret"
                   : reason);
    return false;
}

static bool set_all(const struct assignments *properties, rd_kafka_type_t type, bool is_some,
                    rd_kafka_conf_t *conf, struct diag_list *diags)
{
    bool is_good = true;
    for (uint32_t i = 0; i < properties->count; i++)
        is_good &= set_property(&properties->items[i], type == RD_KAFKA_CONSUMER ? FOR_SOURCES : FOR_SINKS,
                                is_some, conf, diags);
    return is_good;
}

bool kafka_properties_set(const struct assignments *properties, rd_kafka_type_t type, rd_kafka_conf_t *conf,
                          struct diag_list *diags)
{
    return set_all(properties, type, false, conf, diags);
}

bool kafka_properties_set_some(const struct assignments *properties, rd_kafka_type_t type,
                               rd_kafka_conf_t *conf, struct diag_list *diags)
{
    return set_all(properties, type, true, conf, diags);
}
