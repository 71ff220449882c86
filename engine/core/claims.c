#include "core/claims.h"

#include "core/glob_meet.h"
#include "core/mem.h"

#include <errno.h>
#include <glob.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { NAMES_MAX = 7 };

struct claim {
    enum claim_use use;
    bool is_input; /* a source's claim: the text may be a file's name, a glob or a directory; `resolve` asks
                      the file system which */
    struct str text;
    const char *shown, *who, *refusal;
    struct span span;
    /* Set by the last check: globs with resolved directories; for CLAIM_OWNS the literal directory. */
    const char *names[NAMES_MAX];
    uint32_t names_count;
};

/* A file that existed at the last check (claim: index of its claim), or that a source opened (claim:
 * UINT32_MAX). */
struct known {
    dev_t device;
    ino_t inode;
    uint32_t claim;
};

struct claims {
    struct arena *arena;
    struct claim *items;
    uint32_t count, capacity;
    pthread_mutex_t mutex; /* guards the following members */
    struct known *known;
    uint32_t known_count, known_capacity;
};

static void claims_end(void *argument)
{
    struct claims *claims = argument;
    free(claims->known);
    pthread_mutex_destroy(&claims->mutex);
}

struct claims *claims_new(struct arena *arena)
{
    struct claims *claims = arena_new(arena, struct claims);
    claims->arena = arena;
    pthread_mutex_init(&claims->mutex, NULL);
    arena_defer(arena, claims_end, claims);
    return claims;
}

static struct claim *add(struct claims *claims, enum claim_use use, struct str text, const char *shown,
                         const char *who, struct span span)
{
    if (claims->count == claims->capacity) {
        claims->capacity = MAX(claims->capacity * 2, 16);
        struct claim *larger = arena_array(claims->arena, struct claim, claims->capacity);
        if (claims->count > 0)
            memcpy(larger, claims->items, claims->count * sizeof(*larger));
        claims->items = larger;
    }
    struct claim *claim = &claims->items[claims->count++];
    *claim = (struct claim){.use = use,
                            .text = arena_str(claims->arena, text),
                            .shown = arena_strdup(claims->arena, shown),
                            .who = arena_strdup(claims->arena, who),
                            .refusal = arena_printf(claims->arena, "is read by %s", who),
                            .span = span};
    return claim;
}

void claims_add(struct claims *claims, enum claim_use use, const char *glob, const char *shown,
                const char *who, struct span span)
{
    (void)add(claims, use, str_from(glob), shown, who, span);
}

void claims_add_input(struct claims *claims, struct str path, const char *who, struct span span)
{
    if (path.length > 0)
        add(claims, CLAIM_READS, path, arena_strndup(claims->arena, path.data, path.length), who, span)
            ->is_input = true;
}

void claims_add_options(struct claims *claims, const struct option *table, const void *config,
                        const char *who, struct span span)
{
    for (struct option_walk w = option_walk(table); option_next(&w);) {
        const struct option_row *o = &w.row;
        const char *member = (const char *)config + o->offset;
        if (o->type == OPTION_BLOCK_T)
            claims_add_options(claims, o->block, member, who, span);
        if (o->type == OPTION_KIND_T && ((const struct kind_ref *)(const void *)member)->config != NULL) {
            const struct kind_ref *chosen = (const void *)member;
            claims_add_options(claims, o->kinds[chosen->choice].options, chosen->config, who, span);
        }
        if ((o->flags & OPTION_READS) == 0)
            continue;
        if (o->type == OPTION_TEXT_T)
            claims_add_input(claims, *(const struct str *)(const void *)member, who, span);
        const struct texts *texts = (const void *)member;
        for (uint32_t i = 0; o->type == OPTION_TEXTS_T && i < texts->count; i++)
            claims_add_input(claims, texts->items[i], who, span);
    }
}

/* --- Names --- */

static bool is_special(char c)
{
    return c == '*' || c == '?' || c == '[' || c == '\\';
}

