// What the suites of express-rate-limit 8 and hono-rate-limiter 0.5 ask of a store, written anew as data. Each case runs with the package's own
// store, which shows that the case is right, and with ours in its place. `cannot` says why ours cannot do the same; it must then differ.
//
// What those suites ask only of their own memory store, such as its timers, or of stores that do not keep the contract, has no case here.
//
// A case has the options of one limiter, or of several, and steps in order:
//   { path, key, status, text, json, fields, absent, info }   a request, and what its response has; `info` is by the request's property
//   { tick }                                                  time passes, in milliseconds
//   { reset }                                                 the counts of a key are removed
//   { hits, key }                                             what the middleware tells of a key
// `policyLimit` is the limit of our policy where the package's is a function.

const TEXT = "Hi there!";
const get = (status = 200, more = {}) => ({ path: "/", status, ...(status === 200 && { text: TEXT }), ...more });
const of = (key, status = 200) => get(status, { key });
const failing = (status = 400) => ({ path: "/error", status });
const MINUTE = 60_000;
const PK = "pk=:MmMyNmI0NmI2OGZm:";
/** A draft of express-rate-limit alone, for the key that its partition key is made of. */
const draft8 = (more) => ({ standardHeaders: "draft-8", legacyHeaders: false, key: "foo", ...more });

