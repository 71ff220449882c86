#include "unit/connectors/kafka_mock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void quiet(const rd_kafka_t *client, int level, const char *facility, const char *text)
{
    (void)client, (void)level, (void)facility, (void)text;
}

struct mock *mock_new(void)
{
    struct mock *mock = calloc(1, sizeof(*mock));
    assert_non_null(mock);
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char reason[256];
    rd_kafka_conf_set_log_cb(conf, quiet);
    rd_kafka_conf_set(conf, "test.mock.num.brokers", "1", reason, sizeof(reason));
    rd_kafka_conf_set(conf, "message.max.bytes", "4000000", reason, sizeof(reason));
    mock->producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, reason, sizeof(reason));
    assert_non_null(mock->producer);
    mock->cluster = rd_kafka_handle_mock_cluster(mock->producer);
    return mock;
}

int mock_tear_down(void **state)
{
    struct mock *mock = *state;
    rd_kafka_destroy(mock->producer);
    free(mock);
    return 0;
}
