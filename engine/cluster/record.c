#include "cluster/record.h"

json_t *record_load(struct str text, int version)
{
    json_t *json = json_loadb(text.data, text.length, JSON_REJECT_DUPLICATES, NULL);
    const json_t *member = json_object_get(json, "version");
    if (json_is_object(json) && json_is_integer(member) && json_integer_value(member) == version)
        return json;
    json_decref(json);
    return NULL;
}

bool record_number(const json_t *record, const char *name, int64_t most, int64_t *value)
{
    const json_t *member = json_object_get(record, name);
    *value = json_integer_value(member);
    return json_is_integer(member) && *value >= 0 && *value <= most;
}

bool record_text(const json_t *record, const char *name, size_t most, struct arena *arena, struct str *text)
{
    const json_t *member = json_object_get(record, name);
    if (!json_is_string(member) || json_string_length(member) > most)
        return false;
    *text = arena_str(arena, (struct str){json_string_value(member), json_string_length(member)});
    return true;
}
