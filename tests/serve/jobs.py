"""Jobs that serve: every step that can stand on a request's way, and every learner kind."""

from stream import CLICKS, RATINGS, SCHEMA

HEAD = f"""param data: text
param out: text
param state: text

job parity {{ workers: 1, memory: 128MiB, checkpoint: {{ every: 1h, dir: state }} }}

source events = file {{ path: concat(data, "/events.jsonl"), {SCHEMA}, event_time: ts, max_delay: 5s }}
source clicks = file {{ path: concat(data, "/clicks.jsonl"), {CLICKS}, event_time: ts, max_delay: 5s }}
source ratings = file {{ path: concat(data, "/ratings.jsonl"), {RATINGS}, event_time: ts, max_delay: 5s }}
"""

STEPS = """
stream features =
    events
  | where price is null or price < 29.0
  | dedup by id within 1h
  | sample 0.9 by item
  | feature by user over [10m, 1h] every 1m {
      n: count(), spent: sum(price), items: distinct(item), middle: quantile(price, 0.5), top: top(item, 3)
    }
  | feature by item over [30m, forever] every 1m { seen: count(), mean: mean(price), dear: max(price) }
  | feature from clicks by item over [10m] every 1m { clicks: count(), last: last(user) }
  | feature by user over [20m, forever] every 1m including self { mine: count(), all: sum(price) }
  | feature by item over [20m, forever] every 1m including self { who: distinct(user) }
  | enrich from ratings on item within 2h { stars: stars }
  | lookup "TABLE" on item { cat: text }
  | with rate = (clicks + 1.0) / (seen_30m + 10.0), pair = hash(item), share = 100 / n_10m
  | split where rate < 0.9
  | route { most: price is null or price < 25.0, dear: true }
"""

FEATURES = HEAD + STEPS + """
stream tidy =
    features.most
  | cast n_1h = float
  | bucketize price at [1.0, 5.0, 20.0] as band
  | cross user, item as both
  | hash item into 100 as spot
  | clean { price: clamp(0, 9) }
  | rename mean_price = mean_30m
  | drop tags
serve steps { from: tidy, request: events, deadline: 1m }
sink all = file from tidy { path: out, overwrite: true }
"""

LEARNERS = {
    "linear": "label: clicked, sparse: [user, item, cross(user, item), tags], dense: [price, n]",
    "linear-ftrl": "label: clicked, sparse: [user, item], dense: [price], optimizer: ftrl {}, keep_negatives: 0.4",
    "fm": "label: clicked, sparse: [user, item, tags], dense: [price, n], embedding: { dim: 4, admit_after: 3 }, score: examples",
    "ffm": "label: clicked, sparse: [user, item], dense: [price], embedding: { dim: 4, expire_after: 20m }",
    "mf": "label: coalesce(price, 1.0), user: user, item: item",
    "deepfm": "label: clicked, sparse: [user, item, tags], dense: [price, n], hidden: [16, 8], "
              "embedding: { dim: 8, rows_max: 300 }",
    "deepfm-batch": "label: clicked, sparse: [user, item, tags], dense: [price, n], hidden: [16, 8], batch: 64, "
                    "embedding: { dim: 8, admit_after: 2 }",
    "dcnv2": "label: clicked, sparse: [user, item], dense: [price, n], hidden: [16], embedding: { dim: 8 }, batch: 64",
    "dlrm": "label: clicked, sparse: [user, item], dense: [price, n], bottom: [8], hidden: [16], "
            "embedding: { dim: 8 }, batch: 64",
    "afm": "label: clicked, sparse: [user, item], dense: [price, n], embedding: { dim: 8 }, batch: 64",
    "linear-frozen": "label: clicked, sparse: [user, item], dense: [price], window: 100, "
                     "ids: { admit_after: 2, expire_after: 30m }, freeze: { label_mean_max: 0.01, after: 0 }",
    "fm-weighted": "label: clicked, sparse: [user, item], dense: [price], embedding: { dim: 4, admit_after: 2 }, "
                   "positive_weight: 3.0, negative_weight: 0.5, keep_negatives: 0.5, weight: price",
    "mmoe": "labels: [clicked, liked], sparse: [user, item], dense: [price, n], hidden: [8], experts: 2, towers: [4], "
            "embedding: { dim: 8 }, batch: 64",
}


def learner(name):
    """A job that learns from the labels in the events, with a feature before the model and steps behind it."""
    kind = name.split("-")[0]
    score = "prediction_clicked" if kind == "mmoe" else "prediction"
    return HEAD + f"""
stream examples = events | where user >= 0 | feature by user over 1h every 1m {{ n: count() }}
learner model = {kind} from examples {{ {LEARNERS[name]} }}
stream scores = model.predictions | with odds = {score} / (1.0 - {score}) | drop tags
serve scores {{ from: scores, request: events, deadline: 1m }}
sink all = file from scores {{ path: out, overwrite: true }}
"""


