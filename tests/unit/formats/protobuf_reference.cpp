#include "unit/formats/protobuf_reference.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include <google/protobuf/compiler/parser.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/timestamp.pb.h>
#include <google/protobuf/wrappers.pb.h>

namespace pb = google::protobuf;
using Field = pb::FieldDescriptor;

namespace
{

void must(bool is_true, const char *what)
{
    if (is_true)
        return;
    fprintf(stderr, "protobuf_reference: %s\n", what);
    abort();
}

void copy_import(const std::string &name, pb::FileDescriptorProto *proto)
{
    const pb::FileDescriptor *file = pb::DescriptorPool::generated_pool()->FindFileByName(name);
    must(file != nullptr, "an import");
    file->CopyTo(proto);
}

void parse(const char *text, pb::FileDescriptorProto *proto)
{
    pb::io::ArrayInputStream stream(text, (int)strlen(text));
    pb::io::Tokenizer tokenizer(&stream, nullptr);
    pb::compiler::Parser parser;
    must(parser.Parse(&tokenizer, proto), "the .proto text");
    proto->set_name("m.proto");
}

/* A .proto text, loaded by libprotobuf. */
struct Loaded {
    pb::DescriptorPool pool;
    pb::DynamicMessageFactory factory;
    const pb::Message *prototype = nullptr;
};

const pb::Message *prototype_of(const char *text)
{
    static std::map<std::string, Loaded> known;
    if (known.count(text) > 0)
        return known[text].prototype;
    Loaded *last = &known[text];
    pb::FileDescriptorProto proto;
    parse(text, &proto);
    for (const std::string &name : proto.dependency()) {
        pb::FileDescriptorProto import;
        copy_import(name, &import);
        must(last->pool.BuildFile(import) != nullptr, "an import's descriptor");
    }
    const pb::FileDescriptor *file = last->pool.BuildFile(proto);
    must(file != nullptr, "the descriptor");
    last->prototype = last->factory.GetPrototype(file->FindMessageTypeByName("M"));
    return last->prototype;
}

/* --- writing --- */

struct Source {
    uint64_t (*draw)(void *argument);
    void *argument;
    uint64_t below(uint64_t limit)
    {
        return draw(argument) % limit;
    }
};

void fill(pb::Message *message, Source *source, int depth);

std::string random_text(Source *source)
{
    static const char *const pieces[] = {"", "a", "Zürich", "日本", "plain text of some length", "\"\\\n"};
    std::string text;
    for (uint64_t i = source->below(4); i > 0; i--)
        text += pieces[source->below(6)];
    return text;
}

void fill_value(pb::Message *message, const Field *field, Source *source, int depth)
{
    const pb::Reflection *reflection = message->GetReflection();
    uint64_t bits = source->draw(source->argument) >> source->below(64);
    bool adds = field->is_repeated();
    double real = (double)(int64_t)bits / 1000;
    switch (field->cpp_type()) {
#define NUMBER(TYPE, Name, value)                                                                            \
    case Field::CPPTYPE_##TYPE:                                                                              \
        adds ? reflection->Add##Name(message, field, value) : reflection->Set##Name(message, field, value);  \
        break;
        NUMBER(INT32, Int32, (int32_t)bits)
        NUMBER(INT64, Int64, (int64_t)(bits & 1 ? bits : 0 - (bits >> 1)))
        NUMBER(UINT32, UInt32, (uint32_t)bits)
        NUMBER(UINT64, UInt64, bits >> 1)
        NUMBER(BOOL, Bool, (bits & 1) != 0)
        NUMBER(FLOAT, Float, (float)real)
        NUMBER(DOUBLE, Double, real)
        NUMBER(STRING, String, random_text(source))
        NUMBER(ENUM, Enum,
               field->enum_type()->value((int)source->below((uint64_t)field->enum_type()->value_count())))
#undef NUMBER
    case Field::CPPTYPE_MESSAGE: {
        pb::Message *inner =
            adds ? reflection->AddMessage(message, field) : reflection->MutableMessage(message, field);
        if (inner->GetDescriptor()->full_name() == "google.protobuf.Timestamp") {
            const pb::Descriptor *type = inner->GetDescriptor();
            inner->GetReflection()->SetInt64(inner, type->FindFieldByName("seconds"),
                                             (int64_t)source->below(300000000000) - 60000000000);
            inner->GetReflection()->SetInt32(inner, type->FindFieldByName("nanos"),
                                             (int32_t)source->below(1000000000));
        } else {
            fill(inner, source, depth + 1);
        }
        break;
    }
    }
}

void fill(pb::Message *message, Source *source, int depth)
{
    const pb::Descriptor *type = message->GetDescriptor();
    for (int i = 0; i < type->field_count(); i++) {
        const Field *field = type->field(i);
        if (depth > 4 && field->cpp_type() == Field::CPPTYPE_MESSAGE)
            continue;
        uint64_t count = field->is_repeated() ? source->below(4) : source->below(4) != 0;
        for (; count > 0; count--)
            fill_value(message, field, source, depth);
    }
}

/* --- reading --- */

struct Text {
    std::string out;
    void put(const char *format, ...) __attribute__((format(printf, 2, 3)))
    {
        char text[512];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        out += text;
    }
    void put_bytes(const std::string &bytes)
    {
        put("'");
        for (char byte : bytes)
            put("%02x", (unsigned char)byte);
    }
    void put_whole(int64_t value, bool is_float)
    {
        if (is_float)
            put("%a", (double)value);
        else
            put("%lld", (long long)value);
    }
};

struct Style {
    bool is_float, is_number;
};

void put_message(Text *text, const pb::Message &message, Style style);

/* Appends a field's value. index: the element of a repeated field, else -1. */
void put_value(Text *text, const pb::Message &message, const Field *field, int index, Style style)
{
    const pb::Reflection *reflection = message.GetReflection();
#define GET(Name)                                                                                            \
    (index >= 0 ? reflection->GetRepeated##Name(message, field, index)                                       \
                : reflection->Get##Name(message, field))
    switch (field->cpp_type()) {
    case Field::CPPTYPE_INT32: text->put_whole(GET(Int32), style.is_float); break;
    case Field::CPPTYPE_INT64: text->put_whole(GET(Int64), style.is_float); break;
    case Field::CPPTYPE_UINT32: text->put_whole(GET(UInt32), style.is_float); break;
    case Field::CPPTYPE_UINT64: text->put_whole((int64_t)GET(UInt64), style.is_float); break;
    case Field::CPPTYPE_BOOL: text->put("%d", GET(Bool)); break;
    case Field::CPPTYPE_FLOAT: text->put("%a", (double)GET(Float)); break;
    case Field::CPPTYPE_DOUBLE: text->put("%a", GET(Double)); break;
    case Field::CPPTYPE_STRING: text->put_bytes(GET(String)); break;
    case Field::CPPTYPE_ENUM: {
        int number = GET(EnumValue);
        const pb::EnumValueDescriptor *value = field->enum_type()->FindValueByNumber(number);
        if (style.is_number || value == nullptr)
            text->put("%d", number);
        else
            text->put_bytes(value->name());
        break;
    }
    case Field::CPPTYPE_MESSAGE: put_message(text, GET(Message), style); break;
    }
#undef GET
}

void put_message(Text *text, const pb::Message &message, Style style)
{
    const pb::Descriptor *type = message.GetDescriptor();
    const pb::Reflection *reflection = message.GetReflection();
    if (type->full_name() == "google.protobuf.Timestamp") {
        int64_t seconds = reflection->GetInt64(message, type->FindFieldByName("seconds"));
        int32_t nanoseconds = reflection->GetInt32(message, type->FindFieldByName("nanos"));
        text->put("%lld", (long long)((__int128)seconds * 1000000 + nanoseconds / 1000));
        return;
    }
    if (type->full_name().compare(0, 16, "google.protobuf.") == 0) {
        put_value(text, message, type->field(0), -1, style);
        return;
    }
    text->put("{");
    for (int i = 0; i < type->field_count(); i++) {
        text->put("%s", i > 0 ? "," : "");
        put_value(text, message, type->field(i), -1, style);
    }
    text->put("}");
}

void put_field(Text *text, const pb::Message &message, const Field *field, Style style)
{
    const pb::Reflection *reflection = message.GetReflection();
    if (field->is_repeated()) {
        text->put("[");
        for (int i = 0; i < reflection->FieldSize(message, field); i++) {
            text->put("%s", i > 0 ? "," : "");
            put_value(text, message, field, i, style);
        }
        text->put("]");
    } else if (field->has_presence() && !reflection->HasField(message, field) &&
               !field->has_default_value()) {
        text->put("-");
    } else {
        put_value(text, message, field, -1, style);
    }
}

} // namespace

extern "C" size_t protobuf_reference_write(const char *proto, uint64_t (*draw)(void *argument),
                                           void *argument, char *out, size_t room)
{
    Source source = {draw, argument};
    std::unique_ptr<pb::Message> message(prototype_of(proto)->New());
    fill(message.get(), &source, 0);
    std::string bytes = message->SerializeAsString();
    must(bytes.size() <= room, "room for the message");
    memcpy(out, bytes.data(), bytes.size());
    return bytes.size();
}

extern "C" bool protobuf_reference_read(const char *proto, const char *data, size_t bytes,
                                        const char *const *names, char *out, size_t room)
{
    Text text;
    std::unique_ptr<pb::Message> message(prototype_of(proto)->New());
    if (!message->ParseFromArray(data, (int)bytes))
        return false;
    for (size_t i = 0; names[i] != nullptr; i++) {
        Style style = {names[i][0] == '+', names[i][0] == '#'};
        const char *name = names[i] + (style.is_float || style.is_number);
        const Field *field = message->GetDescriptor()->FindFieldByName(name);
        must(field != nullptr, "a field");
        text.put("%s%s=", i > 0 ? " " : "", name);
        put_field(&text, *message, field, style);
    }
    must(text.out.size() < room, "room for the text");
    memcpy(out, text.out.c_str(), text.out.size() + 1);
    return true;
}

extern "C" size_t protobuf_reference_set(const char *proto, char *out, size_t room)
{
    pb::FileDescriptorSet set;
    pb::FileDescriptorProto file;
    parse(proto, &file);
    for (const std::string &name : file.dependency())
        copy_import(name, set.add_file());
    *set.add_file() = file;
    must(set.ByteSizeLong() <= room, "room for the set");
    must(set.SerializeToArray(out, (int)room), "the set");
    return set.ByteSizeLong();
}
