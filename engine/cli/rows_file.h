/* Rows of a schema from a file in any format that the file source reads, from a recording of topics (`leat record`), or
 * from standard input as JSON lines. */
#ifndef LEAT_CLI_ROWS_FILE_H
#define LEAT_CLI_ROWS_FILE_H

#include "core/connector.h"
#include "core/registry.h"

struct rows_file;

/* path: "-" is standard input; the directory of a recording, whose records are JSON. what: "the requests", for messages. Columns of the schema that are not required may be
 * missing in a CSV file's header. All arguments must outlive the file. NULL after diagnostics. */
struct rows_file *rows_file_open(const struct registry *registry, const char *path, const char *what,
                                 const struct schema *schema, struct batch_pool *pool,
                                 struct diag_list *diags);
void rows_file_close(struct rows_file *file); /* NULL is allowed */

/* ROWS_WAIT: standard input has none now, and may have more later. ROWS_END: there are no more, or the file cannot be
 * read (diags->errors rises). */
enum rows_status { ROWS_READ, ROWS_WAIT, ROWS_END };
/* Reads up to BATCH_ROWS records. Row i of *rows is record i; all are selected, though those that could not be decoded
 * have undefined values: reasons[i] says why, else it is NULL. The caller releases *rows; the reasons live as long. */
enum rows_status rows_file_next(struct rows_file *file, struct batch **rows, const char ***reasons);

#endif