char *claims_literal(struct arena *arena, struct str name)
{
    char *text = arena_alloc(arena, 2 * name.length + 1), *to = text;
    for (size_t i = 0; i < name.length; i++) {
        if (is_special(name.data[i]))
            *to++ = '\\';
        *to++ = name.data[i];
    }
    *to = '\0';
    return text;
}

/* Returns a directory's path with links, `.` and `..` resolved as far as it exists; the rest stays as
 * written. The caller frees it. */
static char *real_directory(const char *path)
{
    char *real = realpath(*path == '\0' ? "." : path, NULL), *copy = real == NULL ? mem_strdup(path) : NULL;
    if (real != NULL)
        return real;
    size_t length = strlen(copy);
    while (length > 1 && copy[length - 1] == '/')
        copy[--length] = '\0';
    char *slash = strrchr(copy, '/'), *name = slash == NULL ? copy : slash + 1;
    if (slash == copy || (slash == NULL && strcmp(copy, ".") == 0)) /* no directory above it to resolve */
        return copy;
    if (slash != NULL)
        *slash = '\0';
    char *above = real_directory(slash == NULL ? "." : copy);
    if (strcmp(name, "..") == 0) {
        char *last = strrchr(above, '/');
        if (last != NULL)
            *(last == above ? last + 1 : last) = '\0';
        real = mem_strdup(above);
    } else if (strcmp(name, ".") == 0) {
        real = mem_strdup(above);
    } else {
        real = mem_printf("%s/%s", strcmp(above, "/") == 0 ? "" : above, name);
    }
    free(above);
    free(copy);
    return real;
}

/* The end of a glob, which real_glob leaves as it is: from the first component with wildcards on; without
 * wildcards, the last component. */
static const char *open_part(const char *glob)
{
    const char *part = glob;
    for (const char *at = glob; *at != '\0' && (*at == '\\' || !is_special(*at)); at++) {
        if (*at == '/')
            part = at + 1;
        at += *at == '\\' && at[1] != '\0';
    }
    return part;
}

/* The glob with its leading directory resolved; in the arena. */
static const char *real_glob(struct arena *arena, const char *glob)
{
    const char *part = open_part(glob);
    char *plain = arena_alloc(arena, (size_t)(part - glob) + 1), *to = plain;
    for (const char *at = glob; at < part; at++) {
        at += *at == '\\';
        *to++ = *at;
    }
    *to = '\0';
    char *real = real_directory(plain);
    const char *above = claims_literal(arena, str_from(real));
    free(real);
    while (strncmp(part, "./", 2) == 0 || *part == '/')
        part += *part == '/' ? 1 : 2;
    return arena_printf(arena, "%s/%s", strcmp(above, "/") == 0 ? "" : above, part);
}

static bool is_there_as_directory(struct arena *arena, struct str path)
{
    struct stat info;
    return stat(arena_strndup(arena, path.data, path.length), &info) == 0 && S_ISDIR(info.st_mode);
}

/* Globs of the files that a source reads in a directory named as its input: a recording, checkpoints or an
 * order log. Other files may lie there, too. */
static const char *const directory_names[NAMES_MAX] = {"manifest.json",
                                                       "*/[0-9][0-9][0-9][0-9][0-9]*-[0-9]*",
                                                       "gen-[0-9]*/*",
                                                       "gen-[0-9]*/*/*",
                                                       "gen-[0-9]*/*/*/*",
                                                       "RUN",
                                                       "[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]-[0-9]*"};
#define DIGITS_5 "[0-9][0-9][0-9][0-9][0-9]"
static const char *const endings[] = {"", ".part", ".part.new-" DIGITS_5 DIGITS_5};

