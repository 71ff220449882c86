#include "net/metrics.h"

#include <math.h>

/* --- Which format --- */

static struct str trimmed(struct str text)
{
    while (text.length > 0 && (text.data[0] == ' ' || text.data[0] == '\t'))
        text = (struct str){text.data + 1, text.length - 1};
    while (text.length > 0 && (text.data[text.length - 1] == ' ' || text.data[text.length - 1] == '\t'))
        text.length--;
    return text;
}

/* Takes what stands before the next `mark` off the text. */
static struct str take_until(struct str *text, char mark)
{
    const char *at = text->length == 0 ? NULL : memchr(text->data, mark, text->length);
    struct str part = {text->data, at == NULL ? text->length : (size_t)(at - text->data)};
    size_t taken = part.length + (at != NULL);
    *text = (struct str){text->data + taken, text->length - taken};
    return trimmed(part);
}

/* A weight of `accept` in thousandths: "1", "0.5", "0.125"; 0: it is none, and what it weighs is not wanted. */
static uint32_t weight_of(struct str text)
{
    enum { DIGITS_MAX = 3 };
    if (text.length == 0 || (text.data[0] != '0' && text.data[0] != '1') || text.length > 2 + DIGITS_MAX ||
        (text.length > 1 && text.data[1] != '.'))
        return 0;
    uint32_t weight = text.data[0] == '1' ? 1000 : 0, unit = 100;
    for (size_t i = 2; i < text.length; i++, unit /= 10) {
        if (text.data[i] < '0' || text.data[i] > '9')
            return 0;
        weight += (uint32_t)(text.data[i] - '0') * unit;
    }
    return MIN(weight, 1000);
}

bool metrics_wants_open(const struct net_exchange *exchange)
{
    struct str accept = net_field(exchange, "accept");
    uint32_t open = 0, plain = 0;
    while (accept.length > 0) {
        struct str range = take_until(&accept, ',');
        struct str type = take_until(&range, ';');
        uint32_t weight = 1000;
        bool is_version = true;
        while (range.length > 0) {
            struct str value = take_until(&range, ';');
            struct str name = take_until(&value, '=');
            if (str_is(name, "q"))
                weight = weight_of(value);
            else if (str_is(name, "version"))
                is_version = str_is(value, "1.0.0");
        }
        if (str_is(type, "application/openmetrics-text") && is_version)
            open = MAX(open, weight);
        else if (str_is(type, "text/plain") || str_is(type, "text/*") || str_is(type, "*/*"))
            plain = MAX(plain, weight);
    }
    return open > 0 && open >= plain;
}

struct str metrics_content_type(bool is_openmetrics)
{
    return is_openmetrics ? STR("application/openmetrics-text; version=1.0.0; charset=utf-8")
                          : STR("text/plain; version=0.0.4; charset=utf-8");
}

/* --- Text --- */

static bool ends_with(struct str text, const char *end)
{
    size_t length = strlen(end);
    return text.length >= length && memcmp(text.data + text.length - length, end, length) == 0;
}

/* OpenMetrics names the family without the suffix that its type gives to samples, and says its unit. */
static void put_open_head(struct byte_buffer *out, const struct metric_meaning *meaning)
{
    static const char *const units[] = {"seconds", "bytes", "ratio"};
    struct str family = str_from(meaning->name);
    if (strcmp(meaning->type, "counter") == 0)
        family.length -= strlen("_total");
    else if (strcmp(meaning->type, "info") == 0)
        family.length -= strlen("_info");
    buffer_printf(out, "# TYPE %.*s %s\n", STR_ARGS(family), meaning->type);
    for (size_t i = 0; i < ARRAY_COUNT(units); i++)
        if (ends_with(family, units[i]))
            buffer_printf(out, "# UNIT %.*s %s\n", STR_ARGS(family), units[i]);
    buffer_printf(out, "# HELP %.*s %s\n", STR_ARGS(family), meaning->help);
}

void metrics_head(struct metrics_text *text, const struct metric_meaning *meaning)
{
    bool is_info = strcmp(meaning->type, "info") == 0;
    leat_assert(ends_with(str_from(meaning->name), "_total") == (strcmp(meaning->type, "counter") == 0));
    leat_assert(ends_with(str_from(meaning->name), "_info") == is_info);
    if (text->is_openmetrics)
        put_open_head(text->out, meaning);
    else
        buffer_printf(text->out, "# HELP %s %s\n# TYPE %s %s\n", meaning->name, meaning->help, meaning->name,
                      is_info ? "gauge" : meaning->type);
}

void metrics_begin(struct metrics_text *text, const char *name)
{
    text->is_left_out = text->series_max > 0 && text->series >= text->series_max;
    text->series += !text->is_left_out;
    text->left_out += text->is_left_out;
    if (text->is_left_out)
        return;
    buffer_append(text->out, name, strlen(name));
    text->has_labels = false;
}

static void put_label(struct byte_buffer *out, const char *name, struct str value)
{
    buffer_append(out, name, strlen(name));
    buffer_append(out, "=\"", 2);
    size_t begin = 0; /* of what is not written yet */
    for (size_t i = 0; i < value.length; i++) {
        char c = value.data[i];
        if (c != '\\' && c != '"' && c != '\n')
            continue;
        buffer_append(out, value.data + begin, i - begin);
        buffer_append(out, c == '\n' ? "\\n" : c == '"' ? "\\\"" : "\\\\", 2);
        begin = i + 1;
    }
    buffer_append(out, value.data + begin, value.length - begin);
    buffer_append(out, "\"", 1);
}

