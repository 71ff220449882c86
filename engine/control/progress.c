#include "control/progress.h"

#include "core/option.h"

bool progress_parse(struct progress *progress, const char *text)
{
    return literal_duration(str_from(text), &progress->every_us) && progress->every_us >= US_PER_SECOND;
}

static void copy_state(const char *state, char out[PROGRESS_STATE_BYTES])
{
    size_t length = 0;
    for (; *state != '\0' && length < PROGRESS_STATE_BYTES - 1; state++)
        if (*state < '0' || *state > '9')
            out[length++] = *state;
    out[length] = '\0';
}

bool progress_is_due(struct progress *progress, int64_t now_us, const char *state)
{
    char now_state[PROGRESS_STATE_BYTES];
    int64_t every_us = progress->every_us == 0 ? PROGRESS_EVERY_US : progress->every_us;
    copy_state(state, now_state);
    if (progress->begun_us == 0)
        progress->begun_us = now_us;
    bool is_time = progress->shown_us == 0 ? now_us - progress->begun_us >= MIN(every_us, PROGRESS_FIRST_US)
                                           : now_us - progress->shown_us >= every_us;
    bool has_changed = strcmp(now_state, progress->state) != 0;
    if (!is_time && !(has_changed && progress->changes < PROGRESS_CHANGES_MAX))
        return false;
    progress->changes = is_time ? 0 : progress->changes + 1;
    progress->shown_us = now_us;
    memcpy(progress->state, now_state, sizeof(now_state));
    return true;
}