static void resolve(struct claims *claims, struct claim *claim)
{
    struct arena *arena = claims->arena;
    struct stat info;
    const char *text = arena_strndup(arena, claim->text.data, claim->text.length);
    bool is_directory =
        claim->use == CLAIM_OWNS || (claim->is_input && is_there_as_directory(arena, claim->text));
    claim->names_count = 0;
    if (is_directory) {
        char *real = real_directory(text);
        const char *literal = claims_literal(arena, str_from(real));
        free(real);
        for (uint32_t i = 0; i < NAMES_MAX && claim->use != CLAIM_OWNS; i++)
            claim->names[claim->names_count++] = arena_printf(arena, "%s/%s", literal, directory_names[i]);
        if (claim->use == CLAIM_OWNS)
            claim->names[claim->names_count++] = literal;
        return;
    }
    /* Like the source: an existing name is taken literally, even with brackets. */
    if (claim->is_input && stat(text, &info) == 0)
        text = claims_literal(arena, claim->text);
    const char *real = real_glob(arena, text);
    for (uint32_t i = 0; i < (claim->use == CLAIM_WRITES_PART ? ARRAY_COUNT(endings) : 1); i++)
        claim->names[claim->names_count++] = arena_printf(arena, "%s%s", real, endings[i]);
}

/* --- Existing files --- */

static void remember(struct claims *claims, const struct stat *info, uint32_t claim)
{
    if (claims->known_count == claims->known_capacity) {
        claims->known_capacity = MAX(claims->known_capacity * 2, 64);
        claims->known = mem_realloc(claims->known, claims->known_capacity * sizeof(*claims->known));
    }
    claims->known[claims->known_count++] = (struct known){info->st_dev, info->st_ino, claim};
}

static void remember_all(struct claims *claims, uint32_t index)
{
    const struct claim *claim = &claims->items[index];
    struct stat info;
    for (uint32_t i = 0; i < claim->names_count && claim->use != CLAIM_OWNS; i++) {
        glob_t found = {0};
        if (glob(claim->names[i], GLOB_NOSORT, NULL, &found) == 0)
            for (size_t j = 0; j < found.gl_pathc; j++)
                if (stat(found.gl_pathv[j], &info) == 0 && !S_ISDIR(info.st_mode))
                    remember(claims, &info, index);
        globfree(&found);
    }
}

static int compare_known(const void *a, const void *b)
{
    const struct known *x = a, *y = b;
    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    if (x->inode != y->inode)
        return x->inode < y->inode ? -1 : 1;
    return x->claim < y->claim ? -1 : x->claim > y->claim;
}

void claims_opened(struct claims *claims, int fd)
{
    struct stat info;
    if (claims == NULL || fstat(fd, &info) != 0)
        return;
    pthread_mutex_lock(&claims->mutex);
    remember(claims, &info, UINT32_MAX);
    pthread_mutex_unlock(&claims->mutex);
}

static const char *what_instead(mode_t mode)
{
    return S_ISDIR(mode)                    ? "is a directory"
           : S_ISLNK(mode)                  ? "is a symbolic link"
           : S_ISFIFO(mode)                 ? "is a pipe"
           : S_ISSOCK(mode)                 ? "is a socket"
           : S_ISCHR(mode) || S_ISBLK(mode) ? "is a device"
                                            : NULL;
}

/* Who reads the file, as "is read by source `a`"; NULL: nobody. */
static const char *reader_of(struct claims *claims, const struct stat *info)
{
    const char *reader = NULL;
    pthread_mutex_lock(&claims->mutex);
    for (uint32_t i = 0; i < claims->known_count && reader == NULL; i++) {
        const struct known *known = &claims->known[i];
        if (known->device != info->st_dev || known->inode != info->st_ino)
            continue;
        if (known->claim == UINT32_MAX)
            reader = "is read by a source";
        else if (claims->items[known->claim].use == CLAIM_READS)
            reader = claims->items[known->claim].refusal;
    }
    pthread_mutex_unlock(&claims->mutex);
    return reader;
}

