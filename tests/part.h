/* `--part K/N`: of a list of cases each Nth one, from the Kth on. CMake's PARTS runs N such processes, so
 * that none of them has much to do, and none is kept long by whatever else the machine does. */
#ifndef LEAT_TESTS_PART_H
#define LEAT_TESTS_PART_H

#include <stdbool.h>
#include <stdio.h>

struct part {
    unsigned number, of; /* from 1 */
};

static inline bool part_read(const char *text, struct part *part)
{
    char rest;
    return sscanf(text, "%u/%u%c", &part->number, &part->of, &rest) == 2 && part->number >= 1 &&
           part->number <= part->of;
}

static inline bool part_has(const struct part *part, unsigned long place)
{
    return place % part->of == part->number - 1;
}

#endif
