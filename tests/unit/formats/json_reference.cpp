#include "unit/formats/json_reference.h"

#include <cstring>
#include <simdjson.h>
#include <string>

using namespace simdjson;

namespace
{

struct bad {
};

/* A JSON value as it is written. Numbers are read from this text, because the DOM does not tell
 * 17.0 from 1.7e1. */
std::string token_text(ondemand::value value)
{
    std::string_view token = value.raw_json_token();
    std::string text(token);
    while (!text.empty() && strchr(" \t\r\n", text.back()) != nullptr)
        text.pop_back();
    return text;
}

bool is_null(ondemand::value value)
{
    return token_text(value) == "null";
}

std::string read_int(const std::string &token, long long scale)
{
    size_t digits = token[0] == '-', end = digits;
    while (end < token.size() && isdigit((unsigned char)token[end]))
        end++;
    if (end == digits)
        throw bad();
    std::string rest = token.substr(end);
    if (!rest.empty() && (rest[0] != '.' || rest.size() < 2))
        throw bad();
    __int128 sum = 0;
    for (size_t i = digits; i < end; i++) {
        sum = sum * 10 + (token[i] - '0');
        if (sum > (__int128)1 << 100)
            throw bad();
    }
    for (size_t i = 1; i < rest.size(); i++) {
        if (!isdigit((unsigned char)rest[i]))
            throw bad();
        if (scale == 1 && rest[i] != '0')
            throw bad();
    }
    sum *= scale;
    for (size_t i = 1, unit = scale / 10; i < rest.size() && unit > 0; i++, unit /= 10)
        sum += (__int128)unit * (rest[i] - '0');
    if (digits)
        sum = -sum;
    if (sum < INT64_MIN || sum > INT64_MAX)
        throw bad();
    return std::to_string((long long)sum);
}

std::string read_float(const std::string &token)
{
    char text[64];
    if (!isdigit((unsigned char)token[token[0] == '-']))
        throw bad();
    double value = strtod(token.c_str(), nullptr);
    if (value - value != 0)
        throw bad();
    snprintf(text, sizeof(text), "%a", value);
    return text;
}

std::string read_text(ondemand::value value)
{
    std::string_view text;
    std::string hex;
    if (value.get_string().get(text) != SUCCESS)
        throw bad();
    for (char c : text) {
        char pair[3];
        snprintf(pair, sizeof(pair), "%02x", (unsigned char)c);
        hex += pair;
    }
    return "'" + hex;
}

std::string read_bool(const std::string &token)
{
    if (token != "true" && token != "false")
        throw bad();
    return token == "true" ? "1" : "0";
}

std::string read_record(ondemand::value value)
{
    ondemand::object object;
    std::string x, y;
    if (is_null(value))
        return "{-,-}";
    if (value.get_object().get(object) != SUCCESS)
        throw bad();
    for (auto field : object) {
        std::string_view name;
        ondemand::value inner;
        if (field.unescaped_key().get(name) != SUCCESS)
            throw bad();
        std::string key(name);
        if (field.value().get(inner) != SUCCESS)
            throw bad();
        if (key == "x") {
            if (!x.empty())
                throw bad();
            x = is_null(inner) ? "-" : read_int(token_text(inner), 1);
        } else if (key == "y") {
            if (!y.empty())
                throw bad();
            y = is_null(inner) ? "-" : read_text(inner);
        }
    }
    return "{" + (x.empty() ? "-" : x) + "," + (y.empty() ? "-" : y) + "}";
}

std::string read_list(ondemand::value value, bool of_records)
{
    ondemand::array array;
    std::string text = "[";
    if (value.get_array().get(array) != SUCCESS)
        throw bad();
    for (auto item : array) {
        ondemand::value inner;
        if (item.get(inner) != SUCCESS)
            throw bad();
        if (text.size() > 1)
            text += ",";
        text += of_records ? read_record(inner) : is_null(inner) ? "-" : read_int(token_text(inner), 1);
    }
    return text + "]";
}

std::string read_value(char key, ondemand::value value)
{
    if (is_null(value))
        return "-";
    switch (key) {
    case 'i': return read_int(token_text(value), 1);
    case 'f': return read_float(token_text(value));
    case 's': return read_text(value);
    case 'b': return read_bool(token_text(value));
    case 't': return read_int(token_text(value), 1000);
    case 'l': return read_list(value, false);
    default: return read_list(value, true);
    }
}

std::string read_document(const padded_string &record, size_t fields)
{
    static const std::string keys = "ifsbtle";
    static ondemand::parser parser; /* static, so that its memory is reused */
    ondemand::document document;
    ondemand::object object;
    std::string values[7], out;
    if (parser.iterate(record).get(document) != SUCCESS || document.get_object().get(object) != SUCCESS)
        throw bad();
    for (auto field : object) {
        std::string_view name;
        ondemand::value value;
        if (field.unescaped_key().get(name) != SUCCESS)
            throw bad();
        std::string key(name);
        if (field.value().get(value) != SUCCESS)
            throw bad();
        size_t index = key.size() == 1 ? keys.find(key[0]) : std::string::npos;
        if (index >= fields)
            continue;
        if (!values[index].empty())
            throw bad();
        values[index] = read_value(key[0], value);
    }
    for (size_t i = 0; i < fields; i++)
        out += std::string(i > 0 ? " " : "") + keys[i] + "=" + (values[i].empty() ? "-" : values[i]);
    return out;
}

} // namespace

extern "C" enum reference_verdict reference_read(const char *record, size_t length, size_t fields, char *out,
                                                 size_t out_bytes)
{
    static dom::parser checker;
    padded_string padded(record, length);
    dom::element root;
    error_code error = checker.parse(padded).get(root);
    if (error == NUMBER_ERROR)
        return REFERENCE_UNSURE;
    if (error != SUCCESS || !root.is_object())
        return REFERENCE_BAD;
    try {
        std::string text = read_document(padded, fields);
        snprintf(out, out_bytes, "%s", text.c_str());
        return REFERENCE_GOOD;
    } catch (const bad &) {
        return REFERENCE_BAD;
    }
}
