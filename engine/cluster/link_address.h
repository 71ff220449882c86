/* Inside cluster/: addresses of workers, "HOST:PORT". Any thread; may take as long as the system's resolver. */
#ifndef LEAT_CLUSTER_LINK_ADDRESS_H
#define LEAT_CLUSTER_LINK_ADDRESS_H

#include "cluster/link.h"

#include <netinet/in.h>

/* Reads an address; names are resolved to IPv4. may_be_any: port 0 and 0.0.0.0 are allowed, to listen. false + diagnostic. */
LEAT_CHECKED bool link_address_parse(const char *text, bool may_be_any, struct sockaddr_in *address,
                                     struct diag_list *diags);

#endif