const char *claims_refuse(struct claims *claims, const char *path, enum diag_code *code)
{
    struct stat info;
    if (lstat(path, &info) != 0)
        return NULL;
    const char *refusal = what_instead(info.st_mode);
    bool is_read = refusal == NULL && claims != NULL && (refusal = reader_of(claims, &info)) != NULL;
    if (code != NULL)
        *code = is_read ? DIAG_OUTPUT_DESTROYS : DIAG_OUTPUT_FAILED;
    return refusal;
}

bool claims_inside(const char *path, const char *directory)
{
    struct arena arena = {0};
    char *real = realpath(path, NULL), *above = real_directory(directory);
    const char *file = real != NULL ? claims_literal(&arena, str_from(real))
                                    : real_glob(&arena, claims_literal(&arena, str_from(path)));
    const char *inside = claims_literal(&arena, str_from(above));
    bool is_inside = strncmp(file, inside, strlen(inside)) == 0 && file[strlen(inside)] == '/';
    free(real);
    free(above);
    arena_free(&arena);
    return is_inside;
}

/* --- The check --- */

/* Whether files matching the glob may lie in the directory, a literal name. */
static bool is_inside(struct arena *arena, const char *glob, const char *directory)
{
    size_t length = strlen(directory);
    return (strncmp(glob, directory, length) == 0 && (glob[length] == '/' || glob[length] == '\0')) ||
           globs_meet(glob, directory) || globs_meet(glob, arena_printf(arena, "%s/*", directory));
}

static bool names_meet(struct arena *arena, const struct claim *a, const struct claim *b)
{
    for (uint32_t i = 0; i < a->names_count; i++)
        for (uint32_t j = 0; j < b->names_count; j++)
            if (b->use == CLAIM_OWNS ? is_inside(arena, a->names[i], b->names[j])
                                     : globs_meet(a->names[i], b->names[j]))
                return true;
    return false;
}

static bool is_same_file(const struct known *a, const struct known *b)
{
    return a->device == b->device && a->inode == b->inode;
}

/* Sorts the known files by device and inode, and removes duplicates. */
static void sort_known(struct claims *claims)
{
    uint32_t kept = 0;
    if (claims->known_count > 0)
        qsort(claims->known, claims->known_count, sizeof(struct known), compare_known);
    for (uint32_t i = 0; i < claims->known_count; i++)
        if (kept == 0 || compare_known(&claims->known[kept - 1], &claims->known[i]) != 0)
            claims->known[kept++] = claims->known[i];
    claims->known_count = kept;
}

/* found[i * count + j]: whether some existing file belongs to both claims i and j. In the arena. */
static bool *find_shared(const struct claims *claims)
{
    bool *found = arena_array(claims->arena, bool, (size_t)claims->count * claims->count + 1);
    const struct known *known = claims->known, *end = known + claims->known_count;
    for (const struct known *first = known; first < end; first++)
        for (const struct known *other = first + 1; other < end && is_same_file(first, other); other++)
            found[first->claim * claims->count + other->claim] =
                found[other->claim * claims->count + first->claim] = true;
    return found;
}

static void report(const struct claims *claims, struct diag_list *diags, const struct claim *writer,
                   const struct claim *other)
{
    struct diag *d;
    bool is_same_text = strcmp(writer->shown, other->shown) == 0;
    const char *also = is_same_text ? "" : arena_printf(claims->arena, " as `%s`", other->shown);
    if (other->use == CLAIM_OWNS) {
        d = diag_error(diags, DIAG_OUTPUT_DESTROYS, writer->span,
                       "%s would write `%s`, which lies in `%s`, %s", writer->who, writer->shown,
                       other->shown, other->who);
        diag_hint(diags, d, "give the output another directory");
    } else if (other->use == CLAIM_READS) {
        d = diag_error(diags, DIAG_OUTPUT_DESTROYS, writer->span, "%s would write `%s`, which %s reads%s",
                       writer->who, writer->shown, other->who, also);
        diag_hint(diags, d,
                  "give the output another name, or another directory: an output that an input's pattern "
                  "matches would be read by the next run");
    } else {
        d = diag_error(diags, DIAG_OPTIONS_CLASH, writer->span, "%s and %s both write `%s`%s", other->who,
                       writer->who, other->shown,
                       is_same_text ? ""
                                    : arena_printf(claims->arena, ", the second as `%s`", writer->shown));
        diag_hint(diags, d, "give them two different paths; `union` merges two streams into one");
    }
    if (other->span.end > other->span.begin)
        diag_label(diags, d, other->span,
                   other->use == CLAIM_READS  ? "the input is named here"
                   : other->use == CLAIM_OWNS ? "the directory is named here"
                                              : "the first output is named here");
}

