#include "connectors/kafka/recording_write.h"

#include "core/mem.h"
#include "core/os.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MANIFEST_BYTES_MAX = 256 << 20, PEEK_BYTES = 64, RECORDING_VERSION = 1, PARTITIONS_MAX = 4096 };

static const struct span no_span = {0, 0};
static const char manifest_name[] = "manifest.json";

/* --- Finding recordings --- */

/* Whether the directory has a manifest that begins with the key "leat_recording". */
static bool has_manifest(const char *directory)
{
    char path[4096], begin[PEEK_BYTES];
    size_t got = 0;
    snprintf(path, sizeof(path), "%s/%s", directory, manifest_name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool is_read = os_read_all(fd, begin, sizeof(begin), &got) == 0;
    close(fd);
    return is_read && memmem(begin, got, "\"leat_recording\"", strlen("\"leat_recording\"")) != NULL;
}

/* The directory of the recording that `path` names, malloc'd; NULL: it names none. topic: if `path` is a
 * topic's folder, its name (a slash may follow); else "". */
static char *directory_of(const char *path, const char **topic)
{
    char *directory = mem_strdup(path);
    for (size_t length = strlen(directory); length > 1 && directory[length - 1] == '/';)
        directory[--length] = '\0';
    *topic = "";
    if (has_manifest(directory))
        return directory;
    struct stat info;
    char *slash = strrchr(directory, '/');
    if (stat(directory, &info) == 0 && S_ISDIR(info.st_mode)) {
        *topic = path + (slash == NULL ? 0 : slash + 1 - directory);
        if (slash != NULL)
            *(slash == directory ? slash + 1 : slash) = '\0';
        if (has_manifest(slash == NULL ? "." : directory)) {
            if (slash == NULL)
                strcpy(directory, "."); /* there is room: a name has at least one byte */
            return directory;
        }
    }
    free(directory);
    return NULL;
}

/* Calls `found` for each recording that the path or pattern names, until it returns false; then *is_good is
 * false. found NULL: only counts. Returns the count of all these recordings. */
static uint32_t each(const char *path, bool (*found)(void *argument, const char *directory, struct str topic),
                     void *argument, bool *is_good)
{
    glob_t matches = {0};
    const char *single[1] = {path};
    const char *const *names = single;
    size_t names_count = 1;
    uint32_t count = 0;
    struct stat info;
    *is_good = true;
    if (stat(path, &info) != 0 && glob(path, 0, NULL, &matches) == 0) {
        names = (const char *const *)matches.gl_pathv;
        names_count = matches.gl_pathc;
    }
    for (size_t i = 0; i < names_count; i++) {
        const char *topic;
        char *directory = directory_of(names[i], &topic);
        if (directory == NULL)
            continue;
        count++;
        size_t length = strcspn(topic, "/");
        if (found != NULL && *is_good)
            *is_good = found(argument, directory, (struct str){topic, length});
        free(directory);
    }
    globfree(&matches);
    return count;
}

bool recording_is(struct str path)
{
    bool is_good;
    char *text = mem_str(path);
    bool is_one = each(text, NULL, NULL, &is_good) > 0;
    free(text);
    return is_one;
}

/* --- Reading the manifest --- */

struct manifest {
    struct recording *recording;
    const char *directory, *path;
    struct str topic;         /* the only wanted topic; length 0: no such limit */
    const struct str *wanted; /* wanted topics; count 0: all */
    uint32_t wanted_count;
    struct arena *arena;
    struct diag_list *diags;
};

static bool bad_manifest(const struct manifest *m, const char *what)
{
    struct diag *d =
        diag_error(m->diags, DIAG_FILE_DAMAGED, no_span, "the manifest `%s` is damaged: %s", m->path, what);
    diag_hint(m->diags, d,
              "restore the manifest that `leat record` wrote, or record anew into another directory");
    return false;
}

static bool is_wanted(const struct manifest *m, const char *topic)
{
    if (m->topic.length > 0 && !str_is(m->topic, topic))
        return false;
    for (uint32_t i = 0; i < m->wanted_count; i++)
        if (str_is(m->wanted[i], topic))
            return true;
    return m->wanted_count == 0;
}

struct recording_partition *recording_add(struct recording *recording, const char *topic, int32_t id,
                                          struct arena *arena)
{
    for (uint32_t i = 0; i < recording->partitions_count; i++)
        if (recording->partitions[i].id == id && strcmp(recording->partitions[i].topic, topic) == 0)
            return &recording->partitions[i];
    if (recording->partitions_count == recording->partitions_room) {
        uint32_t room = MAX(recording->partitions_room * 2, 16);
        struct recording_partition *larger = arena_array(arena, struct recording_partition, room);
        if (recording->partitions_count > 0)
            memcpy(larger, recording->partitions, recording->partitions_count * sizeof(*larger));
        recording->partitions = larger;
        recording->partitions_room = room;
    }
    struct recording_partition *p = &recording->partitions[recording->partitions_count++];
    *p = (struct recording_partition){.name = arena_printf(arena, "%s/%d", topic, (int)id),
                                      .topic = arena_strdup(arena, topic),
                                      .id = id,
                                      .first = -1,
                                      .mark = {.offset = -1}};
    return p;
}

void recording_add_span(struct recording_partition *p, const struct recording_span *span, struct arena *arena)
{
    if (p->spans_count == p->spans_room) {
        uint32_t room = MAX(p->spans_room * 2, 16);
        struct recording_span *larger = arena_array(arena, struct recording_span, room);
        if (p->spans_count > 0)
            memcpy(larger, p->spans, p->spans_count * sizeof(*larger));
        p->spans = larger;
        p->spans_room = room;
    }
    p->spans[p->spans_count++] = *span;
}

static bool whole(json_t *object, const char *name, int64_t least, int64_t *value)
{
    json_t *item = json_object_get(object, name);
    *value = json_integer_value(item);
    return json_is_integer(item) && *value >= least;
}

/* Whether a file name of a manifest stays inside the directory, within a folder. */
static bool is_inside(const char *file)
{
    return file != NULL && file[0] != '/' && file[0] != '\0' && strstr(file, "..") == NULL &&
           strchr(file, '/') != NULL;
}

static bool check_file(const struct manifest *m, const struct recording_span *span)
{
    int64_t bytes = os_file_bytes(span->path);
    if (bytes == span->bytes)
        return true;
    struct diag *d = bytes < 0 ? diag_error(m->diags, DIAG_NO_FILE, no_span,
                                            "`%s` does not exist, although the manifest names it", span->path)
                               : diag_error(m->diags, DIAG_FILE_DAMAGED, no_span,
                                            "`%s` has %" PRId64 " bytes, and the manifest says %" PRId64,
                                            span->path, bytes, span->bytes);
    diag_hint(m->diags, d, "copy the whole directory again; a recording without one of its spans has a hole");
    return false;
}

static bool read_span(const struct manifest *m, json_t *item, struct recording_partition *p, int64_t *reach)
{
    struct recording_span span;
    int64_t records;
    const char *file = json_string_value(json_object_get(item, "file"));
    if (!is_inside(file) || !whole(item, "first", 0, &span.first) || !whole(item, "next", 0, &span.next) ||
        !whole(item, "records", 0, &records) || !whole(item, "bytes", 0, &span.bytes) ||
        !whole(item, "first_time", -1, &span.first_ms) || !whole(item, "last_time", -1, &span.last_ms))
        return bad_manifest(m,
                            "a span lacks one of file, first, next, records, bytes, first_time, last_time");
    if (span.first != *reach || span.next < span.first || records > span.next - span.first)
        return bad_manifest(m, "spans do not follow each other");
    *reach = span.next;
    span.records = (uint64_t)records;
    span.file = arena_strdup(m->arena, file);
    span.path = arena_printf(m->arena, "%s/%s", m->directory, file);
    recording_add_span(p, &span, m->arena);
    p->records += span.records;
    return check_file(m, &span);
}

static bool read_mark(const struct manifest *m, json_t *item, struct recording_partition *p)
{
    struct kafka_mark mark;
    const char *digest = json_string_value(json_object_get(item, "digest"));
    if (item == NULL)
        return true;
    if (!whole(item, "offset", 0, &mark.offset) || !whole(item, "time", INT64_MIN, &mark.time) ||
        digest == NULL || sscanf(digest, "%" SCNx64, &mark.digest) != 1)
        return bad_manifest(m, "a partition's `mark` lacks one of offset, time, digest");
    if (mark.offset > p->mark.offset)
        p->mark = mark;
    return true;
}

static bool read_partition(const struct manifest *m, json_t *item)
{
    int64_t id, first, next;
    const char *topic = json_string_value(json_object_get(item, "topic"));
    json_t *spans = json_object_get(item, "spans");
    if (topic == NULL || !whole(item, "partition", 0, &id) || id > INT32_MAX ||
        !whole(item, "first", 0, &first) || !whole(item, "next", first, &next) || !json_is_array(spans))
        return bad_manifest(m, "a partition lacks one of topic, partition, first, next, spans");
    if (!is_wanted(m, topic))
        return true;
    struct recording_partition *p = recording_add(m->recording, topic, (int32_t)id, m->arena);
    int64_t reach = first;
    for (size_t i = 0; i < json_array_size(spans); i++)
        if (!read_span(m, json_array_get(spans, i), p, &reach))
            return false;
    if (reach > next)
        return bad_manifest(m, "a partition ends before its last span");
    /* A span without a file notes how far this recording reaches, for join(). */
    recording_add_span(p, &(struct recording_span){.first = reach, .next = next}, m->arena);
    p->first = p->first < 0 ? first : MIN(p->first, first);
    p->next = MAX(p->next, next);
    return read_mark(m, json_object_get(item, "mark"), p);
}

static json_t *load_manifest(const struct manifest *m)
{
    char *data;
    size_t bytes;
    json_error_t place;
    int error = os_read_file(m->path, MANIFEST_BYTES_MAX, &data, &bytes);
    if (error != 0) {
        struct diag *d =
            diag_error(m->diags, DIAG_FILE_UNREADABLE, no_span, "the manifest `%s` cannot be read", m->path);
        diag_errno(m->diags, d, error);
        return NULL;
    }
    json_t *root = json_loadb(data, bytes, JSON_REJECT_DUPLICATES, &place);
    free(data);
    if (root == NULL)
        bad_manifest(m, place.text);
    return root;
}

static bool read_manifest(void *argument, const char *directory, struct str topic)
{
    struct manifest m = *(const struct manifest *)argument;
    int64_t version;
    m.directory = directory;
    m.topic = topic;
    m.path = arena_printf(m.arena, "%s/%s", directory, manifest_name);
    json_t *root = load_manifest(&m);
    if (root == NULL)
        return false;
    json_t *partitions = json_object_get(root, "partitions"), *order = json_object_get(root, "order_log");
    bool is_good = whole(root, "leat_recording", 1, &version) && json_is_array(partitions);
    if (!is_good)
        bad_manifest(&m, "`leat_recording` and `partitions` were expected");
    if (is_good && version != RECORDING_VERSION) {
        is_good = false;
        diag_error(m.diags, DIAG_FILE_DAMAGED, no_span,
                   "`%s` was written by a newer leat: version %" PRId64 ", not %d", m.path, version,
                   RECORDING_VERSION);
    }
    for (size_t i = 0; is_good && i < json_array_size(partitions); i++)
        is_good = read_partition(&m, json_array_get(partitions, i));
    if (is_good && order != NULL) {
        const char *file = json_string_value(order);
        is_good = file != NULL && file[0] != '/' && strstr(file, "..") == NULL;
        if (!is_good)
            bad_manifest(&m, "`order_log` names no file inside the directory");
        else if (m.recording->order_log == NULL)
            m.recording->order_log = arena_printf(m.arena, "%s/%s", directory, file);
    }
    json_decref(root);
    return is_good;
}

/* --- Joining several recordings --- */

static int compare_spans(const void *left, const void *right)
{
    const struct recording_span *a = left, *b = right;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return (a->next < b->next) - (a->next > b->next);
}

/* Sorts the spans, drops those that others cover, and checks that there is no hole. Spans without a file only
 * say how far a recording reaches; they are dropped. Returns false after a diagnostic. */
static bool join(struct recording_partition *p, struct diag_list *diags)
{
    int64_t reach = p->first;
    uint32_t kept = 0;
    if (p->spans_count > 0)
        qsort(p->spans, p->spans_count, sizeof(*p->spans), compare_spans);
    for (uint32_t i = 0; i < p->spans_count; i++) {
        const struct recording_span span = p->spans[i];
        if (span.first > reach) {
            struct diag *d =
                diag_error(diags, DIAG_FILE_DAMAGED, no_span,
                           "the recordings have a hole: `%s` lacks offsets %" PRId64 " to %" PRId64, p->name,
                           reach, span.first - 1);
            diag_hint(diags, d, "add a recording that has these offsets; or read the recordings one by one");
            return false;
        }
        bool is_new = span.next > reach;
        reach = MAX(reach, span.next);
        if (span.file != NULL && is_new)
            p->spans[kept++] = span;
        else if (span.file != NULL)
            p->records -= MIN(p->records, span.records);
    }
    p->spans_count = kept;
    return true;
}

static int compare_partitions(const void *left, const void *right)
{
    const struct recording_partition *a = left, *b = right;
    int order = strcmp(a->topic, b->topic);
    return order != 0 ? order : (a->id > b->id) - (a->id < b->id);
}

bool recording_open(struct recording *recording, const struct str *paths, uint32_t count,
                    const struct str *topics, uint32_t topics_count, struct arena *arena,
                    struct diag_list *diags)
{
    *recording = (struct recording){0};
    struct manifest m = {.recording = recording,
                         .wanted = topics,
                         .wanted_count = topics_count,
                         .arena = arena,
                         .diags = diags};
    bool is_good = true;
    for (uint32_t i = 0; is_good && i < count; i++) {
        const char *path = arena_strndup(arena, paths[i].data, paths[i].length);
        if (each(path, read_manifest, &m, &is_good) > 0)
            continue;
        struct diag *d = diag_error(diags, DIAG_NO_FILE, no_span, "`%s` is not a recording of topics", path);
        diag_hint(diags, d,
                  "name the directory that `leat record TOPICS --to DIR` wrote, a topic's folder in "
                  "it, or a pattern of these");
        return false;
    }
    for (uint32_t i = 0; is_good && i < recording->partitions_count; i++)
        is_good = join(&recording->partitions[i], diags);
    if (is_good && recording->partitions_count > PARTITIONS_MAX) {
        diag_error(diags, DIAG_TOO_MANY, no_span,
                   "there are %u partitions, and at most %d can be read together",
                   recording->partitions_count, PARTITIONS_MAX);
        return false;
    }
    if (is_good && recording->partitions_count > 1)
        qsort(recording->partitions, recording->partitions_count, sizeof(*recording->partitions),
              compare_partitions);
    return is_good;
}

const struct recording_partition *recording_find(const struct recording *recording, struct str name)
{
    for (uint32_t i = 0; i < recording->partitions_count; i++)
        if (str_is(name, recording->partitions[i].name))
            return &recording->partitions[i];
    return NULL;
}

/* --- Writing the manifest --- */

static void put_partition(const struct recording_partition *p, bool is_first, struct byte_buffer *out)
{
    buffer_printf(out,
                  "%s\n{\"topic\":\"%s\",\"partition\":%d,\"first\":%" PRId64 ",\"next\":%" PRId64
                  ",\"records\":%" PRIu64 ",",
                  is_first ? "" : ",", p->topic, (int)p->id, p->first, p->next, p->records);
    if (p->mark.offset >= 0)
        buffer_printf(out,
                      "\"mark\":{\"offset\":%" PRId64 ",\"time\":%" PRId64 ",\"digest\":\"%016" PRIx64 "\"},",
                      p->mark.offset, p->mark.time, p->mark.digest);
    buffer_printf(out, "\"spans\":[");
    for (uint32_t i = 0; i < p->spans_count; i++) {
        const struct recording_span *span = &p->spans[i];
        buffer_printf(out,
                      "%s\n  {\"file\":\"%s\",\"first\":%" PRId64 ",\"next\":%" PRId64 ",\"records\":%" PRIu64
                      ",\"bytes\":%" PRId64 ",\"first_time\":%" PRId64 ",\"last_time\":%" PRId64 "}",
                      i == 0 ? "" : ",", span->file, span->first, span->next, span->records, span->bytes,
                      span->first_ms, span->last_ms);
    }
    buffer_printf(out, "]}");
}

bool recording_is_order_log(const char *name)
{
    return strcmp(name, "order") == 0 || strcmp(name, "order.log") == 0;
}

/* Name of the order log that a live run wrote into the recording's directory; NULL: none. */
static const char *find_order_log(const char *directory)
{
    static const char *const names[] = {"order", "order.log"};
    char path[4096];
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
        if (access(path, F_OK) == 0)
            return names[i];
    }
    return NULL;
}

int recording_save(const struct recording *recording, const char *directory, const char *order_log)
{
    struct byte_buffer out = {0};
    char path[4096], part[4096 + 8];
    if (order_log == NULL)
        order_log = find_order_log(directory);
    snprintf(path, sizeof(path), "%s/%s", directory, manifest_name);
    snprintf(part, sizeof(part), "%s.part", path);
    buffer_printf(&out, "{\"leat_recording\":%d,", RECORDING_VERSION);
    if (order_log != NULL)
        buffer_printf(&out, "\"order_log\":\"%s\",", order_log);
    buffer_printf(&out, "\"partitions\":[");
    for (uint32_t i = 0; i < recording->partitions_count; i++)
        put_partition(&recording->partitions[i], i == 0, &out);
    buffer_printf(&out, "]}\n");
    int error = os_write_file(part, out.data, out.length, "record.manifest", "record.manifest");
    if (error == 0)
        error = os_rename(part, path, "record.manifest");
    if (error == 0)
        error = os_fsync_directory(directory, "record.manifest");
    buffer_free(&out);
    return error;
}
