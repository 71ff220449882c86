/* `use "lib.so"`: a user's shared library, loaded once and never unloaded. */
#include "core/mem.h"
#include "core/os.h"
#include "operators/user/user.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { LIBRARY_BYTES_MAX = 1 << 30 };

/* Reports why a library is refused; always NULL. */
static const void *refuse(struct diag_list *diags, struct span span, const char *path, const char *what,
                          const char *cause, const char *hint)
{
    struct diag *d = diag_error(diags, DIAG_BAD_LIBRARY, span, "the library `%s` %s", path, what);
    if (cause != NULL)
        diag_cause(diags, d, "%s", cause);
    diag_hint(diags, d, "%s", hint);
    return NULL;
}

/* A library's bytes are part of a run's identity: a line of file name, without folders, and digest. */
static const char *digest_line(const char *path, struct arena *arena, int *error)
{
    char *data = NULL;
    size_t bytes = 0;
    *error = os_read_file(path, LIBRARY_BYTES_MAX, &data, &bytes);
    if (*error != 0)
        return NULL;
    XXH128_hash_t hash = XXH3_128bits(data, bytes);
    free(data);
    const char *slash = strrchr(path, '/');
    return arena_printf(arena, "%s %016llx%016llx\n", slash == NULL ? path : slash + 1,
                        (unsigned long long)hash.high64, (unsigned long long)hash.low64);
}

/* Makes an entry that lives as long as the process. */
static struct user_library *keep_library(const char *path)
{
    static struct kept {
        struct user_library library;
        struct kept *next;
        char path[];
    } * all;
    struct kept *kept = mem_alloc(sizeof(*kept) + strlen(path) + 1);
    strcpy(kept->path, path);
    kept->library = (struct user_library){.path = kept->path};
    kept->next = all;
    all = kept;
    return &kept->library;
}

static const struct leat_library *find_library(const struct user_library *named, struct span span,
                                               struct diag_list *diags)
{
    user_watch_ends();
    user_enter(named, "code at loading:", "constructors");
    void *handle = dlopen(named->path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    user_leave();
    if (handle == NULL)
        return refuse(diags, span, named->path, "cannot be loaded", dlerror(),
                      "build a shared library for this machine: cc -shared -fPIC -o libmine.so mine.c");
    const struct leat_library *library = dlsym(handle, "leat_library");
    if (library == NULL)
        return refuse(diags, span, named->path, "is not a library for leat: it has no symbol `leat_library`",
                      NULL, "export the symbol: LEAT_EXPORT = {.abi = LEAT_ABI, ...} (leat.h)");
    user_watch_library(named->path, library);
    if (library->abi == LEAT_ABI)
        return library;
    struct diag *d = diag_error(diags, DIAG_BAD_LIBRARY, span,
                                "the library `%s` was built for version %u of leat.h, but this leat has "
                                "version %d",
                                named->path, library->abi, LEAT_ABI);
    diag_hint(diags, d, "build it again with the leat.h of this leat");
    return NULL;
}

static uint32_t count_pointers(const void *const *list)
{
    uint32_t count = 0;
    while (list != NULL && list[count] != NULL)
        count++;
    return count;
}

static uint32_t count_functions(const struct function_help *functions)
{
    uint32_t count = 0;
    while (functions != NULL && functions[count].name != NULL)
        count++;
    return count;
}

/* The registry, extended by the library's functions and operators. */
static const struct registry *extend(const struct registry *registry, const struct user_library *library,
                                     struct span span, struct arena *arena, struct diag_list *diags)
{
    const struct leat_library *l = library->library;
    uint32_t functions = 0, operators = 0;
    uint32_t functions_before = count_functions(registry->functions);
    uint32_t operators_before = count_pointers((const void *const *)registry->operators);
    while (l->functions != NULL && l->functions[functions].name != NULL)
        functions++;
    while (l->operators != NULL && l->operators[operators].name != NULL)
        operators++;
    if (registry->user_functions + functions > USER_FUNCTIONS_MAX ||
        registry->user_operators + operators > USER_OPERATORS_MAX) {
        diag_error(diags, DIAG_BAD_LIBRARY, span,
                   "a job can use at most %d functions and %d operators of libraries", USER_FUNCTIONS_MAX,
                   USER_OPERATORS_MAX);
        return NULL;
    }
    struct registry *more = arena_copy(arena, registry, sizeof(*registry));
    struct function_help *helps = arena_array(arena, struct function_help, functions_before + functions + 1);
    const struct operator_kind **kinds =
        arena_array(arena, const struct operator_kind *, operators_before + operators + 1);
    for (uint32_t i = 0; i < functions_before; i++)
        helps[i] = registry->functions[i];
    for (uint32_t i = 0; i < operators_before; i++)
        kinds[i] = registry->operators[i];
    if (registry->libraries.length == 0)
        user_add_function(NULL, NULL, true); /* drops the functions of an earlier job */
    for (uint32_t i = 0; i < functions; i++) {
        const struct leat_function *f = &l->functions[i];
        user_add_function(library, f, false);
        helps[functions_before + i] =
            (struct function_help){f->name, f->signature, f->summary, f->example, false};
    }
    for (uint32_t i = 0; i < operators; i++)
        kinds[operators_before + i] =
            user_operator_kind(library, &l->operators[i], registry->user_operators + i, arena);
    more->functions = helps;
    more->operators = kinds;
    more->user_functions += functions;
    more->user_operators += operators;
    return more;
}

const struct registry *user_use(const struct registry *registry, struct str path, struct span span,
                                struct arena *arena, struct diag_list *diags)
{
    char real[PATH_MAX];
    const char *name = arena_strndup(arena, path.data, path.length);
    if (path.length == 0 || realpath(name, real) == NULL)
        return refuse(diags, span, name, "cannot be found", path.length == 0 ? NULL : strerror(errno),
                      "give its path, relative to the directory in which leat is started: "
                      "use \"lib/libmine.so\"");
    int error = 0;
    const char *line = digest_line(real, arena, &error);
    if (line == NULL)
        return refuse(diags, span, name, "cannot be read", strerror(error),
                      "the path must be that of a file");
    if (memmem(registry->libraries.data, registry->libraries.length, line, strlen(line)) != NULL)
        return refuse(diags, span, name, "is used already", NULL, "remove the second `use`");
    struct user_library *library = keep_library(real);
    library->library = find_library(library, span, diags);
    if (library->library == NULL || !user_check(library, registry, span, arena, diags))
        return NULL;
    const struct registry *more = extend(registry, library, span, arena, diags);
    if (more == NULL)
        return NULL;
    struct registry *own = arena_copy(arena, more, sizeof(*more));
    own->libraries = str_from(arena_printf(arena, "%.*s%s", STR_ARGS(registry->libraries), line));
    return own;
}
