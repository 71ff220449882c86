/* Avro payloads: the binary encoding of one record each, by a schema that is known beforehand.
 * format_avro.details says which types go into which columns. */
#include "formats/avro.h"

const struct format_kind format_avro = {
    .name = "avro",
    .summary = "Avro's binary encoding: each payload is a record, by a schema file or a Schema Registry",
    .details =
        "Columns take the fields of the payload's record by name; fields that no column takes are skipped. "
        "Each type of column takes these types of Avro: int: int, long. float: int, long, float, double. "
        "bool: boolean. text: string, bytes that are UTF-8, enum. bytes: bytes, string, fixed. time: date, "
        "timestamp-millis, -micros and -nanos; a plain number if the column gives the unit (`time(ms)`), a "
        "string if it is `time(rfc3339)`. list: array; list({ key: text, value: ... }): map. A column takes "
        "a union if it takes all branches; the branch null is null. With a registry, a field that the "
        "writer's schema lacks is null, or has the default that `schema_file` gives.",
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
