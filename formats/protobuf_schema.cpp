/* .proto files and descriptor sets -> plain tables, by libprotobuf. libprotobuf throws nothing; what the
 * standard library throws (no memory) is returned as a reason. */
#include "formats/protobuf_schema.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <google/protobuf/compiler/parser.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

/* Links the descriptors of these files into the program, so that schemas can import them. */
#include <google/protobuf/duration.pb.h>
#include <google/protobuf/timestamp.pb.h>
#include <google/protobuf/wrappers.pb.h>

namespace pb = google::protobuf;

namespace
{

enum { FILES_MAX = 64, MESSAGES_MAX = 4096, IMPORT_BYTES_MAX = 1 << 20 };

/* Keeps the first error, with its place. */
class Complaints : public pb::io::ErrorCollector, public pb::DescriptorPool::ErrorCollector
{
  public:
    explicit Complaints(std::string *to) : why(to)
    {
    }
    void AddError(int line, pb::io::ColumnNumber column, const std::string &message) override
    {
        if (why->empty())
            *why = file + ":" + std::to_string(line + 1) + ":" + std::to_string(column + 1) + ": " + message;
    }
    void AddError(const std::string &name, const std::string &element, const pb::Message *, ErrorLocation,
                  const std::string &message) override
    {
        if (why->empty())
            *why = name + ": " + element + ": " + message;
    }
    std::string file;

  private:
    std::string *why;
};

/* A schema and the memory of everything that its tables point to. */
struct Tables : protobuf_schema {
    std::vector<protobuf_message> all_messages;
    std::vector<protobuf_enum> all_enums;
    std::deque<std::vector<protobuf_field>> fields;
    std::deque<std::vector<protobuf_enum_value>> values;
    std::deque<std::string> texts;
};

class Loader
{
  public:
    Loader(const protobuf_request &what, std::string *to) : request(what), why(to), complaints(to)
    {
    }
    const pb::FileDescriptor *load();
    const pb::Descriptor *message(const pb::FileDescriptor *file, bool *is_bad_index);

  private:
    bool parse(const protobuf_file &file, pb::FileDescriptorProto *proto);
    bool read(const std::string &name, std::string *text);
    const pb::FileDescriptor *build(const pb::FileDescriptorProto &proto);
    bool import(const std::string &name);
    const pb::FileDescriptor *load_set();

