#include "serve/loader.h"

#include "core/mem.h"
#include "core/os.h"
#include "core/refused.h"
#include "core/wait.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

/* A tenth of a core beside busy threads: requests go first, and yet a loaded machine does not keep it from loading. */
enum { LOADER_NICE = 10 };
/* A checkpoint that cannot be opened is tried again: what is missing may be descriptors, or a disk. */
enum { RETRY_US_MIN = 500 * 1000, RETRY_US_MAX = 60 * 1000 * 1000 };

/* A checkpoint with the memory of its diagnostics, which its state store may write to while it answers. */
struct open {
    struct loaded *loaded;
    struct arena arena;
    struct diag_list diags;
    struct open *next;
};

struct loader {
    struct loaded_ask ask;
    uint32_t look_every_ms;
    void (*ready)(void *user);
    void *user;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t changed;
    struct open *opened; /* not taken yet; NULL: none */
    struct open *taken;  /* all that the server has */
    struct open *closing;
    struct checkpoint_id newest; /* opened last */
    int64_t retry_us, pause_us;  /* monotonic: when opening is tried again; the pause before, which doubles */
    struct byte_buffer complaints, said;
    bool must_stop, is_held, has_looked, has_opened;
    bool is_off, must_look; /* rests; looks without waiting */
    uint64_t rests;         /* so far: what a look before the last one opened is not wanted any more */
};

static struct open *open_checkpoint(struct loader *loader, struct checkpoint_id id, bool *is_none)
{
    struct open *open = mem_calloc(1, sizeof(*open));
    struct loaded_ask ask = loader->ask;
    ask.id = id;
    diag_list_init(&open->diags, &open->arena);
    (void)failpoint("serve.open"); /* for tests: opening takes long */
    open->loaded = loaded_open(&ask, is_none, &open->diags);
    return open;
}

static void close_opened(struct open *open)
{
    loaded_close(open->loaded);
    arena_free(&open->arena);
    free(open);
}

/* Keeps the diagnostics for loader_complaints, unless they were said already. The mutex is held. */
static void complain(struct loader *loader, const struct diag_list *diags)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    diag_print(file, diags, NULL, false);
    fclose(file);
    if (bytes != loader->said.length || memcmp(text, loader->said.data, bytes) != 0) {
        buffer_clear(&loader->said);
        buffer_append(&loader->said, text, bytes);
        buffer_append(&loader->complaints, text, bytes);
    }
    free(text);
}

/* Whether the checkpoint is to be opened now. *is_any: another that is whole will do, for it is the first one; later an
 * older one is of no use. */
static bool must_open(struct loader *loader, struct checkpoint_id id, bool *is_any)
{
    pthread_mutex_lock(&loader->mutex);
    bool is_newer = id.generation != loader->newest.generation || id.epoch != loader->newest.epoch;
    is_newer &= os_monotonic_us() >= loader->retry_us;
    *is_any = loader->ask.id.generation == 0 && !loader->has_opened;
    pthread_mutex_unlock(&loader->mutex);
    return is_newer;
}

/* Keeps what a look has found. Returns what is to be closed; NULL: nothing. The mutex is held. */
static struct open *keep(struct loader *loader, struct checkpoint_id id, struct open *open)
{
    if (open == NULL)
        return NULL;
    if (open->loaded == NULL) {
        loader->pause_us = MIN(MAX(loader->pause_us * 2, RETRY_US_MIN), RETRY_US_MAX);
        loader->retry_us = os_monotonic_us() + loader->pause_us;
        complain(loader, &open->diags);
        return open;
    }
    struct open *before = loader->opened;
    loader->newest = id;
    loader->pause_us = 0;
    loader->opened = open;
    loader->has_opened = true;
    buffer_clear(&loader->said);
    return before;
}

