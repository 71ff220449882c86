/* Inside serve/: the files of a mirror (serve/link.h): what it has, and how what came gets to its place. One thread. */
#ifndef LEAT_SERVE_LINK_FILES_H
#define LEAT_SERVE_LINK_FILES_H

#include "serve/link_format.h"

struct link_place {
    const char *directory, *incoming; /* the mirror's; where files lie until all of a checkpoint are there */
};

/* Whether the mirror has the file: of a checkpoint that is in place, or of a table with the same length and time of change. */
bool link_file_is_in_place(const struct link_place *place, const struct link_file *file);
/* Opens the file in `incoming` for writing, empty. -1: *error has an errno. */
int link_file_open(const struct link_place *place, struct str name, int *error);
/* Gives the file that was written its time of change, and closes it. 0 or an errno. */
int link_file_close(int fd, const struct link_file *file);

/* Moves what is in `incoming` of the list to its place: tables first, then checkpoints, base first. At each moment the chain
 * of each checkpoint in place is complete, and its tables are there. 0 or an errno. */
int link_files_move(const struct link_place *place, struct str list);
/* Removes the tables that the list lacks: no checkpoint in place needs them. */
void link_files_sweep(const struct link_place *place, struct str list);
/* Removes all generations of checkpoints; other files stay. 0 or an errno. */
int link_files_forget(const struct link_place *place);

#endif
