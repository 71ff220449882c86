/* Protocol Buffers: the wire format of one message each, by a schema that is known beforehand.
 * format_protobuf.details says which types go into which columns. */
#include "formats/protobuf.h"

const struct format_kind format_protobuf = {
    .name = "protobuf",
    .summary =
        "Protocol Buffers: a message a payload, by a .proto file, a descriptor set or a Schema Registry",
    .details =
        "Columns take the fields of the message by name. int: all whole numbers, enums as numbers. float: "
        "those, float, double. bool: bool. text: string, bytes that are UTF-8, enums by name. bytes: bytes, "
        "string. time: google.protobuf.Timestamp; a whole number where the column says what it counts "
        "(`time(ms)`), a string where it says rfc3339. list: repeated fields; list({ ... }): repeated "
        "messages, and maps as key and value. The wrappers (google.protobuf.Int64Value ...) are what they "
        "hold, or null. An absent field is null where it can be told apart (`optional`, oneof, proto2 "
        "without default), else its default.",
    .example = "source clicks = kafka { brokers: \"localhost:9092\", topic: \"clicks\", format: protobuf, "
               "schema_file: \"click.proto\", message: \"Click\", schema: { user_id: int, ts: time }, "
               "event_time: ts }",
    .is_payload = true,
    .decoder_new = payload_decoder_new,
    .decode = protobuf_decode,
    .decoder_free = payload_decoder_free,
};

const struct payload_kind payload_protobuf = {
    .format = &format_protobuf,
    .registry_type = "PROTOBUF",
    .has_path = true,
    .plan_new = protobuf_plan_new,
};
