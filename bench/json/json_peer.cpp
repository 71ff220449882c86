#include "bench/json/json_peer.h"

#include <simdjson.h>
#include <string_view>

using namespace simdjson;

extern "C" const char *peer_implementation(void)
{
    static std::string name = get_active_implementation()->name();
    return name.c_str();
}

static bool read_field(ondemand::object &object, const peer_field &field, uint64_t &sum)
{
    ondemand::value value;
    if (object.find_field(field.name).get(value) != SUCCESS)
        return false;
    if (field.type == PEER_INT) {
        int64_t number;
        if (value.get_int64().get(number) != SUCCESS)
            return false;
        sum += (uint64_t)number;
    } else if (field.type == PEER_FLOAT) {
        double number;
        if (value.get_double().get(number) != SUCCESS)
            return false;
        sum += (uint64_t)(int64_t)(number * 1000);
    } else {
        std::string_view text;
        if (value.get_string().get(text) != SUCCESS)
            return false;
        sum += text.size();
    }
    return true;
}

/* kind: empty to read all fields of all records. */
static uint64_t read_all(const char *data, const struct peer_record *records, size_t count,
                         const struct peer_field *fields, size_t fields_count, std::string_view kind)
{
    static ondemand::parser parser;
    uint64_t sum = 1;
    for (size_t i = 0; i < count; i++) {
        size_t length = records[i].length, first = 0;
        padded_string_view view(data + records[i].offset, length, length + SIMDJSON_PADDING);
        ondemand::document document;
        ondemand::object object;
        if (parser.iterate(view).get(document) != SUCCESS || document.get_object().get(object) != SUCCESS)
            return 0;
        if (!kind.empty()) {
            std::string_view found;
            if (object.find_field(fields[0].name).get(found) != SUCCESS)
                return 0;
            sum += found.size();
            first = found == kind ? 1 : fields_count;
        }
        for (size_t j = first; j < fields_count; j++)
            if (!read_field(object, fields[j], sum))
                return 0;
    }
    return sum;
}

extern "C" uint64_t peer_read(const char *data, const struct peer_record *records, size_t count,
                              const struct peer_field *fields, size_t fields_count)
{
    return read_all(data, records, count, fields, fields_count, {});
}

extern "C" uint64_t peer_read_kind(const char *data, const struct peer_record *records, size_t count,
                                   const struct peer_field *fields, size_t fields_count, const char *kind)
{
    return read_all(data, records, count, fields, fields_count, kind);
}