/* Reports a claim whose name exists but cannot be replaced by a file (a directory, link, pipe or device). */
static bool check_kind(struct claims *claims, const struct claim *claim, struct diag_list *diags)
{
    struct stat info;
    const char *glob = claim->names[0];
    char *plain = arena_alloc(claims->arena, strlen(glob) + 1), *to = plain;
    for (; *glob != '\0' && (*glob == '\\' || !is_special(*glob)); glob++) {
        glob += *glob == '\\' && glob[1] != '\0';
        *to++ = *glob;
    }
    *to = '\0';
    const char *what = *glob == '\0' && lstat(plain, &info) == 0 ? what_instead(info.st_mode) : NULL;
    if (what == NULL)
        return true;
    struct diag *d = diag_error(diags, DIAG_OUTPUT_FAILED, claim->span, "the output `%s` of %s %s",
                                claim->shown, claim->who, what);
    diag_hint(
        diags, d, "an output replaces a regular file only: %s",
        S_ISCHR(info.st_mode)
            ? "a sink `null` counts rows and writes none, a sink `console` writes rows to standard output"
        : S_ISLNK(info.st_mode) ? "give the path that the link points to"
                                : "give the output another path");
    return false;
}

/* Reports two owned directories of which one is the other, or lies in it. */
static void check_owners(const struct claims *claims, const struct claim *a, const struct claim *b,
                         struct diag_list *diags)
{
    if (!names_meet(claims->arena, a, b) && !names_meet(claims->arena, b, a))
        return;
    struct diag *d =
        diag_error(diags, DIAG_OUTPUT_DESTROYS, b->span,
                   "%s `%s` and %s `%s` lie in one another, and each removes what it does not know", a->who,
                   a->shown, b->who, b->shown);
    diag_hint(diags, d, "give each a directory of its own");
}

bool claims_check(struct claims *claims, struct diag_list *diags)
{
    unsigned errors = diags->errors;
    pthread_mutex_lock(&claims->mutex);
    claims->known_count = 0;
    for (uint32_t i = 0; i < claims->count; i++) {
        resolve(claims, &claims->items[i]);
        remember_all(claims, i);
    }
    sort_known(claims);
    const bool *shared = find_shared(claims);
    for (uint32_t i = 0; i < claims->count; i++) {
        const struct claim *writer = &claims->items[i];
        for (uint32_t j = 0; j < i && writer->use == CLAIM_OWNS; j++)
            if (claims->items[j].use == CLAIM_OWNS)
                check_owners(claims, &claims->items[j], writer, diags);
        bool writes = writer->use == CLAIM_WRITES || writer->use == CLAIM_WRITES_PART;
        if (!writes || !check_kind(claims, writer, diags))
            continue;
        for (uint32_t j = 0; j < claims->count; j++) {
            const struct claim *other = &claims->items[j];
            /* Of two writers, report the one that the job names later. */
            bool is_pair = other->use == CLAIM_READS || other->use == CLAIM_OWNS || j < i;
            if (is_pair && (shared[i * claims->count + j] || names_meet(claims->arena, writer, other)))
                report(claims, diags, writer, other);
        }
    }
    pthread_mutex_unlock(&claims->mutex);
    return diags->errors == errors;
}
