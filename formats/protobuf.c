/* Protocol Buffers: the wire format of one message each, by a schema that is known beforehand.
 * format_protobuf.details says which types go into which columns. */
#include "formats/protobuf.h"

const struct format_kind format_protobuf = {
    .name = "protobuf",
    .summary = "Protocol Buffers: each payload is a message, by a .proto file, a descriptor set or a "
               "Schema Registry",
    .details =
        "Columns take the fields of the message by name. Each type of column takes these types of fields: "
        "int: all whole numbers, enums as numbers. float: all whole numbers, float, double. bool: bool. "
        "text: string, bytes that are UTF-8, enums by name. bytes: bytes, string. time: "
        "google.protobuf.Timestamp; a whole number if the column gives the unit (`time(ms)`), a string if it "
        "is `time(rfc3339)`. list: repeated fields; list({ ... }): repeated messages, and maps as key and "
        "value. A wrapper (google.protobuf.Int64Value ...) is read as its value, or null. An absent field is "
        "null if its presence is known (`optional`, oneof, proto2 without default), else it has its default.",
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
