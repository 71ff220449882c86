/* Avro payloads: the binary encoding of one record each, by a schema that is known beforehand.
 * format_avro.details says which types go into which columns. */
#include "formats/avro.h"

const struct format_kind format_avro = {
    .name = "avro",
    .summary = "Avro's binary encoding: a record a payload, by a schema file or a Schema Registry",
    .details =
        "Columns take the fields of the payload's record by name; fields that no column takes are skipped. "
        "int: int, long. float: those, float, double. bool: boolean. text: string, bytes that are UTF-8, "
        "enum. bytes: bytes, string, fixed. time: date, timestamp-millis, -micros and -nanos; a plain number "
        "where the column says what it counts (`time(ms)`), a string where it says rfc3339. list: array; "
        "list({ key: text, value: ... }): map. A union goes where all its branches go; its null is null. "
        "With a registry a field that a writer lacks is null, or what `schema_file` gives as its default.",
    .example =
        "source clicks = kafka { brokers: \"localhost:9092\", topic: \"clicks\", format: avro, "
        "registry: { url: \"http://127.0.0.1:8081\" }, schema: { user_id: int, ts: time }, event_time: ts }",
    .is_payload = true,
    .decoder_new = payload_decoder_new,
    .decode = avro_decode,
    .decoder_free = payload_decoder_free,
};

const struct payload_kind payload_avro = {
    .format = &format_avro,
    .registry_type = "AVRO",
    .plan_new = avro_plan_new,
};
