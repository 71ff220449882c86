/* What a job reads besides its records: libraries, tables, schemas, and values of env(...) and file(...). The list
 * is taken from the job's declarations, in their order, with all parameters and functions replaced.
 *
 * Secrets are no part of it, neither by value nor by digest: a value that some option takes as a secret
 * (OPTION_SECRET), or that may be one (OPTION_PRIVATE, and whatever no option table explains), is left out
 * wherever the job has it. */
#include "core/os.h"
#include "plan/build.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct collecting {
    struct plan *plan;
    uint32_t room;
    const char *where; /* of the declaration in work */
    struct str *hidden;
    uint32_t hidden_count, hidden_room;
};

static void set_digest(struct plan_input *input, XXH128_hash_t hash)
{
    snprintf(input->digest, sizeof(input->digest), "%016llx%016llx", (unsigned long long)hash.high64,
             (unsigned long long)hash.low64);
}

/* The input of that sort and name, to which `where` is added; NULL: it is new. */
static struct plan_input *find_input(struct collecting *c, enum plan_input_tag tag, struct str name)
{
    for (uint32_t i = 0; i < c->plan->inputs_count; i++) {
        struct plan_input *input = &c->plan->inputs[i];
        if (input->tag != tag || !str_equal(input->name, name))
            continue;
        if (strstr(input->where, c->where) == NULL)
            input->where = arena_printf(c->plan->arena, "%s, %s", input->where, c->where);
        return input;
    }
    return NULL;
}

static void *grow(struct arena *arena, void *items, uint32_t count, uint32_t *room, size_t size)
{
    if (count < *room)
        return items;
    *room = MAX(*room * 2, 8);
    void *more = arena_calloc(arena, *room, size);
    if (count > 0)
        memcpy(more, items, count * size);
    return more;
}

static struct plan_input *add_input(struct collecting *c, enum plan_input_tag tag, struct str name)
{
    struct plan *plan = c->plan;
    if (find_input(c, tag, name) != NULL)
        return NULL;
    plan->inputs = grow(plan->arena, plan->inputs, plan->inputs_count, &c->room, sizeof(*plan->inputs));
    struct plan_input *input = &plan->inputs[plan->inputs_count++];
    *input = (struct plan_input){.tag = tag, .name = name, .where = c->where};
    return input;
}

static void add_value(struct collecting *c, const struct ast *value)
{
    struct plan_input *input = add_input(c, PLAN_INPUT_VALUE, value->origin);
    if (input == NULL)
        return;
    input->bytes = (int64_t)value->text.length;
    set_digest(input, XXH3_128bits(value->text.data, value->text.length));
}

static void hide(struct collecting *c, struct str origin)
{
    c->hidden = grow(c->plan->arena, c->hidden, c->hidden_count, &c->hidden_room, sizeof(*c->hidden));
    c->hidden[c->hidden_count++] = origin;
}

/* Adds, or hides, all values of env() and file() in the tree. */
static void take_values(struct collecting *c, const struct ast *ast, bool is_hidden)
{
    if (ast == NULL)
        return;
    if (ast->origin.length > 0 && is_hidden)
        hide(c, ast->origin);
    else if (ast->origin.length > 0)
        add_value(c, ast);
    for (uint32_t i = 0; i < ast->count; i++)
        take_values(c, ast->children[i], is_hidden);
    for (uint32_t i = 0; i < ast->entries_count; i++)
        take_values(c, ast->entries[i].value, is_hidden);
}

static struct option_row row_of(const struct option *table, struct str name)
{
    return name.length == 0     ? option_find_flag(table, OPTION_POSITIONAL)
           : str_is(name, "{}") ? option_find_flag(table, OPTION_BODY)
                                : option_find(table, name);
}

static const struct option *choice_of(const struct option_row *row, struct str name)
{
    for (const struct kind_choice *k = row->kinds; k->name != NULL; k++)
        if (str_is(name, k->name))
            return k->options;
    return NULL;
}

/* more: a second table, for names that the first one does not have; NULL: there is none. */
static void take_entries(struct collecting *c, const struct option *table, const struct option *more,
                         const struct ast_entry *entries, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct ast *value = entries[i].value;
        struct option_row row = row_of(table, entries[i].name);
        if (row.name == NULL && more != NULL)
            row = row_of(more, entries[i].name);
        if (value == NULL)
            continue;
        bool is_hidden = row.name == NULL || (row.flags & (OPTION_SECRET | OPTION_PRIVATE)) != 0;
        if (!is_hidden && row.type == OPTION_BLOCK_T && value->tag == AST_BLOCK) {
            take_entries(c, row.block, NULL, value->entries, value->entries_count);
            continue;
        }
        if (!is_hidden && row.type == OPTION_KIND_T && value->tag == AST_KIND) {
            take_entries(c, choice_of(&row, value->text), NULL, value->entries, value->entries_count);
            continue;
        }
        take_values(c, value, is_hidden);
        if ((row.flags & OPTION_INPUT) == 0 || value->tag != AST_TEXT || value->text.length == 0)
            continue;
        struct str shown = value->origin.length > 0 ? value->origin : value->text;
        struct plan_input *file = add_input(c, PLAN_INPUT_FILE, shown);
        if (file != NULL)
            file->path = arena_strndup(c->plan->arena, value->text.data, value->text.length);
    }
}

