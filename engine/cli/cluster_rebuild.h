/* `leat cluster rebuild`: etcd's data was lost, and its record of a cluster is written anew from the newest head. Control thread. */
#ifndef LEAT_CLI_CLUSTER_REBUILD_H
#define LEAT_CLI_CLUSTER_REBUILD_H

#include "cluster/coordination.h"

/* from: the file of a head's manifest in the job's checkpoint directory, or the URL of the job's store. It must be the newest head there: an
 * older one would do again what sinks have given away. Says what was written. False after a diagnostic. */
LEAT_CHECKED bool cluster_rebuild(struct coordination *coordination, struct str name, const char *from,
                                  struct diag_list *diags);

#endif