/* Looks for a newer checkpoint, and opens it. rests: when it began. The mutex is not held. */
static void look(struct loader *loader, uint64_t rests)
{
    struct arena arena = {0};
    struct diag_list diags;
    diag_list_init(&diags, &arena);
    struct checkpoint_id id = loader->ask.id;
    bool is_none = false;
    bool is_good = id.generation != 0 || loaded_newest(loader->ask.directory, &id, &diags), is_any;
    bool is_newer = is_good && id.generation != 0 && must_open(loader, id, &is_any);
    struct open *open =
        is_newer ? open_checkpoint(loader, is_any ? (struct checkpoint_id){0} : id, &is_none) : NULL;
    if (is_none && loader->ask.id.generation != 0)
        diag_error(&open->diags, DIAG_NO_CHECKPOINT, (struct span){0}, "there is no checkpoint in `%s`",
                   loader->ask.directory);
    pthread_mutex_lock(&loader->mutex);
    bool is_wanted = rests == loader->rests, is_first = is_wanted && !loader->has_looked;
    if (is_wanted && !is_good)
        complain(loader, &diags);
    struct open *spare = is_wanted ? keep(loader, id, open) : open;
    loader->has_looked |= is_wanted;
    pthread_mutex_unlock(&loader->mutex);
    if (spare != NULL)
        close_opened(spare);
    if (open != NULL || !is_good || is_first)
        loader->ready(loader->user);
    arena_free(&arena);
}

/* Waits for the next look, or for something to close or the end. The mutex is held. */
static void rest(struct loader *loader)
{
    struct timespec until = wait_until((int64_t)loader->look_every_ms * 1000);
    bool has_time = true;
    while (has_time && !loader->must_stop && !loader->must_look && loader->closing == NULL)
        has_time = wait_on(&loader->changed, &loader->mutex, &until);
}

static void *follow(void *argument)
{
    struct loader *loader = argument;
    setpriority(PRIO_PROCESS, (id_t)gettid(), LOADER_NICE);
    pthread_mutex_lock(&loader->mutex);
    while (!loader->must_stop) {
        struct open *closing = loader->closing;
        loader->closing = NULL;
        loader->must_look = false;
        pthread_mutex_unlock(&loader->mutex);
        for (struct open *next; closing != NULL; closing = next) {
            next = closing->next;
            close_opened(closing);
        }
        pthread_mutex_lock(&loader->mutex);
        uint64_t rests = loader->rests;
        bool must_look = !loader->is_held && !loader->is_off;
        pthread_mutex_unlock(&loader->mutex);
        if (must_look)
            look(loader, rests);
        pthread_mutex_lock(&loader->mutex);
        rest(loader);
    }
    pthread_mutex_unlock(&loader->mutex);
    return NULL;
}

struct loader *loader_start(const struct plan *plan, const char *directory, struct checkpoint_id id,
                            bool is_off, uint32_t look_every_ms, void (*ready)(void *user), void *user)
{
    struct loader *loader = mem_calloc(1, sizeof(*loader));
    loader->ask = (struct loaded_ask){.plan = plan, .directory = directory, .id = id};
    loader->is_off = is_off;
    loader->look_every_ms = look_every_ms;
    loader->ready = ready;
    loader->user = user;
    pthread_mutex_init(&loader->mutex, NULL);
    pthread_cond_init(&loader->changed, NULL);
    refused_unless_begun(pthread_create(&loader->thread, NULL, follow, loader));
    return loader;
}

struct loaded *loader_take(struct loader *loader)
{
    pthread_mutex_lock(&loader->mutex);
    struct open *open = loader->opened;
    loader->opened = NULL;
    if (open != NULL) {
        open->next = loader->taken;
        loader->taken = open;
    }
    pthread_mutex_unlock(&loader->mutex);
    return open == NULL ? NULL : open->loaded;
}

void loader_hold(struct loader *loader, bool is_held)
{
    pthread_mutex_lock(&loader->mutex);
    loader->is_held = is_held;
    pthread_cond_signal(&loader->changed);
    pthread_mutex_unlock(&loader->mutex);
}