static void take_declarations(struct collecting *c, const struct job_file *job)
{
    struct arena *arena = c->plan->arena;
    for (uint32_t i = 0; i < job->sources_count; i++) {
        const struct source_decl *source = &job->sources[i];
        c->where = arena_printf(arena, "source `%.*s`", STR_ARGS(source->name.text));
        if (source->descriptor != NULL)
            take_entries(c, source->descriptor->options, source_options, source->entries, source->count);
    }
    for (uint32_t i = 0; i < job->streams_count; i++)
        for (uint32_t k = 0; k < job->streams[i].steps_count; k++) {
            const struct step_decl *step = &job->streams[i].steps[k];
            c->where = arena_printf(arena, "`%.*s` in `%.*s`", STR_ARGS(step->kind.text),
                                    STR_ARGS(job->streams[i].name.text));
            if (step->descriptor != NULL)
                take_entries(c, step->descriptor->options, NULL, step->entries, step->count);
        }
    for (uint32_t i = 0; i < job->learners_count; i++) {
        const struct learner_decl *learner = &job->learners[i];
        c->where = arena_printf(arena, "learner `%.*s`", STR_ARGS(learner->name.text));
        if (learner->descriptor != NULL)
            take_entries(c, learner->descriptor->options, NULL, learner->entries, learner->count);
    }
    for (uint32_t i = 0; i < job->sinks_count; i++) {
        const struct sink_decl *sink = &job->sinks[i];
        c->where = arena_printf(arena, "sink `%.*s`", STR_ARGS(sink->name.text));
        if (sink->descriptor != NULL)
            take_entries(c, sink->descriptor->options, NULL, sink->entries, sink->count);
    }
}

void build_inputs(struct plan_build *b)
{
    const struct job_file *job = b->job;
    struct plan *plan = b->plan;
    struct collecting c = {.plan = plan};
    for (uint32_t i = 0; i < job->uses_count; i++) {
        struct str path = job->uses[i].path;
        c.where = "`use`";
        struct plan_input *library = add_input(&c, PLAN_INPUT_LIBRARY, path);
        if (library != NULL)
            library->path = arena_strndup(plan->arena, path.data, path.length);
    }
    c.where = "the job";
    take_entries(&c, job_options, NULL, job->job_entries, job->job_entries_count);
    take_declarations(&c, job);
    for (uint32_t i = 0; i < job->serves_count; i++) /* what serves use reaches no result of the run */
        for (uint32_t k = 0; k < job->serves[i].count; k++)
            take_values(&c, job->serves[i].entries[k].value, true);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < plan->inputs_count; i++) {
        bool is_hidden = false;
        for (uint32_t k = 0; k < c.hidden_count; k++)
            is_hidden |=
                plan->inputs[i].tag == PLAN_INPUT_VALUE && str_equal(plan->inputs[i].name, c.hidden[k]);
        if (!is_hidden)
            plan->inputs[kept++] = plan->inputs[i];
    }
    plan->inputs_count = kept;
}

/* --- Digests of files --- */

enum { PIECE_BYTES = 1 << 18 };

/* Adds a regular file's bytes. Returns 0 or an errno. */
static int add_file(const char *path, XXH3_state_t *state, int64_t *bytes)
{
    char piece[PIECE_BYTES];
    size_t got = 0;
    struct stat stat;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int error = fd < 0 || fstat(fd, &stat) != 0 ? errno : !S_ISREG(stat.st_mode) ? EINVAL : 0;
    while (error == 0 && (error = os_read_all(fd, piece, sizeof(piece), &got)) == 0 && got > 0) {
        XXH3_128bits_update(state, piece, got);
        *bytes += (int64_t)got;
    }
    if (fd >= 0)
        close(fd);
    return error;
}

/* The digest of a file's bytes; of a glob's files, one after another by name. */
static int measure(struct plan_input *input)
{
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    input->bytes = 0;
    int error = add_file(input->path, &state, &input->bytes);
    glob_t found;
    if (error == ENOENT && glob(input->path, 0, NULL, &found) == 0) {
        error = 0;
        for (size_t i = 0; i < found.gl_pathc && error == 0; i++)
            error = add_file(found.gl_pathv[i], &state, &input->bytes);
        globfree(&found);
    }
    if (error == 0)
        set_digest(input, XXH3_128bits_digest(&state));
    return error;
}

struct plan_input *plan_inputs_measured(const struct plan *plan, struct arena *arena)
{
    struct plan_input *inputs = arena_array(arena, struct plan_input, MAX(plan->inputs_count, 1));
    for (uint32_t i = 0; i < plan->inputs_count; i++) {
        inputs[i] = plan->inputs[i];
        if (inputs[i].path != NULL)
            inputs[i].error = measure(&inputs[i]);
    }
    return inputs;
}

const char *plan_input_kind(enum plan_input_tag tag)
{
    static const char *const names[] = {
        [PLAN_INPUT_LIBRARY] = "library", [PLAN_INPUT_FILE] = "file", [PLAN_INPUT_VALUE] = "value"};
    return names[tag];
}

void plan_explain_inputs(const struct plan *plan, struct byte_buffer *out)
{
    struct arena arena = {0};
    const struct plan_input *inputs = plan_inputs_measured(plan, &arena);
    if (plan->inputs_count == 0)
        buffer_printf(out, "the job reads nothing besides its records\n");
    for (uint32_t i = 0; i < plan->inputs_count; i++) {
        const struct plan_input *input = &inputs[i];
        buffer_printf(out, "%-7s  %.*s, for %s\n", plan_input_kind(input->tag), STR_ARGS(input->name),
                      input->where);
        if (input->error != 0)
            buffer_printf(out, "         cannot be read: %s\n", strerror(input->error));
        else
            buffer_printf(out, "         %s, %lld bytes\n", input->digest, (long long)input->bytes);
    }
    arena_free(&arena);
}
