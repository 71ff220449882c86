/* Records as a function of a micro-batch number and an index, for the tests of the Kafka sink. */
#ifndef LEAT_TESTS_UNIT_KAFKA_FIXTURE_H
#define LEAT_TESTS_UNIT_KAFKA_FIXTURE_H

#include "connectors/kafka/record.h"
#include "unit/support/random.h"

enum { FIXTURE_ROWS_MAX = 5 };

/* The number of rows of micro-batch `number`: 0 .. FIXTURE_ROWS_MAX - 1. */
static inline uint32_t fixture_rows(uint64_t number)
{
    struct test_random random = {number * 77 + 5};
    return random_below(&random, FIXTURE_ROWS_MAX);
}

/* Row `index` of micro-batch `number`; some have nulls, empty texts or headers. The record points into
 * `value` and `headers`, the caller's buffers, which are overwritten. */
static inline struct kafka_record fixture_record(uint64_t number, uint32_t index, struct byte_buffer *value,
                                                 struct byte_buffer *headers)
{
    struct test_random random = {number * 1000 + index};
    struct kafka_record record = {.partition = random_chance(&random, 20) ? 3 : -1, .origin = {1, number}};
    buffer_clear(value);
    buffer_clear(headers);
    buffer_printf(value, "%llu/%u ", (unsigned long long)number, index);
    for (uint32_t more = random_below(&random, 200); more > 0; more--)
        buffer_printf(value, "%c", 'a' + (int)random_below(&random, 26));
    record.value = (struct str){value->data, value->length};
    record.key = random_chance(&random, 30)   ? (struct str){NULL, 0}
                 : random_chance(&random, 10) ? STR("")
                                              : (struct str){value->data, 3};
    for (uint32_t more = random_below(&random, 3); more > 0; more--)
        record_put_header(headers, STR("name"),
                          random_chance(&random, 20) ? (struct str){NULL, 0} : record.key);
    record.headers = (struct str){headers->data, headers->length};
    return record;
}

/* Appends a record as a line of text. */
static inline void fixture_print(const struct kafka_record *record, struct byte_buffer *out)
{
    struct str rest = record->headers, name, value;
    buffer_printf(out, "%d|%s%.*s|%s%.*s", record->partition, record->key.data == NULL ? "null" : "",
                  STR_ARGS(record->key), record->value.data == NULL ? "null" : "", STR_ARGS(record->value));
    while (record_take_header(&rest, &name, &value))
        buffer_printf(out, "|%.*s=%s%.*s", STR_ARGS(name), value.data == NULL ? "null" : "", STR_ARGS(value));
    buffer_append(out, "\n", 1);
}

#endif