# Learners that choose items. Requests have no rank.
NEXT_ITEMS = {
    "sasrec": "with: [liked], learn: clicked = 1 or liked = 1, batch: 24, rehearse: 1, loss: sampled_softmax { negatives: 12 }, "
              "score: asked",
    "hstu": "context: [liked], batch: 16, loss: bpr { negatives: 4 }, layers: 1, also: masked { share: 0.3 }, unlabelled: others",
    "sasrec-expiring": "batch: 16, loss: softmax {}, layers: 1",
}


def next_item(name):
    """A job that learns users' next items, with a step before the model and one behind it."""
    expire = ", expire_after: 10m" if name.endswith("-expiring") else ""
    return HEAD + f"""
stream examples = events | where price is null or price < 29.0 | drop tags
stream asked = ratings | with user = stars | select ts, user
stream others = ratings | with user = stars | select ts, user, item
learner model = {name.split("-")[0]} from examples {{
  by: user, item: item, top: 7, history: 12, embedding: {{ dim: 16{expire} }}, {NEXT_ITEMS[name]}
}}
stream lists = model.top | with n = len(top)
serve lists {{ from: lists, request: events, deadline: 1m }}
sink all = file from lists {{ path: out, overwrite: true }}
"""


OPTIMIZERS = ("sgd", "momentum", "adagrad", "adagrad_row", "adagrad_block", "adam", "ftrl", "newton")


def every_learner():
    """A job in which all learners learn from the same examples, also with each optimizer of ids' weights and vectors; and the
    names of its serves, one for each."""
    learners = {name.replace("-", "_"): (name.split("-")[0], options) for name, options in LEARNERS.items()}
    inputs = "label: clicked, sparse: [user, item], dense: [price, n], "
    for name in OPTIMIZERS:
        learners[f"linear_of_{name}"] = "linear", f"{inputs} optimizer: {name} {{}}"
        learners[f"ffm_of_{name}"] = "ffm", f"{inputs} linear: {name} {{}}, embedding: {{ dim: 4, optimizer: {name} {{}} }}"
    text = HEAD.replace("128MiB", "1GiB") + "stream examples = events | where user >= 0 | feature by user over 1h every 1m { n: count() }\n"
    for name, (kind, options) in learners.items():
        text += f"""learner {name} = {kind} from examples {{ {options} }}
serve of_{name} {{ from: {name}.predictions, request: events, deadline: 1m }}
"""
    return text + "sink all = null from linear.predictions {}\n", [f"of_{name}" for name in learners]


# A label join between features and model.
LABELLED = HEAD + """
stream features =
    events
  | dedup by id within 1h
  | feature by user over [10m, 1h] every 1m { n: count(), items: distinct(item) }
  | feature from clicks by item over [30m] every 1m { clicks: count() }
stream examples = features | attribute clicks on id within 5m as answered { answered_at: ts } | drop tags
learner model = deepfm from examples {
  label: answered, sparse: [user, item, cross(user, item)], dense: [price, n_1h, log1p(clicks)], hidden: [16, 8]
  embedding: { dim: 8, admit_after: 3, expire_after: 40m }, keep_negatives: 0.6, hidden_batch: 4
}
stream scores = model.predictions | with rate = prediction / (prediction + 0.6 * (1.0 - prediction))
serve scores { from: scores, request: events, deadline: 1m }
sink all = file from scores { path: out, overwrite: true }
"""

# Retrieve, features, rank, in one request.
FUNNEL = HEAD + """
stream catalogue = ratings | with _op = case when stars = 1 then "delete" else "insert" end
stream examples = events
  | where price is null or price < 29.0
  | feature from clicks by user over 1h every 1m { recent: collect(item, 5), n: count() }
stream requests = examples | select id, ts, user, recent, n
learner found = two_tower from examples {
  query: [user, recent], item: item, items: catalogue, item_features: [stars], score: requests, top: 20
  batch: 24, towers: [8], embedding: { dim: 8 }
}
stream candidates = found.scores | unnest top | feature from examples by user over 1h every 1m { m: count() }
stream shown = examples | feature by user over 1h every 1m { m: count() } | with score = 0.0
learner ranker = fm from shown {
  label: clicked, sparse: [user, item], dense: [score, log1p(n), log1p(m)], embedding: { dim: 4 }, score: candidates
}
stream lists = ranker.scores | select id, ts, item, prediction | nest item, prediction as best order desc(prediction) first 7
serve lists { from: lists, request: events, deadline: 1m }
sink all = file from lists { path: out, overwrite: true }
"""