    const protobuf_request &request;
    std::string *why;
    Complaints complaints;
    pb::DescriptorPool pool;
    /* Names of the files read so far, those whose imports are still being read included. */
    std::set<std::string> begun;
};

bool Loader::parse(const protobuf_file &file, pb::FileDescriptorProto *proto)
{
    pb::io::ArrayInputStream stream(file.data, (int)file.bytes);
    pb::io::Tokenizer tokenizer(&stream, &complaints);
    pb::compiler::Parser parser;
    complaints.file = file.name;
    parser.RecordErrorsTo(&complaints);
    proto->set_name(file.name);
    if (!parser.Parse(&tokenizer, proto) && why->empty())
        *why = std::string(file.name) + " is not a .proto file";
    return why->empty();
}

/* Reads a file from the folder of the first one. Names that lead out of the folder are refused. */
bool Loader::read(const std::string &name, std::string *text)
{
    if (request.imports_folder == nullptr || name.empty() || name[0] == '/' ||
        name.find("..") != std::string::npos)
        return false;
    std::ifstream file(std::string(request.imports_folder) + "/" + name, std::ios::binary);
    text->resize(IMPORT_BYTES_MAX + 1);
    file.read(&(*text)[0], IMPORT_BYTES_MAX + 1);
    text->resize((size_t)std::max<std::streamsize>(file.gcount(), 0));
    return !text->empty() && text->size() <= IMPORT_BYTES_MAX;
}

bool Loader::import(const std::string &name)
{
    if (pool.FindFileByName(name) != nullptr)
        return true;
    if (!begun.insert(name).second || begun.size() > FILES_MAX) {
        *why = "`" + name + "` is imported in a circle, or more than 64 files are imported";
        return false;
    }
    pb::FileDescriptorProto proto;
    std::string text;
    const protobuf_file *given = nullptr;
    for (uint32_t i = 0; i < request.imports_count; i++)
        if (name == request.imports[i].name)
            given = &request.imports[i];
    if (given != nullptr) {
        if (!parse(*given, &proto))
            return false;
    } else if (read(name, &text)) {
        if (!parse({name.c_str(), text.data(), text.size()}, &proto))
            return false;
    } else {
        const pb::FileDescriptor *own = pb::DescriptorPool::generated_pool()->FindFileByName(name);
        if (own == nullptr || name.compare(0, 16, "google/protobuf/") != 0) {
            *why = "the imported file `" + name + "` cannot be read";
            return false;
        }
        own->CopyTo(&proto);
    }
    return build(proto) != nullptr;
}

const pb::FileDescriptor *Loader::build(const pb::FileDescriptorProto &proto)
{
    for (const std::string &name : proto.dependency())
        if (!import(name))
            return nullptr;
    const pb::FileDescriptor *file = pool.BuildFileCollectingErrors(proto, &complaints);
    if (file == nullptr && why->empty())
        *why = proto.name() + " cannot be used";
    return file;
}

/* Builds all files of a set and returns the last one; the files before it are its imports. */
const pb::FileDescriptor *Loader::load_set()
{
    pb::FileDescriptorSet set;
    const pb::FileDescriptor *file = nullptr;
    if (!set.ParseFromArray(request.file.data, (int)request.file.bytes) || set.file_size() == 0 ||
        set.file_size() > FILES_MAX) {
        *why = "the file is not a FileDescriptorSet of 1 to 64 files";
        return nullptr;
    }
    for (const pb::FileDescriptorProto &proto : set.file()) {
        file = build(proto);
        if (file == nullptr)
            return nullptr;
    }
    return file;
}

const pb::FileDescriptor *Loader::load()
{
    pb::FileDescriptorProto proto;
    if (request.is_set)
        return load_set();
    begun.insert(request.file.name);
    return parse(request.file, &proto) ? build(proto) : nullptr;
}

const pb::Descriptor *Loader::message(const pb::FileDescriptor *file, bool *is_bad_index)
{
    const pb::Descriptor *found = nullptr;
    if (request.indexes != nullptr) {
        for (uint32_t i = 0; i < request.indexes_count; i++) {
            int32_t index = request.indexes[i];
            int count = i == 0 ? file->message_type_count() : found->nested_type_count();
            *is_bad_index = index < 0 || index >= count;
            if (*is_bad_index)
                return nullptr;
            found = i == 0 ? file->message_type(index) : found->nested_type(index);
        }
        return found;
    }
    if (request.message == nullptr && file->message_type_count() == 1)
        return file->message_type(0);
    if (request.message != nullptr) {
        found = pool.FindMessageTypeByName(request.message);
        if (found == nullptr)
            found = pool.FindMessageTypeByName(file->package() + "." + request.message);
        if (found != nullptr)
            return found;
    }
    *why = request.message != nullptr ? "the schema has no message `" + std::string(request.message) + "`"
                                      : "the schema does not have exactly one message, and `message:` is "
                                        "not given";
    for (int i = 0; i < file->message_type_count() && i < 8; i++)
        *why += (i == 0 ? "; there are " : ", ") + file->message_type(i)->full_name();
    return nullptr;
}

/* --- tables --- */

class Maker
{
  public:
    explicit Maker(Tables *to) : tables(to)
    {
    }
    bool make(const pb::Descriptor *root);

  private:
    const char *keep(const std::string &text)
    {
        tables->texts.push_back(text);
        return tables->texts.back().c_str();
    }
    int32_t message_index(const pb::Descriptor *message);
    int32_t enum_index(const pb::EnumDescriptor *enumeration);
    protobuf_field field(const pb::FieldDescriptor *from);
    void set_default(const pb::FieldDescriptor *from, protobuf_field *field);

