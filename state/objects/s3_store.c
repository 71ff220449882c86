/* An object store in an S3 bucket. */
#include "core/diag_copy.h"
#include "core/mem.h"
#include "core/os.h"
#include "state/objects/s3.h"

#include <stdlib.h>

/* A list's page has at most 1,000 entries; more pages than this are no list. */
enum { PAGES_MAX = 2 * (OBJECTS_LIST_MAX / 1000 + 1), PAGE_ENTRIES = 1000 };

static bool perform(struct objects *objects, struct s3_call *call, struct diag_list *diags)
{
    struct arena arena = {.block_bytes = 4096};
    bool ok = s3_perform(objects, call, &arena, diags) == OBJECTS_DONE;
    call->document = (struct s3_document){0};
    arena_free(&arena);
    return ok;
}

/* --- Putting and getting --- */

static bool put(struct objects *objects, struct str name, const void *data, size_t bytes,
                struct diag_list *diags)
{
    struct s3_call call = {.method = "PUT", .purpose = "put", .name = name, .body = {data, bytes}};
    return perform(objects, &call, diags);
}

enum { NOT_IMPLEMENTED = 501 };

/* The second time tells whether the store goes by the condition: then the object that it has made the first time is in the way. */
static enum objects_new put_new(struct objects *objects, struct str name, const void *data, size_t bytes,
                                struct diag_list *diags)
{
    struct arena arena = {.block_bytes = 4096};
    struct diag_list said;
    enum objects_result result = OBJECTS_DONE;
    long status = 0;
    int times = 0;
    diag_list_init(&said, &arena);
    for (; times < 2 && result == OBJECTS_DONE; times++) {
        struct s3_call call = {.method = "PUT",
                               .purpose = "put",
                               .name = name,
                               .body = {data, bytes},
                               .is_new = true,
                               .missing_codes = {"PreconditionFailed"}};
        result = s3_perform(objects, &call, &arena, &said);
        status = call.status;
    }
    bool knows_none = result == OBJECTS_FAILED && status == NOT_IMPLEMENTED;
    if (result == OBJECTS_FAILED && !knows_none)
        diag_add_all(diags, &said);
    arena_free(&arena);
    if (result == OBJECTS_MISSING)
        return times == 1 ? OBJECTS_NEW_TAKEN : OBJECTS_NEW_ALONE;
    return result == OBJECTS_DONE || (knows_none && put(objects, name, data, bytes, diags))
               ? OBJECTS_NEW_UNKNOWN
               : OBJECTS_NEW_FAILED;
}

static bool put_file(struct objects *objects, struct str name, int fd, uint64_t bytes, const char *path,
                     struct diag_list *diags)
{
    if (bytes > objects->options.part_bytes)
        return s3_put_parts(objects, name, fd, bytes, path, diags);
    char *data = mem_alloc((size_t)bytes);
    size_t got = 0;
    int error = os_pread_all(fd, data, (size_t)bytes, 0, &got);
    bool ok = error == 0 && got == bytes ? put(objects, name, data, got, diags)
                                         : s3_say_short(path, bytes, error, diags);
    free(data);
    return ok;
}

static enum objects_result get_bytes(struct objects *objects, struct s3_call *call, struct diag_list *diags)
{
    struct arena arena = {.block_bytes = 1024};
    call->method = "GET";
    call->purpose = "get";
    call->may_miss = true;
    enum objects_result result = s3_perform(objects, call, &arena, diags);
    call->document = (struct s3_document){0};
    arena_free(&arena);
    return result;
}

static enum objects_result get(struct objects *objects, struct str name, size_t bytes_max,
                               struct byte_buffer *out, struct diag_list *diags)
{
    struct s3_call call = {.name = name, .out = out, .out_max = bytes_max};
    return get_bytes(objects, &call, diags);
}

static enum objects_result head(struct objects *objects, struct str name, uint64_t *bytes,
                                struct diag_list *diags)
{
    struct arena arena = {.block_bytes = 1024};
    struct s3_call call = {.method = "HEAD", .purpose = "look at", .name = name, .may_miss = true};
    enum objects_result result = s3_perform(objects, &call, &arena, diags);
    *bytes = call.length;
    arena_free(&arena);
    return result;
}

static enum objects_result get_range(struct objects *objects, struct str name, uint64_t offset, size_t bytes,
                                     struct byte_buffer *out, struct diag_list *diags)
{
    struct s3_call call = {.name = name, .out = out, .out_max = bytes, .has_range = true, .offset = offset};
    uint64_t size;
    if (bytes > 0)
        return get_bytes(objects, &call, diags);
    return head(objects, name, &size, diags); /* a range of no bytes cannot be asked for */
}

static bool remove_object(struct objects *objects, struct str name, struct diag_list *diags)
{
    struct s3_call call = {.method = "DELETE", .purpose = "delete", .name = name, .may_miss = true};
    struct arena arena = {.block_bytes = 1024};
    bool ok = s3_perform(objects, &call, &arena, diags) != OBJECTS_FAILED;
    arena_free(&arena);
    return ok;
}

/* --- Listing --- */

static bool bad_list(const struct objects *objects, const struct s3_call *call, const char *what,
                     struct diag_list *diags)
{
    s3_say(objects, call, &(struct s3_failure){S3_DAMAGED, what}, 1, diags);
    return false;
}

