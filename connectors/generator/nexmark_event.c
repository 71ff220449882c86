#include "connectors/generator/nexmark_event.h"

#include <emmintrin.h>
#include <math.h>

enum { PERSONS = 1, AUCTIONS = 3 }; /* per group of NEXMARK_GROUP events */
enum { FIRST_ID = 1000, FIRST_CATEGORY = 10, CATEGORIES = 5, CHANNELS = 10000 };
/* HOT_AUCTION, HOT_BIDDER ...: one draw in this many is not the hot id. HOT_EVERY: the hot id changes with
 * every 100th id. */
enum { HOT_EVERY = 100, HOT_AUCTION = 2, HOT_BIDDER = 4, HOT_SELLER = 4, HOT_CHANNEL = 2 };
/* Other ids are drawn from the newest ACTIVE_PERSONS or OPEN_AUCTIONS ids, and from AHEAD ids beyond the
 * newest, which are only made later. */
enum { ACTIVE_PERSONS = 1000, OPEN_AUCTIONS = 100, AHEAD = 10 };

#define START_MS INT64_C(1436918400000) /* 2015-07-15T00:00:00Z */
#define URLS     UINT64_C(0x6368616e6e656c)

/* --- Random numbers --- */

/* SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014), with a state for
 * each event. */
#define STEP UINT64_C(0x9e3779b97f4a7c15)

struct draws {
    uint64_t state;
};

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static inline uint64_t draw(struct draws *draws)
{
    draws->state += STEP;
    return mix(draws->state);
}

/* Uniform in [0, n). */
static inline int64_t draw_below(struct draws *draws, int64_t n)
{
    return (int64_t)((unsigned __int128)draw(draws) * (uint64_t)n >> 64);
}

/* Draws a price from 100 to 100 million with a uniform logarithm. */
static int64_t draw_price(struct draws *draws)
{
    double uniform = (double)(draw(draws) >> 11) * 0x1p-53;
    return llround(pow(10.0, uniform * 6.0) * 100.0);
}

/* --- Texts --- */

/* Maps each of 16 bytes to the letter 'a' + byte % 26. With 79 / 2048 for 1 / 26 the quotient is exact. */
static inline __m128i to_letters(__m128i bytes)
{
    const __m128i zero = _mm_setzero_si128(), factor = _mm_set1_epi16(79), letters = _mm_set1_epi16(26);
    __m128i low = _mm_unpacklo_epi8(bytes, zero), high = _mm_unpackhi_epi8(bytes, zero);
    __m128i low_part = _mm_srli_epi16(_mm_mullo_epi16(low, factor), 11);
    __m128i high_part = _mm_srli_epi16(_mm_mullo_epi16(high, factor), 11);
    low = _mm_sub_epi16(low, _mm_mullo_epi16(low_part, letters));
    high = _mm_sub_epi16(high, _mm_mullo_epi16(high_part, letters));
    return _mm_add_epi8(_mm_packus_epi16(low, high), _mm_set1_epi8('a'));
}

/* Writes `length` random letters at `at`, eight per draw, and up to 15 bytes more. Returns their end. */
static char *put_letters(struct draws *draws, char *at, int64_t length)
{
    for (int64_t i = 0; i < length; i += 16) {
        uint64_t first = draw(draws), second = i + 8 < length ? draw(draws) : 0;
        __m128i bytes = _mm_set_epi64x((long long)second, (long long)first);
        _mm_storeu_si128((__m128i *)(at + i), to_letters(bytes));
    }
    return at + length;
}

/* Writes 3 to most - 1 random letters, about one in 13 of which is `special`, but never the last. Returns
 * their end. */
static char *put_name(struct draws *draws, char *at, int64_t most, char special)
{
    int64_t length = 3 + draw_below(draws, most - 3);
    for (int64_t i = 0; i < length;) {
        uint64_t bytes = draw(draws);
        for (int64_t end = MIN(i + 8, length); i < end; i++, bytes >>= 8) {
            unsigned byte = bytes & 0xff;
            at[i] = byte % 13 == 0 ? special : (char)('a' + byte % 26);
        }
    }
    if (at[length - 1] == special)
        at[length - 1] = 'x';
    return at + length;
}

static char *put(char *at, struct str text)
{
    memcpy(at, text.data, text.length);
    return at + text.length;
}

