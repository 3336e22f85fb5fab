// The parts of a `RateLimiter`: a bundler leaves out those that an application does not name.

export { type AddressOptions, clientAddress, type Sender } from "./client_address.js";
export type { DecidingKind, LoadedPolicy, LoadedQuota, QuotaKind } from "./loaded_policy.js";
export { block, concurrency, fixedWindow, leakyBucket, penalty, type QuotaOptions, slidingLog, slidingWindow, tokenBucket } from "./quotas.js";
