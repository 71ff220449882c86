/* What `leat explain --svg` draws, as texts and places: boxes for stages, a line in them for each step, and arrows with
 * labels between them. The control API gives the same picture to the page. All lengths are pixels; the picture's upper
 * left corner is at 0, 0. */
#ifndef LEAT_PLAN_EXPLAIN_PICTURE_H
#define LEAT_PLAN_EXPLAIN_PICTURE_H

#include "core/arena.h"
#include "plan/plan.h"

struct picture_place {
    double x, y, width, height; /* x, y: of the upper left corner */
};

/* A line of a box: a step. */
struct picture_node {
    const struct plan_node *node;
    const char *name;                     /* shortened, as all texts here; "": the name of the line above */
    const char *kind, *settings, *detail; /* settings, detail: "" if there are none */
    struct picture_place place;
};

struct picture_stage {
    const char *title, *instances; /* "by user_id", "one instance per lane" */
    struct picture_node *nodes;
    uint32_t nodes_count;
    double name_width; /* of the column of names */
    struct picture_place place;
};

/* An exchange between stages. */
struct picture_arrow {
    uint32_t from, to;         /* indices of stages */
    const char *stream, *mode; /* "features", "by user_id" */
    const char *path;          /* of SVG: "M1.0 2.0V3.0C..." */
    double tip_x, tip_y;       /* where the arrow's head points */
    struct picture_place label;
};

struct picture {
    double width, height;
    struct picture_stage *stages; /* those of the plan, in its order */
    struct picture_arrow *arrows;
    uint32_t arrows_count;
};

/* Makes the picture of a plan in the arena. Any thread. */
struct picture *explain_picture(const struct plan *plan, struct arena *arena);

#endif