void metrics_label_text(struct byte_buffer *out, const char *name, struct str value)
{
    if (out->length > 0)
        buffer_append(out, ",", 1);
    put_label(out, name, value);
}

static void begin_labels(struct metrics_text *text)
{
    buffer_append(text->out, text->has_labels ? "," : "{", 1);
    text->has_labels = true;
}

void metrics_label(struct metrics_text *text, const char *name, struct str value)
{
    if (text->is_left_out)
        return;
    begin_labels(text);
    put_label(text->out, name, value);
}

void metrics_labels(struct metrics_text *text, struct str labels)
{
    if (text->is_left_out)
        return;
    begin_labels(text);
    buffer_append(text->out, labels.data, labels.length);
}

static void end_labels(struct metrics_text *text)
{
    if (text->has_labels)
        buffer_append(text->out, "}", 1);
    buffer_append(text->out, " ", 1);
}

void metrics_value(struct metrics_text *text, double value)
{
    struct byte_buffer *out = text->out;
    if (text->is_left_out)
        return;
    end_labels(text);
    if (isnan(value))
        buffer_printf(out, "NaN\n");
    else if (isinf(value))
        buffer_printf(out, "%cInf\n", value > 0 ? '+' : '-');
    else if (value == floor(value) && fabs(value) < 1e15) {
        buffer_append(out, "-", value < 0);
        buffer_count(out, (uint64_t)fabs(value));
        buffer_append(out, "\n", 1);
    } else if (fabs(value) >= 1e6)
        buffer_printf(out, "%.3f\n", value);
    else
        buffer_printf(out, "%.9g\n", value);
}

void metrics_count(struct metrics_text *text, uint64_t value)
{
    if (text->is_left_out)
        return;
    end_labels(text);
    buffer_count(text->out, value);
    buffer_append(text->out, "\n", 1);
}

void metrics_time(struct metrics_text *text, uint64_t ns)
{
    enum { DIGITS = 9 };
    static const uint64_t second = 1000000000;
    char part[1 + DIGITS + 1] = ".";
    size_t length = 1 + DIGITS;
    if (text->is_left_out)
        return;
    end_labels(text);
    buffer_count(text->out, ns / second);
    ns %= second;
    for (size_t i = DIGITS; i > 0; i--, ns /= 10)
        part[i] = (char)('0' + ns % 10);
    while (part[length - 1] == '0')
        length--;
    if (length == 1) /* whole seconds */
        length = 0;
    part[length++] = '\n';
    buffer_append(text->out, part, length);
}

void metrics_single(struct metrics_text *text, const struct metric_meaning *meaning, uint64_t value)
{
    metrics_head(text, meaning);
    metrics_begin(text, meaning->name);
    metrics_count(text, value);
}

void metrics_end(struct metrics_text *text)
{
    if (text->is_openmetrics)
        buffer_printf(text->out, "# EOF\n");
}

/* --- What every server has --- */

static const struct metric_meaning build = {"leat_build_info", "info", "version",
                                            "1: the program of this version runs."};

static const struct {
    struct metric_meaning meaning;
    size_t at; /* of the uint64_t in struct net_counters */
} counters[] = {
    {{"leat_net_connections_total", "counter", "", "Connections accepted."},
     offsetof(struct net_counters, connections)},
    {{"leat_net_connections_refused_total", "counter", "", "Connections beyond the limit."},
     offsetof(struct net_counters, connections_refused)},
    {{"leat_net_connections_open", "gauge", "", "Open connections."},
     offsetof(struct net_counters, connections_now)},
    {{"leat_net_connections_parked", "gauge", "", "Connections that wait unread under overload."},
     offsetof(struct net_counters, connections_parked)},
    {{"leat_net_requests_http1_total", "counter", "", "Requests over HTTP/1.1."},
     offsetof(struct net_counters, requests_http1)},
    {{"leat_net_requests_http2_total", "counter", "", "Requests over HTTP/2."},
     offsetof(struct net_counters, requests_http2)},
    {{"leat_net_refused_total", "counter", "", "Requests and connections that broke a rule or a limit."},
     offsetof(struct net_counters, refused)},
    {{"leat_net_received_bytes_total", "counter", "", "Bytes received."},
     offsetof(struct net_counters, bytes_in)},
    {{"leat_net_sent_bytes_total", "counter", "", "Bytes sent."}, offsetof(struct net_counters, bytes_out)},
    {{"leat_net_memory_bytes", "gauge", "", "Bytes of requests and answers in work."},
     offsetof(struct net_counters, memory_now)},
};

void metrics_common(struct metrics_text *text, const struct net_loop *loop)
{
    struct net_counters now = net_loop_counters(loop);
    metrics_head(text, &build);
    metrics_begin(text, build.name);
    metrics_label(text, "version", STR(LEAT_VERSION));
    metrics_count(text, 1);
    for (size_t i = 0; i < ARRAY_COUNT(counters); i++) {
        uint64_t value;
        memcpy(&value, (const char *)&now + counters[i].at, sizeof(value));
        metrics_single(text, &counters[i].meaning, value);
    }
}

const struct metric_meaning *metrics_common_meaning(uint32_t index)
{
    return index == 0 ? &build : index <= ARRAY_COUNT(counters) ? &counters[index - 1].meaning : NULL;
}