/** Cases of requests. Without `only`, of both packages. */
export const REQUESTS = [
  { name: "the first request passes", options: { limit: 1 }, steps: [get()] },
  { name: "requests beyond the limit are refused", options: { limit: 2 }, steps: [get(), get(), get(429)] },
  { name: "a refused client is admitted in the next window", options: { limit: 2, windowMs: 50 }, steps: [get(), get(), get(429), { tick: 60 }, get()] },
  {
    name: "windows repeat",
    options: { limit: 2, windowMs: 50 },
    steps: [get(), get(), get(429), { tick: 60 }, get(), get(), get(429), { tick: 60 }, get()],
  },
  { name: "a limit of 0 refuses all", options: { limit: 0 }, steps: [get(429)], cannot: "a policy admits something: to refuse all, refuse in the route" },
  { name: "a message of one's own", options: { limit: 1, message: "Enhance your calm" }, steps: [get(), get(429, { text: "Enhance your calm" })] },
  { name: "a status of one's own", options: { limit: 1, statusCode: 420 }, steps: [get(), get(420)] },
  {
    name: "a message in JSON",
    options: { limit: 1, message: { error: { code: "too-many-requests" } } },
    steps: [get(), get(429, { json: { error: { code: "too-many-requests" } } })],
  },
  { name: "a message by a function", options: { limit: 1, message: () => "Too many." }, steps: [get(), get(429, { text: "Too many." })] },
  { name: "a promised message", options: { limit: 1, message: async () => "Too many." }, steps: [get(), get(429, { text: "Too many." })] },
  { name: "a handler of one's own", options: { limit: 1, answers: [420, "Enhance your calm"] }, steps: [get(), get(420, { text: "Enhance your calm" })] },
  { name: "each key has its count", options: { limit: 2 }, steps: [of(1), of(1), of(2), of(1, 429), of(2), of(2, 429)] },
  { name: "skipped requests are not counted", options: { limit: 2, skip: () => true }, steps: [get(), get(), get()] },
  { name: "a promise to skip", options: { limit: 2, skip: async () => true }, steps: [get(), get(), get()] },
  { name: "a limit by a function", options: { limit: () => 2, policyLimit: 2 }, steps: [get(), get(), get(429)] },
  { name: "a promised limit", options: { limit: async () => 2, policyLimit: 2 }, steps: [get(), get(), get(429)] },
  {
    name: "a function may raise the limit of a client",
    options: { limit: () => 3, policyLimit: 2 },
    steps: [get(), get(), get()],
    cannot: "the policy decides: a function of the middleware can only lower its limit",
  },
  {
    name: "the fields of express-rate-limit",
    only: "express-rate-limit",
    options: { limit: async () => 2, policyLimit: 2 },
    steps: [get(200, { fields: { "x-ratelimit-limit": "2", "x-ratelimit-remaining": "1" }, absent: ["retry-after"] })],
  },
  {
    name: "the time of the reset in the fields of express-rate-limit",
    only: "express-rate-limit",
    options: {},
    steps: [get(200, { fields: { "x-ratelimit-limit": "5", "x-ratelimit-remaining": "4", "x-ratelimit-reset": "1800057660" } })],
  },
  {
    name: "the fields of draft 6",
    options: { standardHeaders: "draft-6" },
    steps: [get(200, { fields: { "ratelimit-policy": "5;w=60", "ratelimit-limit": "5", "ratelimit-remaining": "4", "ratelimit-reset": "60" }, absent: ["retry-after"] })],
  },
  {
    name: "the fields of draft 7",
    options: { standardHeaders: "draft-7" },
    steps: [get(200, { fields: { "ratelimit-policy": "5;w=60", ratelimit: "limit=5, remaining=4, reset=60" } })],
  },
  {
    name: "the fields of draft 8",
    only: "express-rate-limit",
    options: draft8({ windowMs: 120 * MINUTE }),
    steps: [get(200, { fields: { "ratelimit-policy": `"5-in-2hrs"; q=5; w=7200; ${PK}`, ratelimit: '"5-in-2hrs"; r=4; t=7200' } })],
  },
  {
    name: "a quota with a name",
    only: "express-rate-limit",
    options: draft8({ windowMs: 120 * MINUTE, identifier: "calm" }),
    steps: [get(200, { fields: { "ratelimit-policy": `"calm"; q=5; w=7200; ${PK}`, ratelimit: '"calm"; r=4; t=7200' } })],
  },
  {
    name: "the fields of several limiters",
    only: "express-rate-limit",
    options: [
      draft8({ windowMs: 5_000, limit: 1 }),
      draft8({ windowMs: 60 * MINUTE, limit: 6, requestPropertyName: "hourly" }),
      draft8({ windowMs: 2_880 * MINUTE, limit: 8, requestPropertyName: "daily" }),
    ],
    steps: [
      get(200, {
        fields: {
          "ratelimit-policy": [`"1-in-5sec"; q=1; w=5; ${PK}`, `"6-in-1hr"; q=6; w=3600; ${PK}`, `"8-in-2days"; q=8; w=172800; ${PK}`].join(", "),
          ratelimit: ['"1-in-5sec"; r=0; t=5', '"6-in-1hr"; r=5; t=3600', '"8-in-2days"; r=7; t=172800'].join(", "),
        },
      }),
    ],
  },
  { name: "a refusal says when to return", options: { limit: 1 }, steps: [get(), get(429, { fields: { "retry-after": "60" } })] },
  {
    name: "without fields, a refusal does not say when to return",
    options: { limit: 1, legacyHeaders: false, standardHeaders: false },
    steps: [get(), get(429, { absent: ["retry-after", "ratelimit", "ratelimit-policy"] })],
  },
  {
    name: "a draft that is none has no fields",
    only: "express-rate-limit",
    options: { standardHeaders: "draft-0" },
    steps: [get(200, { absent: ["ratelimit", "ratelimit-policy"] })],
  },
  {
    name: "a window begins with the first request",
    options: { limit: 1 },
    steps: [{ tick: 30_000 }, get(), { tick: 40_000 }, get(429, { fields: { "retry-after": "20" } })],
    cannot: "windows begin at multiples of their length, so that all processes agree on them; a sliding window has no such edge",
  },
  {
    name: "the request has the counts",
    options: { limit: 6 },
    steps: [get(200, { info: { rateLimit: { limit: 6, used: 1, remaining: 5 } } }), get(200, { info: { rateLimit: { limit: 6, used: 2, remaining: 4 } } })],
  },
  {
    name: "the request has the counts under another name",
    options: { requestPropertyName: "calm" },
    steps: [get(200, { info: { calm: { limit: 5, used: 1, remaining: 4 } } }), get(200, { info: { calm: { limit: 5, used: 2, remaining: 3 } } })],
  },
  {
    name: "two limiters count on their own",
    options: [
      { limit: 2, requestPropertyName: "one", answers: [420, "one"] },
      { limit: 5, requestPropertyName: "all", key: "global", answers: [429, "all"] },
    ],
    steps: [
      get(200, { key: 1, info: { one: { limit: 2, remaining: 1 }, all: { limit: 5, remaining: 4 } } }),
      get(200, { key: 2, info: { one: { remaining: 1 }, all: { remaining: 3 } } }),
      get(200, { key: 1, info: { one: { remaining: 0 }, all: { remaining: 2 } } }),
      get(200, { key: 2, info: { one: { remaining: 0 }, all: { remaining: 1 } } }),
      get(420, { key: 1, text: "one" }),
      of(3),
      get(429, { key: 3, text: "all" }),
    ],
  },
  { name: "requests that succeed are refunded", options: { limit: 1, skipSuccessfulRequests: true }, steps: [get(), get(), get(), { hits: 0 }] },
  { name: "requests that fail are not refunded as successful", options: { limit: 2, skipSuccessfulRequests: true }, steps: [failing(), failing(), failing(429)] },
  { name: "requests that fail are refunded", options: { limit: 1, skipFailedRequests: true }, steps: [failing(), failing(), failing(), get(), get(429)] },
  { name: "requests that succeed are not refunded as failed", options: { limit: 2, skipFailedRequests: true }, steps: [get(), get(), get(429)] },
  {
    name: "what succeeds is the application's choice",
    options: { limit: 1, skipSuccessfulRequests: true, succeeds: (status) => status === 400 },
    steps: [failing(), failing(), get(), get(429)],
  },
  {
    name: "what succeeds is promised",
    options: { limit: 1, skipFailedRequests: true, succeeds: async (status) => status === 400 },
    steps: [get(), get(), failing(), failing(429)],
  },
  { name: "a request whose handler throws is refunded", options: { limit: 1, skipFailedRequests: true }, steps: [{ path: "/crash", status: 500 }, { path: "/crash", status: 500 }, get(), get(429)] },
  // hono-rate-limiter asks whether the request succeeds before it is refused.
  { name: "a refused request is not refunded beyond the limit", only: "express-rate-limit", options: { limit: 2, skipFailedRequests: true }, steps: [get(), get(), get(429), get(429), { hits: 2 }] },
  {
    name: "a request that ends in the next window returns nothing to it",
    options: { limit: 2, windowMs: 50, skipSuccessfulRequests: true },
    steps: [{ path: "/slow", status: 200 }, failing(), failing(), failing(429)],
  },
  { name: "a refused request is charged", options: { limit: 1 }, steps: [get(), get(429), get(429), { hits: 3 }], cannot: "a denied request is not charged" },
  { name: "the counts of a key are removed", options: { limit: 1 }, steps: [of(1), of(2), of(1, 429), { reset: "1" }, of(1), of(2, 429)] },
  { name: "the hits of a key are told", options: {}, steps: [{ hits: undefined }, get(), get(), { hits: 2 }, { hits: undefined, key: "1" }] },
];