static char *put_number(char *at, int64_t number)
{
    char digits[20], *first = digits + sizeof(digits);
    do {
        *--first = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    return put(at, (struct str){first, (size_t)(digits + sizeof(digits) - first)});
}

static struct str text_between(const char *begin, const char *end)
{
    return (struct str){begin, (size_t)(end - begin)};
}

/* Makes `extra`: random letters that fill up the nominal size, a fifth more or less. */
static struct str make_extra(struct draws *draws, char *at, int64_t used, int64_t bytes)
{
    if (used >= bytes)
        return (struct str){at, 0};
    int64_t rest = bytes - used, spread = llround((double)rest * 0.2);
    int64_t length = rest - spread + (spread > 0 ? draw_below(draws, 2 * spread) : 0);
    return text_between(at, put_letters(draws, at, length));
}

/* --- Ids --- */

static int64_t newest_person(int64_t number)
{
    return number / NEXMARK_GROUP;
}

static int64_t newest_auction(int64_t number)
{
    int64_t group = number / NEXMARK_GROUP, place = number % NEXMARK_GROUP - PERSONS;
    return group * AUCTIONS + (place < 0 ? -1 : MIN(place, AUCTIONS - 1));
}

static int64_t hot(int64_t newest)
{
    return newest / HOT_EVERY * HOT_EVERY;
}

static int64_t draw_person(struct draws *draws, int64_t number)
{
    int64_t persons = newest_person(number) + 1, active = MIN(persons, ACTIVE_PERSONS);
    return persons - active + draw_below(draws, active + AHEAD);
}

static int64_t draw_auction(struct draws *draws, int64_t number)
{
    int64_t newest = newest_auction(number), oldest = MAX(newest - OPEN_AUCTIONS, 0);
    return oldest + draw_below(draws, newest - oldest + 1 + AHEAD);
}

static int64_t time_of(const struct nexmark_options *options, int64_t number)
{
    return START_MS + number * 1000 / options->rate;
}

/* --- Events --- */

#define DRAW_FROM(draws, words) (words)[draw_below(draws, (int64_t)ARRAY_COUNT(words))]

static void make_person(struct draws *draws, const struct nexmark_options *options, int64_t number,
                        struct nexmark_event *event)
{
    static const struct str first_names[] = {STR("Peter"), STR("Paul"),   STR("Luke"),  STR("John"),
                                             STR("Saul"),  STR("Vicky"),  STR("Kate"),  STR("Julie"),
                                             STR("Sarah"), STR("Deiter"), STR("Walter")};
    static const struct str last_names[] = {STR("Shultz"), STR("Abrams"),  STR("Spencer"),
                                            STR("White"),  STR("Bartels"), STR("Walton"),
                                            STR("Smith"),  STR("Jones"),   STR("Noris")};
    static const struct str cities[] = {
        STR("Phoenix"), STR("Los Angeles"), STR("San Francisco"), STR("Boise"), STR("Portland"),
        STR("Bend"),    STR("Redmond"),     STR("Seattle"),       STR("Kent"),  STR("Cheyenne")};
    static const struct str states[] = {STR("AZ"), STR("CA"), STR("ID"), STR("OR"), STR("WA"), STR("WY")};
    char *begin = event->text, *at;
    event->id = FIRST_ID + newest_person(number);
    at = put(begin, DRAW_FROM(draws, first_names));
    *at++ = ' ';
    at = put(at, DRAW_FROM(draws, last_names));
    event->name = text_between(begin, at);
    begin = at;
    at = put_name(draws, at, 7, '_');
    *at++ = '@';
    at = put_name(draws, at, 5, '_');
    at = put(at, STR(".com"));
    event->email = text_between(begin, at);
    begin = at;
    for (int i = 0; i < 4; i++) {
        int64_t four = draw_below(draws, 10000);
        if (i > 0)
            *at++ = ' ';
        for (int64_t unit = 1000; unit > 0; unit /= 10)
            *at++ = (char)('0' + four / unit % 10);
    }
    event->credit_card = text_between(begin, at);
    event->city = DRAW_FROM(draws, cities);
    event->state = DRAW_FROM(draws, states);
    size_t used = 2 * sizeof(int64_t) + (size_t)(at - event->text) + event->city.length + event->state.length;
    event->extra = make_extra(draws, at, (int64_t)used, options->person_bytes);
}

static void make_auction(struct draws *draws, const struct nexmark_options *options, int64_t number,
                         struct nexmark_event *event)
{
    /* Average time until OPEN_AUCTIONS more auctions have come. */
    int64_t open_ms = time_of(options, number + OPEN_AUCTIONS * NEXMARK_GROUP / AUCTIONS) - event->time_ms;
    char *at = event->text;
    event->id = FIRST_ID + newest_auction(number);
    event->initial_bid = draw_price(draws);
    event->seller = FIRST_ID + (draw_below(draws, HOT_SELLER) > 0 ? hot(newest_person(number))
                                                                  : draw_person(draws, number));
    at = put_name(draws, at, 20, ' ');
    event->item_name = text_between(event->text, at);
    at = put_name(draws, at, 100, ' ');
    event->description = text_between(event->text + event->item_name.length, at);
    event->reserve = event->initial_bid + draw_price(draws);
    event->expires_ms = event->time_ms + 1 + draw_below(draws, MAX(2 * open_ms, 1));
    event->category = FIRST_CATEGORY + draw_below(draws, CATEGORIES);
    int64_t used = 7 * (int64_t)sizeof(int64_t) + (at - event->text);
    event->extra = make_extra(draws, at, used, options->auction_bytes);
}

/* Draws a channel. Its URL comes from a sequence of its own: the same in all bids of the channel. */
static char *make_channel(struct draws *draws, const struct nexmark_options *options,
                          struct nexmark_event *event)
{
    static const struct str hot_channels[] = {STR("Google"), STR("Facebook"), STR("Baidu"), STR("Apple")};
    bool is_hot = draw_below(draws, HOT_CHANNEL) > 0;
    uint64_t channel;
    char *at = event->text;
    if (is_hot) {
        event->channel = DRAW_FROM(draws, hot_channels);
        channel = (uint64_t)(unsigned char)event->channel.data[0] + CHANNELS;
    } else {
        channel = (uint64_t)draw_below(draws, CHANNELS);
        at = put_number(put(at, STR("channel-")), (int64_t)channel);
        event->channel = text_between(event->text, at);
    }
    struct draws own = {mix((uint64_t)options->seed ^ URLS) + mix(channel)};
    char *begin = at;
    at = put_name(&own, put(at, STR("https://www.nexmark.com/")), 6, '_');
    at = put_name(&own, put(at, STR("/")), 6, '_');
    at = put_name(&own, put(at, STR("/")), 6, '_');
    at = put(at, STR("/item.htm?query=1"));
    if (!is_hot && draw_below(&own, 10) > 0)
        at = put_number(put(at, STR("&channel_id=")), draw_below(&own, INT64_C(1) << 30));
    event->url = text_between(begin, at);
    return at;
}

static void make_bid(struct draws *draws, const struct nexmark_options *options, int64_t number,
                     struct nexmark_event *event)
{
    event->auction = FIRST_ID + (draw_below(draws, HOT_AUCTION) > 0 ? hot(newest_auction(number))
                                                                    : draw_auction(draws, number));
    event->bidder = FIRST_ID + (draw_below(draws, HOT_BIDDER) > 0 ? hot(newest_person(number)) + 1
                                                                  : draw_person(draws, number));
    event->price = draw_price(draws);
    char *at = make_channel(draws, options, event);
    event->extra = make_extra(draws, at, 4 * (int64_t)sizeof(int64_t), options->bid_bytes);
}

static enum nexmark_type type_of_number(int64_t number)
{
    int64_t place = number % NEXMARK_GROUP;
    return place < PERSONS ? NEXMARK_PERSON : place < PERSONS + AUCTIONS ? NEXMARK_AUCTION : NEXMARK_BID;
}

void nexmark_make(const struct nexmark_options *options, int64_t number, struct nexmark_event *event)
{
    leat_assert(number >= 0 && number < NEXMARK_EVENTS_MAX);
    struct draws draws = {mix((uint64_t)options->seed) ^ mix((uint64_t)number + STEP)};
    event->type = type_of_number(number);
    event->time_ms = time_of(options, number);
    if (event->type == NEXMARK_PERSON)
        make_person(&draws, options, number, event);
    else if (event->type == NEXMARK_AUCTION)
        make_auction(&draws, options, number, event);
    else
        make_bid(&draws, options, number, event);
}