/* Moves what was taken to what is closed. The mutex is held. */
static void give_back(struct loader *loader, const struct loaded *loaded)
{
    struct open **link = &loader->taken;
    while ((*link)->loaded != loaded)
        link = &(*link)->next;
    struct open *open = *link;
    *link = open->next;
    open->next = loader->closing;
    loader->closing = open;
    pthread_cond_signal(&loader->changed);
}

void loader_give_back(struct loader *loader, struct loaded *loaded)
{
    if (loaded == NULL)
        return;
    pthread_mutex_lock(&loader->mutex);
    give_back(loader, loaded);
    pthread_mutex_unlock(&loader->mutex);
}

void loader_decline(struct loader *loader, struct loaded *loaded)
{
    pthread_mutex_lock(&loader->mutex);
    give_back(loader, loaded);
    loader->newest = (struct checkpoint_id){0};
    pthread_mutex_unlock(&loader->mutex);
}

void loader_rest(struct loader *loader, struct loaded *loaded)
{
    pthread_mutex_lock(&loader->mutex);
    if (loaded != NULL)
        give_back(loader, loaded);
    struct open *opened = loader->opened;
    if (opened != NULL) {
        opened->next = loader->closing;
        loader->closing = opened;
        loader->opened = NULL;
    }
    loader->rests++;
    loader->is_off = true;
    loader->is_held = loader->has_looked = loader->has_opened = loader->must_look = false;
    loader->newest = (struct checkpoint_id){0};
    loader->retry_us = loader->pause_us = 0;
    buffer_clear(&loader->complaints);
    buffer_clear(&loader->said);
    pthread_cond_signal(&loader->changed);
    pthread_mutex_unlock(&loader->mutex);
}

void loader_resume(struct loader *loader)
{
    pthread_mutex_lock(&loader->mutex);
    loader->is_off = false;
    loader->must_look = true;
    pthread_cond_signal(&loader->changed);
    pthread_mutex_unlock(&loader->mutex);
}

void loader_broken(struct loader *loader, const struct loaded *loaded)
{
    pthread_mutex_lock(&loader->mutex);
    const struct open *open = loader->taken;
    while (open->loaded != loaded)
        open = open->next;
    complain(loader, &open->diags);
    loader->newest = (struct checkpoint_id){0};
    loader->has_opened = false;
    pthread_mutex_unlock(&loader->mutex);
}

bool loader_complaints(struct loader *loader, struct byte_buffer *out)
{
    pthread_mutex_lock(&loader->mutex);
    bool has_some = loader->complaints.length > 0;
    buffer_append(out, loader->complaints.data, loader->complaints.length);
    buffer_clear(&loader->complaints);
    pthread_mutex_unlock(&loader->mutex);
    return has_some;
}

bool loader_has_looked(struct loader *loader)
{
    pthread_mutex_lock(&loader->mutex);
    bool has_looked = loader->has_looked;
    pthread_mutex_unlock(&loader->mutex);
    return has_looked;
}

void loader_stop(struct loader *loader)
{
    if (loader == NULL)
        return;
    pthread_mutex_lock(&loader->mutex);
    loader->must_stop = true;
    pthread_cond_signal(&loader->changed);
    pthread_mutex_unlock(&loader->mutex);
    pthread_join(loader->thread, NULL);
    struct open *lists[] = {loader->opened, loader->taken, loader->closing};
    for (size_t i = 0; i < ARRAY_COUNT(lists); i++)
        for (struct open *open = lists[i], *next; open != NULL; open = next) {
            next = open->next;
            close_opened(open);
        }
    pthread_cond_destroy(&loader->changed);
    pthread_mutex_destroy(&loader->mutex);
    buffer_free(&loader->complaints);
    buffer_free(&loader->said);
    free(loader);
}