/* Gets one page behind the token; the documents' texts lie in the arena. */
static bool get_page(struct objects *objects, struct s3_call *call, struct str prefix, struct str token,
                     uint32_t entries, struct arena *arena, struct diag_list *diags)
{
    char most[16];
    snprintf(most, sizeof(most), "%u", entries);
    *call = (struct s3_call){.method = "GET", .purpose = "list the store", .expected = S3_ROOT_LIST};
    s3_add_parameter(call, "list-type", STR("2"));
    s3_add_parameter(call, "max-keys", str_from(most));
    s3_add_parameter(call, "prefix", prefix);
    if (token.length > 0)
        s3_add_parameter(call, "continuation-token", token);
    return s3_perform(objects, call, arena, diags) == OBJECTS_DONE;
}

/* Adds a page's entries. *last: the key before; keys rise, so that no list goes in a circle. */
static bool take_page(struct objects *objects, const struct s3_call *call, struct str *last,
                      struct objects_entries *entries, struct diag_list *diags)
{
    const struct s3 *s3 = objects->store;
    size_t length = strlen(s3->prefix);
    for (uint32_t i = 0; i < call->document.count; i++) {
        struct str key = call->document.entries[i].key;
        if (key.length < length || memcmp(key.data, s3->prefix, length) != 0)
            return bad_list(objects, call, "it lists names that do not begin with the prefix", diags);
        if (str_compare(*last, key) >= 0)
            return bad_list(objects, call, "its names do not rise", diags);
        struct str name = {key.data + length, key.length - length};
        if (objects_name_is_good(name) &&
            !objects_entries_add(entries, name, call->document.entries[i].bytes))
            return bad_list(objects, call, "it has too many objects", diags);
        *last = key;
    }
    return true;
}

static bool list(struct objects *objects, struct str prefix, struct arena *arena,
                 struct objects_entry **entries, uint32_t *count, struct diag_list *diags)
{
    const struct s3 *s3 = objects->store;
    struct objects_entries found = {0};
    struct str whole = str_from(arena_printf(arena, "%s%.*s", s3->prefix, STR_ARGS(prefix))), token = {0},
               last = {0};
    bool ok, more = true;
    uint32_t pages = 0;
    do {
        struct s3_call call;
        ok = get_page(objects, &call, whole, token, PAGE_ENTRIES, arena, diags) &&
             take_page(objects, &call, &last, &found, diags);
        more = ok && call.document.is_truncated;
        if (more && (++pages == PAGES_MAX || str_equal(token, call.document.next_token)))
            ok = bad_list(objects, &call, "it goes on for ever", diags);
        token = more ? call.document.next_token : token;
    } while (ok && more);
    if (ok && found.count > 0) {
        *entries = arena_copy(arena, found.items, found.count * sizeof(*found.items));
        *count = found.count;
    }
    free(found.items);
    return ok;
}

static bool check(struct objects *objects, struct diag_list *diags)
{
    const struct s3 *s3 = objects->store;
    struct arena arena = {.block_bytes = 4096};
    struct s3_call call;
    bool ok = get_page(objects, &call, str_from(s3->prefix), (struct str){0}, 1, &arena, diags);
    arena_free(&arena);
    return ok;
}

/* --- Uploads that nobody completed --- */

/* Ends those of a page that are old enough, by the store's clock. */
static bool abandon_page(struct objects *objects, const struct s3_call *page, int64_t age_us,
                         struct arena *arena, uint32_t *count, struct diag_list *diags)
{
    const struct s3 *s3 = objects->store;
    size_t length = strlen(s3->prefix);
    int64_t now = page->date_us != 0 ? page->date_us : os_wall_us() + s3->clock_us;
    for (uint32_t i = 0; i < page->document.count; i++) {
        const struct s3_entry *entry = &page->document.entries[i];
        struct str name = {entry->key.data + length, entry->key.length - length};
        if (entry->key.length <= length || memcmp(entry->key.data, s3->prefix, length) != 0 ||
            !objects_name_is_good(name) || entry->begun_us == TIME_MIN || now - entry->begun_us < age_us)
            continue;
        if (!s3_abort(objects, name, entry->upload_id, arena, diags))
            return false;
        ++*count;
    }
    return true;
}

static bool abandon(struct objects *objects, int64_t age_us, uint32_t *count, struct diag_list *diags)
{
    const struct s3 *s3 = objects->store;
    struct arena arena = {.block_bytes = 4096};
    struct str next_key = {0}, next_upload = {0};
    bool ok, more = true;
    uint32_t pages = 0;
    do {
        struct s3_call call = {
            .method = "GET", .purpose = "list unfinished uploads of the store", .expected = S3_ROOT_UPLOADS};
        s3_add_parameter(&call, "uploads", (struct str){0});
        s3_add_parameter(&call, "prefix", str_from(s3->prefix));
        if (next_key.length > 0) {
            s3_add_parameter(&call, "key-marker", next_key);
            s3_add_parameter(&call, "upload-id-marker", next_upload);
        }
        ok = s3_perform(objects, &call, &arena, diags) == OBJECTS_DONE &&
             abandon_page(objects, &call, age_us, &arena, count, diags);
        more = ok && call.document.is_truncated && ++pages < PAGES_MAX;
        next_key = call.document.next_key;
        next_upload = call.document.next_upload;
    } while (ok && more);
    arena_free(&arena);
    return ok;
}

const struct objects_kind objects_s3 = {
    .scheme = "s3://",
    .open = s3_make,
    .close = s3_free,
    .check = check,
    .put = put,
    .put_new = put_new,
    .put_file = put_file,
    .get = get,
    .get_range = get_range,
    .head = head,
    .list = list,
    .remove = remove_object,
    .abandon = abandon,
};
