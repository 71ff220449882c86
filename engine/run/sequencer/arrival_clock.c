/* The wall clock that ticks of the arrival clock go by. A tick too early makes rows late; a tick too late delays
 * windows in a lull. So this clock is careful with a wall clock that is set:
 *
 * - A process begins with the wall clock, also where several runs follow one another in it (those of a worker): a wall clock that was
 *   set meanwhile is doubted in the next run, too. From then on the clock goes by the monotonic clock: between two looks
 *   it advances by the time that passed.
 * - The wall clock is set forward, or the machine slept: the clock goes on as before for DOUBT_US, because the
 *   wall clock may be set back soon. If it is not, the clock goes at twice the speed until it is there. It gains
 *   PAUSE_US at most between two looks, because looks are in lulls only: after an hour of rows nothing is caught
 *   up at once.
 * - A record with such an arrival time ends that: its broker confirms the time, and the clock is there at once,
 *   but never ahead of the wall clock.
 * - A record of about the time that the clock has says that the step is wrong, for its broker has that time, too: the doubt begins anew.
 * - The wall clock is set back: the clock is there at once. The arrival clock, which never falls, stands until
 *   this clock has reached it; so it does where a process begins with a wall clock behind the log.
 *
 * So where no record confirms more, it advances by at most twice the monotonic time that passed, and by no more
 * than that time itself unless the wall clock has been ahead for DOUBT_US. */
#include "run/sequencer/internal.h"

enum {
    DOUBT_US = 5 * US_PER_SECOND,
    PAUSE_US = 1 * US_PER_SECOND,
    NEWS_US = 1 * US_PER_SECOND,
    RECENT_US =
        1 *
        US_PER_SECOND, /* since the arrival of a record that agrees with the clock; ticks are no later than that */
};

void arrival_clock_begin(struct arrival_clock *clock, int64_t now, int64_t wall)
{
    *clock = (struct arrival_clock){.trusted_us = wall - now, .wall_us = wall - now, .looked_us = now};
}

/* Moves the clock towards a wall clock that is ahead of it. ahead: the wall clock less the monotonic clock; is_denied: a record has said
 * that it is not. */
static enum arrival_news catch_up(struct arrival_clock *clock, int64_t now, int64_t ahead, bool is_denied)
{
    bool is_step = !clock->is_behind || ahead - clock->wall_us >= NEWS_US;
    if (is_step) {
        clock->is_behind = true;
        clock->has_said = false;
        clock->behind_since_us = now;
    }
    if (is_denied)
        clock->behind_since_us = now;
    int64_t doubted_until = clock->behind_since_us + DOUBT_US;
    if (now < doubted_until)
        return ARRIVAL_NO_NEWS;
    bool is_news = !clock->has_said && ahead - clock->trusted_us >= NEWS_US;
    clock->has_said = true;
    int64_t passed = now - MAX(clock->looked_us, doubted_until); /* nothing is gained for the doubt itself */
    clock->trusted_us = MIN(clock->trusted_us + MIN(passed, (int64_t)PAUSE_US), ahead);
    return is_news ? ARRIVAL_CATCHES_UP : ARRIVAL_NO_NEWS;
}

int64_t arrival_clock_look(struct arrival_clock *clock, int64_t now, int64_t wall, int64_t arrived,
                           enum arrival_news *news)
{
    int64_t ahead = wall - now;
    bool is_set_back = !clock->has_looked || ahead <= clock->wall_us - NEWS_US;
    *news = ARRIVAL_NO_NEWS;
    clock->trusted_us = MIN(MAX(clock->trusted_us, time_add(arrived, -now)), ahead);
    if (clock->trusted_us < ahead)
        *news = catch_up(clock, now, ahead, arrived > now + clock->trusted_us - RECENT_US);
    clock->is_behind = clock->trusted_us < ahead;
    if (is_set_back && arrived >= time_add(wall, NEWS_US))
        *news = ARRIVAL_STANDS;
    clock->has_looked = true;
    clock->wall_us = ahead;
    clock->looked_us = now;
    return now + clock->trusted_us;
}
