/* Nexmark: the event stream of an auction site. Of every 50 events one is a person, three are auctions and 46
 * are bids; shares and ratios are those of Apache Beam's and Flink's generators.
 *
 * Event i is a function of the options and i: it draws from its own sequence of random numbers, seeded by
 * (seed, i). So any part of the stream can be made without the rest, on any number of threads, and a source
 * can begin anywhere. */
#ifndef LEAT_CONNECTORS_GENERATOR_NEXMARK_EVENT_H
#define LEAT_CONNECTORS_GENERATOR_NEXMARK_EVENT_H

#include "core/base.h"

/* NEXMARK_GROUP: events in a group; parts of a stream consist of whole groups. */
enum { NEXMARK_GROUP = 50, NEXMARK_TEXT_BYTES = 8192 };
enum { NEXMARK_PERSON_BYTES_MAX = 2000, NEXMARK_AUCTION_BYTES_MAX = 4000, NEXMARK_BID_BYTES_MAX = 4000 };

/* Limit of event numbers: times stay within what microseconds in 64 bits can express. */
#define NEXMARK_EVENTS_MAX INT64_C(1000000000000)

#define NEXMARK_RATE_TEXT "10000"

struct nexmark_options {
    int64_t seed;
    int64_t rate; /* events per second of event time */
    /* Nominal sizes, as Beam counts them: 8 bytes for a number, and the bare text of a string; `extra` fills
     * up the rest. 0: `extra` is empty. */
    int64_t person_bytes, auction_bytes, bid_bytes;
};

enum nexmark_type { NEXMARK_PERSON, NEXMARK_AUCTION, NEXMARK_BID };

/* Only the members of the event's type are set. Texts point into `text` or are static. */
struct nexmark_event {
    enum nexmark_type type;
    int64_t time_ms; /* date_time */
    struct str extra;
    int64_t id; /* of persons and auctions */
    /* Persons. */
    struct str name, email, credit_card, city, state;
    /* Auctions. */
    struct str item_name, description;
    int64_t initial_bid, reserve, expires_ms, seller, category;
    /* Bids. */
    int64_t auction, bidder, price;
    struct str channel, url;

    char text[NEXMARK_TEXT_BYTES];
};

/* number: from 0, below NEXMARK_EVENTS_MAX. */
void nexmark_make(const struct nexmark_options *options, int64_t number, struct nexmark_event *event);

#endif
