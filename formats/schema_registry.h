/* A client of a Schema Registry: schemas by their number, over HTTP.
 *
 * Only the configured address is ever asked: no redirects, no proxies of the environment. What cannot be had
 * now (no answer, the server's fault) is asked for again, with growing pauses, up to `wait`. "There is no
 * such schema" is asked again twice, because registries follow each other, and then given as the answer. */
#ifndef LEAT_FORMATS_SCHEMA_REGISTRY_H
#define LEAT_FORMATS_SCHEMA_REGISTRY_H

#include "core/diag.h"
#include "core/option.h"

struct schema_registry_options {
    struct str url; /* empty: no registry */
    struct str user, password, ca;
    int64_t timeout_us, wait_us;
};
extern const struct option schema_registry_options[];

enum { REGISTRY_REFERENCES_MAX = 32, REGISTRY_BODY_BYTES_MAX = 4 << 20 };

/* A schema and what it refers to, in the order in which they can be defined. */
struct registry_schema {
    struct str type; /* AVRO, PROTOBUF, JSON */
    struct str text;
    struct {
        struct str name, text; /* name: protobuf: of the imported file */
    } references[REGISTRY_REFERENCES_MAX];
    uint32_t references_count;
};

enum registry_result {
    REGISTRY_FOUND,
    REGISTRY_MISSING, /* it says that there is none */
    REGISTRY_FAILED,  /* it cannot be asked, or what it says makes no sense */
};

/* Whether the options make sense; diagnostics. */
LEAT_CHECKED bool schema_registry_bind(const struct schema_registry_options *options, struct diag_list *diags,
                                       struct span span);

struct schema_registry;

/* The options live as long. */
struct schema_registry *schema_registry_open(const struct schema_registry_options *options);
/* Ends a request that waits, and those to come: they have failed. Any thread. */
void schema_registry_stop(struct schema_registry *registry);
/* NULL is allowed. */
void schema_registry_close(struct schema_registry *registry);

/* Waits for so long, or until it is time to stop: false. */
bool schema_registry_rest(struct schema_registry *registry, int64_t pause_us);
/* Asks for a schema and waits for it; one thread at a time. Texts in the arena; why: without secrets, where
 * the result is not REGISTRY_FOUND. */
enum registry_result schema_registry_fetch(struct schema_registry *registry, uint32_t number,
                                           struct arena *arena, struct registry_schema *schema,
                                           const char **why);

#endif