/** Cases of a store by itself, with the limit 5 and a window of a minute: the method, the key, and the hits that it tells. */
export const STORES = [
  { name: "a key that was counted has hits and a time", steps: [["increment", "one"], ["get", "one", 1]] },
  { name: "the first hit is 1", steps: [["increment", "one", 1]] },
  { name: "hits add up", steps: [["increment", "one", 1], ["increment", "one", 2]] },
  { name: "a hit is taken back", steps: [["increment", "one"], ["increment", "one"], ["decrement", "one"], ["increment", "one", 2]] },
  { name: "there are never less than 0 hits", steps: [["increment", "one"], ["decrement", "one"], ["decrement", "one"], ["get", "one", 0]] },
  {
    name: "two hits are taken back",
    steps: [["increment", "one"], ["increment", "one"], ["increment", "one"], ["decrement", "one"], ["decrement", "one"], ["get", "one", 1]],
    cannot: "a request is refunded once, so the second takes nothing from the charge of another request",
  },
  { name: "the hits of a key are removed", steps: [["increment", "one"], ["resetKey", "one"], ["get", "one", undefined], ["increment", "one", 1]] },
  { name: "all hits are removed", steps: [["increment", "one"], ["increment", "two"], ["resetAll"], ["increment", "one", 1], ["increment", "two", 1]] },
  { name: "the hits end with the window", steps: [["increment", "one"], ["increment", "two"], ["tick", 60_010], ["increment", "one", 1], ["increment", "two", 1]] },
  {
    name: "keys of several windows are kept apart",
    steps: [["increment", "one"], ["tick", 60_000], ["increment", "one"], ["increment", "two"], ["tick", 60_000], ["increment", "one"], ["increment", "one"], ["increment", "one", 3], ["increment", "three", 1], ["increment", "one", 4]],
  },
];