    Tables *tables;
    std::map<const pb::Descriptor *, int32_t> messages;
    std::map<const pb::EnumDescriptor *, int32_t> enums;
    std::vector<const pb::Descriptor *> pending;
};

int32_t Maker::message_index(const pb::Descriptor *message)
{
    auto known = messages.find(message);
    if (known != messages.end())
        return known->second;
    int32_t index = (int32_t)pending.size();
    messages[message] = index;
    pending.push_back(message);
    return index;
}

int32_t Maker::enum_index(const pb::EnumDescriptor *enumeration)
{
    auto known = enums.find(enumeration);
    if (known != enums.end())
        return known->second;
    std::map<int32_t, const char *> by_number; /* of several names for one number the first counts */
    for (int i = 0; i < enumeration->value_count(); i++)
        by_number.emplace(enumeration->value(i)->number(), keep(enumeration->value(i)->name()));
    tables->values.emplace_back();
    for (const auto &value : by_number)
        tables->values.back().push_back({value.first, value.second});
    bool is_closed = enumeration->file()->syntax() != pb::FileDescriptor::SYNTAX_PROTO3;
    tables->all_enums.push_back(
        {is_closed, tables->values.back().data(), (uint32_t)tables->values.back().size()});
    return enums[enumeration] = (int32_t)tables->all_enums.size() - 1;
}

void Maker::set_default(const pb::FieldDescriptor *from, protobuf_field *field)
{
    switch (from->cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_INT32: field->default_int = from->default_value_int32(); break;
    case pb::FieldDescriptor::CPPTYPE_INT64: field->default_int = from->default_value_int64(); break;
    case pb::FieldDescriptor::CPPTYPE_UINT32: field->default_int = from->default_value_uint32(); break;
    case pb::FieldDescriptor::CPPTYPE_UINT64:
        field->default_int = (int64_t)from->default_value_uint64();
        break;
    case pb::FieldDescriptor::CPPTYPE_BOOL: field->default_int = from->default_value_bool(); break;
    case pb::FieldDescriptor::CPPTYPE_ENUM: field->default_int = from->default_value_enum()->number(); break;
    case pb::FieldDescriptor::CPPTYPE_FLOAT:
        field->default_float = (double)from->default_value_float();
        break;
    case pb::FieldDescriptor::CPPTYPE_DOUBLE: field->default_float = from->default_value_double(); break;
    case pb::FieldDescriptor::CPPTYPE_STRING:
        field->default_text = keep(from->default_value_string());
        field->default_bytes = from->default_value_string().size();
        break;
    case pb::FieldDescriptor::CPPTYPE_MESSAGE: break;
    }
}

protobuf_field Maker::field(const pb::FieldDescriptor *from)
{
    protobuf_field field = {};
    const pb::OneofDescriptor *oneof = from->real_containing_oneof();
    field.name = keep(from->name());
    field.number = (uint32_t)from->number();
    field.type = (protobuf_type)from->type();
    field.is_repeated = from->is_repeated();
    field.is_required = from->is_required();
    /* The key and the value of a map's entry are never absent. */
    field.has_presence = from->has_presence() && (!from->containing_type()->options().map_entry() ||
                                                  from->type() == pb::FieldDescriptor::TYPE_MESSAGE);
    field.has_default = from->has_default_value();
    field.oneof = oneof == nullptr ? -1 : oneof->index();
    field.message = from->message_type() == nullptr ? -1 : message_index(from->message_type());
    field.enumeration = from->enum_type() == nullptr ? -1 : enum_index(from->enum_type());
    set_default(from, &field);
    return field;
}

bool Maker::make(const pb::Descriptor *root)
{
    message_index(root);
    for (size_t i = 0; i < pending.size(); i++) {
        if (i == MESSAGES_MAX)
            return false;
        const pb::Descriptor *message = pending[i];
        tables->fields.emplace_back();
        std::vector<protobuf_field> &fields = tables->fields.back();
        for (int j = 0; j < message->field_count(); j++)
            fields.push_back(field(message->field(j)));
        std::sort(fields.begin(), fields.end(),
                  [](const protobuf_field &a, const protobuf_field &b) { return a.number < b.number; });
        tables->all_messages.push_back({keep(message->full_name()), fields.data(), (uint32_t)fields.size(),
                                        (uint32_t)message->real_oneof_decl_count()});
    }
    tables->messages = tables->all_messages.data();
    tables->messages_count = (uint32_t)tables->all_messages.size();
    tables->enums = tables->all_enums.data();
    tables->enums_count = (uint32_t)tables->all_enums.size();
    return true;
}

std::unique_ptr<Tables> make_schema(const protobuf_request &request, bool *is_bad_index, std::string *why)
{
    Loader loader(request, why);
    const pb::FileDescriptor *file = loader.load();
    const pb::Descriptor *message = file == nullptr ? nullptr : loader.message(file, is_bad_index);
    if (message == nullptr)
        return nullptr;
    std::unique_ptr<Tables> tables(new Tables());
    if (Maker(tables.get()).make(message))
        return tables;
    *why = "the message refers to more than 4096 other messages";
    return nullptr;
}

} // namespace

extern "C" struct protobuf_schema *protobuf_schema_new(const struct protobuf_request *request,
                                                       bool *is_bad_index, char *why, size_t why_bytes)
{
    /* Turns off libprotobuf's log on stderr: errors are returned as a reason. */
    static pb::LogHandler *const loud = pb::SetLogHandler(nullptr);
    (void)loud;
    *is_bad_index = false;
    why[0] = '\0';
    try {
        std::string reason;
        std::unique_ptr<Tables> tables = make_schema(*request, is_bad_index, &reason);
        snprintf(why, why_bytes, "%s", reason.c_str());
        return tables.release();
    } catch (const std::exception &error) {
        snprintf(why, why_bytes, "%s", error.what());
        return nullptr;
    }
}

extern "C" void protobuf_schema_free(void *schema)
{
    delete static_cast<Tables *>(static_cast<protobuf_schema *>(schema));
}
