/* The picture of a run, as text: `leat run` draws it on a terminal, `leat top` of a run elsewhere, and lines of progress are
 * made of the same pieces. It reads figures alone, so that it is the same wherever they come from. One thread at a time. */
#ifndef LEAT_CONTROL_PICTURE_H
#define LEAT_CONTROL_PICTURE_H

#include "control/bottleneck.h"
#include "control/dead_watch.h"

/* What is seen only by looking twice: the rate, and whether the watermark moves. */
struct pace {
    int64_t last_us;       /* when the rate was computed last */
    uint64_t last_records; /* records of this life by then */
    double rate;           /* records per second, smoothed over looks */
    bool has_rate;         /* it was computed once */
    /* When the watermark moved last, and how many records had come by then. */
    int64_t watermark, moved_us;
    uint64_t moved_records;
    int64_t still_us; /* for how long the watermark has not moved although records come; 0: it moves */
};
/* records: of this life by now. now_us: of a clock that only rises; the same clock in all calls for a pace. */
void pace_begin(struct pace *pace, uint64_t records, int64_t now_us);
void pace_look_at_rate(struct pace *pace, const struct run_stats *stats, int64_t now_us);
/* A watermark that does not move although records come holds rows back: it is called still after `after_us`. */
void pace_look_at_watermark(struct pace *pace, const struct run_stats *stats, int64_t after_us,
                            int64_t now_us);

/* What the pointers name is the caller's. */
struct picture {
    struct str job; /* its name */
    const struct run_stats *stats;
    const struct dead_watch *watch;
    const struct bottleneck_found *recent; /* of the last seconds; NULL: not known yet */
    const struct pace *pace;
    struct str beside; /* lines of something beside the run, each with its newline; length 0: none */
};

/* Appends the picture's lines, each cut at `width` columns (0: not cut) and closed by `end` ("\x1b[K\n"). Returns their
 * number. */
uint32_t picture_draw(const struct picture *picture, uint32_t width, const char *end,
                      struct byte_buffer *out);
/* The columns and rows of the terminal that `fd` is; 80 and 24 where the terminal does not say. */
struct picture_size {
    uint32_t columns, rows;
};
struct picture_size picture_terminal(int fd);
/* As picture_draw, for a terminal: draws at most `lines` lines (at least 1), of which the last one then says how many are left
 * out, and what to do (`advice`). No line wraps, on a terminal of any width. */
uint32_t picture_fit(const struct picture *picture, struct picture_size size, uint32_t lines,
                     const char *advice, struct byte_buffer *out);
/* Appends the picture as one line of progress, with its newline. */
void picture_line(const struct picture *picture, struct byte_buffer *out);
/* Replaces, from byte `from` on, all that could act on a terminal, by `?`: control characters, marks that turn the direction
 * of writing, and bytes that are no UTF-8; by a space: tabs and newlines. Names, keys and reasons may come from records. */
void picture_clean(struct byte_buffer *out, size_t from);

#endif
